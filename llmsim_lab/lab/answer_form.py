"""The form in which a person answers: the fields that a model's reply has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.checks import plain_text, real_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.widget import button
from llmsim_lab.llm._human import OpenQuestion, same_choice, schema_words
from llmsim_lab.markup import safe
from llmsim_lab.models import PolicyDecision, reply_schema
from llmsim_lab.text import number

__all__ = ["AnswerForm", "RateForm"]

_OPEN = float("-inf")  # None as an option's value would show as an empty line
_CHOOSE = ("choose", _OPEN)
_CONFIDENCE = reply_schema(PolicyDecision)["properties"]["confidence"]["enum"]
_WIDE = {"description_width": "7em"}


def _text(label: str, *, hint: str, rows: int) -> w.Textarea:
    return w.Textarea(
        description=label,
        placeholder=hint,
        rows=rows,
        style=_WIDE,
        layout=w.Layout(width="auto", max_width="48em"),
    )


def _choice(label: str) -> w.Dropdown:
    return w.Dropdown(
        options=[_CHOOSE], description=label, style=_WIDE, layout=w.Layout(width="20em")
    )


class AnswerForm(w.VBox):
    """One person's answer, as far as it is written; nothing is chosen beforehand.

    Its fields are those of the latest question, unless it is made with some.

    Args:
        inputs: by name, where they are known before anything is asked.

    Attributes:
        inputs: what the person fills in, by the names that the answer has for it.
        answer_button: sends it.
        hint: what would be wrong with it, while it is being written.
        complaint: what was wrong with it when it was sent.
    """

    def __init__(self, inputs: Mapping[str, w.ValueWidget] | None = None) -> None:
        self.inputs = dict(inputs or {})
        self.answer_button = button(
            "Answer", tooltip="Send this answer; the turn goes on", button_style="primary"
        )
        self.hint = w.HTML()
        self.complaint = w.HTML()
        self._sent: tuple[int, Mapping[str, Any]] | None = None
        self._fixed = bool(inputs)
        self._schemas: Mapping[str, Any] = {}
        self._question: OpenQuestion | None = None
        self._heard: Callable[[], object] = lambda: None
        super().__init__(self._parts())
        self._observe()

    def _parts(self) -> list[w.Widget]:
        return [*self.inputs.values(), self.hint, self.complaint, self.answer_button]

    def _observe(self) -> None:
        for field in self.inputs.values():
            field.observe(self._on_input, names="value")  # the same one twice counts once

    def _on_input(self, _: object) -> None:
        self._heard()

    def on_change(self, heard: Callable[[], object]) -> None:
        """Register what is called whenever something is written or chosen."""
        self._heard = heard

    @property
    def fields(self) -> Sequence[w.ValueWidget]:
        """What the person fills in."""
        return list(self.inputs.values())

    @property
    def values(self) -> dict[str, Any]:
        """What is filled in, by name; None where nothing is chosen, or written for a number."""
        return {name: self._value(name, field) for name, field in self.inputs.items()}

    def _value(self, name: str, field: w.ValueWidget) -> Any:
        if isinstance(field, w.Dropdown):
            return _chosen(field)
        said = field.value.strip()
        if self._question is None or self._schemas.get(name, {}).get("type") in (None, "string"):
            return said
        return self._question.value(name, said) if said else None

    def fill(self, **values: Any) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: there is no such field; nothing was written then.
        """
        for name in values:
            if name not in self.inputs:
                raise ConfigError(
                    f"{name!r} is not asked for; the fields of the answer are "
                    f"{', '.join(self.inputs) or 'not known before the question'}"
                )
        for name, value in values.items():
            field = self.inputs[name]
            if isinstance(field, w.Dropdown):
                _choose(field, value)
            else:
                field.value = value if isinstance(value, str) else json.dumps(value)

    def ask(self, question: OpenQuestion | None, *, turn: int) -> None:
        """Get ready for a question; what was sent goes once its turn is played, what is new stays.

        Args:
            question: what waits for an answer; None while nothing does.
            turn: the latest turn that was played.
        """
        self.answer_button.disabled = question is None
        if self._sent is not None and turn >= self._sent[0]:
            if self.values == self._sent[1]:
                self._empty()
            self._sent = None
        if question is None:
            return
        if not self._fixed:
            self._show_fields_of(question)
        if question.complaint:
            self.complain(f"{question.complaint} This is the second try, and the last.")

    def _show_fields_of(self, question: OpenQuestion) -> None:
        """Have a field for each that is asked for; those that are the same keep what is in them."""
        if question is self._question:
            return
        self._question = question
        if question.fields != self._schemas:
            self.inputs = {
                name: self.inputs[name]
                if schema == self._schemas.get(name)
                else _input(name, schema)
                for name, schema in question.fields.items()
            }
            self._schemas = question.fields
            self._observe()
            self.children = tuple(self._parts())

    def send(self, question: OpenQuestion | None, answer: Callable[[], None]) -> None:
        """Send what stands in the form.

        What is sent is noted first, since a refusal may come back before the sending returns.

        Args:
            question: what it answers.
            answer: does it.

        Raises:
            ConfigError: it was not sent.
        """
        self.complain("")
        self._sent = None if question is None else (question.turn, self.values)
        try:
            answer()
        except ConfigError:
            self._sent = None
            raise

    def _empty(self) -> None:
        for field in self.inputs.values():
            field.value = _OPEN if isinstance(field, w.Dropdown) else ""
        self.complain("")

    def complain(self, text: str) -> None:
        """Say what was wrong, in place, so that screen readers say it too; nothing if empty."""
        self.complaint.value = str(_marked("alert", "#cf222e", text)) if text else ""

    def suggest(self, text: str) -> None:
        """Say what would be wrong if it were sent like this; nothing if empty."""
        value = str(_marked("status", "#9a6700", text)) if text else ""
        if self.hint.value != value:
            self.hint.value = value


