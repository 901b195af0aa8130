"""Mistakes that published simulations have made are found, and nothing that is shipped has any."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab import data_path
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.economy._macro import NO_SHOCKS, Shocks
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation, SimulationConfig, _lint, lint
from llmsim_lab.simulation._config import MOVES_BP

ALL_RUNS = _lint.RUNS
RULES = {"nations": ["Rule"], "players": "rule"}


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play fewer runs than a user's, where a test is not about them."""
    monkeypatch.setattr(_lint, "RUNS", 25)


@pytest.fixture
def all_runs(few_runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lint, "RUNS", ALL_RUNS)


def found(subject: Any = None, **options: Any) -> dict[str, str]:
    """Return findings by the number of their rule."""
    subject = subject or SimulationConfig(turns=20)
    return {finding.rule.split()[0]: str(finding) for finding in lint(subject, **options)}


def mandate(text: str, **fields: Any) -> SimulationConfig:
    nation = {"name": "Aland", "mandate": text}
    return SimulationConfig.model_validate({"turns": 20, "nations": [nation], **fields})


# --- what is shipped --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"turns": 20},
        {"turns": 20, "nations": ["Ann", "Bob", "Cy"]},
        {"turns": 12, "start_at": "1979Q3"},
        {"turns": 20, **RULES},
    ],
    ids=["default", "committee", "1979Q3", "rules"],
)
@pytest.mark.usefixtures("all_runs")
def test_nothing_is_found_in_what_is_shipped(config: dict[str, Any]) -> None:
    assert found(SimulationConfig.model_validate(config)) == {}


@pytest.mark.usefixtures("all_runs")
def test_nothing_is_found_in_the_shipped_economic_scenario() -> None:
    assert found(data_path("scenarios/volcker.yaml")) == {}


def test_inertia_divides_the_response() -> None:
    inertial = TaylorRule(inertia=0.8)
    assert "L1" not in found(rule=inertial)
    assert "L1" in found(rule=replace(inertial, inflation_weight=0.9))


# --- rules ------------------------------------------------------------------------------------


