from __future__ import annotations

import re
from typing import Any

import pytest
from context_kit import make_variables
from pydantic import ValidationError

OPEN = {"type": "choice", "options": ["Open", "Shut"]}


def variable(**definition: Any) -> Any:
    return make_variables(global_vars={"x": definition}).global_vars["x"]


@pytest.mark.parametrize(
    ("definition", "value", "text"),
    [
        ({"type": "scale"}, 65, "65/100"),
        ({"type": "scale"}, 65.0, "65/100"),
        ({"type": "scale", "min": 1, "max": 7}, 5, "5 on a scale from 1 to 7"),
        ({"type": "percent"}, 55, "55%"),
        ({"type": "number", "unit": "bn"}, 12.345, "12.35 bn"),
        ({"type": "number", "unit": "m", "step": 0.25}, 4.5, "4.5 m"),
        ({"type": "number", "step": 0.1}, 0.3, "0.3"),
        ({"type": "number"}, 999_999_999_999_999, "999999999999999"),
        ({"type": "flag"}, True, "Yes"),
        (OPEN, "Open", "Open"),
        ({"type": "text"}, "two\nlines", "two lines"),
        ({"type": "text"}, "", "none"),
    ],
)
def test_a_value_prints_with_its_unit_or_scale(definition: Any, value: Any, text: str) -> None:
    its = variable(**definition)
    assert its.text(its.accept(value)) == text


@pytest.mark.parametrize(
    ("definition", "asked", "reason"),
    [
        ({"type": "scale"}, 101, "101 is above the greatest value, 100"),
        ({"type": "scale"}, -1, "-1 is below the least value, 0"),
        ({"type": "scale"}, 50.5, "50.5 is not a multiple of 1"),
        ({"type": "scale"}, True, "True is bool, not a number"),
        ({"type": "scale"}, "65", "'65' is str, not a number"),
        ({"type": "scale"}, None, "None is NoneType, not a number"),
        ({"type": "number"}, float("nan"), "nan is not a number below 1e+15"),
        ({"type": "number"}, -1e15, "-1000000000000000.0 is not a number below"),
        ({"type": "percent", "step": 0.25}, 4.6, "4.6 is not a multiple of 0.25"),
        ({"type": "flag"}, 1, "1 is neither true nor false"),
        (OPEN, ["Open"], "['Open'] is not one of Open, Shut"),
        (OPEN, "open", "'open' is not one of Open, Shut"),
        ({"type": "text"}, 5, "5 is int, not a text"),
        ({"type": "text", "max_chars": 3}, "four", "4 characters, more than 3"),
        ({"type": "text"}, "t" * 201, "201 characters, more than 200"),
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
        ({"type": "flag"}, {"type": "boolean"}),
        ({"type": "text", "max_chars": 9}, {"type": "string", "maxLength": 9}),
        (OPEN, {"enum": ["Open", "Shut"]}),
    ],
)
def test_the_schema_limits_a_model_to_the_values(definition: Any, schema: Any) -> None:
    assert variable(**definition).json_schema() == schema


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"type": "scale", "default": 120}, "120 is above"),
        ({"type": "scale", "min": 5, "max": 5}, "min 5 is not below max 5"),
        ({"type": "flag", "unit": "kg"}, "Extra inputs are not permitted"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(definition: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        variable(**definition)
