"""Whether a model prefers what stands in some place of a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest
from social_kit import picks, social_client

from llmsim_lab import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import Reasoner, SocialAgent
from llmsim_lab.statechart._reasoner import MoveQuestion, RuleReasoner
from llmsim_lab.statechart._state import AgentState
from llmsim_lab.study import position_bias
from llmsim_lab.types import ChatRequest

OPTIONS = [
    AgentState.SCROLLING,
    AgentState.ENGAGING_LIKE,
    AgentState.COMPOSING,
    AgentState.RESTING,
]


def first(request: ChatRequest) -> dict[str, Any]:
    assert request.schema is not None
    return {"next_state": request.schema["properties"]["next_state"]["enum"][0]}


def answers_of(
    reply: Callable[[ChatRequest], Any], *options: Sequence[AgentState], questions: int = 10
) -> pd.DataFrame:
    """What a model answers to questions with these options, each in all rotations."""
    shown = options or (OPTIONS,)
    asked = [
        MoveQuestion(
            SocialAgent(f"User {n}", ("tea",), "calm", state=AgentState.EVALUATING),
            AgentState.EVALUATING,
            "decides",
            list(shown[n % len(shown)]),
        )
        for n in range(questions)
    ]
    return asyncio.run(Reasoner(social_client(reply)).ask_rotated(asked))


def test_a_model_that_takes_what_stands_first_is_found_out() -> None:
    answers = answers_of(first)
    assert len(answers) == 40
    places = position_bias(answers)
    assert [one.estimate for one in places] == [0.75, -0.25, -0.25, -0.25]
    assert {(one.n, one.unit, one.speaks_of) for one in places} == {
        (10, "situations", "questions like these")
    }
    assert places[0].p_family == pytest.approx(2 / 2**10)
    # All questions agree, so nothing tells how far others would be off.
    assert str(places).startswith(
        "place 1 \N{MINUS SIGN} no preference: +0.75 (no interval), p = .002, n = 10 situations"
    )


def test_a_model_that_only_weighs_the_options_has_no_bias() -> None:
    places = position_bias(answers_of(picks("engaging_like")))
    assert [(one.estimate, one.p_family) for one in places] == [(0, 1)] * 4


def test_questions_count_once_each_and_for_the_places_that_they_have() -> None:
    # Who only weighs the options takes the first of two in 1/2 of the answers and the first of four
    # in 1/4, which the mean over all answers, (2 / 2 + 4 / 4) / 6 = 1/3, does not show.
    places = position_bias(answers_of(picks("engaging_like"), OPTIONS[:2], OPTIONS))
    assert [(one.estimate, one.n) for one in places] == [(0, 10), (0, 10), (0, 5), (0, 5)]
    biased = position_bias(answers_of(first, OPTIONS[:2], OPTIONS))
    assert biased[0].estimate == pytest.approx((1 / 2 + 3 / 4) / 2)
    assert biased[2].estimate == pytest.approx(-1 / 4)
    assert biased[0].low is None
    assert biased[0].p == pytest.approx(2 / 2**10)
    assert "too coarse for an interval: steps of 0.25" in biased[0].note


def test_one_question_has_no_interval_and_fallbacks_are_no_answers() -> None:
    [place, *_] = position_bias(answers_of(picks("scrolling"), questions=1))
    assert (place.estimate, place.low, place.n) == (0, None, 1)
    assert place.note.startswith("1 question: an interval takes two")
    failed = answers_of(picks("idle"), questions=1)
    with pytest.raises(ConfigError, match="no answer that a model chose"):
        position_bias(failed)
    both = pd.concat([answers_of(picks("scrolling")), failed.assign(question=10)])
    assert position_bias(both).label == "4 of 44 answers are fallbacks, left out"


def test_without_questions_nothing_is_said_of_the_bias() -> None:
    answers = asyncio.run(RuleReasoner().ask_rotated([]))
    with pytest.raises(ConfigError, match="nothing can be said of its bias"):
        position_bias(answers)


def test_the_measured_answers_show_a_bias_against_the_first_place() -> None:
    answers = pd.read_csv(data_path("social/position_bias.csv"))
    places = position_bias(answers)
    assert len(answers) == 6 * places[0].n == 72
    assert places[0].estimate == pytest.approx(3 / 72 - 1 / 6)
    assert places[0].p_family is not None
    assert places[0].p_family < 0.05
