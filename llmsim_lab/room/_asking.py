"""Questions as a page puts them to a person, and answers as they come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from llmsim_lab._util.jsontext import JSON, JSONObject, Schema
from llmsim_lab.llm.fields import field_fault, field_of, typed_value
from llmsim_lab.room._faults import RoomError
from llmsim_lab.room._seats import PARTICIPANT, Guest, OpenAsk, RoomSeats
from llmsim_lab.run import Run
from llmsim_lab.types import Reply

_CLOSING_ID = "closing"
_OPEN: JSONObject = {"reasoning": "No reason given.", "confidence": 0.5}
"""What a person may leave open, and what stands for it."""


@dataclass(frozen=True)
class PutQuestion:
    """What a form is drawn of.

    Attributes:
        id: what an answer names.
        draft: what is typed is kept under it; the same after a restart.
        turn: the turn being played; 0 of closing questions.
        text: the situation.
        fields: as the front end's form takes them.
        fault: why the last answer was not taken.
        since: when it was shown.
        until: when something else answers; None for never.
    """

    id: str
    draft: str
    turn: int
    text: str
    fields: list[JSON]
    fault: str = ""
    since: float | None = None
    until: float | None = None


class PutQuestions:
    """The questions of a room as they are put to its participants; each is made once."""

    def __init__(self, seats: RoomSeats) -> None:
        self._seats = seats
        self._put: WeakKeyDictionary[OpenAsk, PutQuestion] = WeakKeyDictionary()

    def of(self, guest: Guest) -> PutQuestion | None:
        """Return what a participant can answer now."""
        ask = self._seats.ask_of(guest)
        if ask is None:
            return None
        put = self._put.get(ask)
        if put is None or put.since != ask.shown_at:
            put = self._put[ask] = self._made(ask)
        return put

    def _made(self, ask: OpenAsk) -> PutQuestion:
        question = ask.question
        until = None
        if self._seats.timeout_s is not None and ask.shown_at is not None:
            until = ask.shown_at + self._seats.timeout_s
        return PutQuestion(
            id=ask.id,
            draft=f"{self._seats.round} {question.turn} {question.component}",
            turn=question.turn,
            text=question.request.prompt,
            fields=_fields(question.fields),
            fault=question.complaint,
            since=ask.shown_at,
            until=until,
        )

    def answer(self, guest: Guest, ask: OpenAsk, values: JSON) -> None:
        """Answer a question.

        Raises:
            RoomError: the answer is wrong, and was not sent.
            ConfigError: the question is closed.
        """
        reply = _filled_in(ask.question.fields, values)
        faults = ask.question.faults(reply)
        if faults:
            raise _wrong(faults)
        ask.person.answer(ask.question, {**reply, PARTICIPANT: guest.id})


class ClosingQuestions:
    """Questions at the end, which are no part of a run.

    Args:
        reply: a class of replies: its fields are asked.
    """

    id = _CLOSING_ID

    def __init__(self, reply: type[Reply]) -> None:
        self._reply = reply

    def put(self) -> PutQuestion:
        """Return the questions as a form."""
        return PutQuestion(_CLOSING_ID, _CLOSING_ID, 0, "", _fields(self._schemas()))

    def _schemas(self) -> dict[str, Schema]:
        root = self._reply.model_json_schema()
        return {
            name: field_of(part, root)
            for name, part in root["properties"].items()
            if name not in _OPEN
        }

    def taken(self, values: JSON) -> JSONObject:
        """Return the answers.

        Raises:
            RoomError: one is wrong.
        """
        schemas = self._schemas()
        answers = _filled_in(schemas, values)
        faults: dict[str, str] = {}
        for name, schema in schemas.items():
            fault = field_fault(answers.get(name), schema)
            if fault:
                faults[name] = fault
        if faults:
            raise _wrong(faults)
        return answers


def warm_up() -> None:
    """Import what judges answers: the first of a class would wait two seconds for it, else."""
    field_fault(0, {"type": "integer", "minimum": 0})


def told_of(run: Run, seat: str, state: object) -> Mapping[str, JSON]:
    """Return what a player is told of a state, where the world says so."""
    told = getattr(run, "told", None)
    told_values: Mapping[str, JSON] = told(state, seat) if callable(told) else {}
    return told_values


def _fields(schemas: Mapping[str, Schema]) -> list[JSON]:
    """Return fields as the front end's form takes them."""
    fields: list[JSON] = []
    for name, schema in schemas.items():
        label = name.replace("_", " ").capitalize()
        rules = {rule: value for rule, value in schema.items() if rule != "description"}
        if name in _OPEN:
            rules["optional"] = True
        fields.append(
            {
                "place": [name],
                "label": label,
                "help": schema.get("description", ""),
                "schema": rules,
                "value": None,
            }
        )
    return fields


def _filled_in(schemas: Mapping[str, Schema], values: JSON) -> JSONObject:
    """Return what was typed, each as a value of its field's type."""
    if not isinstance(values, dict):
        raise _wrong({name: "is missing" for name in schemas if name not in _OPEN})
    reply: JSONObject = {**_OPEN} if _OPEN.keys() <= schemas.keys() else {}
    for name, value in values.items():
        if isinstance(value, str) and schemas.get(name, {}).get("type") != "string":
            value = typed_value(value.strip(), schemas.get(name, {}))
        if value not in (None, ""):
            reply[name] = value
    return reply


def _wrong(faults: Mapping[str, str]) -> RoomError:
    sentences = "; ".join(f"{field} {fault}" for field, fault in faults.items())
    return RoomError(409, "faults", f"This was not sent: {sentences}.", faults)
