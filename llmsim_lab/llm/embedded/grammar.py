"""Turn a JSON schema into the grammar that the runtime holds a reply to.

The runtime's own ``json_schema`` field does not hold numbers to a range; its llguidance grammar
does. What the grammar leaves open a small model may fill without end, so digits and texts get a
bound where the schema has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["MARKER", "bounded", "grammar_of", "probe_of", "shape_of"]

MARKER = "~Qz7~"
"""What a model never says by itself; see ``probe_of``."""

_MOST = 10**12
_STEP = 0.01
_LONGEST_TEXT = 1000
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else")
_FOR_PEOPLE = ("title", "description", "default", "examples", "discriminator", "$schema", "$id")
_BOUNDS = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def grammar_of(schema: Mapping[str, Any]) -> str:
    """Return the grammar of replies that fit the schema; keys come in the schema's order."""
    return f"%llguidance {{}}\nstart: {_rule(schema)}"


def probe_of(schema: Mapping[str, Any]) -> str:
    """Return a grammar that makes the model say ``MARKER`` first.

    A schema that the runtime does not understand leaves the reply unconstrained and is no error
    there. Only if the marker comes was it understood.
    """
    return f"%llguidance {{}}\nstart: {json.dumps(MARKER)} body\nbody: {_rule(schema)}"


def shape_of(schema: Mapping[str, Any]) -> str:
    """Return a text that schemas share if one is understood exactly when the other is.

    They may differ in the values of an enum: the rates allowed change from turn to turn.
    """
    return json.dumps(_without_values(schema), sort_keys=True)


def bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with a bound on every number and text, closed objects, no prose.

    Args:
        schema: not changed. What it says itself stays: an ``enum``, a range, a ``multipleOf``, a
            ``maxLength``, a ``pattern``.
    """
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _FOR_PEOPLE:
            continue
        if key in _NESTED and isinstance(value, Mapping):
            result[key] = {name: _bounded(child) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list | tuple):
            result[key] = [_bounded(child) for child in value]
        elif key in _SINGLE:
            result[key] = _bounded(value)
        else:
            result[key] = value
    if "properties" in result:
        result.setdefault("additionalProperties", False)
    if "enum" in result or "const" in result:
        return result
    kinds = result.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if kinds & {"number", "integer"}:
        _bound_number(result, whole="number" not in kinds)
    if "string" in kinds and not {"pattern", "format"} & set(result):
        result.setdefault("maxLength", _LONGEST_TEXT)
    return result


def _bounded(value: Any) -> Any:
    return bounded(value) if isinstance(value, Mapping) else value


def _bound_number(schema: dict[str, Any], *, whole: bool) -> None:
    """Bound the digits before and behind the decimal point."""
    lowest, highest = (
        next((schema[key] for key in keys if key in schema), None) for keys in _BOUNDS
    )
    if lowest is None:
        schema["minimum"] = -_MOST if highest is None else min(-_MOST, highest)
    if highest is None:
        schema["maximum"] = _MOST if lowest is None else max(_MOST, lowest)
    if not whole and "multipleOf" not in schema:
        step = _STEP
        if lowest is not None and highest is not None and 0 < highest - lowest < 10 * _STEP:
            digits = 1 - math.floor(math.log10(highest - lowest))
            step = round(10.0**-digits, digits)
        schema["multipleOf"] = step


def _rule(schema: Mapping[str, Any]) -> str:
    compact = {"x-guidance": {"whitespace_flexible": False}, **bounded(schema)}
    return f"%json {json.dumps(compact)}"


def _without_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: len(item) > 0 if key == "enum" and _plain(item) else _without_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_values(item) for item in value]
    return value


def _plain(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(value, str | int | float) for value in values
    )
