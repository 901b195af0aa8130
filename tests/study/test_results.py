"""What comes of a comparison's samples: effects as one family, noise floors, agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.study._results import ANSWERS, agreement, effects_of, noise, sample_values


def make_frame(values: dict[str, dict[int, Sequence[float]]], **columns: Any) -> pd.DataFrame:
    """Results by variant, turn and sample; NaN for a sample that failed."""
    rows = [
        {
            "variant": variant,
            "turn": turn,
            "sample": sample,
            "seed": 100 * turn + sample,
            "interest_rate": value,
            "confidence": value,
            "decision": "" if math.isnan(value) else f"{value:g}",
        }
        | columns
        for variant, turns in values.items()
        for turn, samples in turns.items()
        for sample, value in enumerate(samples, 1)
    ]
    return pd.DataFrame(rows)


def test_pairs_are_of_the_same_turn_and_seed_and_failed_ones_are_left_out() -> None:
    frame = make_frame({"a": {1: [4, 5], 2: [6, math.nan]}, "b": {1: [5, 7], 2: [6, 9]}})
    effect, answers = effects_of(frame, ["interest_rate"], ["a", "b"])
    assert effect.estimate == pytest.approx((1.5 + 0) / 2)
    assert (effect.n, effect.unit) == (2, "situations")
    assert (effect.contrast, answers.contrast) == ("b \u2212 a", "b \u2212 a")
    assert answers.outcome == ANSWERS


def test_a_variant_that_was_not_played_yet_has_no_difference() -> None:
    [found] = effects_of(make_frame({"a": {1: [4, 5]}}), ["confidence"], ["a", "b"])
    assert found.estimate is None
    assert found.note == "no sample of both was played"


def test_of_outcomes_without_a_difference_one_seldom_comes_out_by_luck() -> None:
    rng = np.random.default_rng(3)
    names = ["one", "two", "three"]
    alone = together = 0
    for _ in range(60):
        frame = make_frame({arm: {turn: [0.0] * 5 for turn in (1, 2, 3)} for arm in "ab"})
        for name in names:
            frame[name] = rng.normal(size=len(frame))
        found = effects_of(frame, names, ["a", "b"])
        alone += any(e.p is not None and e.p < 0.05 for e in found)
        together += any(e.p_family is not None and e.p_family < 0.05 for e in found)
    assert alone >= 6  # each outcome by itself: 9 or more of 60 are expected
    assert together <= 6  # at most 3 are expected


def test_what_was_answered_is_told_apart_where_the_mean_is_not() -> None:
    # "Always 5" and "4 or 6, as often" have the same mean.
    frame = make_frame({"a": {1: [5.0] * 12}, "b": {1: [4.0, 6.0] * 6}})
    mean, answers = effects_of(frame, ["interest_rate"], ["a", "b"])
    assert mean.estimate == 0
    assert mean.p is not None
    assert mean.p > 0.5
    assert answers.p_family is not None
    assert answers.p_family < 0.01
    assert answers.method.startswith("energy distance of answers, permuted by situation")


def test_agreement_compares_with_the_floor_over_pairs_of_different_seeds() -> None:
    # Both prompts follow the seed alone: raise, hold, raise, lower.
    moves, places = [0.5, 0.0, 0.25, -0.5], [(turn, k) for turn in (1, 2) for k in range(4)]
    frame = pd.DataFrame(
        [
            {"variant": name, "turn": turn, "sample": k + 1, "move": moves[k], "decision": str(k)}
            for name in "ab"
            for turn, k in places
        ]
    )
    found = agreement(frame, ["a", "b"]).set_index(["of", "seeds"])
    assert found.loc[("a and b", "same"), "same_direction"] == 1
    other, floor = found.loc[("a and b", "different")], found.loc[("a and itself", "different")]
    assert other["same_direction"] == floor["same_direction"] == pytest.approx(1 / 6)
    assert (other["same_answer"], floor["same_answer"]) == (0, 0)
    assert found["pairs"].tolist() == [8, 24, 12, 12]


def test_a_sample_of_several_agents_counts_once() -> None:
    frame = pd.concat([make_frame({"a": {1: [4.0]}}), make_frame({"a": {1: [6.0]}})])
    assert sample_values(frame, "confidence")["value"].tolist() == [5.0]


def test_a_sample_in_which_one_agent_has_no_answer_has_none() -> None:
    frame = pd.concat([make_frame({"a": {1: [4.0]}}), make_frame({"a": {1: [math.nan]}})])
    assert sample_values(frame, "confidence")["value"].isna().all()


def test_an_unknown_outcome_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match="'mood' is not a number of this comparison"):
        sample_values(make_frame({"a": {1: [1]}}), "mood")


def test_the_noise_floor_is_how_far_two_samples_of_a_prompt_are_apart() -> None:
    [found] = noise(make_frame({"a": {1: [1, 2, 4], 2: [0, 0]}}), "interest_rate", ["a"])
    assert found.floor == pytest.approx((2 + 0) / 2)  # |1-2|, |1-4|, |2-4| have the mean 2
    assert found.sd_within == pytest.approx(math.sqrt((42 / 9) / 3))
    assert (found.samples, found.failed, found.turns, found.note) == (5, 0, 2, "")


def test_the_noise_floor_needs_two_samples_a_turn_and_says_what_it_left_out() -> None:
    frame = make_frame({"a": {1: [1], 2: [2]}, "b": {1: [1, math.nan], 2: [2, 2]}})
    single, part = noise(frame, "confidence", ["a", "b"])
    assert (single.floor, single.sd_within, single.turns) == (None, None, 0)
    assert "two samples a turn are needed" in single.note
    assert (part.floor, part.failed, part.turns) == (0, 1, 1)
    assert part.note == "samples of a turn are all alike"


def test_turns_with_one_sample_are_left_out_of_the_noise_floor_and_named() -> None:
    [found] = noise(make_frame({"a": {1: [1, 2], 2: [5]}}), "confidence", ["a"])
    assert (found.floor, found.samples) == (1, 3)
    assert found.note == "turns with one sample are left out"
