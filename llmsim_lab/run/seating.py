"""Seats: how a question is put to a person, and how the answer is read.

Windows, the terminal and a room put questions in the same way and judge answers by the same rules;
only the way of the texts differs. ``put`` turns an open question into one that a form can be drawn
from. Answers are read and judged here, field by field, before anything is sent.
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
"""How deeply the values of a form may be nested; no real form comes near it."""


@dataclass(
    frozen=True,
    slots=True,
    eq=False,
    kw_only=True,
)
class SeatQuestion:
    """A question as a person sees it.

    Attributes:
        run: the run that asks; None if the question is not part of a run.
        question: the question that waits for an answer.
        form: the question as a form shows it; an economy asks people for a rate instead of a move.
        seat: the name of the person's seat.
        fields: the fields of the form.
    """

    run: AnyRun | None
    question: OpenQuestion
    form: OpenQuestion
    seat: str
    fields: list[Field]

    @property
    def number(self) -> str:
        """The question's number, which an answer names; a second try has another number."""
        return self.question.number

    @property
    def draft(self) -> str:
        """The name under which a draft is kept; the same before the turn begins and during it."""
        return self.question.draft

    @property
    def text(self) -> str:
        """The text of the question."""
        return self.question.text

    def as_json(self, faults: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the question as pages take it, with the faults of a first answer, by field."""
        by_field = dict(faults or {})
        # The empty name stands for the answer as a whole.
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
        """Return a form's values by field: those that were typed, else those that the form showed.

        Args:
            typed: what the form sent: texts and values, nested as the fields are.

        Raises:
            AnswerError: there is no such field.
        """
        fields = {tuple(field["place"]): field for field in self.fields}
        # A form may leave out fields that were not touched: they keep the value that it showed.
        values: dict[str, Any] = {}
        for place, field in fields.items():
            if field["value"] is not None:
                _put_at(values, place, field["value"])
        for place, value in _typed_at(typed, fields):
            if place not in fields:
                # An error, since the text that was typed there would be lost silently.
                name = ".".join(place)
                raise AnswerError(self.question.name, {name: "there is no such field"})
            if isinstance(value, str):
                value = typed_value(value.strip(), fields[place]["schema"])
            _put_at(values, place, value)
        return values

    def taken(self, values: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the reply made from a form's values, which the run will accept.

        Raises:
            AnswerError: a value is wrong; the error names its field, and nothing was sent.
        """
        reply: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        for name, part in self.form.fields.items():
            # Reasoning and confidence are optional for people, but they are never null.
            if part.get("optional") and name not in Reply.model_fields:
                reply.setdefault(name, None)
        self._check(self.form.faults(reply))
        is_put_otherwise = self.form is not self.question
        if self.run is not None and is_put_otherwise:
            reply = self.run._as_reply(reply)
            # Judged again: a rate within its limits may mean a move outside of its limits.
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
            AnswerError: a value is wrong; the error names its field, and the question stays open.
            ConfigError: the question is no longer open.
        """
        person.answer(self.question, self.taken(values))


def put(
    run: AnyRun | None,
    question: OpenQuestion,
    seat: str = "",
) -> SeatQuestion:
    """Return a question as a person sees it.

    Args:
        run: the run that asks.
        question: the question that waits for an answer.
        seat: the name of the person's seat; the player's name if not given.
    """
    # People name a rate where models choose a move.
    form = question if run is None else run._as_put(question)
    return SeatQuestion(
        run=run,
        question=question,
        form=form,
        seat=seat or question.name,
        fields=_fields(form),
    )


def put_reply(reply: type[Reply], text: str = "") -> SeatQuestion:
    """Return questions that are not part of a run, such as those at its end, as people see them.

    Args:
        reply: the class whose fields are asked for, except reasoning and confidence.
        text: the text above the questions.
    """
    schema = reply_schema(reply)
    # Reasoning and confidence are asked for decisions only.
    of_decisions = frozenset(Reply.model_fields)
    properties = {
        name: part for name, part in schema["properties"].items() if name not in of_decisions
    }
    request = ChatRequest(
        model=HUMAN,
        messages=(),
        schema={**schema, "properties": properties},
    )

    # Read like a model's reply, so that a wrong value gets the same message.
    def judge(answer: ChatReply) -> object:
        return parse_reply(answer.text, reply, may_lack=of_decisions)

    return put(None, OpenQuestion(request, judge, text))


def _fields(form: OpenQuestion) -> list[Field]:
    """Return the fields of a form; most are empty at first."""
    parts = form.fields
    started = {name: part.get("start") for name, part in parts.items()}
    schema = {"type": "object", "properties": dict(parts)}
    drawn = fields_of(schema, started)
    fields: list[Field] = []
    for name, part in parts.items():
        # A number or a text has one field; an object has one for each of its own fields.
        of_part = [field for field in drawn if field["place"][0] == name]
        if not of_part:
            of_part = [_field_of_json(name, part)]
        is_required = not part.get("optional")
        fields += [{**field, "required": is_required} for field in of_part]
    return fields


def _field_of_json(name: str, part: Mapping[str, Any]) -> Field:
    """Return a field for a list or mapping, which forms cannot draw: people type it as JSON."""
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
    """Yield the values that a form sent with their places, no deeper than its fields are."""
    # A guest may send anything: ten thousand levels would end in a RecursionError.
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
    """Set a value at its place in nested values."""
    *outer, last = place
    for name in outer:
        values = values.setdefault(name, {})
    values[last] = value
