"""Macro models: bad input, explosions, the second model, and changing levels by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from llmsim_lab.economy import RudebuschSvensson, initial_state
from llmsim_lab.economy._macro import STEADY_STATE, Shocks, set_levels
from llmsim_lab.errors import ConfigError, EconomyError

MODEL = RudebuschSvensson()


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [math.nan, math.inf])
def test_a_rate_that_is_not_a_number_is_an_error(rate: float) -> None:
    with pytest.raises(ValidationError, match="interest_rate"):
        MODEL.advance(STEADY_STATE, interest_rate=rate)


@pytest.mark.parametrize("name", ["interest_rate", "output_gap", "inflation"])
def test_a_level_changed_behind_the_lags_back_is_an_error_with_the_way_out(name: str) -> None:
    state = STEADY_STATE.model_copy(update={name: 9.0})
    with pytest.raises(ConfigError, match=r"9\.0.* but the state's lags say .*run\.intervene"):
        MODEL.advance(state, interest_rate=4.0)


def test_a_boom_beyond_full_employment_stops_with_both_limits_named() -> None:
    with pytest.raises(
        EconomyError, match=r" -1 percent \(limits 0 and 100\),.*length have driven"
    ):
        MODEL.advance(STEADY_STATE, interest_rate=4.0, shocks=Shocks(demand=12.0))


def test_an_economy_that_explodes_stops_with_a_clear_error() -> None:
    without_okun = RudebuschSvensson(okun=0.0)
    with pytest.raises(EconomyError, match="one for one"):
        without_okun.advance(STEADY_STATE, interest_rate=4.0, shocks=Shocks(demand=1e300))


@pytest.mark.parametrize("name", ["gap_to_inflation", "okun", "potential_growth"])
def test_a_coefficient_that_is_not_a_number_makes_no_economy(name: str) -> None:
    with pytest.raises(EconomyError, match=r"nan|output inf"):
        replace(MODEL, **cast("Any", {name: math.nan})).advance(STEADY_STATE, interest_rate=4.0)


@pytest.mark.parametrize("first", [0.6, math.nan])
def test_inflation_lags_that_do_not_sum_to_one_are_errors(first: float) -> None:
    with pytest.raises(ConfigError, match=r"inflation_lags=.* sum to (0\.9|nan)"):
        RudebuschSvensson(inflation_lags=(first, -0.1, 0.28, 0.12))


# --- a second model, and changing levels ------------------------------------------------------


def test_set_levels_changes_a_level_and_its_lags_together() -> None:
    start = initial_state("1979Q3").global_state
    new = set_levels(start, interest_rate=12.0, inflation=6.0, output_gap=-2.0, unemployment=8.0)
    assert (new.interest_rate, new.inflation, new.output_gap, new.unemployment) == (12, 6, -2, 8)
    moved = [a - b for a, b in zip(new.lags.inflation, start.lags.inflation, strict=True)]
    assert moved == pytest.approx([6 - start.inflation] * 4)
    assert new.lags.output_gap == (-2.0, start.lags.output_gap[1])
    assert new.lags.interest_rate == (12.0, *start.lags.interest_rate[1:])
    assert MODEL.advance(new, interest_rate=12.0).unemployment > 0
