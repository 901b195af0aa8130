"""A model's numbers beside people's: what is offered, and what is called alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmsim_lab.people import PublishedFigure, published
from llmsim_lab.study.estimates.people import (
    Margins,
    PeopleParts,
    Weighted,
    compare_law,
    compare_numbers,
    groups_for,
)

DICTATOR = published("forsythe_1994", condition="dictator $5", measure="offer_usd", divide_by=5)
LIVES = published("tversky_1981", condition="lives saved", measure="takes_the_certain")
GUESSES = published("nagel_1995", condition="factor 2/3", measure="guess", period=1)


def compared(
    values: np.ndarray, figure: PublishedFigure = DICTATOR, **margins: float
) -> PeopleParts:
    return compare_numbers([values[[k]] for k in range(len(values))], figure, Margins(**margins))


def drawn(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(DICTATOR.values, n)


def test_who_draws_from_people_is_like_them() -> None:
    parts = compared(drawn(200))
    assert parts.verdict == "like people"
    low, high = parts.difference.interval
    assert low < 0 < high
    assert parts.distance.value < parts.halves.high


def test_the_right_mean_with_a_tenth_of_the_spread_is_unlike_people() -> None:
    values = DICTATOR.mean + (drawn(200) - DICTATOR.mean) / 10
    parts = compared(values)
    assert parts.difference.near == "near"
    assert parts.spread.near == "far"
    assert parts.spread.interval.high < 0.2
    assert parts.verdict == "unlike people"


def test_another_mean_is_unlike_people_and_few_groups_leave_it_undecided() -> None:
    assert compared(drawn(200) + 0.4).verdict == "unlike people"
    verdicts = [compared(drawn(6, seed)).verdict for seed in range(20)]
    assert verdicts.count("undecided") > 10


def test_no_significant_difference_is_never_likeness() -> None:
    parts = compared(drawn(12, seed=3), mean=0.05)
    low, high = parts.difference.interval
    assert low < 0 < high
    assert parts.difference.near == "undecided"
    assert parts.verdict != "like people"


def test_below_five_groups_there_is_no_interval() -> None:
    parts = compared(drawn(4))
    assert parts.difference.interval is None
    assert parts.spread.interval is None
    assert parts.verdict == "not judged"
    assert "fewer than 5 groups" in parts.notes[0]


def test_a_mean_without_spread_is_compared_and_not_judged() -> None:
    parts = compared(np.full(20, 36.0), GUESSES)
    assert parts.difference.value == pytest.approx(-0.73)
    assert (parts.difference.interval, parts.verdict) == (None, "not judged")
    assert parts.notes[0].startswith("mean only")


def test_a_player_that_never_varies_has_no_spread_and_an_interval_by_peoples() -> None:
    parts = compared(np.zeros(30))
    low, high = parts.difference.interval
    error = DICTATOR.sd * np.sqrt(1 / 45 + 2 / 31 / 30)
    assert high - low == pytest.approx(2 * 2.0452 * error, rel=1e-3)
    assert (parts.spread.value, parts.verdict) == (0.0, "unlike people")
    assert parts.notes[0].startswith("all groups are equal")


def test_people_who_all_did_the_same_give_no_interval_and_no_error() -> None:
    same = replace(DICTATOR, n=4, mean=2.5, sd=0.0, values=(2.5,) * 4)
    law = Weighted(np.array([0.0, 5.0]), np.array([0.5, 0.5]))
    for found in (
        compare_law(law, same, Margins()),
        compare_numbers([np.array([2.5])] * 40, same, Margins()),
    ):
        assert (found.difference.interval, found.difference.near) == (None, "not judged")
        assert any("all people did the same" in note for note in found.notes)


def test_below_thirty_groups_a_ratio_of_spreads_has_no_interval() -> None:
    parts = compared(drawn(29))
    assert (parts.spread.interval, parts.spread.near) == (None, "undecided")
    assert compared(drawn(30)).spread.interval is not None


def test_of_shares_both_sides_count_in_the_interval() -> None:
    certain = np.random.default_rng(1).random(400) < LIVES.mean
    parts = compared(certain.astype(float), LIVES)
    assert parts.verdict == "like people"
    assert parts.spread.near == "not judged"
    width = parts.difference.interval.high - parts.difference.interval.low
    assert width > 2 * 1.96 * np.sqrt(LIVES.mean * (1 - LIVES.mean) / LIVES.n)
    assert compared(np.ones(60), LIVES).verdict == "unlike people"


def test_players_of_one_run_are_one_unit() -> None:
    values = drawn(160).reshape(10, 16)
    together = compare_numbers(list(values), DICTATOR, Margins())
    shifted = compare_numbers(
        [group + shift for group, shift in zip(values, np.linspace(-0.5, 0.5, 10), strict=True)],
        DICTATOR,
        Margins(),
    )
    widths = [
        parts.difference.interval.high - parts.difference.interval.low
        for parts in (together, shifted)
    ]
    assert widths[1] > 2 * widths[0]


def test_how_many_groups_are_needed_follows_from_the_people_and_the_margin() -> None:
    few, many = groups_for(DICTATOR, 0.3), groups_for(DICTATOR, 0.15)
    assert few == 30
    assert few <= many < 40
    assert groups_for(DICTATOR, 0.02) is None  # 45 people do not know their own mean so well
    assert groups_for(GUESSES, 0.15) is None