def test_econ_agents_response_of_one_half_is_found() -> None:
    """Li et al. (2024), EconAgent: the weight on the inflation gap is 0.5, without inflation."""

    def econ_agent(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        return 4.0 + 0.5 * (inflation - 2.0) + 0.5 * output_gap + 0.0 * previous_rate

    message = found(rule=econ_agent)["L1"]
    assert "by 0.50 points" in message
    assert "Taylor (1993) has 1.5" in message


def test_a_rule_that_overreacts_is_unstable() -> None:
    assert "grow by 0.38% a quarter" in found(rule=TaylorRule(inflation_weight=5.0))["L2"]


def test_a_rule_that_is_unstable_only_if_it_is_late_is_found() -> None:
    message = found(rule=TaylorRule(inflation_weight=4.0))["L3"]
    assert "a quarter later" in message


def test_agent_societys_hundredfold_inflation_is_found() -> None:
    """AgentSociety: inflation times 100 in the rule, against a target of 0.02."""

    def agent_society(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        percent = inflation / 100
        return 100 * (percent * 100 + 0.5 * (percent * 100 - 0.02)) / 3 + 0.0 * (
            output_gap + previous_rate
        )

    assert "asks for 99.67%" in found(rule=agent_society)["L4"]


@pytest.mark.parametrize(
    "config",
    [
        {"nations": [{"name": "Aland", "inflation_target": 0.02}]},
        {**RULES, "nations": [{"name": "Rule", "inflation_target": 0.02}]},
    ],
)
def test_a_target_given_as_a_fraction_is_found(config: dict[str, Any]) -> None:
    message = found(SimulationConfig.model_validate({"turns": 20, **config}))["L4"]
    assert "is 0.02 percent; rates are in percent here: write 2 if you mean 2%" in message


def test_a_rule_with_a_neutral_rate_of_its_own_is_found() -> None:
    message = found(rule=TaylorRule(neutral_real_rate=3.5))["L8"]
    assert "asks for 5.5% at 2% inflation and no gap, where the economy rests at 4%" in message


# --- economies --------------------------------------------------------------------------------


class Changed:
    """The shipped economy with something wrong in it."""

    def __init__(self, change: Callable[[GlobalState, GlobalState], dict[str, Any]]) -> None:
        self.change = change

    def advance(
        self, state: GlobalState, *, interest_rate: float, shocks: Shocks = NO_SHOCKS
    ) -> GlobalState:
        after = RudebuschSvensson().advance(state, interest_rate=interest_rate, shocks=shocks)
        return after.model_copy(update=self.change(state, after))


def output(growth: Callable[[float], float]) -> Changed:
    return Changed(
        lambda before, after: {
            "total_economic_value": before.total_economic_value * growth(after.gdp_growth)
        }
    )


def test_an_annual_rate_applied_in_each_quarter_is_found() -> None:
    """EconAgent pays a year's interest each month; here a year's growth each quarter."""
    message = found(model=output(lambda growth: math.exp(growth / 100)))["L5"]
    assert "growth of 2.2% per year raises output by 2.2% in a quarter" in message


def test_growth_annualised_in_two_ways_is_found() -> None:
    message = found(model=output(lambda growth: (1 + growth / 100) ** 0.25))["L6"]
    assert "2.1761" in message
    assert "2.2000" in message


def test_a_level_that_does_not_follow_its_growth_is_found() -> None:
    assert "output rises by 10%" in found(model=output(lambda growth: math.exp(0.1)))["L7"]


def test_a_steady_state_that_moves_is_found() -> None:
    drifting = Changed(lambda before, after: {"unemployment": before.unemployment + 0.1})
    assert "unemployment from 5 to 5.1" in found(model=drifting)["L7"]


# --- moves ------------------------------------------------------------------------------------


def test_a_move_that_the_prompt_speaks_of_but_nobody_offers_is_found() -> None:
    config = mandate("price stability, in moves of 10 basis points")
    assert "speaks of 10 basis points" in found(config)["L9"]
    assert "L9" not in found(mandate("price stability, in moves of 25 basis points"))


def test_moves_too_small_for_what_was_done_are_found() -> None:
    config = SimulationConfig(start_at="1979Q3", turns=12, moves_bp=(-25, 0, 25))
    assert "the rate moved by 4.46 points once" in found(config)["L9"]


def test_moves_too_small_for_the_rule_are_found() -> None:
    slow = {"turns": 12, "engine": {"max_move": 0.25}, "moves_bp": None, **RULES}
    config = SimulationConfig.model_validate({**slow, "start_at": "1972Q1"})
    findings = [str(finding) for finding in lint(config)]
    assert any("quarters to get there" in finding for finding in findings)


# --- bounds and horizon -----------------------------------------------------------------------


@pytest.mark.usefixtures("all_runs")
def test_runs_long_enough_to_spiral_are_found() -> None:
    findings = [str(finding) for finding in lint(SimulationConfig(turns=80))]
    assert any("19% of 500 runs of the Taylor rule end in a spiral" in text for text in findings)


@pytest.mark.usefixtures("all_runs")
def test_the_fiscal_backstop_ends_spirals() -> None:
    config = SimulationConfig.model_validate({"turns": 80, "economy": {"fiscal_backstop": True}})
    assert not any("spiral:" in str(finding) for finding in lint(config))


@pytest.mark.usefixtures("all_runs")
def test_a_run_too_short_for_policy_to_matter_is_found() -> None:
    message = found(SimulationConfig(turns=8))["L11"]
    assert "differ by 0.04 points" in message
    assert "standard deviation of 1.62" in message


# --- prompts ----------------------------------------------------------------------------------


def test_the_contracts_thin_prompt_lacks_horizons() -> None:
    config = SimulationConfig(turns=20, briefing="thin")
    assert "without horizon" in found(config)["L12"]


def test_a_number_without_a_unit_is_found() -> None:
    config = mandate("inflation of 2 each quarter")
    assert "without unit" in found(config)["L12"]


def test_dates_names_and_ex_post_gaps_are_found() -> None:
    start = {"start_at": "1979Q3", "turns": 12}
    named = {**start, "nations": ["United States"], "masked": False}
    findings = [str(finding) for finding in lint(SimulationConfig.model_validate(named))]
    assert any("a date, '1977Q4'" in finding for finding in findings)
    assert any("a name, 'United States'" in finding for finding in findings)
    known_later = mandate("the output gap is 2.61% of trend", **start)
    assert "ex-post output gap of 2.61%" in found(known_later)["L13"]


def test_a_prompt_with_a_neutral_rate_of_its_own_is_found() -> None:
    config = mandate("stable prices; neutral is a real rate of 0.5% per year")
    assert "says that 0.5% is neutral" in found(config)["L8"]


def test_several_agents_that_set_one_rate_in_turn_are_found() -> None:
    config = SimulationConfig(
        turns=20, nations=("Germany", "United States"), committee="sequential"
    )
    assert "their order matters; make them a committee" in found(config)["L14"]


# --- where it is asked ------------------------------------------------------------------------


def weak(**more: Any) -> Simulation:
    rule = TaylorRule(inflation_weight=0.5)
    agent = TaylorRuleAgent("Weak", rule=rule, moves_bp=MOVES_BP)
    return Simulation(nations=["Weak"], players={"Weak": agent}, **more)


def warnings_of(*runs: Simulation, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING):
        for run in runs:
            run.run(2, progress=False)
    return [text for text in caplog.messages if text.startswith("LINT")]


def test_a_rule_of_ones_own_in_a_seat_is_checked() -> None:
    assert any("Weak raises the rate by 0.50" in str(finding) for finding in weak().lint())


def test_a_run_warns_once_of_what_is_found_and_a_replay_does_not(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run = weak(tape=tmp_path / "x.tape")
    [warning] = warnings_of(run, caplog=caplog)
    assert "L1 Taylor principle" in warning
    run.close()
    caplog.clear()
    again = Simulation.replay(tmp_path / "x.tape", players=run.players)
    assert again.turns == run.turns
    assert not [text for text in caplog.messages if text.startswith("LINT")]


def test_a_run_does_not_warn_of_what_was_chosen(caplog: pytest.LogCaptureFixture) -> None:
    by_turns = {"nations": ["A", "B"], "committee": "sequential", "players": "rule"}
    config = SimulationConfig.model_validate(by_turns)
    assert warnings_of(Simulation(config), caplog=caplog) == []
    assert "L14" in found(config)
    thin = Simulation(briefing="thin", turns=20, players="random")
    assert warnings_of(thin, caplog=caplog) == []
    assert "L12" in found(thin)


@pytest.mark.usefixtures("all_runs")
def test_a_run_warns_of_spirals_where_it_is_long(caplog: pytest.LogCaptureFixture) -> None:
    long = {**RULES, "turns": 80}
    runs = [Simulation(**long, economy={"fiscal_backstop": on}) for on in (False, True)]
    [warning] = warnings_of(*runs, caplog=caplog)
    assert "of 100 runs of Rule end in a spiral" in warning


def test_a_prompt_of_ones_own_is_read(tmp_path: Path) -> None:
    text = Prompt.load("agent_briefing").text.replace("Now:", "Now, in 1979:")
    nation = {"name": "Aland", "prompt": text}
    (tmp_path / "run.yaml").write_text(json.dumps({"turns": 20, "nations": [nation]}))
    assert "a date, '1979'" in found(tmp_path / "run.yaml")["L13"]
