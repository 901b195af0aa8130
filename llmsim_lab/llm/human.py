"""A person in a model's place: a request waits until it is answered, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, get_args
from zlib import crc32

from pydantic import BaseModel

from llmsim_lab._util.checks import real_number
from llmsim_lab._util.frozen import SetOnce
from llmsim_lab._util.jsontext import JSON, Schema, dumps
from llmsim_lab._util.text import brief, log_event
from llmsim_lab._util.waiting import Listeners, called_in_thread
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._scripted import reply_of
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.extract import InvalidReply
from llmsim_lab.llm.fields import ambiguities, field_fault, field_of, typed_value
from llmsim_lab.llm.scope import caller, scope
from llmsim_lab.types import (
    HUMAN,
    CallSite,
    ChatBackend,
    ChatReply,
    ChatRequest,
    ModelInfo,
    Reply,
)

logger = logging.getLogger(__name__)

_LOOK_S = 0.01
DAY_S = 86_400.0
"""How long a person is waited for where nothing else is said."""
_MARGIN_S = 3_600.0
"""How much longer a client waits: the person's own limit comes first, and has its own words."""
_AT_ONCE = 10_000
"""How many questions one person may be asked at once, as where one answers for all players."""

StandIn = Literal["", "random", "rule", "model"]
"""Who answers for a person who does not: nobody, chance, the world's rule, the run's model."""

Answered: TypeAlias = Mapping[str, object] | BaseModel | str
"""An answer: its fields as a mapping or model, or the reply's text."""


class AnswerError(ConfigError):
    """An answer of a person that is wrong and was not sent.

    Attributes:
        by_field: what is wrong, by field; under an empty name what is wrong with the whole.
    """

    def __init__(
        self,
        name: str,
        by_field: Mapping[str, str],
    ) -> None:
        faults = "; ".join(f"{field} {fault}".strip() for field, fault in by_field.items())
        super().__init__(f"the answer of {name} was not sent: {faults}")
        self.by_field = dict(by_field)


@dataclass(eq=False)
class OpenQuestion:
    """A request that waits for a person's answer.

    Attributes:
        request: what a model would be sent.
        judge: reads an answer as the reply that is asked for; raises what is wrong with it.
        for_people: what the world wrote for people in place of the prompt; may be empty.
        answerer: in whose seat it is answered, where the world asks; else empty.
        asked_at: when it was asked, seconds since 1970.
        agent: who is asked; empty where the request does not say.
        component: as what it is asked, as in ``Answer``; empty where the request does not say.
        turn: the turn being played; 0 where the request does not say.
    """

    request: ChatRequest
    judge: Callable[[ChatReply], object] | None = None
    for_people: str = ""
    answerer: str = ""
    asked_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        site = self.request.site or CallSite(component="")
        self.agent = site.agent or ""
        self.component = site.component
        self.turn = site.turn or 0

    @property
    def name(self) -> str:
        """Whose answer is waited for, for messages."""
        return self.agent or self.component

    @property
    def text(self) -> str:
        """What a person is shown: what the world wrote for people, or else the prompt."""
        return self.for_people or self.request.prompt

    @property
    def draft(self) -> str:
        """What the question is called before its turn, in it, and when it comes again."""
        return f"{self.turn} {self.agent} {self.component}"

    @property
    def number(self) -> str:
        """The same for another question of the turn, or for a second try, is another number.

        It follows from what is asked, so that it is the same after a restart.
        """
        question = dumps([self.request.prompt, self.request.schema])
        return f"{self.draft} {crc32(question.encode()):08x}"

    @property
    def complaint(self) -> str:
        """What was wrong with the first answer; empty if this asks for the first one."""
        complaint = self.request.complaint
        return f"{complaint}." if complaint else ""

    @property
    def fields(self) -> Mapping[str, Schema]:
        """The answer's fields by name, each with its part of the schema; none for free text.

        People may leave out their reasoning and their confidence.
        """
        root = self.request.schema or {}
        fields: dict[str, Schema] = {}
        for name, part in root.get("properties", {}).items():
            fields[name] = field_of(part, root)
            if name in Reply.model_fields:
                fields[name] = {**fields[name], "optional": True}
        return fields

    def value(self, name: str, typed: str) -> JSON:
        """Return what was typed for a field as a value of its type; the text if it is not one."""
        return typed_value(typed.strip(), self.fields.get(name, {}))

    def reply(self, answer: object) -> ChatReply:
        """Return an answer as a reply.

        Raises:
            ConfigError: it is of a wrong type, or has a text such as ``1,000`` for a number.
        """
        reply = reply_of(answer)
        values: JSON = None
        with suppress(ValueError, RecursionError):
            values = json.loads(reply.text)
        root = self.request.schema or {}
        ambiguous = dict(ambiguities(values, root, root))
        if ambiguous:
            raise AnswerError(self.name, ambiguous)
        return reply

    def faults(self, values: Mapping[str, JSON]) -> dict[str, str]:
        """Return what is wrong with an answer, by field; empty where nothing is.

        It is judged by its form, and then as the reply that is asked for, with all that its class
        checks; under an empty name stands what is wrong with the answer as a whole.
        """
        faults: dict[str, str] = {}
        for name, part in self.fields.items():
            fault = field_fault(values.get(name), part)
            if fault:
                faults[name] = fault
        for name in values.keys() - self.fields.keys():
            faults[name] = "there is no such field"
        if faults:
            return faults
        return self.faults_of_reply(self.reply(dict(values)))

    def faults_of_reply(self, reply: ChatReply) -> dict[str, str]:
        """Return what is wrong with a reply, as the one who asks for it judges it."""
        if self.judge is None:
            return {}
        try:
            self.judge(reply)
        except InvalidReply as error:
            return dict(error.by_field)
        return {}


