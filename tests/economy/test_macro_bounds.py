"""The macro model: bad input, explosions, and changing levels by hand."""

from __future__ import annotations

from math import nan

import pytest
from pydantic import ValidationError

from llmsim_lab.economy import RudebuschSvensson, initial_state
from llmsim_lab.economy.macro import STEADY_STATE, Shocks, set_levels
from llmsim_lab.errors import ConfigError, EconomyError

MODEL = RudebuschSvensson()


def test_a_rate_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(ValidationError, match="interest_rate"):
        MODEL.advance(STEADY_STATE, interest_rate=nan)


@pytest.mark.parametrize("name", ["interest_rate", "output_gap", "inflation"])
def test_a_level_changed_behind_the_lags_back_is_an_error_with_the_way_out(name: str) -> None:
    state = STEADY_STATE.model_copy(update={name: 9.0})
    with pytest.raises(ConfigError, match=r"9\.0.* but the state's lags say .*run\.intervene"):
        MODEL.advance(state, interest_rate=4.0)


@pytest.mark.parametrize("demand", [12.0, -200, 1e300])
def test_an_economy_off_its_range_stops_with_the_limits_and_the_way_out(demand: float) -> None:
    with pytest.raises(EconomyError, match=r"\(limits 0 and 100\).* one for one"):
        MODEL.advance(STEADY_STATE, interest_rate=4.0, shocks=Shocks(demand=demand))


def test_set_levels_changes_a_level_and_its_lags_together() -> None:
    start = initial_state("1979Q3").global_state
    new = set_levels(start, interest_rate=12.0, inflation=6.0, output_gap=-2.0, unemployment=8.0)
    assert (new.interest_rate, new.inflation, new.output_gap, new.unemployment) == (12, 6, -2, 8)
    moved = [a - b for a, b in zip(new.lags.inflation, start.lags.inflation, strict=True)]
    assert moved == pytest.approx([6 - start.inflation] * 4)
    assert new.lags.output_gap == (-2.0, start.lags.output_gap[1])
    assert new.lags.interest_rate == (12.0, *start.lags.interest_rate[1:])
    assert MODEL.advance(new, interest_rate=12.0).unemployment > 0
