from __future__ import annotations

import re
from typing import Any

import pytest
from context_kit import make_variables
from pydantic import TypeAdapter, ValidationError

from llmsim_lab.context import GameEngine
from llmsim_lab.context._variables import Variable
from llmsim_lab.errors import ConfigError


def variable(**definition: Any) -> Any:
    return TypeAdapter(Variable).validate_python(definition)


@pytest.mark.parametrize(
    ("definition", "value", "text"),
    [
        ({"type": "scale"}, 65, "65/100"),
        ({"type": "scale", "min": 1, "max": 7}, 5, "5 on a scale from 1 to 7"),
        ({"type": "percent"}, 55, "55%"),
        ({"type": "number", "unit": "bn"}, 12.345, "12.35 bn"),
        ({"type": "flag"}, True, "Yes"),
        ({"type": "choice", "options": ["Open", "Closed"]}, "Open", "Open"),
        ({"type": "text"}, "all calm", "all calm"),
        ({"type": "text"}, "", "none"),
    ],
)
def test_a_value_prints_with_its_unit_or_scale(definition: Any, value: Any, text: str) -> None:
    assert variable(**definition).text(value) == text


@pytest.mark.parametrize(
    ("definition", "asked", "taken"),
    [
        ({"type": "scale"}, "65", 65),
        ({"type": "scale"}, " 65/100 ", 65),
        ({"type": "scale"}, 65.0, 65),
        ({"type": "percent"}, "55%", 55),
        ({"type": "number", "unit": "bn"}, "2.5 bn", 2.5),
        ({"type": "number"}, "-3", -3),
        ({"type": "choice", "options": ["Open", "Closed"]}, " open ", "Open"),
        ({"type": "text"}, "two\nlines", "two lines"),
    ],
)
def test_a_documented_conversion_is_made_and_reported(
    definition: Any, asked: Any, taken: Any
) -> None:
    variables = make_variables(global_vars={"x": {"default": taken, **definition}})
    engine = GameEngine({}, {}, variables=variables)
    [record] = engine.apply_state_updates({"global_vars": {"x": asked}})
    assert (repr(record.after), record.status) == (repr(taken), "repaired")
    assert record.reason == f"{asked!r} was read as {taken!r}"


@pytest.mark.parametrize(
    ("definition", "asked", "reason"),
    [
        ({"type": "scale"}, 101, "101 is above the greatest value, 100"),
        ({"type": "scale"}, -1, "-1 is below the least value, 0"),
        ({"type": "scale"}, 50.5, "50.5 is not a multiple of 1"),
        ({"type": "scale"}, True, "True is bool, not a number"),
        ({"type": "scale"}, "high", "'high' is not a number"),
        ({"type": "number"}, float("nan"), "nan is not a number below 1e+15"),
        ({"type": "percent", "step": 0.25}, 4.6, "4.6 is not a multiple of 0.25"),
        ({"type": "flag"}, 1, "1 is neither true nor false"),
        ({"type": "choice", "options": ["Open", "Shut"]}, ["Open"], "is not one of Open, Shut"),
        ({"type": "text"}, 5, "5 is int, not a text"),
        ({"type": "text", "max_chars": 3}, "four", "4 characters, more than 3"),
    ],
)
def test_an_impossible_value_is_refused_with_its_limit(
    definition: Any, asked: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        variable(**definition).accept(asked)


@pytest.mark.parametrize(
    ("definition", "schema"),
    [
        ({"type": "scale"}, {"type": "integer", "minimum": 0, "maximum": 100}),
        ({"type": "percent", "step": 0.01}, {"type": "number", "minimum": 0, "maximum": 100}),
        ({"type": "number", "min": 0}, {"type": "number", "minimum": 0}),
        ({"type": "number", "step": 1}, {"type": "integer"}),
        ({"type": "flag"}, {"type": "boolean"}),
        ({"type": "text", "max_chars": 9}, {"type": "string", "maxLength": 9}),
        ({"type": "choice", "options": ["A", "B"]}, {"enum": ["A", "B"]}),
    ],
)
def test_the_schema_holds_a_model_to_the_values(definition: Any, schema: Any) -> None:
    assert variable(**definition).json_schema() == schema


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"type": "scale", "default": 120}, "120 is above"),
        ({"type": "scale", "min": 5, "max": 5}, "min 5 is not below max 5"),
        ({"type": "choice", "options": ["Open"]}, "at least 2 items"),
        ({"type": "flag", "unit": "kg"}, "Extra inputs are not permitted"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(definition: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        variable(**definition)


def test_the_same_variable_from_two_sides_is_refused_naming_both() -> None:
    part = make_variables(global_vars={"tax": {"type": "percent"}})
    with pytest.raises(ConfigError, match="B defines the variable 'tax', which A defines already"):
        part.together([("A", part), ("B", part)])
