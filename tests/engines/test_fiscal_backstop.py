"""What the budget does where the rate is at its lower bound."""

from __future__ import annotations

import pytest

from llmsim_lab.economy._macro import fiscal_demand
from llmsim_lab.models import GlobalState

SLUMP = GlobalState(interest_rate=0.0, inflation=-3.0, output_gap=-8.0)
"""The Taylor rule asks for -7.5 percent here."""


@pytest.mark.parametrize(
    ("economy", "rate", "demand"),
    [(SLUMP, 0.0, 0.1 * (7.5 - 2.0)), (SLUMP, 0.25, 0), (GlobalState(), 0.0, 0)],
    ids=["beyond what is tolerated", "a rate above its bound", "an economy the rate can steer"],
)
def test_the_budget_makes_up_for_the_rate_at_its_bound(
    economy: GlobalState, rate: float, demand: float
) -> None:
    assert fiscal_demand(economy, rate=rate, lower_bound=0.0) == pytest.approx(demand)
