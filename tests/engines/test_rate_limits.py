"""What holds for every set of rate limits and every current rate."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from llmsim_lab.economy._macro import EngineConfig
from llmsim_lab.errors import ConfigError


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
        current = draw.choice(
            [
                limits.lower,
                limits.upper,
                round(draw.uniform(limits.lower, limits.upper), 2),
                draw.uniform(limits.lower, limits.upper),
                draw.uniform(limits.lower - 20, limits.upper + 20),
            ]
        )
        cases.append((limits, current))
    return cases


def test_every_rate_offered_is_one_that_is_accepted() -> None:
    for limits, current in random_cases(3000):
        for rate in limits.choices(current):
            assert limits.problem(rate, current=current) is None, (limits, current, rate)


def test_the_rates_offered_rise_and_there_is_always_one() -> None:
    for limits, current in random_cases(3000):
        rates = limits.choices(current)
        assert rates
        assert all(low < high for low, high in pairwise(rates))


def test_staying_put_is_always_offered_within_the_bounds() -> None:
    for limits, current in random_cases(3000):
        if limits.lower <= current <= limits.upper:
            assert min(abs(rate - current) for rate in limits.choices(current)) < 1e-6


def test_every_grid_point_within_bounds_and_reach_is_offered() -> None:
    for limits, current in random_cases(500):
        here = min(max(current, limits.lower), limits.upper)
        rates = limits.choices(current)
        for number in range(-200, 400):
            point = number * limits.rate_step
            margin = min(
                point - limits.lower, limits.upper - point, limits.max_move - abs(point - here)
            )
            if margin > 1e-6:
                assert min(abs(rate - point) for rate in rates) < 1e-5, (limits, current, point)


def test_the_nearest_rate_is_not_further_than_any_other_offered() -> None:
    draw = random.Random(3)
    for limits, current in random_cases(1000):
        wish = draw.uniform(-30, 60)
        nearest = limits.nearest(wish, current=current)
        assert all(abs(nearest - wish) <= abs(rate - wish) for rate in limits.choices(current))


def test_of_two_equally_close_rates_the_lower_one_is_taken() -> None:
    assert EngineConfig().nearest(4.125, current=4.0) == 4.0


def test_from_outside_the_bounds_a_move_counts_from_the_bound() -> None:
    limits = EngineConfig(rate_bounds=(0, 10))
    assert limits.choices(14)[-1] == 10
    assert limits.problem(7.5, current=14) == (
        "the new interest rate 7.5% is 2.5 percentage points from the current 10%; "
        "one action may move it by 2 at most"
    )


def test_a_rate_outside_the_bounds_is_a_problem() -> None:
    assert EngineConfig(rate_bounds=(0, 10)).problem(11, current=9) == (
        "the new interest rate 11% is outside the bounds 0% to 10%"
    )


def test_a_rate_that_is_not_a_number_is_a_problem() -> None:
    assert EngineConfig().problem(float("nan"), current=4) == (
        "the new interest rate nan% is outside the bounds 0% to 25%"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_limits_must_be_finite(value: float) -> None:
    with pytest.raises(ConfigError, match="finite"):
        EngineConfig(rate_bounds=(0, value))


def test_a_move_may_be_cut_into_a_thousand_rates_and_no_more() -> None:
    assert EngineConfig(max_move=1000 / 64, rate_step=1 / 64).rate_step == 1 / 64
    with pytest.raises(ConfigError, match="into more than 1000 rates"):
        EngineConfig(max_move=1000.5 / 64, rate_step=1 / 64)
