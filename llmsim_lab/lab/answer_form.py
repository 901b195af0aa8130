"""The form in which a person answers: the fields that a model's reply has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.checks import plain_text, real_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.widget import button
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.markup import safe
from llmsim_lab.models import PolicyDecision, reply_schema
from llmsim_lab.text import number

__all__ = ["AnswerForm"]

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

    Args:
        names_rate: whether the person chooses the new rate, too.

    Attributes:
        action: one policy action, in words.
        rate: the new interest rate, one of those on offer.
        reasoning: why.
        confidence: 0 to 1.
        answer_button: sends it.
        hint: what would be wrong with it, while it is being written.
        complaint: what was wrong with it when it was sent.
    """

    def __init__(self, *, names_rate: bool) -> None:
        self.action = _text("Action", hint="one policy action, such as: raise the rate", rows=2)
        self.rate = _choice("New rate")
        self.reasoning = _text("Reasoning", hint="why, in a sentence or two", rows=3)
        self.confidence = _choice("Confidence")
        self.confidence.options = [_CHOOSE, *((f"{value:.2f}", value) for value in _CONFIDENCE)]
        self.answer_button = button(
            "Answer", tooltip="Send this answer; the turn goes on", button_style="primary"
        )
        self.hint = w.HTML()
        self.complaint = w.HTML()
        self._sent: tuple[int, Mapping[str, Any]] | None = None
        self._names_rate = names_rate
        rate = [self.rate] if names_rate else []
        super().__init__(
            [
                self.action,
                *rate,
                self.reasoning,
                self.confidence,
                self.hint,
                self.complaint,
                self.answer_button,
            ]
        )

    @property
    def fields(self) -> Sequence[w.ValueWidget]:
        """What the person fills in."""
        rate = [self.rate] if self._names_rate else []
        return [self.action, *rate, self.reasoning, self.confidence]

    @property
    def values(self) -> dict[str, Any]:
        """What is filled in, by the names that ``HumanAgent.answer`` has for it."""
        said = {
            "action": self.action.value.strip(),
            "reasoning": self.reasoning.value.strip(),
            "confidence": _chosen(self.confidence),
        }
        return said | {"rate": _chosen(self.rate)} if self._names_rate else said

    def fill(
        self, *, action: str, reasoning: str, confidence: float, rate: float | None = None
    ) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: one of them is of the wrong type; nothing was written then.
        """
        plain_text("action", action)
        plain_text("reasoning", reasoning)
        for name, value in (("confidence", confidence), ("rate", rate)):
            if value is not None:
                real_number(name, value)
        self.action.value = action
        self.reasoning.value = reasoning
        _choose(self.confidence, confidence)
        _choose(self.rate, rate)

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
        if question is not None and question.complaint:
            self.complain(f"{question.complaint} This is the second try, and the last.")

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
        self.action.value = self.reasoning.value = ""
        _choose(self.confidence, None)
        _choose(self.rate, None)
        self.complain("")

    def complain(self, text: str) -> None:
        """Say what was wrong, in place, so that screen readers say it too; nothing if empty."""
        self.complaint.value = str(_marked("alert", "#cf222e", text)) if text else ""

    def suggest(self, text: str) -> None:
        """Say what would be wrong if it were sent like this; nothing if empty."""
        value = str(_marked("status", "#9a6700", text)) if text else ""
        if self.hint.value != value:
            self.hint.value = value


def _choose(choice: w.Dropdown, value: float | None) -> None:
    """Choose the offered value that is all but the wished one; else leave the choice open."""
    offered = [option for _, option in choice.options if option != _OPEN]
    close = [option for option in offered if value is not None and abs(option - value) <= 0.005]
    choice.value = close[0] if close else _OPEN


def _chosen(choice: w.Dropdown) -> float | None:
    """Return what is chosen, or None while nothing is."""
    value: float = choice.value
    return None if value == _OPEN else value


def _marked(role: str, colour: str, text: str) -> Markup:
    return Markup(
        '<div role="{}" style="border-left:4px solid {};padding:4px 8px">{}</div>'
    ).format(role, colour, safe(text, limit=2_000))