class RateForm(AnswerForm):
    """The answer of a nation's advisor, whose fields are known before anything is asked.

    Args:
        names_rate: whether the person chooses the new rate, too.

    Attributes:
        action: one policy action, in words.
        rate: the new interest rate, one of those on offer.
        reasoning: why.
        confidence: 0 to 1.
    """

    def __init__(self, *, names_rate: bool) -> None:
        self.action = _text("Action", hint="one policy action, such as: raise the rate", rows=2)
        self.rate = _choice("New rate")
        self.reasoning = _text("Reasoning", hint="why, in a sentence or two", rows=3)
        self.confidence = _choice("Confidence")
        self.confidence.options = [_CHOOSE, *((f"{value:.2f}", value) for value in _CONFIDENCE)]
        rate = {"rate": self.rate} if names_rate else {}
        super().__init__(
            {
                "action": self.action,
                **rate,
                "reasoning": self.reasoning,
                "confidence": self.confidence,
            }
        )

    def fill(self, **values: Any) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: one of them is of the wrong type; nothing was written then.
        """
        for name in ("action", "reasoning"):
            plain_text(name, values.get(name))
        for name in ("confidence", "rate"):
            if values.get(name) is not None:
                real_number(name, values[name])
        super().fill(**{name: value for name, value in values.items() if name in self.inputs})

    def offer(self, rates: Sequence[float], *, now: float) -> None:
        """Offer these rates; a choice that is still among them stays.

        Args:
            rates: percent per year.
            now: the rate in force.
        """
        same = min(rates, key=lambda rate: abs(rate - now))
        options = [
            (f"{number(rate)} %{' (as it is)' if rate == same else ''}", rate) for rate in rates
        ]
        if list(self.rate.options) != [_CHOOSE, *options]:
            chosen = _chosen(self.rate)
            self.rate.options = [_CHOOSE, *options]
            _choose(self.rate, chosen)


def _input(name: str, schema: Mapping[str, Any]) -> w.ValueWidget:
    """Return what one field of a question is filled in with."""
    label = name.replace("_", " ").capitalize()
    choices = schema.get("enum") or ([True, False] if schema.get("type") == "boolean" else None)
    if choices is not None:
        field = _choice(label)
        field.options = [_CHOOSE, *((_option(choice), choice) for choice in choices)]
        return field
    hint = "; ".join(filter(None, (schema.get("description"), schema_words(schema))))
    if schema.get("type") in ("integer", "number"):
        return w.Text(
            description=label, placeholder=hint, style=_WIDE, layout=w.Layout(width="28em")
        )
    return _text(label, hint=hint or "in your own words", rows=3)


def _option(choice: Any) -> str:
    if isinstance(choice, bool):
        return "yes" if choice else "no"
    return number(choice) if isinstance(choice, int | float) else str(choice)


def _choose(choice: w.Dropdown, value: Any) -> None:
    """Choose the offered value that is all but the wished one; else leave the choice open."""
    offered = [option for _, option in choice.options if option != _OPEN]
    close = [option for option in offered if value is not None and same_choice(option, value)]
    choice.value = close[0] if close else _OPEN


def _chosen(choice: w.Dropdown) -> Any:
    """Return what is chosen, or None while nothing is."""
    return None if choice.value == _OPEN else choice.value


def _marked(role: str, colour: str, text: str) -> Markup:
    return Markup(
        '<div role="{}" style="border-left:4px solid {};padding:4px 8px">{}</div>'
    ).format(role, colour, safe(text, limit=2_000))
