"""Shocks: reproducible, independent of policy, of the right size."""

from __future__ import annotations

from functools import partial
from statistics import correlation, pstdev

import pytest

from llmsim_lab.economy.macro import NO_SHOCKS, shocks_at

SEVEN = partial(shocks_at, seed=7)


def test_the_first_shocks_of_seed_7_never_change_between_releases() -> None:
    shocks = SEVEN(1)
    expected = (-1.398677345081, 0.421572649489)
    assert (shocks.supply, shocks.demand) == pytest.approx(expected, abs=1e-11)


def test_shocks_differ_by_seed_and_turn_and_have_the_standard_errors_of_the_model() -> None:
    drawn = [shocks_at(turn, seed=2024) for turn in range(4_000)]
    drawn += [shocks_at(0, seed=seed) for seed in range(1_000)]
    supply, demand = [shock.supply for shock in drawn], [shock.demand for shock in drawn]
    assert len({*supply, *demand}) == 10_000
    # The standard error of a standard deviation of 5,000 draws is 1 percent of it.
    assert pstdev(supply) == pytest.approx(1.009, rel=0.04)
    assert pstdev(demand) == pytest.approx(0.819, rel=0.04)
    assert correlation(supply, demand) == pytest.approx(0, abs=0.05)
    assert correlation(supply[1:], supply[:-1]) == pytest.approx(0, abs=0.05)


def test_scale_and_mirror_multiply_the_same_draws() -> None:
    one, half, turned = SEVEN(3), SEVEN(3, scale=0.5), SEVEN(3, mirrored=True)
    assert half + half == one != NO_SHOCKS
    assert one + turned == SEVEN(3, scale=0) == NO_SHOCKS


def test_a_seed_out_of_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="key must be"):
        shocks_at(1, seed=-1)
