"""Reading JSON schemas: references, constants, alternatives and values, each followed in one place.

A *part* is the schema of one value. References in it are looked up in ``root``, the whole schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmsim_lab._util.jsontext import JSON, Schema

NUMBERS = ("integer", "number")
"""The types that a JSON schema has for numbers."""


def schemas_in(schema: object) -> Iterator[dict[str, Any]]:
    """Yield a schema and all within it, outer ones first; each may be changed when it comes."""
    if not isinstance(schema, dict):
        return
    yield schema
    inner = [schema.get("items"), schema.get("additionalProperties")]
    for key in ("properties", "$defs"):
        inner += schema.get(key, {}).values()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner += schema.get(key, ())
    for part in inner:
        yield from schemas_in(part)


def resolved(part: object, root: Schema) -> Schema:
    """Return a part with what it refers to, and all that it demands, in one mapping.

    A constant is also the only value of an ``enum``.

    Args:
        part: the schema of a value; true and false, which are schemas too, say nothing of it.
        root: the whole schema.
    """
    if not isinstance(part, Mapping):
        return {}
    followed: list[str] = []
    reference = part.get("$ref")
    # A reference that leads back to itself, in a tool's schema, says nothing.
    while isinstance(reference, str) and reference not in followed:
        followed.append(reference)
        # What stands beside a reference, such as a description, counts more than its target.
        beside = {key: value for key, value in part.items() if key != "$ref"}
        part = {**_target(reference, root), **beside}
        reference = part.get("$ref")
    for demand in part.get("allOf", ()):
        part = {**resolved(demand, root), **part}
    if "const" in part:
        return {**part, "enum": [part["const"]]}
    return part


def _target(reference: str, root: Schema) -> Schema:
    """Return the part that a reference such as ``#/$defs/Place`` names; empty if there is none."""
    target: object = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        # How JSON pointers write these two characters.
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping):
            return {}
        target = target.get(name)
    return target if isinstance(target, Mapping) else {}


def alternatives(part: Schema, root: Schema) -> list[Schema]:
    """Return the schemas of which a value fits one, each resolved; none if there is just this one.

    Args:
        part: a resolved part.
        root: the whole schema.
    """
    types = part.get("type")
    if isinstance(types, list):
        # {"type": ["integer", "null"]} is short for two schemas.
        return [{**part, "type": type_} for type_ in types]
    named: Sequence[object] = part.get("anyOf") or part.get("oneOf") or ()
    return [resolved(alternative, root) for alternative in named]


def not_null(parts: Sequence[Schema]) -> list[Schema]:
    """Return the alternatives of a value that is not None."""
    return [part for part in parts if part.get("type") != "null"]


def values_of(parts: Sequence[Schema]) -> list[JSON]:
    """Return the values of alternatives that name them all, None too; else none."""
    values: list[JSON] = []
    for part in parts:
        if part.get("type") == "null":
            values.append(None)
        elif "enum" in part:
            values += part["enum"]
        else:
            # One that names no values may have any.
            return []
    return values
