"""Intervals and noise floors: by hand, and on simulated data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from llmsim_lab.experiments import _statistics
from llmsim_lab.experiments._results import agreement
from llmsim_lab.experiments._statistics import differences, holm, noise, sample_values

from llmsim_lab.errors import ConfigError

T_2 = 4.302652729911275  # Student's t, 0.975, two degrees of freedom


def paired_interval(by_turn: dict[int, Sequence[float]], *, crossed: bool = False) -> Any:
    """The interval of differences by turn; with seeds of their own, or the same at every turn."""
    rows = [
        (value, turn, place + (0 if crossed else 1_000 * turn))
        for turn, own in by_turn.items()
        for place, value in enumerate(own)
    ]
    return _statistics.paired_interval(
        [value for value, _, _ in rows],
        turns=[turn for _, turn, _ in rows],
        seeds=[seed for _, _, seed in rows],
    )


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
            "accepted": value,
        }
        | columns
        for variant, turns in values.items()
        for turn, samples in turns.items()
        for sample, value in enumerate(samples, 1)
    ]
    return pd.DataFrame(rows)


def test_the_interval_is_students_over_the_turns_means() -> None:
    # Turn means 2, 1, 5: mean 8/3, s = 2.0817, s/√3 = 1.2019; t = 2.2188 on two degrees.
    found = paired_interval({1: [1, 3], 2: [0, 2], 3: [4, 6]})
    reach = T_2 * math.sqrt(13 / 3) / math.sqrt(3)
    assert found.estimate == pytest.approx(8 / 3)
    assert (found.low, found.high) == pytest.approx((8 / 3 - reach, 8 / 3 + reach))
    t = (8 / 3) / (math.sqrt(13 / 3) / math.sqrt(3))
    assert found.p_value == pytest.approx(1 - t / math.sqrt(2 + t**2))
    assert found.method == "t over 3 turn means"
    assert (found.pairs, found.turns) == (6, 3)


def test_every_turn_has_the_same_weight_however_many_samples_came_off() -> None:
    assert paired_interval({1: [1, 1, 1, 1], 2: [3]}).estimate == 2


def test_with_one_turn_the_interval_is_over_samples_and_says_what_it_leaves_out() -> None:
    found = paired_interval({4: [1, 2, 3]})
    assert found.estimate == 2
    assert found.high == pytest.approx(2 + T_2 / math.sqrt(3))
    assert found.method == "t over the samples of one turn"
    assert found.note == "one turn: the interval covers the sampling noise at that state only"


def test_two_turns_give_an_interval_with_a_warning() -> None:
    found = paired_interval({1: [0, 1], 2: [1, 2]})
    assert found.high == pytest.approx(1 + 12.706204736432095 * 0.5)
    assert "one degree of freedom" in found.note


@pytest.mark.parametrize("by_turn", [{}, {1: []}, {1: [0.5]}])
def test_fewer_than_two_pairs_give_words_instead_of_numbers(by_turn: Any) -> None:
    found = paired_interval(by_turn)
    assert (found.estimate, found.low, found.high, found.p_value) == (None, None, None, None)
    assert "too few pairs" in found.note


def test_pairs_without_variation_have_an_interval_without_width_and_no_false_p_value() -> None:
    same, apart = paired_interval({1: [0, 0], 2: [0]}), paired_interval({1: [0.5, 0.5], 2: [0.5]})
    assert (same.estimate, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert (apart.estimate, apart.low, apart.high, apart.p_value) == (0.5, 0.5, 0.5, None)
    assert "no width" in apart.note


def test_many_turns_have_students_interval_too() -> None:
    rng = np.random.default_rng(5)
    by_turn = {turn: rng.normal(0.3, 1, 2).tolist() for turn in range(25)}
    found = paired_interval(by_turn)
    assert found.method == "t over 25 turn means"
    means = [sum(values) / 2 for values in by_turn.values()]
    reach = 2.0638985616280205 * np.std(means, ddof=1) / math.sqrt(25)  # t on 24 degrees
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * reach)


def covered(rng: np.random.Generator, *, turns: int, naive: bool = False) -> bool:
    """Return True if the interval contains zero, where turns differ but variants do not."""
    effects = rng.normal(0, 1, turns)
    pairs = {turn: (effects[turn] + rng.normal(0, 0.5, 3)).tolist() for turn in range(turns)}
    if naive:
        pairs = {0: [value for values in pairs.values() for value in values]}
    found = paired_interval(pairs)
    assert found.low is not None
    assert found.high is not None
    return found.low <= 0 <= found.high


@pytest.mark.parametrize("turns", [3, 8, 24])
def test_with_no_difference_the_interval_contains_zero_about_95_times_in_100(turns: int) -> None:
    rng = np.random.default_rng(2025)
    share = np.mean([covered(rng, turns=turns) for _ in range(600)])
    assert 0.92 < share < 0.98


def test_taking_samples_of_a_turn_for_independent_would_mislead() -> None:
    rng = np.random.default_rng(2025)
    share = np.mean([covered(rng, turns=8, naive=True) for _ in range(300)])
    assert share < 0.85


def test_seeds_that_all_turns_share_are_clusters_too() -> None:
    # Turn means 0, 0; seed means -1, 1: all the variance is the seeds'.
    found = paired_interval({1: [-1, 1], 2: [-1, 1]}, crossed=True)
    assert found.method == "t over 2 turns crossed with 2 seeds"
    assert found.high == pytest.approx(12.706204736432095 * 1)
    assert paired_interval({1: [-1, 1], 2: [-1, 1]}).high == 0


def test_crossed_turns_and_seeds_have_the_two_way_variance() -> None:
    pairs = {1: [0.0, 3.0, 1.0], 2: [2.0, 4.0, 3.0], 3: [1.0, 2.0, 6.0]}
    values = np.array(list(pairs.values()))
    turns, seeds = values.mean(axis=1), values.mean(axis=0)
    parts = turns.var(ddof=1) / 3 + seeds.var(ddof=1) / 3 - values.var(ddof=1) / 9
    variance = max(parts, turns.var(ddof=1) / 3, seeds.var(ddof=1) / 3)
    found = paired_interval(pairs, crossed=True)
    assert found.high - found.estimate == pytest.approx(T_2 * math.sqrt(variance))


def test_one_seed_for_all_turns_is_said_to_leave_other_seeds_out() -> None:
    found = paired_interval({1: [0.0], 2: [1.0], 3: [2.0]}, crossed=True)
    assert found.method.startswith("t over 3 turn means")
    assert "leaves out what another seed would do" in found.note


def test_crossed_pairs_without_variation_have_an_interval_without_width() -> None:
    found = paired_interval({1: [0.5, 0.5], 2: [0.5, 0.5]}, crossed=True)
    assert (found.low, found.high, found.p_value) == (0.5, 0.5, None)


def test_with_lucky_seeds_the_two_way_interval_contains_zero_often_and_the_other_seldom() -> None:
    rng = np.random.default_rng(2025)
    hits = {True: 0, False: 0}
    for _ in range(300):
        luck = rng.normal(0, 1, 6)
        pairs = {t: (rng.normal(0, 0.5) + luck + rng.normal(0, 0.5, 6)).tolist() for t in range(6)}
        for crossed in hits:
            found = paired_interval(pairs, crossed=crossed)
            hits[crossed] += found.low <= 0 <= found.high
    assert 0.92 < hits[True] / 300 <= 1
    assert hits[False] / 300 < 0.8


def test_pairs_are_of_the_same_turn_and_sample_and_failed_ones_are_counted() -> None:
    frame = make_frame(
        {"a": {1: [4, 5], 2: [6, math.nan]}, "b": {1: [5, 7], 2: [6, 9]}},
    )
    [found] = differences(frame, "interest_rate", ["a", "b"])
    assert found.estimate == pytest.approx((1.5 + 0) / 2)
    assert (found.pairs, found.failed, found.turns) == (3, 1, 2)
    assert (found.variant, found.reference) == ("b", "a")


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({1: [math.nan, math.nan], 2: [math.nan, math.nan]}, "all 4 pairs had a failed sample"),
        ({1: [math.nan]}, "the only pair had a failed sample"),
        ({1: [5, math.nan]}, "too few pairs for an interval: 1, since 1 of 2 had a failed sample"),
    ],
)
def test_where_samples_failed_the_way_out_is_not_to_play_more(values: Any, note: str) -> None:
    frame = make_frame({"a": {turn: [4.0] * len(own) for turn, own in values.items()}, "b": values})
    [found] = differences(frame, "interest_rate", ["a", "b"])
    assert found.note.startswith(note)
    assert "play at least" not in found.note
    assert "column detail" in found.note


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


def test_a_variant_that_was_not_played_yet_has_no_difference() -> None:
    [found] = differences(make_frame({"a": {1: [4, 5]}}), "confidence", ["a", "b"])
    assert found.estimate is None
    assert found.note == "no sample of both was played"


def test_a_sample_of_several_agents_counts_once() -> None:
    frame = pd.concat([make_frame({"a": {1: [4.0]}}), make_frame({"a": {1: [6.0]}})])
    assert sample_values(frame, "confidence")["value"].tolist() == [5.0]


def test_a_sample_in_which_one_agent_has_no_answer_has_none() -> None:
    frame = pd.concat([make_frame({"a": {1: [4.0]}}), make_frame({"a": {1: [math.nan]}})])
    assert sample_values(frame, "confidence")["value"].isna().all()


def test_an_unknown_outcome_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match="'mood' is not one of interest_rate"):
        sample_values(make_frame({"a": {1: [1]}}), "mood")  # type: ignore[arg-type]


def test_holm_steps_down_and_leaves_out_what_has_no_p_value() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == [0.03, 0.06, None, 0.06]
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_more_than_two_variants_have_adjusted_p_values() -> None:
    frame = make_frame(
        {
            "a": {1: [1, 2], 2: [3, 2], 3: [2, 2]},
            "b": {1: [3, 3], 2: [5, 4], 3: [3, 5]},
            "c": {1: [1, 3], 2: [2, 2], 3: [2, 3]},
        }
    )
    found = differences(frame, "interest_rate", ["a", "b", "c"])
    assert [d.p_holm for d in found] == holm([d.p_value for d in found])
    assert found[0].p_holm == pytest.approx(2 * (found[0].p_value or 0))


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
