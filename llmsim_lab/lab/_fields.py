"""Fields for values that JSON schemas describe: filled in by a person, read, judged and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import ipywidgets as w

from llmsim_lab._util.checks import plain_text, real_number
from llmsim_lab._util.html import safe
from llmsim_lab._util.waiting import background_loop
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._widget import Choices, Worker, button, noted, row, settled
from llmsim_lab.llm._human import OpenQuestion, field_fault, place_of, schema_words, typed_value

_MOST_BUTTONS, _MOST_BUTTON_CHARS = 5, 40


class Field:
    """What one value is filled in with; nothing is chosen or written in it at first.

    A number is written, so that it can be left open and a wrong one is explained, not cut to its
    limits; beside its box may be a slider.

    Args:
        label: what stands before it.
        schema: of the value, with references followed, as ``resolved`` returns it.

    Attributes:
        schema: of the value.
        box: what it is filled in with.
        slider: of a number that has limits or choices; it follows the box, and the box it.
    """

    slider: Any = None

    def __init__(self, label: str, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.box = _box(label, schema)
        self._choices = Choices()
        if isinstance(self.box, w.Text):
            self.slider = _slider(label, schema)
        if self.slider is not None:
            self._choices.on_choice(self.slider, self._slid)
            self.box.observe(lambda _: self._follow(), names="value")

    @property
    def part(self) -> w.DOMWidget:
        """The box, and the slider beside it."""
        return self.box if self.slider is None else row(self.box, self.slider)

    @property
    def value(self) -> Any:
        """What it holds; None where nothing is chosen, or written but for a text."""
        if isinstance(self.box, w.Dropdown | w.ToggleButtons):
            # Not its value, since 1 and True are the same to it.
            nothing = 0 if isinstance(self.box, w.Dropdown) else None
            at = self.box.index
            return None if at in (None, nothing) else self.box.options[at][1]
        if not isinstance(self.box, w.Text | w.Textarea):
            return self.box.value
        written, kind = self.box.value.strip(), self.schema.get("type")
        text = any(one.get("type") == "string" for one in self.schema.get("anyOf", (self.schema,)))
        if not written:
            return "" if text and not self.schema.get("optional") else None
        texts = kind == "array" and self.schema.get("items", {}).get("type") == "string"
        if texts and not written.startswith("["):
            return _texts(written)
        return typed_value(written, self.schema)

    @value.setter
    def value(self, value: Any) -> None:
        # None, or a choice not on offer, leaves it open.
        if isinstance(self.box, w.Dropdown | w.ToggleButtons):
            # By place, since a choice may be an empty text, as the value of "choose" is.
            nothing = 0 if isinstance(self.box, w.Dropdown) else None
            choices = [one for _, one in self.box.options][nothing is not None :]
            at = None if value is None else place_of(value, choices)
            self.box.index = nothing if at is None else at + (nothing is not None)
        elif isinstance(self.box, w.Checkbox):
            self.box.value = bool(value)
        else:
            self.box.value = _written(value)

    @property
    def fault(self) -> str:
        """What is wrong with what it holds; empty where nothing is, or nothing is there."""
        value = self.value
        return "" if value in ("", None) else field_fault(value, self.schema)

    def offers(self, schema: Mapping[str, Any]) -> bool:
        """Return True if it is the field for a schema, too; only other choices it takes over."""
        if schema == self.schema:
            return True
        other = {**self.schema, "enum": schema.get("enum")}
        if not isinstance(self.slider, w.SelectionSlider) or schema != other:
            return False
        # What is written stays, and the focus too.
        self.schema = schema
        self._choices.options(self.slider, _marks(schema), self.value)
        return True

    def _slid(self) -> None:
        if self.value != self.slider.value:
            self.box.value = _written(self.slider.value)

    def _follow(self) -> None:
        """Let the slider follow the box, back to its start where nothing is written."""
        slider, value = self.slider, self.value
        least = slider.options[0][1] if isinstance(slider, w.SelectionSlider) else slider.min
        # What the slider has no place for stays in the box, whose fault is shown.
        if not self.fault:
            # Quietly: while the slider follows, more may be typed, which it must not undo.
            self._choices.set(slider, least if value is None else value)


def _box(label: str, schema: Mapping[str, Any]) -> Any:
    kind, choices = schema.get("type"), schema.get("enum", ())
    look = {"description": label, "style": {"description_width": "7em"}}
    if kind == "boolean":
        return w.Checkbox(**look)
    kinds = {one.get("type") for one in schema.get("anyOf", (schema,))}
    numbers = choices and all(isinstance(one, int | float) for one in choices)
    if kinds <= {"integer", "number"} or numbers:
        return w.Text(layout={"width": "13em"}, **look)
    if not choices:
        wide = {"width": "auto", "max_width": "48em"}
        return w.Textarea(placeholder="in your own words", rows=2, layout=wide, **look)
    options = [(str(one), one) for one in choices]
    if len(choices) <= _MOST_BUTTONS and len("".join(map(str, choices))) <= _MOST_BUTTON_CHARS:
        look["style"] = {"description_width": "7em", "button_width": "auto"}
        return w.ToggleButtons(options=options, value=None, **look)
    # None as an option's value would show as an empty line.
    nothing = ("none" if schema.get("optional") else "choose", "")
    return w.Dropdown(options=[nothing, *options], layout={"width": "20em"}, **look)


def _slider(label: str, schema: Mapping[str, Any]) -> Any:
    """Return a slider over a number's choices or between its limits; None where it has neither."""
    layout = {"flex": "1 1 10em", "min_width": "10em", "max_width": "28em"}
    look = {"readout": False, "tooltip": label, "layout": layout}
    if "enum" in schema:
        return w.SelectionSlider(options=_marks(schema), **look)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None or high is None:
        return None
    whole = schema.get("type") == "integer"
    kind, step = (w.IntSlider, 1) if whole else (w.FloatSlider, high / 100 - low / 100)
    return kind(min=low, max=high, value=low, step=step, **look)


