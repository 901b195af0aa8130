"""A person in a model's place: a request waits until it is answered, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import BaseModel

from llmsim_lab._util.jsontext import JSON, Schema
from llmsim_lab._util.text import log_event
from llmsim_lab._util.waiting import Listeners
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._scripted import reply_of
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.fields import ambiguities, field_fault, field_of, typed_value
from llmsim_lab.llm.scope import caller
from llmsim_lab.types import CallSite, ChatBackend, ChatReply, ChatRequest, ModelInfo

logger = logging.getLogger(__name__)

_LOOK_S = 0.01
DAY_S = 86_400.0
"""How long a person is waited for where nothing else is said."""

Answered: TypeAlias = Mapping[str, object] | BaseModel | str
"""An answer: its fields as a mapping or model, or the reply's text."""


@dataclass(eq=False)
class OpenQuestion:
    """A request that waits for a person's answer.

    Attributes:
        request: what a model would be sent.
        agent: who is asked; empty where the request does not say.
        component: as what it is asked, as in ``Answer``; empty where the request does not say.
        turn: the turn being played; 0 where the request does not say.
    """

    request: ChatRequest

    def __post_init__(self) -> None:
        site = self.request.site or CallSite(component="")
        self.agent = site.agent or ""
        self.component = site.component
        self.turn = site.turn or 0

    @property
    def complaint(self) -> str:
        """What was wrong with the first answer; empty if this asks for the first one."""
        complaint = self.request.complaint
        return f"{complaint}." if complaint else ""

    @property
    def fields(self) -> Mapping[str, Schema]:
        """The answer's fields by name, each with its part of the schema; none for free text."""
        root = self.request.schema or {}
        return {name: field_of(part, root) for name, part in root.get("properties", {}).items()}

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
        with suppress(ValueError):
            values = json.loads(reply.text)
        root = self.request.schema or {}
        for place, ambiguity in ambiguities(values, root, root):
            raise ConfigError(
                f"the answer of {self.agent or self.component} was not sent: {place} {ambiguity}"
            )
        return reply

    def faults(self, values: Mapping[str, JSON]) -> dict[str, str]:
        """Return what is wrong with an answer's form, by field; empty where nothing is."""
        faults: dict[str, str] = {}
        for name, field in self.fields.items():
            fault = field_fault(values.get(name), field)
            if fault:
                faults[name] = fault
        for name in values.keys() - self.fields.keys():
            faults[name] = "there is no such field"
        return faults


# --- the person -----------------------------------------------------------------------------------

AskPerson = Callable[[OpenQuestion], Answered | Awaitable[Answered]]
"""Returns the answer to a question, or something to await that gives it."""
_Waiting: TypeAlias = "Future[Answered | ChatReply | Awaitable[Answered]]"
"""What an answer will come by."""


class Person(ChatBackend):
    """Answers requests with what a person says.

    Each request becomes an ``OpenQuestion`` and waits. ``answer`` may be called from any thread,
    with or without an event loop. Cancelling the request removes the question.

    Args:
        ask: puts the question to the person and returns the answer, or something awaitable, such as
            an async function's coroutine; it is called in a thread of its own, so it may wait.
            Without one, call ``answer``.
        timeout_s: how long each answer is waited for, seconds; a day if not given.

    Raises:
        ConfigError: ``ask`` cannot be called.
    """

    is_model = False  # nothing is sampled, and a form is shown in any case

    def __init__(self, ask: AskPerson | None = None, *, timeout_s: float = DAY_S) -> None:
        if ask is not None and not callable(ask):
            raise ConfigError(
                f"Person(ask={ask!r:.60}) cannot be called; give a function of the question, "
                "Person(ask=lambda question: {'amount': 3, ...})"
            )
        self.ask = ask
        self.timeout_s = timeout_s
        # Each use of these is a single step, so that threads need no lock.
        self._asked: dict[OpenQuestion, _Waiting] = {}
        self._listeners = Listeners()
        self._hinted = False

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """What waits for an answer, oldest first."""
        asked = tuple(self._asked.items())
        return tuple([question for question, waiting in asked if not waiting.done()])

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
            ConfigError: this answer is no longer waited for, or it is of a wrong type.
        """
        reply = question.reply(answer)
        try:
            self._asked[question].set_result(reply)
        except (KeyError, InvalidStateError):
            raise ConfigError(
                f"the question to {question.agent or question.component} of turn {question.turn} "
                "is closed: it was answered, or the turn was stopped"
            ) from None
        self._listeners()

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Wait for a person's answer to one request."""
        question = OpenQuestion(request)
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
            answer = await asyncio.wrap_future(waiting)
            if inspect.isawaitable(answer):
                answer = await answer
            return question.reply(answer)
        finally:
            waiting.cancel()
            del self._asked[question]
            self._listeners()

    async def model_info(self) -> ModelInfo:
        """Return that a person answers."""
        return ModelInfo(name="human", backend="human")


def check_answer(question: OpenQuestion, values: Mapping[str, JSON], *, name: str) -> None:
    """Raise ConfigError if an answer's form is wrong.

    Args:
        question: what is answered.
        values: the fields of the reply.
        name: whose answer it is.
    """
    faults = [f"{field} {fault}" for field, fault in question.faults(values).items()]
    if faults:
        raise ConfigError(f"the answer of {name} was not sent: {'; '.join(faults)}")


def _ask_by_function(ask: AskPerson, question: OpenQuestion, waiting: _Waiting) -> None:
    """Ask by calling a function; what it raises is raised where the answer is awaited."""
    answer: object = None
    try:
        answer = ask(question)
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
        model="human",
        timeout_s=person.timeout_s,
        retry_wait_s=0,
        num_ctx=1_000_000,  # a person has no window that a prompt could be too long for
        max_text_chars=2_000,
        max_concurrency=1,
    )
    return LLMClient(config, person)
