"""What an economist would ask of the macro models before trusting a run."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from llmsim_lab.economy import RudebuschSvensson, initial_state
from llmsim_lab.economy.macro import DEMAND_STD, STEADY_STATE, SUPPLY_STD, Shocks, shocks_at
from llmsim_lab.models import GlobalState, MacroLags

MODEL = RudebuschSvensson()


def hold(rates: Iterable[float]) -> list[GlobalState]:
    path = [STEADY_STATE]
    for rate in rates:
        path.append(MODEL.advance(path[-1], interest_rate=rate))
    return path


# --- the steady state -------------------------------------------------------------------------


def test_the_steady_state_stays_put_for_fifty_years() -> None:
    for state in hold([4.0] * 200):
        expected = {"total_economic_value": state.total_economic_value, "lags": state.lags}
        assert dict(state) == pytest.approx(dict(STEADY_STATE) | expected, abs=1e-12)


# --- stability --------------------------------------------------------------------------------


def test_the_rule_the_paper_found_best_is_best_in_these_equations() -> None:
    # Table 5.4 has i = 2.34 mean inflation + 1.03 gap + 0.30 i[-1]; coefficients there and here are
    # rounded to two digits, so its loss may exceed the least one a little.
    published = published_loss(2.34, 1.03, 0.30)
    around = [
        published_loss(2.34 + a, 1.03 + b, 0.30 + c)
        for a in (-0.4, -0.2, 0.0, 0.2, 0.4)
        for b in (-0.2, -0.1, 0.0, 0.1, 0.2)
        for c in (-0.1, -0.05, 0.0, 0.05, 0.1)
    ]
    assert published == min(around)


def published_loss(to_inflation: float, to_gap: float, smoothing: float) -> float:
    """Loss var π̄ + 0.2 var y + 0.5 var Δi of a rule, with the paper's timing (answers at once)."""
    a, (b1, b2), r = MODEL.inflation_lags, MODEL.gap_lags, MODEL.real_rate_to_gap
    move = np.zeros((10, 10))  # four π, two y, four i
    move[0, :4], move[0, 4] = a, MODEL.gap_to_inflation
    move[4, :4], move[4, 4:6], move[4, 6:] = r / 4, (b1, b2), -r / 4
    for row, column in ((1, 0), (2, 1), (3, 2), (5, 4), (7, 6), (8, 7), (9, 8)):
        move[row, column] = 1
    hit = np.zeros((10, 2))
    hit[0, 0], hit[4, 1] = SUPPLY_STD, DEMAND_STD
    answer = np.array([to_inflation / 4] * 4 + [to_gap] + [0.0] * 5)
    move[6] = answer @ move
    move[6, 6] += smoothing
    hit[6] = answer @ hit
    spread, power = hit @ hit.T, move
    for _ in range(14):
        spread, power = spread + power @ spread @ power.T, power @ power
    mean = np.array([0.25] * 4 + [0.0] * 6)
    change = np.array([0.0] * 6 + [1.0, -1.0, 0.0, 0.0])
    return float(mean @ spread @ mean + 0.2 * spread[4, 4] + 0.5 * change @ spread @ change)


# --- impulse responses ------------------------------------------------------------------------


def test_one_quarter_follows_the_published_equations_to_the_digit() -> None:
    lags = MacroLags((4.0, 3.0, 2.0, 1.0), (1.0, -0.5), (6.0, 5.0, 4.0, 3.0))
    now = GlobalState(interest_rate=6.0, inflation=2.5, output_gap=1.0, lags=lags)
    then = MODEL.advance(now, interest_rate=7.0, shocks=Shocks(supply=0.1, demand=-0.2))
    # 0.70*4 - 0.10*3 + 0.28*2 + 0.12*1 + 0.14*1 + 0.1 = 3.42
    # 1.16*1 + 0.25*0.5 - 0.10*(4.5 - 2.5 - 2) - 0.2 = 1.085
    assert then.lags.inflation[0] == pytest.approx(3.42, abs=1e-12)
    assert then.output_gap == pytest.approx(1.085, abs=1e-12)
    assert then.interest_rate == 7.0


def test_a_decision_touches_the_gap_two_quarters_later_and_inflation_three() -> None:
    base, tight = hold([4.0] * 4), hold([5.0] * 4)
    gaps = [a.output_gap - b.output_gap for a, b in zip(tight, base, strict=True)]
    inflation = [a.inflation - b.inflation for a, b in zip(tight, base, strict=True)]
    assert gaps[:2] == [0, 0]
    assert gaps[2] == pytest.approx(-0.025)
    assert inflation[:3] == [0, 0, 0]
    assert inflation[3] < 0


# --- identities -------------------------------------------------------------------------------


def test_levels_follow_from_lags_okuns_law_and_potential_growth() -> None:
    before = initial_state("1979Q3").global_state
    for turn in range(1, 20):
        now = MODEL.advance(before, interest_rate=11.0, shocks=shocks_at(turn, seed=11))
        rise = now.output_gap - before.output_gap
        assert now.inflation == pytest.approx(sum(now.lags.inflation) / 4, abs=1e-12)
        assert now.unemployment - before.unemployment == pytest.approx(-0.5 * rise, abs=1e-12)
        assert now.gdp_growth == pytest.approx(2.2 + 4 * rise, abs=1e-12)
        grown = 400 * math.log(now.total_economic_value / before.total_economic_value)
        assert grown == pytest.approx(now.gdp_growth, abs=1e-9)
        before = now
