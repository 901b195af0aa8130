"""One field for what a JSON schema describes, in a person's form and among a run's parameters."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.lab._fields import Field

NUMBER = {"type": "number", "minimum": 0, "maximum": 1}
EITHER = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
TEXTS = {"type": "array", "items": {"type": "string"}}
SIDES = {"enum": ["left", "right"], "type": "string", "optional": True}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NUMBER, 0.25),
        ({"type": "integer"}, 7),
        ({"enum": [1, 2, 4]}, 2),
        ({"type": "string"}, "words"),
        ({"type": "boolean"}, True),
        (SIDES, "left"),
        (TEXTS, ["Ann", "Bob"]),
        (TEXTS, ["one, two", "three"]),
        (TEXTS, ["[x]", "y"]),
        (TEXTS, ["", " a"]),
        (TEXTS, []),
        ({"type": "number"}, 1e-6),
        ({"type": "integer"}, 2**64 - 1),
        ({"enum": [0.001, 0.002]}, 0.002),
        (EITHER, 7),
        (EITHER, "auto"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, 2.5),
        ({"type": "number", "minimum": -1e308, "maximum": 1e308}, 1e308),
    ],
)
def test_what_is_written_is_read_back(schema: Any, value: Any) -> None:
    field = Field("It", schema)
    field.value = value
    assert (field.value, field.fault) == (value, "")


def test_what_is_left_open_is_none_and_no_fault_but_for_a_text_that_is_needed() -> None:
    needed: dict[str, Any] = {"type": "string"}
    for schema in (NUMBER, SIDES, TEXTS, needed | {"optional": True}):
        field = Field("It", schema)
        field.value = None
        assert (field.value, field.fault) == (None, "")
    assert Field("It", needed).value == ""


def test_a_long_list_of_choices_that_may_be_left_open_says_so() -> None:
    many = {"enum": [*"abcdefg"], "type": "string"}
    assert Field("It", many | {"optional": True}).box.options[0] == ("none", "")
    assert Field("It", many).box.options[0] == ("choose", "")


def test_a_number_out_of_its_limits_is_kept_and_explained() -> None:
    field = Field("It", NUMBER)
    field.slider.value = 0.5
    assert field.value == 0.5
    field.box.value = "7"
    assert (field.value, field.slider.value) == (7, 0.5)
    assert field.fault == "is 7; it must be a number from 0 to 1"


def test_a_slider_between_the_largest_numbers_has_a_step() -> None:
    field = Field("It", {"type": "number", "minimum": -1e308, "maximum": 1e308})
    assert field.slider.step == pytest.approx(2e306)


def test_texts_may_be_written_as_json_too() -> None:
    field = Field("It", TEXTS)
    field.box.value = '["a, b", "c"]'
    assert field.value == ["a, b", "c"]
    field.box.value = '["a, b'
    assert field.fault.endswith("it must be a list, as in JSON")


def test_a_field_is_kept_for_other_choices_of_its_number_only() -> None:
    field = Field("It", {"enum": [1, 2]})
    field.value = 2
    assert field.offers({"enum": [2, 3]})
    assert (field.value, field.slider.value) == (2, 2)
    assert [value for _, value in field.slider.options] == [2, 3]
    assert not field.offers({"enum": [2, 3], "description": "another"})
    assert not Field("It", NUMBER).offers(NUMBER | {"maximum": 2})


@pytest.mark.parametrize("more", [(), ("b", "c")], ids=["buttons", "list"])
@pytest.mark.parametrize("value", ["", "a", 1, True])
def test_choices_that_python_takes_for_the_same_are_told_apart(value: Any, more: Any) -> None:
    field = Field("It", {"enum": ["", "a", 1, True, *more]})
    assert field.value is None
    field.value = value
    assert (field.value, type(field.value)) == (value, type(value))


def test_a_slider_of_small_numbers_moves_its_box_by_every_step() -> None:
    field = Field("It", {"type": "number", "minimum": 0, "maximum": 0.1})
    field.slider.value = 0.002
    assert field.value == 0.002
