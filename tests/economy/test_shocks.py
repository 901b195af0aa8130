"""Shocks: reproducible, independent of policy, of the right size."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from llmsim_lab.economy._macro import NO_SHOCKS, shocks_at

DRAWS = [shocks_at(turn, seed=2024) for turn in range(10_000)]
SEVEN = partial(shocks_at, seed=7)


def test_the_order_in_which_turns_are_asked_for_does_not_matter() -> None:
    there = [SEVEN(turn) for turn in range(20)]
    back = [SEVEN(turn) for turn in reversed(range(20))]
    assert there == back[::-1]


def test_the_first_shocks_of_seed_7_never_change_between_releases() -> None:
    shocks = SEVEN(1)
    expected = (-1.398677345081, 0.421572649489)
    assert (shocks.supply, shocks.demand) == pytest.approx(expected, abs=1e-11)


def test_no_two_turns_and_no_two_seeds_share_a_draw() -> None:
    others = {shocks_at(0, seed=seed).supply for seed in range(1_000)}
    assert len({draw.supply for draw in DRAWS} | {draw.demand for draw in DRAWS}) == 20_000
    assert len(others) == 1_000


def test_shocks_have_the_standard_errors_of_the_model() -> None:
    # The standard error of a standard deviation of 10,000 draws is 0.7 percent of it.
    assert pstdev(draw.supply for draw in DRAWS) == pytest.approx(1.009, rel=0.03)
    assert pstdev(draw.demand for draw in DRAWS) == pytest.approx(0.819, rel=0.03)


def test_supply_and_demand_shocks_and_neighbouring_turns_are_uncorrelated() -> None:
    supply = [draw.supply / 1.009 for draw in DRAWS]
    demand = [draw.demand / 0.819 for draw in DRAWS]
    assert fmean(s * d for s, d in zip(supply, demand, strict=True)) == pytest.approx(0, abs=0.04)
    assert fmean(a * b for a, b in pairwise(supply)) == pytest.approx(0, abs=0.04)


def test_scale_and_mirror_multiply_the_same_draws() -> None:
    one, half, turned = SEVEN(3), SEVEN(3, scale=0.5), SEVEN(3, mirrored=True)
    assert half + half == one != NO_SHOCKS
    assert one + turned == SEVEN(3, scale=0) == NO_SHOCKS


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_a_seed_out_of_range_is_an_error(seed: int) -> None:
    with pytest.raises(ValueError, match="key must be"):
        shocks_at(1, seed=seed)
