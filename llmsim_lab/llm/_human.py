"""A person in a model's place: a request waits until it is answered, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from pydantic import BaseModel

from llmsim_lab._util.jsontext import all_finite
from llmsim_lab._util.text import log_event, text_of
from llmsim_lab._util.waiting import Listeners
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._choose import numeric
from llmsim_lab.llm._client import LLMClient
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._form import bounds_of
from llmsim_lab.llm._scope import caller
from llmsim_lab.llm._scripted import reply_of
from llmsim_lab.types import CallSite, ChatBackend, ChatReply, ChatRequest, ModelInfo

logger = logging.getLogger(__name__)

_LOOK_S = 0.01


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
    _answer: Future[Any] = field(default_factory=Future, repr=False)

    def __post_init__(self) -> None:
        site = self.request.site or CallSite(component="")
        self.agent, self.component, self.turn = site.agent or "", site.component, site.turn or 0

    @property
    def complaint(self) -> str:
        """What was wrong with the first answer; empty if this asks for the first one."""
        complaint = self.request.complaint
        return f"{complaint}." if complaint else ""

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """The answer's fields by name, each with its part of the schema; none for free text."""
        schema = self.request.schema or {}
        known, fields = schema.get("$defs", {}), schema.get("properties", {})
        return {name: resolved(part, known) for name, part in fields.items()}

    def value(self, name: str, typed: str) -> Any:
        """Return what was typed for a field as a value of its type; the text if it is not one."""
        return typed_value(typed.strip(), self.fields.get(name, {}))

    def reply(self, answer: Any) -> ChatReply:
        """Return an answer as a reply.

        Raises:
            ConfigError: it is of a wrong type, or has a text such as ``1,000`` for a number.
        """
        reply = reply_of(answer)
        values: Any = None
        with suppress(ValueError):
            values = json.loads(reply.text)
        schema = self.request.schema or {}
        for place, ambiguity in _ambiguities(values, schema, schema.get("$defs", {})):
            raise ConfigError(
                f"the answer of {self.agent or self.component} was not sent: {place} {ambiguity}"
            )
        return reply

    def faults(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return what is wrong with an answer's form, by field; empty where nothing is."""
        fields = self.fields
        found = {name: field_fault(values.get(name), part) for name, part in fields.items()}
        found |= dict.fromkeys(values.keys() - fields.keys(), "there is no such field")
        return {name: fault for name, fault in found.items() if fault}


# --- fields ---------------------------------------------------------------------------------------

_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "string": "a text",
    "array": "a list, as in JSON",
    "object": "an object, as in JSON",
}
_AMBIGUOUS = re.compile(r"([+-]?(?!0)\d{1,3})[.,](\d{3})\s*%?")
"""A number with one separator and three digits behind it."""
_YES_AND_NO = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


