"""What the budget does where the rate is at its lower bound."""

from __future__ import annotations

import logging

import pytest

from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.economy._macro import NO_SHOCKS, fiscal_demand
from llmsim_lab.engines._engines import next_economy
from llmsim_lab.models import GlobalState

SLUMP = GlobalState(interest_rate=0.0, inflation=-3.0, output_gap=-8.0)
"""The Taylor rule asks for -7.5 percent here."""


def test_the_budget_makes_up_for_the_rate_beyond_what_is_tolerated() -> None:
    wanted = TaylorRule(lower_bound=float("-inf")).rate(
        inflation=-3.0, output_gap=-8.0, previous_rate=0.0
    )
    assert wanted == -7.5
    demand = fiscal_demand(SLUMP, lower_bound=0.0, model=RudebuschSvensson())
    assert demand == pytest.approx(0.1 * (7.5 - 2.0))


def test_the_budget_does_nothing_in_an_economy_that_the_rate_can_steer() -> None:
    assert fiscal_demand(GlobalState(), lower_bound=0.0, model=RudebuschSvensson()) == 0.0


def after(rate: float, *, backstop: bool) -> GlobalState:
    return next_economy(
        SLUMP,
        rate,
        NO_SHOCKS,
        macro=RudebuschSvensson(),
        lower_bound=0.0,
        backstop=backstop,
        turn=3,
    )


def test_the_next_quarter_has_what_the_budget_adds_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        helped, alone = (after(0.0, backstop=on) for on in (True, False))
    assert helped.output_gap - alone.output_gap == pytest.approx(0.55)
    assert caplog.messages == ["FISCAL_BACKSTOP turn=3 demand=0.55"]
    assert alone == RudebuschSvensson().advance(SLUMP, interest_rate=0.0)


def test_it_waits_until_the_rate_is_at_its_bound() -> None:
    assert after(0.25, backstop=True) == after(0.25, backstop=False)
