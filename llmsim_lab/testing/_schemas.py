"""What a schema-held server does with a JSON schema: refuse a bad one, answer by a good one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["example", "schema_faults"]

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_STRUCTURE = ("properties", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "pattern")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lookup(ref: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for step in ref.removeprefix("#/").split("/"):
        if not isinstance(node, Mapping) or step not in node:
            raise KeyError(f"Error resolving ref {ref}: {step} not in {_compact(node)}")
        node = node[step]
    return node


def schema_faults(schema: Any, root: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the server's grammar compiler holds against a schema; empty if it is fine."""
    if not isinstance(schema, Mapping):
        return [f"Unrecognized schema: {_compact(schema)}"]
    root = schema if root is None else root
    if "$ref" in schema:
        try:
            _lookup(schema["$ref"], root)
        except KeyError as error:
            return [str(error.args[0])]
        return []
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    known = all(item in _TYPES for item in kinds) if kind is not None else True
    if not known or (kind is None and schema and not any(key in schema for key in _STRUCTURE)):
        return [f"Unrecognized schema: {_compact(schema)}"]
    pattern = schema.get("pattern")
    if pattern is not None and not (pattern.startswith("^") and pattern.endswith("$")):
        return ["Pattern must start with '^' and end with '$'"]
    return [fault for child in _children(schema) for fault in schema_faults(child, root)]


def _children(schema: Mapping[str, Any]) -> list[Any]:
    children: list[Any] = []
    for key in ("properties", "$defs"):
        nested = schema.get(key, {})
        children += nested.values() if isinstance(nested, Mapping) else [nested]
    for key in ("anyOf", "oneOf", "allOf"):
        children += schema.get(key, [])
    return children + ([schema["items"]] if "items" in schema else [])


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a small value that the schema allows: first choices, lower bounds, short texts.

    Patterns are not followed: a text with one comes out as plain letters.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        return example(_lookup(schema["$ref"], root), root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return example(schema[key][0], root)
    if schema.get("allOf"):
        parts = [example(part, root) for part in schema["allOf"]]
        return {key: value for part in parts for key, value in part.items()}
    kind = schema.get("type", "object")
    return _example_of(kind[0] if isinstance(kind, list) else kind, schema, root)


def _example_of(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    if kind == "object":
        return {key: example(part, root) for key, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema.get("items", {}), root)] * schema.get("minItems", 0)
    if kind == "string":
        length = max(4, schema.get("minLength", 0))
        return ("text" * length)[: min(length, schema.get("maxLength", length))]
    if kind in ("number", "integer"):
        return _example_number(schema, step=1 if kind == "integer" else 0.5)
    return {"boolean": True}.get(kind)


def _example_number(schema: Mapping[str, Any], *, step: float) -> float:
    """Return a bound, or what lies one step inside an exclusive one, else the step itself."""
    value: float = min(step, schema.get("maximum", step))
    if "exclusiveMaximum" in schema:
        value = min(step, schema["exclusiveMaximum"] - step)
    if "exclusiveMinimum" in schema:
        value = schema["exclusiveMinimum"] + step
    return float(schema.get("minimum", value))