# --- the person -----------------------------------------------------------------------------------

AskPerson = Callable[[OpenQuestion], Answered | Awaitable[Answered]]
"""Returns the answer to a question, or something to await that gives it."""
_Waiting: TypeAlias = "Future[Answered | ChatReply | Awaitable[Answered]]"
"""What an answer will come by."""


class Person(SetOnce, ChatBackend):
    """Answers requests with what a person says.

    Each request becomes an ``OpenQuestion`` and waits. ``answer`` may be called from any thread,
    with or without an event loop. Cancelling the request removes the question.

    Args:
        ask: puts the question to the person and returns the answer, or something awaitable, such as
            an async function's coroutine; it is called in a thread of its own, so it may wait.
            Without one, call ``answer``.
        timeout_s: how long each answer is waited for, seconds; a day if not given.
        stand_in: who answers for the person after that: ``random``, ``rule`` or ``model``, with the
            status ``fallback``. ``Person(stand_in="random")`` is the word ``person, else random``
            with a time limit of one's own. Without one the question's ``fallback`` does, or the
            turn fails.

    Raises:
        ConfigError: ``ask`` cannot be called, or nobody of the name can stand in.
    """

    is_model = False  # nothing is sampled, and a form is shown in any case

    set_once = ("stand_in",)

    def __init__(
        self,
        ask: AskPerson | None = None,
        *,
        timeout_s: float = DAY_S,
        stand_in: StandIn = "",
    ) -> None:
        if ask is not None and not callable(ask):
            raise ConfigError(
                f"Person(ask={brief(ask)}) cannot be called; give a function of the question, "
                "Person(ask=lambda question: {'amount': 3, ...})"
            )
        if not isinstance(stand_in, str) or stand_in not in get_args(StandIn):
            raise ConfigError(
                f"Person(stand_in={brief(stand_in, 40)}) must be one of "
                f"{', '.join(filter(None, get_args(StandIn)))}"
            )
        self.ask = ask
        self.timeout_s = timeout_s
        self.stand_in: StandIn = stand_in
        # Each use of these is a single step, so that threads need no lock.
        self._asked: dict[OpenQuestion, _Waiting] = {}
        self._listeners = Listeners()
        self._hinted = False

    @property
    def timeout_s(self) -> float:
        """How long each answer is waited for, seconds; it may be set between two turns."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, timeout_s: float) -> None:
        self._timeout_s = real_number("Person.timeout_s", timeout_s, least=0)

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """What waits for an answer, oldest first."""
        # Copied in one step: another thread may answer meanwhile.
        entries = tuple(self._asked.items())
        return tuple([question for question, waiting in entries if not waiting.done()])

    @property
    def has_listeners(self) -> bool:
        """Whether something, such as a window, shows the questions as they come."""
        return bool(self._listeners)

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Register a callback for whenever a question comes or goes; return what removes it.

        It is called in whichever thread it happens, and must be quick.
        """
        return self._listeners.add(callback)

    async def asked(self) -> OpenQuestion:
        """Wait until there is a question, and return the oldest."""
        while True:
            questions = self.questions
            if questions:
                return questions[0]
            await asyncio.sleep(_LOOK_S)  # and no event: it may come from any thread

    def answer(self, question: OpenQuestion, answer: Answered) -> None:
        """Answer one of ``questions`` with its fields or the reply's text, from any thread.

        Raises:
            AnswerError: the answer is wrong; the question waits on.
            ConfigError: this answer is no longer waited for, or it is of a wrong type.
        """
        # Judged before it is sent: a person who is told at once can repair it.
        reply = question.reply(answer)
        faults = question.faults_of_reply(reply)
        if faults:
            raise AnswerError(question.name, faults)
        try:
            self._asked[question].set_result(reply)
        except (KeyError, InvalidStateError):
            raise _closed(question) from None
        self._listeners()

    def give_up(self, question: OpenQuestion, reason: str) -> None:
        """End one of ``questions`` at once as if its time were over; from any thread.

        Args:
            question: which one.
            reason: why, in words: ``Ann has left``.

        Raises:
            ConfigError: this answer is no longer waited for.
        """
        try:
            self._asked[question].set_exception(BackendError(reason, reason="timeout"))
        except (KeyError, InvalidStateError):
            raise _closed(question) from None
        self._listeners()

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Wait for a person's answer to one request."""
        question = OpenQuestion(
            request,
            scope().judge,
            scope().for_people,
            scope().answerer,
        )
        waiting: _Waiting = Future()
        self._asked[question] = waiting
        self._listeners()
        try:
            if self.ask is not None:
                # In a thread, since it may wait. A daemon, since a person who never answers must
                # not keep the process from ending.
                threading.Thread(
                    target=_ask_by_function,
                    args=(self.ask, question, waiting),
                    daemon=True,
                ).start()
            elif not (self._listeners or self._hinted):
                # Once a person: a run that waits without a word looks as if it hung.
                self._hinted = True
                words = (
                    f"{caller(request.site)}, asked in turn {question.turn}, is a person, who can "
                    "answer: in a notebook HumanSeat(simulation); in a script Person(ask=...); "
                    "from other code person.answer(...)"
                )
                log_event(
                    logger,
                    logging.WARNING,
                    "WAITING_FOR_A_PERSON",
                    words=words,
                    agent=question.agent,
                    turn=question.turn,
                    why=words,
                )
            async with asyncio.timeout(self.timeout_s) as limit:
                answer = await asyncio.wrap_future(waiting)
                if inspect.isawaitable(answer):
                    answer = await answer
            return question.reply(answer)
        except TimeoutError:
            if not limit.expired():  # what asks raised it
                raise
            raise BackendError(
                f"{question.name} did not answer within {self.timeout_s:g} s",
                reason="timeout",
            ) from None
        finally:
            # In any case, so that no window shows a question that nothing waits for.
            waiting.cancel()
            _close_unawaited(waiting)
            del self._asked[question]
            self._listeners()

    async def model_info(self) -> ModelInfo:
        """Return that a person answers."""
        return ModelInfo(name=HUMAN, backend="human")


