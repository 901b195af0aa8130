"""A seat: a person, a question, and how it is put.

Windows, the terminal and a room put questions to people in the same way and take answers by the
same rules; they differ in how texts get there and back. ``put`` makes of an open question what a
form is drawn of. What comes back is read and judged here, by field, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmsim_lab._util.jsontext import JSON
from llmsim_lab.llm import Person
from llmsim_lab.llm.extract import parse_reply
from llmsim_lab.llm.fields import field_words, typed_value
from llmsim_lab.llm.human import AnswerError, OpenQuestion
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run.forms import Field, fields_of, label_of
from llmsim_lab.types import HUMAN, ChatReply, ChatRequest, Reply, reply_schema

_DEEPEST = 20
"""How deep what is typed may be nested; no form is."""


@dataclass(
    frozen=True,
    slots=True,
    eq=False,
    kw_only=True,
)
class SeatQuestion:
    """A question as a person sees it.

    Attributes:
        run: the run that asks; None of questions that are no part of one.
        question: what waits for the answer.
        form: the same as it is put: an economy asks for a rate in place of a move.
        seat: the name of the person's seat.
        fields: what the form is drawn of.
    """

    run: AnyRun | None
    question: OpenQuestion
    form: OpenQuestion
    seat: str
    fields: list[Field]

    @property
    def number(self) -> str:
        """What an answer names: of a second try another one than of the first."""
        return self.question.number

    @property
    def draft(self) -> str:
        """Under which name what is typed is kept: the same before the turn and in it."""
        return self.question.draft

    @property
    def text(self) -> str:
        """The situation."""
        return self.question.text

    def as_json(self, faults: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the question as pages take it, with what was wrong with an answer, by field."""
        by_field = dict(faults or {})
        # Under an empty name stands what is wrong with the answer as a whole.
        whole = by_field.pop("", "")
        return {
            "id": self.number,
            "draft": self.draft,
            "seat": self.seat,
            "who": self.question.agent,
            "turn": self.question.turn,
            "text": self.text,
            "fields": self.fields,
            "fault": whole or self.question.complaint,
            "faults": by_field,
            "askedAt": self.question.asked_at,
        }

    def read(self, typed: object) -> dict[str, Any]:
        """Return the values of a form, by field: what was typed, and else what it began with.

        Args:
            typed: what the form sent: texts and values, nested by the places of the fields.

        Raises:
            AnswerError: there is no such field.
        """
        fields = {tuple(field["place"]): field for field in self.fields}
        # A form may leave out what was not touched: it has the value that the page showed.
        values: dict[str, Any] = {}
        for place, field in fields.items():
            if field["value"] is not None:
                _put_at(values, place, field["value"])
        for place, value in _typed_at(typed, fields):
            if place not in fields:
                # Loud, since what was typed there would be lost without a word.
                name = ".".join(place)
                raise AnswerError(self.question.name, {name: "there is no such field"})
            if isinstance(value, str):
                value = typed_value(value.strip(), fields[place]["schema"])
            _put_at(values, place, value)
        return values

    def taken(self, values: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the reply that values make, which will be accepted as it is.

        Raises:
            AnswerError: something is wrong, by field; nothing was sent.
        """
        self._check(self.form.faults(values))
        # A field that was left empty is left out, so that it has its class's default.
        reply = {name: value for name, value in values.items() if value is not None}
        is_put_otherwise = self.form is not self.question
        if self.run is not None and is_put_otherwise:
            reply = self.run._as_reply(reply)
            # Judged again: a rate within its limits may be a move outside of its own.
            as_asked = self.question.reply(reply)
            self._check(self.question.faults_of_reply(as_asked))
        return reply

    def _check(self, faults: Mapping[str, str]) -> None:
        if faults:
            raise AnswerError(self.question.name, faults)

    def answer(
        self,
        person: Person,
        values: Mapping[str, JSON],
    ) -> None:
        """Answer the question.

        Raises:
            AnswerError: something is wrong, by field; the question waits on.
            ConfigError: the answer is no longer waited for.
        """
        person.answer(self.question, self.taken(values))


def put(
    run: AnyRun | None,
    question: OpenQuestion,
    seat: str = "",
) -> SeatQuestion:
    """Return a question as it is put to a person.

    Args:
        run: the run that asks.
        question: what waits for an answer.
        seat: the name of the person's seat; who is asked if not given.
    """
    # A person says a rate where a model chooses a move.
    form = question if run is None else run._as_put(question)
    return SeatQuestion(
        run=run,
        question=question,
        form=form,
        seat=seat or question.name,
        fields=_fields(form),
    )


def put_reply(reply: type[Reply], text: str = "") -> SeatQuestion:
    """Return questions that are no part of a run, such as those at the end, as they are put.

    Args:
        reply: its fields are asked for, but for reasoning and confidence.
        text: what stands above them.
    """
    schema = reply_schema(reply)
    # Why, and how sure, is asked of decisions.
    of_decisions = frozenset(Reply.model_fields)
    properties = {
        name: part for name, part in schema["properties"].items() if name not in of_decisions
    }
    request = ChatRequest(
        model=HUMAN,
        messages=(),
        schema={**schema, "properties": properties},
    )

    # The same reading as of a model's reply, so that a form says the same of a wrong value.
    def judge(answer: ChatReply) -> object:
        return parse_reply(answer.text, reply, may_lack=of_decisions)

    return put(None, OpenQuestion(request, judge, text))


def _fields(form: OpenQuestion) -> list[Field]:
    """Return the fields of what is asked for; most begin with nothing in them."""
    parts = form.fields
    started = {name: part.get("start") for name, part in parts.items()}
    schema = {"type": "object", "properties": dict(parts)}
    drawn = fields_of(schema, started)
    fields: list[Field] = []
    for name, part in parts.items():
        # One of a number or a text; several of an object, one for each of its own fields.
        of_part = [field for field in drawn if field["place"][0] == name]
        if not of_part:
            of_part = [_field_of_json(name, part)]
        is_required = not part.get("optional")
        fields += [{**field, "required": is_required} for field in of_part]
    return fields


def _field_of_json(name: str, part: Mapping[str, Any]) -> Field:
    """Return the field of what forms cannot draw, a list or a mapping: it is typed as JSON."""
    words = [part.get("description", ""), field_words(part)]
    return {
        "place": [name],
        "label": label_of([name], part),
        "help": "; ".join(filter(None, words)),
        "schema": dict(part),
        "value": None,
    }


def _typed_at(
    typed: object,
    places: Container[tuple[str, ...]],
    outer: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield what a form sent, each value with its place: as deep as there are fields."""
    # A room's guest may send anything: ten thousand levels would end in a RecursionError.
    if outer not in places and isinstance(typed, Mapping) and len(outer) < _DEEPEST:
        for name, inner in typed.items():
            yield from _typed_at(
                inner,
                places,
                (*outer, str(name)),
            )
    else:
        yield outer, typed


def _put_at(
    values: dict[str, Any],
    place: tuple[str, ...],
    value: object,
) -> None:
    """Set a value at a place of nested values."""
    *outer, last = place
    for name in outer:
        values = values.setdefault(name, {})
    values[last] = value
