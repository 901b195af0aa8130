"""What holds for every set of rate limits and every current rate."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from llmsim_lab.economy.macro import EngineConfig


def random_cases(count: int) -> list[tuple[EngineConfig, float]]:
    draw = random.Random(20)
    cases = []
    for _ in range(count):
        lower = draw.choice([0.0, -0.75, draw.uniform(-5, 5)])
        limits = EngineConfig(
            rate_bounds=(lower, lower + draw.choice([25.0, 0.1, draw.uniform(0.01, 40)])),
            max_move=draw.choice([2.0, 0.25, draw.uniform(0.01, 10)]),
            rate_step=draw.choice([0.25, 0.5, draw.uniform(0.05, 3)]),
        )
        inside = draw.uniform(limits.lower, limits.upper)
        anywhere = draw.uniform(limits.lower - 20, limits.upper + 20)
        current = draw.choice([limits.lower, limits.upper, round(inside, 2), inside, anywhere])
        cases.append((limits, current))
    return cases


def test_rates_on_offer_rise_are_accepted_and_are_all_of_the_grid_with_the_one_in_force() -> None:
    for limits, current in random_cases(300):
        rates, here = limits.choices(current), limits.inside(current)
        assert all(low < high for low, high in pairwise(rates))
        assert [limits.problem(rate, current=current) for rate in rates] == [None] * len(rates)
        assert min(abs(rate - here) for rate in rates) < 1e-6
        for number in range(-200, 400):
            point = number * limits.rate_step
            inside = min(point - limits.lower, limits.upper - point)
            if min(inside, limits.max_move - abs(point - here)) > 1e-6:
                assert min(abs(rate - point) for rate in rates) < 1e-5, (limits, current, point)


@pytest.mark.parametrize(
    ("rate", "current", "problem"),
    [
        (7.5, 14, "7.5% is 2.5 percentage points from the current 10%; one action may move it by"),
        (11, 9, "11% is outside the bounds 0% to 10%"),
        (float("nan"), 4, "nan% is outside the bounds 0% to 10%"),
    ],
)
def test_what_is_wrong_with_a_rate_is_said(rate: float, current: float, problem: str) -> None:
    limits = EngineConfig(rate_bounds=(0, 10))
    assert f"the new interest rate {problem}" in str(limits.problem(rate, current=current))
    assert limits.choices(14)[-1] == 10  # from outside the bounds a move counts from the bound
