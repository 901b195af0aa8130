"""Mistakes that published simulations have made are found, and nothing that is shipped has any."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from builders import config_in

from llmsim_lab import data_path
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.models import GlobalState
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation.parameters import MOVES_BP

RULES = {"nations": ["Rule"], "players": "rule"}


def found(config: Any = None, **options: Any) -> dict[str, str]:
    """Return findings by what was checked."""
    return {one.rule: str(one) for one in Simulation(config).lint(**options)}


VOLCKER = config_in(data_path("scenarios/volcker.yaml"), kind="economic")


@pytest.mark.parametrize("config", [{}, RULES, VOLCKER])
def test_nothing_is_found_in_what_is_shipped(config: Any) -> None:
    assert found(SimulationConfig.model_validate(config)) == {}


def test_econ_agents_response_of_one_half_is_found() -> None:
    """Li et al. (2024), EconAgent: the weight on the inflation gap is 0.5, without inflation."""

    def econ_agent(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        return 4.0 + 0.5 * (inflation - 2.0) + 0.5 * output_gap + 0.0 * previous_rate

    message = found(rule=econ_agent)["Taylor principle"]
    assert "by 0.50 points" in message
    assert "Taylor (1993) has 1.5" in message


def test_inertia_divides_the_response() -> None:
    assert found(rule=TaylorRule(inertia=0.8)) == {}
    weak = TaylorRule(inertia=0.8, inflation_weight=0.9)
    assert "by 0.90 points" in found(rule=weak)["Taylor principle"]

    def grows(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        return inflation + output_gap + previous_rate

    said = found(rule=grows)["Taylor principle"]
    assert "adds 1 times its previous rate, so that it has no long run" in said


def test_a_rule_that_overreacts_is_unstable() -> None:
    message = found(rule=TaylorRule(inflation_weight=5.0))["unstable economy"]
    assert "grow by 0.38% a quarter" in message


def test_agent_societys_hundredfold_inflation_is_found() -> None:
    """AgentSociety: inflation times 100 in the rule, against a target of 0.02."""

    def agent_society(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        percent = inflation / 100
        return 100 * (percent * 100 + 0.5 * (percent * 100 - 0.02)) / 3 + 0.0 * (
            output_gap + previous_rate
        )

    assert "asks for 99.67%" in found(rule=agent_society)["percent and fraction"]


def test_a_target_given_as_a_fraction_is_found() -> None:
    nations = ({"name": "Aland", "inflation_target": 0.02},)
    message = found(SimulationConfig(nations=nations))["percent and fraction"]
    assert "of Aland is 0.02 percent; rates are in percent here: write 2 if you mean 2%" in message


def test_an_annual_rate_applied_in_each_quarter_is_found() -> None:
    """EconAgent pays a year's interest each month; here a year's growth each quarter."""
    message = found(model=growing(4))["annual rate in a quarter"]
    assert "growth of 2.2% per year raises output by 2.2% in a quarter" in message


def test_moves_that_cannot_reach_the_rule_are_found() -> None:
    config = SimulationConfig(start_at="1979Q3", moves_bp=(-25, 0, 25), **RULES)
    message = found(config)["moves out of reach"]
    assert "moves of 0.25 points take" in message


def test_a_run_warns_once_of_what_is_found_and_a_replay_does_not(
    caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    rule = TaylorRule(inflation_weight=0.5)
    weak = TaylorRuleAgent("Weak", rule=rule, moves_bp=MOVES_BP)
    with caplog.at_level(logging.WARNING):
        run = Simulation(nations=["Weak"], players={"Weak": weak}, tape=path)
        run.run(2, progress=False)
        [warning] = [text for text in caplog.messages if text.startswith("LINT")]
        assert "Weak raises the rate by 0.50" in warning
        run.close()
        caplog.clear()
        again = Simulation.replay(path, players=run.players)
    assert again.turns == run.turns
    assert not [text for text in caplog.messages if text.startswith("LINT")]


def growing(share: float) -> Any:
    """Return an economy whose output grows by so much of what a quarter's growth is."""

    class Growing:
        def advance(self, state: GlobalState, *, interest_rate: float) -> GlobalState:
            after = RudebuschSvensson().advance(state, interest_rate=interest_rate)
            output = state.total_economic_value * math.exp(share * after.gdp_growth / 400)
            return after.model_copy(update={"total_economic_value": output})

    return Growing()


def linear(inflation: float = 1.5, gap: float = 0.5, inertia: float = 0.0, rest: float = 4) -> Any:
    """Return a rule that asks at rest for so many percent."""

    def rule(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        moved = weight * (inflation - 2) + gap * output_gap
        return (1 - inertia) * rest + inertia * previous_rate + moved

    weight = inflation
    return rule


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({"model": growing(1.04)}, []),
        ({"model": growing(0.96)}, []),
        ({"model": growing(1.06)}, ["annual rate in a quarter"]),
        ({"model": growing(0.94)}, ["annual rate in a quarter"]),
        ({"rule": linear(1.0625)}, []),
        ({"rule": linear(0.9375)}, ["Taylor principle"]),
        ({"rule": linear(0.375, inertia=0.5)}, ["Taylor principle"]),
        ({"rule": linear(0.75, inertia=0.5)}, []),
        ({"rule": linear(inertia=1.0)}, ["Taylor principle"]),
        ({"rule": linear(rest=0.24)}, ["percent and fraction"]),
        ({"rule": linear(rest=-0.24)}, ["percent and fraction"]),
        ({"rule": linear(rest=0.25)}, []),
        ({"rule": linear(rest=0)}, []),
        # From 4 percent in four moves of 4.5 points.
        ({"rule": linear(rest=22)}, []),
        ({"rule": linear(rest=22.1)}, ["moves out of reach"]),
        ({"rule": linear(rest=25)}, ["moves out of reach"]),
        ({"rule": linear(rest=25.1)}, ["percent and fraction", "moves out of reach"]),
    ],
)
def test_each_finding_begins_where_it_does_harm(options: Any, rules: list[str]) -> None:
    assert list(found(**options)) == rules


@pytest.mark.parametrize(("target", "is_fraction"), [(-0.02, True), (0.24, True), (0.25, False)])
def test_a_target_below_a_quarter_of_a_percent_is_a_fraction(
    target: float, is_fraction: bool
) -> None:
    nations = ({"name": "Aland", "inflation_target": target},)
    assert ("percent and fraction" in found(SimulationConfig(nations=nations))) is is_fraction
