"""A reply's fields as people fill them in: what was typed is read, judged, and asked back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from llmsim_lab._util.jsontext import JSON, Schema, all_finite
from llmsim_lab._util.schemas import NUMBERS, alternatives, not_null, resolved
from llmsim_lab._util.text import brief, clip, text_of
from llmsim_lab.llm.choice import numeric
from llmsim_lab.llm.form import bounds_words

_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "string": "a text",
    "array": "a list, as in JSON",
    "object": "an object, as in JSON",
}
_TYPED = {"boolean", "enum", "integer", "number", "string"}
"""The kinds of alternatives that can all be typed into one field."""
_DESCRIBE = ("title", "description", "examples")
"""What describes a field, and stays where one of its alternatives is taken for it."""
_AMBIGUOUS = re.compile(r"([+-]?(?!0)\d{1,3})[.,](\d{3})\s*%?")
"""A number with one separator and three digits behind it."""
_YES_AND_NO = {
    **dict.fromkeys(("yes", "y", "true"), True),
    **dict.fromkeys(("no", "n", "false"), False),
}


def field_of(part: object, root: Schema) -> dict[str, Any]:
    """Return a field's schema with its references followed, and without the alternative of null.

    Several alternatives are one list of choices, or stay under ``anyOf`` if each can be typed; else
    it is the first, with the rest under ``others``. ``optional`` says whether there were
    alternatives, and null was one.

    Args:
        part: the field's schema.
        root: the whole schema.
    """
    whole = resolved(part, root)
    every = alternatives(whole, root)
    forms = [field_of(form, root) for form in not_null(every)]
    if not forms:
        return dict(whole)
    field = {"optional": len(forms) < len(every), **forms[0]}
    kinds: set[str | None] = set()
    for form in forms:
        kinds.add("enum" if "enum" in form else form.get("type"))
    if len(forms) > 1 and kinds <= {"boolean", "enum"}:
        choices: list[JSON] = []
        for form in forms:
            choices += form.get("enum", (True, False))
        field = {"optional": field["optional"], "enum": choices}
    elif len(forms) > 1 and kinds <= _TYPED:
        field = {"optional": field["optional"], "anyOf": forms}
    elif len(forms) > 1:
        field["others"] = forms[1:]  # a form asks for the first; code may answer with any
    for name in _DESCRIBE:
        if name in whole:
            field[name] = whole[name]
    return field


def typed_value(typed: str, field: Schema) -> JSON:
    """Return what was typed as a field takes it: a number, yes or no, JSON, or else the text.

    A number that may be two stays the text, which ``field_fault`` asks back.
    """
    # First, since a choice may be called "yes" or "1".
    for choice in field.get("enum", ()):
        if text_of(choice) == typed:
            named: JSON = choice
            return named
    readings: list[JSON] = []
    with suppress(ValueError, RecursionError):
        is_json = typed.startswith(("[", "{"))
        readings.append(json.loads(typed) if is_json else _number(typed))
    readings.append(_YES_AND_NO.get(typed.lower(), typed))
    readings.append(typed or None)
    # Where none is right, the first one is what the message is about.
    value = readings[0]
    for reading in readings:
        if not field_fault(reading, field):
            value = reading
            break
    close = _close(value, field)
    if value in close:
        return close[close.index(value)]  # as the schema writes it: 1.0 for a typed 1
    return close[0] if close else value


def _number(typed: str) -> float:
    """Return a typed number, a whole one as an ``int``; raise ValueError if it is not one."""
    if "_" in typed or _AMBIGUOUS.fullmatch(typed):
        raise ValueError(f"{typed!r} is not one number")
    with suppress(ValueError):
        return int(typed)  # which a float may be too short for, as for a seed
    # Half of Europe writes 2,5; and a rate is typed with its sign as it is shown.
    value = float(typed.replace(",", ".").removesuffix("%"))
    return int(value) if value.is_integer() else value


def _ambiguity(typed: str, field: Schema) -> str:
    """Return which numbers a text such as ``1,000`` may be, for a field of numbers; else nothing.

    English writes a thousand so, German one with three decimals; and 1.000 the other way round.
    """
    match = _AMBIGUOUS.fullmatch(typed.strip())
    if match is None or not _takes_numbers(field):
        return ""
    whole = int(match[1] + match[2])
    fraction = text_of(float(f"{match[1]}.{match[2]}"))
    # With a fourth decimal it is not a thousand.
    written = f"{fraction}0" if fraction.endswith(match[2]) else fraction
    return f"is {typed!r}, which may be {whole} or {fraction}; write {whole} or {written}"


def ambiguities(
    value: object,
    part: object,
    root: Schema,
    place: str = "",
) -> Iterator[tuple[str, str]]:
    """Yield the place in an answer of each text that may be two numbers, and which they are.

    Args:
        value: the answer, or a part of it.
        part: its schema.
        root: the whole schema.
        place: where it is in the answer.
    """
    field = field_of(part, root)
    before = f"{place}." if place else ""
    if isinstance(value, str):
        ambiguity = _ambiguity(value, field)
        # A choice that is written so is meant.
        if ambiguity and value not in field.get("enum", ()):
            yield place, ambiguity
    elif isinstance(value, Mapping):
        fields = field.get("properties", {})
        any_other = field.get("additionalProperties", {})
        for name, item in value.items():
            inner = fields.get(name, any_other)
            yield from ambiguities(item, inner, root, f"{before}{name}")
    elif isinstance(value, list):
        # The first ones have schemas of their own; all others one.
        parts = [*field.get("prefixItems", ())]
        parts += [field.get("items", {})] * len(value)
        pairs = zip(value, parts, strict=False)
        for number, (item, inner) in enumerate(pairs):
            yield from ambiguities(item, inner, root, f"{before}{number}")


def _takes_numbers(field: Schema) -> bool:
    """Return True if a field's value may be a number."""
    if field.get("anyOf"):
        return any(map(_takes_numbers, field["anyOf"]))
    if field.get("type") in NUMBERS:
        return True
    return any(numeric([choice]) for choice in field.get("enum", ()))


