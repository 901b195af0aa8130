"""A field for a value that a JSON schema describes: filled in by a person, read, and judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ipywidgets as w

from llmsim_lab.lab._widget import Choices, checkbox, row
from llmsim_lab.llm._human import field_fault, place_of, typed_value

_YES_NO = [("yes", True), ("no", False)]
_MOST_BUTTONS, _MOST_BUTTON_CHARS = 5, 40


class Field:
    """What one value is filled in with; nothing is chosen or written in it at first.

    A number is written, so that it can be left open and a wrong one is explained, not cut to its
    limits; beside its box may be a slider.

    Args:
        label: what stands before it.
        schema: of the value, with references followed, as ``resolved`` returns it.
        compact: True for one of many in a grid: on a line of its own, without a slider.

    Attributes:
        schema: of the value.
        box: what it is filled in with.
        slider: of a number that has limits or choices; it follows the box, and the box it.
    """

    slider: Any = None

    def __init__(self, label: str, schema: Mapping[str, Any], *, compact: bool = False) -> None:
        self.schema = schema
        self.box = _box(label, schema, compact=compact)
        self._choices = Choices()
        if isinstance(self.box, w.Text) and not compact:
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
        if isinstance(self.box, w.Dropdown):
            # Not its value, since 1 and True are the same to it.
            return self.box.options[self.box.index][1] if self.box.index else None
        if not isinstance(self.box, w.Text | w.Textarea):
            return self.box.value
        written, kind = self.box.value.strip(), self.schema.get("type")
        text = any(one.get("type") == "string" for one in self.schema.get("anyOf", (self.schema,)))
        if not written:
            return "" if text and not self.schema.get("optional") else None
        texts = kind == "array" and self.schema.get("items", {}).get("type") == "string"
        if texts and not written.startswith("["):
            return _texts(written)
        found = typed_value(written, self.schema)
        # A parameter that may be a text is taken as it is written, unless that is just a number.
        # Its spaces are meant: it may be a separator. Those of an answer are not.
        number = isinstance(found, float) or str(found) == written != found
        return self.box.value if text and not number and isinstance(self.box, w.Text) else found

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


def _box(label: str, schema: Mapping[str, Any], *, compact: bool) -> Any:
    kind, choices = schema.get("type"), schema.get("enum", ())
    style = {"description_width": "55%" if compact else "7em"}
    look = {"description": label, "tooltip": label if compact else None, "style": style}
    if kind == "boolean" and not (compact and schema.get("optional")):
        return checkbox(label) if compact else w.Checkbox(**look)
    numbers = choices and all(isinstance(one, int | float) for one in choices)
    kinds = {one.get("type") for one in schema.get("anyOf", (schema,))}
    numeric = kinds <= {"integer", "number"} or numbers
    options = _YES_NO if kind == "boolean" else [(str(one), one) for one in choices]
    if not options if compact else numeric:
        return w.Text(layout={"width": "auto" if compact else "13em"}, **look)
    if not options:
        wide = {"width": "auto", "max_width": "48em"}
        return w.Textarea(placeholder="in your own words", rows=2, layout=wide, **look)
    few = len(choices) <= _MOST_BUTTONS and len("".join(map(str, choices))) <= _MOST_BUTTON_CHARS
    if few and not compact:
        style["button_width"] = "auto"
        return w.ToggleButtons(options=options, value=None, **look)
    # None as an option's value would show as an empty line.
    nothing = ("none" if schema.get("optional") else "choose", "")
    layout = {"width": "auto" if compact else "20em"}
    return w.Dropdown(options=[nothing, *options], layout=layout, **look)


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