def resolved(part: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a field's schema with its ``$ref`` followed, and without the alternative of null.

    Several alternatives are one list of choices, or stay under ``anyOf`` if each can be typed; else
    it is the first.
    """
    # What describes a field itself stands beside its ``$ref`` or ``anyOf``, and not in it.
    own = {name: part[name] for name in ("title", "description", "examples") if name in part}
    if "$ref" in part:
        return {**resolved(known.get(str(part["$ref"]).rpartition("/")[2], {}), known), **own}
    several = [resolved(one, known) for one in part.get("anyOf", ()) if one.get("type") != "null"]
    if several:
        found, kinds = several[0], {"enum" if "enum" in one else one.get("type") for one in several}
        if len(several) > 1 and kinds <= {"boolean", "enum"}:
            found = {"enum": list(chain(*(one.get("enum", (True, False)) for one in several)))}
        elif len(several) > 1 and kinds <= {"integer", "number", "boolean", "string", "enum"}:
            found = {"anyOf": several}
        return {"optional": len(several) < len(part["anyOf"]), **found, **own}
    if "const" in part:
        return {**part, "enum": [part["const"]]}
    # What a list or an object holds is judged too, and may refer to other schemas.
    return {**part, "$defs": known} if known and part.get("type") in ("array", "object") else part


def typed_value(typed: str, schema: Mapping[str, Any]) -> Any:
    """Return what was typed as a field takes it: a number, yes or no, JSON, or else the text.

    A number that may be two stays the text, which ``field_fault`` asks back.
    """
    for choice in schema.get("enum", ()):
        if text_of(choice) == typed:
            return choice
    readings: list[Any] = [_YES_AND_NO.get(typed.lower(), typed), typed or None]
    read = json.loads if typed.startswith(("[", "{")) else _number
    with suppress(ValueError):
        readings.insert(0, read(typed))
    value = next((one for one in readings if not field_fault(one, schema)), readings[0])
    return min(_close(value, schema), key=lambda choice: bool(choice != value), default=value)


def _number(typed: str) -> float:
    """Return a typed number, a whole one as an ``int``; raise ValueError if it is not one."""
    if "_" in typed or _AMBIGUOUS.fullmatch(typed):
        raise ValueError(f"{typed!r} is not one number")
    with suppress(ValueError):
        return int(typed)  # which a float may be too short for, as for a seed
    value = float(typed.replace(",", ".").removesuffix("%"))
    return int(value) if value.is_integer() else value


def _ambiguity(typed: str, schema: Mapping[str, Any]) -> str:
    """Return which numbers a text such as ``1,000`` may be, for a field of numbers; else nothing.

    English writes a thousand so, German one with three decimals; and 1.000 the other way round.
    """
    match = _AMBIGUOUS.fullmatch(typed.strip())
    if match is None or not _takes_numbers(schema):
        return ""
    whole = int(match[1] + match[2])
    fraction = text_of(float(f"{match[1]}.{match[2]}"))
    # With a fourth decimal it is not a thousand.
    written = f"{fraction}0" if fraction.endswith(match[2]) else fraction
    return f"is {typed!r}, which may be {whole} or {fraction}; write {whole} or {written}"


def _ambiguities(
    value: Any, part: Any, known: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the place in an answer of each such text, and what it may be.

    Args:
        value: the answer, or a part of it.
        part: its schema.
        known: the definitions that it may refer to.
        place: where it is in the answer.
    """
    part = resolved(part, known) if isinstance(part, Mapping) else {}
    if isinstance(value, str) and (ambiguity := _ambiguity(value, part)):
        yield place, ambiguity
    inside: list[tuple[Any, Any, Any]] = []
    if isinstance(value, Mapping):
        fields = part.get("properties", {})
        others = part.get("additionalProperties", {})
        inside = [(name, item, fields.get(name, others)) for name, item in value.items()]
    elif isinstance(value, list):
        first = part.get("prefixItems", ())
        others = [part.get("items", {})] * len(value)
        numbered = zip(value, [*first, *others], strict=False)
        inside = [(number, item, its_part) for number, (item, its_part) in enumerate(numbered)]
    for name, item, its_part in inside:
        yield from _ambiguities(item, its_part, known, f"{place}.{name}" if place else str(name))


def _takes_numbers(schema: Mapping[str, Any]) -> bool:
    """Return True if a field's value may be a number."""
    if alternatives := schema.get("anyOf"):
        return any(map(_takes_numbers, alternatives))
    choices = schema.get("enum", ())
    return schema.get("type") in ("integer", "number") or any(numeric([one]) for one in choices)


def _close(value: Any, schema: Mapping[str, Any]) -> list[Any]:
    """Return the choices of a schema that a value may mean."""
    # 1 is not True.
    choices = [one for one in schema.get("enum", ()) if numeric([one]) == numeric([value])]
    if numeric([value]):
        # Half of the second decimal: rates are shown with two, and typed as they are shown.
        return [choice for choice in choices if math.isclose(value, choice, abs_tol=0.005)]
    return [choice for choice in choices if choice == value]


@cache
def _judge() -> Any:
    """Return the class of validators."""
    from jsonschema import Draft202012Validator  # takes long to import
    from jsonschema.validators import extend

    # pydantic's patterns are not Python's, and 0.3 is a multiple of 0.1 to it: it judges later.
    later = dict.fromkeys(("pattern", "patternProperties", "multipleOf"), lambda *_: ())
    return extend(Draft202012Validator, later)  # type: ignore[no-untyped-call]


def field_fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with one field's value; empty where nothing is."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "" if value is None and schema.get("optional") else "is missing"
    if _close(value, schema):
        return ""
    if isinstance(value, str) and (ambiguity := _ambiguity(value, schema)):
        return ambiguity
    fault = next(_judge()(schema).iter_errors(value), None)
    if isinstance(value, list | dict) and fault:
        place = ".".join(map(str, fault.path))
        return f"at {place}: {fault.message}" if place else str(fault.message)
    if not fault and all_finite(value):
        return ""
    shown = text_of(value) if isinstance(value, int | float) else f"{value!r:.40}"
    return f"is {shown}; it must be {schema_words(schema)}"


def schema_words(schema: Mapping[str, Any]) -> str:
    """Return what can be answered for a field, as in ``a whole number from 0 to 20``."""
    if several := schema.get("anyOf"):
        return " or ".join(map(schema_words, several))
    if choices := schema.get("enum"):
        return f"one of {', '.join(map(text_of, choices))}"
    return f"{_TYPES.get(schema.get('type', ''), 'a value')} {bounds_of(schema)}".rstrip()


# --- the person -----------------------------------------------------------------------------------

AskPerson = Callable[[OpenQuestion], Any]
"""Returns the answer to a question: its fields as a mapping or model, a text, or an awaitable."""


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

    def __init__(self, ask: AskPerson | None = None, *, timeout_s: float = 86_400.0) -> None:
        if ask is not None and not callable(ask):
            raise ConfigError(
                f"Person(ask={ask!r:.60}) cannot be called; give a function of the question, "
                "Person(ask=lambda question: {'amount': 3, ...})"
            )
        self.ask, self.timeout_s = ask, timeout_s
        # Each use of these is a single step, so that threads need no lock.
        self._asked: list[OpenQuestion] = []
        self._listeners = Listeners()
        self._hinted = False

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """What waits for an answer, oldest first."""
        return tuple([one for one in tuple(self._asked) if not one._answer.done()])

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
        while not (waiting := self.questions):  # noqa: ASYNC110 - it may come from any thread
            await asyncio.sleep(_LOOK_S)
        return waiting[0]

    def answer(self, question: OpenQuestion, answer: Mapping[str, Any] | BaseModel | str) -> None:
        """Answer one of ``questions`` with its fields or the reply's text, from any thread.

        Raises:
            ConfigError: this answer is no longer waited for, or it is of a wrong type.
        """
        try:
            question._answer.set_result(question.reply(answer))
        except InvalidStateError:
            raise ConfigError(
                f"the question to {question.agent or question.component} of turn {question.turn} "
                "is closed: it was answered, or the turn was stopped"
            ) from None
        self._listeners()

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Wait for a person's answer to one request."""
        question = OpenQuestion(request)
        self._asked.append(question)
        self._listeners()
        try:
            if self.ask is not None:
                # In a thread, since it may wait. A daemon, since a person who never answers must
                # not keep the process from ending.
                threading.Thread(
                    target=_ask_by_function, args=(self.ask, question), daemon=True
                ).start()
            elif not (self._listeners or self._hinted):
                self._hinted = True
                words = (
                    f"{caller(request.site)}, asked in turn {question.turn}, is a person, who can "
                    "answer: in a notebook HumanSeat(simulation); in a script Person(ask=...); "
                    "from other code person.answer(...)"
                )
                fields = {"agent": question.agent, "turn": question.turn, "why": words}
                log_event(logger, logging.WARNING, "WAITING_FOR_A_PERSON", words=words, **fields)
            answer = await asyncio.wrap_future(question._answer)
            return question.reply(await answer if inspect.isawaitable(answer) else answer)
        finally:
            question._answer.cancel()
            self._asked.remove(question)
            self._listeners()

    async def model_info(self) -> ModelInfo:
        """Return that a person answers."""
        return ModelInfo(name="human", backend="human")


def check_answer(question: OpenQuestion, values: Mapping[str, Any], *, name: str) -> None:
    """Raise ConfigError if an answer's form is wrong.

    Args:
        question: what is answered.
        values: the fields of the reply.
        name: whose answer it is.
    """
    if wrong := question.faults(values):
        faults = "; ".join(f"{field} {fault}" for field, fault in wrong.items())
        raise ConfigError(f"the answer of {name} was not sent: {faults}")


def _ask_by_function(ask: AskPerson, question: OpenQuestion) -> None:
    """Ask by calling a function; what it raises is raised where the answer is awaited."""
    answer: Any = None
    try:
        answer = ask(question)
        question._answer.set_result(answer)
    except InvalidStateError:  # the turn was stopped meanwhile
        if inspect.iscoroutine(answer):
            answer.close()  # else Python warns that nothing awaited it
    except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
        with suppress(InvalidStateError):
            question._answer.set_exception(error)


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