def _close(value: JSON, field: Schema) -> list[JSON]:
    """Return the choices of a field that a value may mean."""
    choices: list[JSON] = field.get("enum", [])
    if not isinstance(value, int | float) or isinstance(value, bool):
        # 1 is not True.
        return [choice for choice in choices if choice == value and not numeric([choice])]
    close: list[JSON] = []
    for choice in choices:
        if isinstance(choice, bool) or not isinstance(choice, int | float):
            continue
        # Half of the second decimal: rates are shown with two, and typed as they are shown.
        if math.isclose(value, choice, abs_tol=0.005):
            close.append(choice)
    return close


def _allows(field: Schema, value: JSON) -> bool:
    """Return True if a value is of a field's type and within its limits.

    What a list or an object holds, patterns and multiples the reply's class judges.
    """
    if field.get("anyOf"):
        return any(_allows(alternative, value) for alternative in field["anyOf"])
    if "enum" in field:
        # With its type, since True equals 1.
        return any(type(choice) is type(value) and choice == value for choice in field["enum"])
    if not _is_of_type(value, field.get("type")):
        return False
    if isinstance(value, str):
        shortest: float = field.get("minLength", 0)
        longest: float = field.get("maxLength", math.inf)
        return shortest <= len(value) <= longest
    if isinstance(value, int | float):
        above: float = field.get("exclusiveMinimum", -math.inf)
        below: float = field.get("exclusiveMaximum", math.inf)
        lowest: float = field.get("minimum", -math.inf)
        highest: float = field.get("maximum", math.inf)
        return above < value < below and lowest <= value <= highest
    return True


def _is_of_type(value: JSON, name: str | None) -> bool:
    """Return True if a value is of a type of JSON schemas; any is where none is named."""
    match name:
        case "integer":
            is_whole = isinstance(value, float) and value.is_integer()
            return is_whole or (isinstance(value, int) and not isinstance(value, bool))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def field_fault(value: JSON, field: Schema) -> str:
    """Return what is wrong with one field's value; empty where nothing is."""
    if value is None and field.get("optional"):
        return ""
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or is_blank:
        return "is missing"
    if _close(value, field):
        return ""
    if any(not field_fault(value, other) for other in field.get("others", ())):
        return ""
    if isinstance(value, str):
        ambiguity = _ambiguity(value, field)
        if ambiguity:
            return ambiguity
    if _allows(field, value) and all_finite(value):
        return ""
    if isinstance(value, int | float):
        return f"is {clip(text_of(value), 40)}; it must be {field_words(field)}"
    return f"is {brief(value, 40)}; it must be {field_words(field)}"


def field_words(field: Schema) -> str:
    """Return what can be answered for a field, as in ``a whole number from 0 to 20``."""
    if field.get("anyOf"):
        return " or ".join(map(field_words, field["anyOf"]))
    if field.get("enum"):
        return f"one of {', '.join(map(text_of, field['enum']))}"
    type_words = _TYPES.get(field.get("type", ""), "a value")
    return f"{type_words} {bounds_words(field)}".rstrip()
