"""What rules do to an economy: figures that others have published or that follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmsim_lab.economy import RudebuschSvensson, TaylorRule, closed_loop
from llmsim_lab.economy.macro import NO_SHOCKS, STEADY_STATE, Shocks, rate_by
from llmsim_lab.models import GlobalState


@pytest.mark.parametrize(
    ("weight", "radius"), [(0.5, 1.0256), (1.0, 1.0), (1.5, 0.9463), (2.0, 0.9369), (5.0, 1.0038)]
)
def test_the_largest_root_by_the_response_to_inflation(weight: float, radius: float) -> None:
    loop = closed_loop(TaylorRule(inflation_weight=weight))
    assert loop.spectral_radius == pytest.approx(radius, abs=5e-5)


def played(rule: TaylorRule, hit: Shocks, quarters: int) -> list[GlobalState]:
    path = [STEADY_STATE]
    for turn in range(1, quarters + 1):
        now, shocks = path[-1], hit if turn == 1 else NO_SHOCKS
        rate = rate_by(rule, now)
        path.append(RudebuschSvensson().advance(now, interest_rate=rate, shocks=shocks))
    return path


@pytest.mark.parametrize("rule", [TaylorRule(), TaylorRule(inertia=0.8, output_gap_weight=1.0)])
@pytest.mark.parametrize("hit", [{"supply": 1.0}, {"demand": -0.7}, {"supply": 0.3, "demand": 1}])
def test_responses_are_those_of_the_economy_played_quarter_by_quarter(
    rule: TaylorRule, hit: dict[str, float]
) -> None:
    response = closed_loop(rule).response(**hit, quarters=40)
    path = played(rule, Shocks(**hit), 40)
    for name in response.columns:
        moved = [getattr(state, name) - getattr(STEADY_STATE, name) for state in path]
        np.testing.assert_allclose(response[name], moved, atol=1e-9)


def test_a_rule_with_another_neutral_rate_has_the_same_responses() -> None:
    other = TaylorRule(neutral_real_rate=3.5, inflation_target=4.0)
    response = closed_loop(other).response(demand=1.0)
    np.testing.assert_allclose(response, closed_loop().response(demand=1.0), atol=1e-9)
