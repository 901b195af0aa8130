"""Answers in the form that a scenario's briefing asks for."""

from __future__ import annotations

from typing import Any

import pytest
from builders import played
from crisis_kit import judged, make_crisis, make_scenario, schema_of

from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import ChatRequest

STRAIT = ("ASSESSMENT: Your read", "ACTIONS: Decisions", "COMMUNICATIONS: Messages")
DIG = {"assessment": " Dry. ", "actions": "Dig.", "communications": ""}


def asked_for(*parts: str, reply: Any = None, players: Any = None) -> CrisisSimulation:
    """Return a crisis after a turn in which each agent was asked for these parts."""

    def answer(request: ChatRequest) -> Any:
        assert request.site is not None
        return judged() if request.site.component == "engine" else reply

    scenario = make_scenario(briefing={"response_format": parts})
    return played(make_crisis(scenario=scenario, replies=answer, players=players or {}), 1)


def heard(run: CrisisSimulation) -> str:
    """Return what the others hear of Ada."""
    words: str = run.state.responses["Ada"]
    return words


def test_each_part_asked_for_is_a_field_in_that_order() -> None:
    schema = schema_of(asked_for(*STRAIT, reply=DIG), "agent")
    assert list(schema["properties"]) == ["assessment", "actions", "communications"]
    assert schema["required"] == ["assessment", "actions", "communications"]
    assert schema["properties"]["actions"] == {
        "type": "string",
        "description": "Decisions",
        "maxLength": 400,
    }


def test_others_hear_all_but_the_assessment() -> None:
    run = asked_for(*STRAIT, reply=DIG)
    assert heard(run) == "ACTIONS: Dig."
    model_answer = run.turns[1].answers[1]
    assert model_answer.fields["assessment"] == " Dry. "
    assert model_answer.reasoning == "Dry."


@pytest.mark.parametrize(
    ("assessment", "reasoning"),
    [(" Dry. ", "Dry."), (" ", "ACTIONS: Dig."), (None, "ACTIONS: Dig.")],
)
def test_the_assessment_is_why_and_without_one_all_that_is_said(
    assessment: str | None, reasoning: str
) -> None:
    parts = STRAIT if assessment is not None else ("ACTIONS: Decisions",)
    said = {"assessment": assessment, "actions": "Dig.", "communications": ""}
    answer = {name: text for name, text in said.items() if name.upper() in str(parts)}
    run = asked_for(*parts, players={"agent": lambda _: answer})
    assert {it.reasoning for it in run.turns[1].answers if it.component == "agent"} == {reasoning}


@pytest.mark.parametrize(
    ("part", "field", "label"),
    [
        ("REASONING: Why", "part_reasoning", "REASONING"),
        ("COPY: What", "part_copy", "COPY"),
        ("2ND VIEW: Hers", "part_2nd_view", "2ND VIEW"),
        ("A4: Page", "a4", "A4"),
        ("!!: What", "part_1", "!!"),
        ("What you do", "part_1", "PART 1"),
        (f"{'a' * 61}: b", "part_1", "PART 1"),
        (f"{'a' * 60}: b", "a" * 60, "a" * 60),
    ],
)
def test_a_label_makes_the_name_of_a_field_that_no_reply_has(
    part: str, field: str, label: str
) -> None:
    assert heard(asked_for(part, reply={field: "So."})) == f"{label}: So."


def test_an_answer_that_nobody_hears_is_a_fault() -> None:
    run = asked_for(*STRAIT, reply={"assessment": "Dry.", "actions": " ", "communications": ""})
    assert heard(run) == ""
    retried = [call for call in run.turns[1].calls if call.request.attempt == 2]
    assert "it says nothing in actions or communications" in retried[0].request.prompt


def test_what_code_says_stands_in_the_first_public_part() -> None:
    course = "We keep our course and change nothing."
    assert heard(asked_for(*STRAIT, players={"agent": "rule"})) == f"ACTIONS: {course}"
    only = asked_for("ASSESSMENT: x", players={"agent": "rule"})
    assert heard(only) == f"ASSESSMENT: {course}"


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two parts are called 'actions'"):
        asked_for("ACTIONS: a", "actions: b")