def _marks(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return a number's choices as what a slider offers."""
    return [(_written(one), one) for one in schema["enum"]]


def _texts(written: str) -> list[str]:
    """Return the texts between commas."""
    return [word.strip() for word in written.split(",") if word.strip()]


def _written(value: Any) -> str:
    """Return a value as it is written into a box."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, list) and all(isinstance(it, str) for it in value):
        words = ", ".join(value)
        # As JSON where commas alone would be read otherwise: nothing, an empty text, a comma.
        plain = words[:1] not in ("", "[") and _texts(words) == value
        return words if plain else json.dumps(value)
    return json.dumps(value)


# --- a whole answer ------------------------------------------------------------------------------


class AnswerForm(w.VBox):
    """One person's answer, as far as it is written, with a field for each value that is asked for.

    Args:
        optional: names of fields that may be left empty; they stand below the button.
        on_change: called whenever something is written or chosen.
        send: called to send it, once for however many clicks, when what was written has arrived.
        more: what the seat shows beside the button.

    Attributes:
        fields: of the values, by the names that the answer has for them.
        answer_button: sends it, as Enter in a number's box does.
        sender: does so in the background.
        hint: what would be wrong with it, shown while it is being written.
        complaint: what was wrong with it when it was sent.
    """

    def __init__(
        self,
        optional: Collection[str],
        *,
        on_change: Callable[[], object],
        send: Callable[[], object],
        more: Sequence[w.Widget] = (),
    ) -> None:
        self.fields: dict[str, Field] = {}
        self.optional = optional
        # On the background loop, since the notebook's own may be blocked by a cell.
        self.sender = Worker(loop=background_loop())
        self.answer_button = button(
            "Answer",
            "Send this answer; the turn continues",
            lambda: self.sender.start(self._settle_and_send),
            button_style="primary",
        )
        self.hint, self.complaint = w.HTML(), w.HTML()
        self._below = row(self.answer_button, *more, gap="4px 8px")
        self._sent: tuple[int, Mapping[str, Any]] | None = None
        self._on_change, self._on_send = on_change, send
        super().__init__()
        self.show({})

    def show(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Show a field for each value asked for; those that are the same keep what is in them.

        Args:
            schemas: of the fields, by name.
        """
        fields = {name: self._field(name, schema) for name, schema in schemas.items()}
        if fields and fields == self.fields:
            return  # so that the focus stays where it was
        self.fields = fields
        left = list(self._parts(optional=True))
        self.children = (
            *self._parts(optional=False),
            self.hint,
            self.complaint,
            self._below,
            *([w.HTML("<p>If you like, say why:</p>"), *left] if left else ()),
        )

    def _field(self, name: str, schema: Mapping[str, Any]) -> Field:
        """Return the field there is for a value, if it still fits, or a new one."""
        old = self.fields.get(name)
        if old is not None and old.offers(schema):
            return old
        field = Field(name.replace("_", " ").capitalize(), schema)
        if isinstance(field.box, w.Text):
            field.box.on_msg(self._on_message)
        field.box.observe(lambda _: self._on_change(), names="value")
        return field

    def _parts(self, *, optional: bool) -> Iterator[w.Widget]:
        """Yield the fields, each below its description and limits where it has any."""
        for name, field in self.fields.items():
            if (name in self.optional) == optional:
                schema = field.schema
                plain = "enum" in schema or schema.get("type") == "string"
                limits = "" if plain else schema_words(schema)
                if words := "; ".join(filter(None, (schema.get("description"), limits))):
                    yield w.HTML(str(safe(words, limit=500)))
                yield field.part

    def _on_message(self, _: object, content: Mapping[str, Any], __: object) -> None:
        if content.get("event") == "submit" and not self.answer_button.disabled:
            self.answer_button.click()

    async def _settle_and_send(self) -> None:
        await settled(*(field.box for field in self.fields.values()))
        self._on_send()

    @property
    def faults(self) -> list[str]:
        """What is wrong with what is filled in, apart from what is missing."""
        return [f"{name} {field.fault}" for name, field in self.fields.items() if field.fault]

    @property
    def values(self) -> dict[str, Any]:
        """What is filled in, by name; None where nothing is chosen, or written for a number."""
        return {name: field.value for name, field in self.fields.items()}

    def fill(self, **values: Any) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: there is no such field; nothing was written then.
        """
        if unknown := [name for name in values if name not in self.fields]:
            raise ConfigError(
                f"{unknown[0]!r} is not asked for; the fields of the answer are "
                f"{', '.join(self.fields) or 'not known before the question'}"
            )
        for name, value in values.items():
            box, schema = self.fields[name].box, self.fields[name].schema
            if value is None and (isinstance(box, w.Text) or schema.get("optional")):
                continue
            if isinstance(box, w.Text):
                real_number(name, typed_value(value, schema) if isinstance(value, str) else value)
            elif schema.get("type") == "string" and isinstance(box, w.Textarea):
                plain_text(name, value)
        for name, value in values.items():
            self.fields[name].value = value

    def ask(self, question: OpenQuestion | None, *, turn: int) -> None:
        """Clear what was sent once its turn is played, keep what is new; show a complaint.

        Args:
            question: what waits for an answer; None while nothing does.
            turn: the latest turn that was played.
        """
        # Only now: an answer to a turn that failed is asked again and need not be written again.
        if self._sent is not None and turn >= self._sent[0]:
            if self.values == self._sent[1]:
                for field in self.fields.values():
                    field.value = None
                self.complain("")
            self._sent = None
        if question is not None and question.complaint:
            self.complain(f"{question.complaint} This is the second try, and the last.")

    def send(self, question: OpenQuestion | None, answer: Callable[[], None]) -> None:
        """Send what stands in the form.

        What is sent is remembered first, since the next question may come before this returns.

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

    def complain(self, text: str) -> None:
        """Show what was wrong, in place, so that screen readers read it out; nothing if empty."""
        self.complaint.value = noted(text) if text else ""
