"""What the budget does where the rate is at its lower bound."""

from __future__ import annotations

import logging

import pytest

from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.economy._macro import FiscalBackstop
from llmsim_lab.models import GlobalState
from llmsim_lab.simulation import Simulation, SimulationConfig

SLUMP = GlobalState(interest_rate=0.0, inflation=-3.0, output_gap=-8.0)
"""The Taylor rule asks for -7.5 percent here."""


def test_the_budget_makes_up_for_the_rate_beyond_what_is_tolerated() -> None:
    wanted = TaylorRule(lower_bound=float("-inf")).rate(
        inflation=-3.0, output_gap=-8.0, previous_rate=0.0
    )
    assert wanted == -7.5
    demand = FiscalBackstop().demand(SLUMP, lower_bound=0.0, model=RudebuschSvensson())
    assert demand == pytest.approx(0.1 * (7.5 - 2.0))


def test_the_budget_does_nothing_in_an_economy_that_the_rate_can_steer() -> None:
    assert FiscalBackstop().demand(GlobalState(), lower_bound=0.0, model=RudebuschSvensson()) == 0.0


def played(*, backstop: bool, start: GlobalState = SLUMP) -> Simulation:
    config = SimulationConfig.model_validate(
        {
            "nations": [{"name": "Rule", "kind": "taylor"}],
            "validator": {"kind": "always_valid"},
            "economy": {"shock_scale": 0, "fiscal_backstop": backstop},
        }
    )
    simulation = Simulation(config)
    simulation = simulation.fork(0, state=start)
    simulation.run(1)
    return simulation


def test_a_run_has_it_where_its_configuration_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        helped, alone = (played(backstop=on).state.global_state for on in (True, False))
    assert helped.output_gap - alone.output_gap == pytest.approx(0.55)
    assert [text for text in caplog.messages if text.startswith("FISCAL_BACKSTOP")] == [
        "FISCAL_BACKSTOP turn=1 demand=0.55"
    ]
    expected = RudebuschSvensson().advance(SLUMP, interest_rate=0.0)
    assert alone.output_gap == expected.output_gap


def test_it_waits_until_the_rate_is_at_its_bound() -> None:
    above = SLUMP.model_copy(update={"interest_rate": 9.0})
    above = GlobalState(**{**dict(above), "lags": None})
    helped, alone = (played(backstop=on, start=above) for on in (True, False))
    assert helped.state.global_state.interest_rate > 0
    assert helped.state.global_state == alone.state.global_state
