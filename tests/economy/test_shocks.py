"""Shocks: reproducible, independent of policy, of the right size."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from llmsim_lab.economy._macro import NO_SHOCKS, ShockGenerator, Shocks
from llmsim_lab.errors import ConfigError

DRAWS = [ShockGenerator(2024).at(turn) for turn in range(10_000)]


def test_the_same_seed_and_turn_give_the_same_shocks() -> None:
    assert ShockGenerator(7).at(3) == ShockGenerator(7).at(3)


def test_the_order_in_which_turns_are_asked_for_does_not_matter() -> None:
    forward, backward = ShockGenerator(7), ShockGenerator(7)
    there = [forward.at(turn) for turn in range(20)]
    back = [backward.at(turn) for turn in reversed(range(20))]
    assert there == back[::-1]


def test_the_first_shocks_of_seed_7_never_change_between_releases() -> None:
    shocks = ShockGenerator(7).at(1)
    expected = (-1.398677345081, 0.421572649489)
    assert (shocks.supply, shocks.demand) == pytest.approx(expected, abs=1e-11)


def test_no_two_turns_and_no_two_seeds_share_a_draw() -> None:
    others = {ShockGenerator(seed).at(0).supply for seed in range(1_000)}
    assert len({draw.supply for draw in DRAWS} | {draw.demand for draw in DRAWS}) == 20_000
    assert len(others) == 1_000


def test_shocks_have_the_standard_errors_of_the_model() -> None:
    # The standard error of a standard deviation of 10,000 draws is 0.7 percent of it.
    assert pstdev(draw.supply for draw in DRAWS) == pytest.approx(1.009, rel=0.03)
    assert pstdev(draw.demand for draw in DRAWS) == pytest.approx(0.819, rel=0.03)


def test_shocks_average_to_zero() -> None:
    assert fmean(draw.supply for draw in DRAWS) == pytest.approx(0, abs=0.04)
    assert fmean(draw.demand for draw in DRAWS) == pytest.approx(0, abs=0.04)


def test_supply_and_demand_shocks_and_neighbouring_turns_are_uncorrelated() -> None:
    supply = [draw.supply / 1.009 for draw in DRAWS]
    demand = [draw.demand / 0.819 for draw in DRAWS]
    assert fmean(s * d for s, d in zip(supply, demand, strict=True)) == pytest.approx(0, abs=0.04)
    assert fmean(a * b for a, b in pairwise(supply)) == pytest.approx(0, abs=0.04)


def test_shocks_have_the_tails_of_a_normal_distribution() -> None:
    beyond = sum(abs(draw.supply) > 2 * 1.009 for draw in DRAWS) / len(DRAWS)
    assert beyond == pytest.approx(0.0455, abs=0.007)


def test_scale_multiplies_the_same_draws() -> None:
    one, half = ShockGenerator(7).at(3), ShockGenerator(7, scale=0.5).at(3)
    assert (half.supply, half.demand) == pytest.approx((one.supply / 2, one.demand / 2))


def test_scale_zero_gives_exactly_no_shocks() -> None:
    assert all(ShockGenerator(7, scale=0).at(turn) == NO_SHOCKS for turn in range(50))


def test_mirrored_shocks_are_the_same_draws_with_the_other_sign() -> None:
    one, other = ShockGenerator(7).at(3), ShockGenerator(7, mirrored=True).at(3)
    assert one + other == NO_SHOCKS
    assert one != NO_SHOCKS


def test_shocks_add_up_part_by_part() -> None:
    assert Shocks(1.0, 2.0) + Shocks(supply=0.5) == Shocks(1.5, 2.0)


def test_shocks_do_not_add_to_plain_numbers() -> None:
    with pytest.raises(TypeError):
        Shocks(1.0) + 1.0  # type: ignore[operator]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_shock_that_is_not_finite_is_an_error(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"demand={value}\) must hold finite numbers$"):
        Shocks(demand=value)


@pytest.mark.parametrize("seed", [-1, 2**128, 1.5, True, "7"])
def test_a_seed_that_is_not_a_whole_number_in_range_is_an_error(seed: int) -> None:
    with pytest.raises(ConfigError, match=f"^seed={seed!r} must be (a whole|from 0)"):
        ShockGenerator(seed)


def test_the_bound_of_a_seed_is_told_as_a_power_of_two() -> None:
    with pytest.raises(ConfigError, match=r"must be from 0 to below 2\*\*128$"):
        ShockGenerator(2**128)


def test_the_largest_seed_works() -> None:
    assert ShockGenerator(2**128 - 1).at(0) != NO_SHOCKS


@pytest.mark.parametrize("name", ["scale", "supply_std", "demand_std"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_negative_or_endless_size_is_named_in_the_error(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ShockGenerator(1, **{name: value})


def test_a_negative_turn_is_an_error() -> None:
    with pytest.raises(ConfigError, match="turn=-1"):
        ShockGenerator(1).at(-1)
