"""Answers in the form that a scenario's briefing asks for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from llmsim_lab.context._reply import reply_model
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import reply_schema

STRAIT = ("ASSESSMENT: Your read", "ACTIONS: Decisions", "COMMUNICATIONS: Messages")


def test_each_part_asked_for_is_a_field_in_that_order() -> None:
    schema = reply_schema(reply_model(STRAIT), max_text=100)
    assert list(schema["properties"]) == ["assessment", "actions", "communications"]
    assert schema["required"] == ["assessment", "actions", "communications"]
    assert schema["properties"]["actions"] == {
        "type": "string",
        "description": "Decisions",
        "maxLength": 100,
    }


def test_others_hear_all_but_the_assessment() -> None:
    reply = reply_model(STRAIT)(assessment=" Dry. ", actions="Dig.", communications="")
    assert reply.public == "ACTIONS: Dig."
    assert reply.reasoning == "Dry."


def test_a_label_that_is_taken_gets_another_field() -> None:
    reply = reply_model(("REASONING: Why", "COPY: What"))(part_reasoning="a", part_copy="b")
    assert reply.public == "REASONING: a\nCOPY: b"


def test_an_answer_that_nobody_hears_is_a_fault() -> None:
    with pytest.raises(ValidationError, match="it says nothing in actions or communications"):
        reply_model(STRAIT)(assessment="Dry.", actions=" ", communications="")


def test_what_code_says_stands_in_the_first_public_part_and_may_be_silence() -> None:
    assert reply_model(STRAIT).saying("Dig.").public == "ACTIONS: Dig."
    assert reply_model(("ASSESSMENT: x",)).saying("Dry.").public == "ASSESSMENT: Dry."
    assert reply_model(STRAIT).saying("").public == ""


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two parts are called 'actions'"):
        reply_model(("ACTIONS: a", "actions: b"))
