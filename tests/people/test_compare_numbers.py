"""A model's numbers beside people's: what is offered, and what is called alike."""

from __future__ import annotations

import numpy as np

from llmsim_lab.people import PublishedFigure, published
from llmsim_lab.study.estimates.people import (
    Margins,
    PeopleParts,
    compare_numbers,
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


def test_no_significant_difference_is_never_likeness() -> None:
    parts = compared(drawn(12, seed=3), mean=0.05)
    low, high = parts.difference.interval
    assert low < 0 < high
    assert parts.difference.near == "undecided"
    assert parts.verdict != "like people"
