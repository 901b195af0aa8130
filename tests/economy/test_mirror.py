"""Mirror images of states and of quarters: as far on the other side of the steady state."""

from __future__ import annotations

import pytest

from llmsim_lab.economy import RudebuschSvensson, initial_state, load_us_macro
from llmsim_lab.economy.data import quarters_before
from llmsim_lab.economy.macro import STEADY_STATE, Shocks, mirrored
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState

NAMES = ("interest_rate", "inflation", "output_gap", "unemployment", "gdp_growth")


def test_a_mirror_image_stays_one_under_mirrored_rates_and_shocks() -> None:
    assert mirrored(STEADY_STATE) == STEADY_STATE
    model, one = RudebuschSvensson(), initial_state("2000Q2").global_state
    other = mirrored(one)
    for rate, (supply, demand) in ((6.5, (0.4, -0.8)), (3.0, (-1.1, 0.2))):
        hit, turned = (Shocks(supply=by * supply, demand=by * demand) for by in (1, -1))
        one = model.advance(one, interest_rate=rate, shocks=hit)
        other = model.advance(other, interest_rate=8 - rate, shocks=turned)
        expected = dict(mirrored(one))
        for name in NAMES:
            assert getattr(other, name) == pytest.approx(expected[name])


def test_a_state_without_a_mirror_image_is_named() -> None:
    with pytest.raises(ConfigError, match="unemployment of 12% has no mirror image"):
        mirrored(GlobalState(unemployment=12))


def test_mirrored_quarters_lead_to_the_mirrored_state_and_show_the_mirrored_gap() -> None:
    turned = quarters_before("2000Q2", mirrored=True)
    real, other = quarters_before("2000Q2")[-1], turned[-1]
    assert real.inflation is not None
    assert other.inflation == 4 - real.inflation
    assert other.interest_rate == 8 - real.interest_rate
    assert other.unemployment == 10 - real.unemployment
    assert {quarter.period for quarter in turned} == {None}
    assert real.output_gap == pytest.approx(load_us_macro().loc["2000Q1", "output_gap"], abs=1e-5)
    assert other.output_gap == -real.output_gap
    first = quarters_before("1960Q1", mirrored=True)[0]
    assert (first.inflation, first.inflation_in_quarter) == (None, None)