def _closed(question: OpenQuestion) -> ConfigError:
    return ConfigError(
        f"the question to {question.name} of turn {question.turn} is closed: it was answered, or "
        "the turn was stopped"
    )


def _close_unawaited(waiting: _Waiting) -> None:
    """Close what a function returned to be awaited, where the time was over before that."""
    if waiting.cancelled() or waiting.exception() is not None:
        return
    answer = waiting.result()
    if inspect.iscoroutine(answer):
        answer.close()  # does nothing to one that has ended


def _ask_by_function(
    ask: AskPerson,
    question: OpenQuestion,
    waiting: _Waiting,
) -> None:
    """Ask by calling a function; what it raises is raised where the answer is awaited."""
    answer: object = None
    try:
        answer = called_in_thread(partial(ask, question))
        waiting.set_result(answer)
    except InvalidStateError:  # the turn was stopped meanwhile
        if inspect.iscoroutine(answer):
            answer.close()  # else Python warns that nothing awaited it
    except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
        with suppress(InvalidStateError):
            waiting.set_exception(error)


def human_client(person: Person) -> LLMClient:
    """Return a client whose model is a person; its calls are recorded as those of ``human``."""
    config = LLMConfig(
        model=HUMAN,
        timeout_s=person.timeout_s + _MARGIN_S,
        retry_wait_s=0,
        num_ctx=1_000_000,  # a person has no window that a prompt could be too long for
        max_text_chars=2_000,
        max_concurrency=_AT_ONCE,
    )
    return LLMClient(config, person)
