"""A schema becomes a grammar that leaves nothing without an end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmsim_lab.llm.embedded.wire import bounded, grammar_of


def schema_in(grammar: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(grammar.split("%json ", 1)[1])
    return loaded


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"maxLength": 1000}),
        ({"type": "string", "maxLength": 7}, {"maxLength": 7}),
        ({"type": "integer", "minimum": 3}, {"minimum": 3, "maximum": 10**12}),
        ({"type": "integer", "maximum": 3}, {"minimum": -(10**12), "maximum": 3}),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 5}, {"multipleOf": 0.01}),
        ({"type": "number", "minimum": 0, "maximum": 0.002}, {"multipleOf": 0.0001}),
        ({"type": "number", "multipleOf": 0.25}, {"multipleOf": 0.25, "minimum": -(10**12)}),
        ({"type": ["number", "null"]}, {"multipleOf": 0.01}),
        ({"type": "object", "properties": {}}, {"additionalProperties": False}),
    ],
)
def test_what_has_no_bound_gets_one(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= bounded(schema).items()


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [9.0, 9.25]},
        {"type": "number", "enum": [1, 2]},
        {"const": "x", "type": "string"},
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "format": "date"},
        {"type": "boolean"},
        {"type": "object", "additionalProperties": {"type": "boolean"}},
    ],
)
def test_what_is_bounded_already_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert bounded(schema) == schema


def test_bounds_reach_every_level() -> None:
    text = {"type": "string", "title": "Text"}
    short = {**text, "maxLength": 1000}

    def whole(text: dict[str, Any]) -> dict[str, Any]:
        parts = {"a": text, "title": {"type": "boolean"}}
        return {"properties": parts, "$defs": {"B": text}, "items": text, "anyOf": [text, True]}

    assert bounded(whole(text)) == {**whole(short), "additionalProperties": False}


def test_the_grammar_keeps_the_order_of_keys_and_allows_no_white_space() -> None:
    schema = {"properties": {"z": {"type": "boolean"}, "a": {"type": "boolean"}}}
    held_to = schema_in(grammar_of(schema))
    assert list(held_to["properties"]) == ["z", "a"]
    assert held_to["x-guidance"] == {"whitespace_flexible": False}
