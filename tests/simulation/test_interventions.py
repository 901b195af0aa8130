"""Interventions: the state is set, or a shock added, at a turn of one's choice."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_client, make_config, make_simulation, make_state, requests_of

from llmsim_lab.economy._macro import StaticEconomy
from llmsim_lab.engines import EconLLMEngine, EconomicEngine
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._config import Intervention


def rules(**config: Any) -> Simulation:
    return Simulation(make_config(**config))


def test_a_variable_is_set_at_the_turn_named() -> None:
    simulation = rules()
    simulation.intervene(2, set={"inflation": 9})
    frame = simulation.run(3)
    assert frame.inflation.tolist()[:3] == [2, 2, 9]
    assert frame.interventions.tolist() == ["", "", "turn 2: inflation=9", ""]


def test_agents_see_what_was_set_in_the_turn_after() -> None:
    client = make_client()
    simulation = Simulation(SimulationConfig(nations=("Aland",)), llm_client=client)
    simulation.intervene(1, set={"inflation": 9})
    simulation.run(2)
    shown = [
        request.prompt.split("Inflation over 4 quarters is ")[1].split("%")[0]
        for request in requests_of(client, "agent")
    ]
    assert shown == ["2", "9"]


def test_the_latest_turn_can_be_set_too_and_its_record_says_so() -> None:
    simulation = rules()
    simulation.run(1)
    before = simulation.turns[-1]
    simulation.intervene(1, set={"inflation": 9}, note="oil")
    after = simulation.turns[-1]
    assert after.state.global_state.inflation == 9
    assert [str(done) for done in after.interventions] == ["turn 1: inflation=9 (oil)"]
    assert (after.actions, after.chains) == (before.actions, before.chains)
    assert before.state.global_state.inflation == 2
    assert simulation.run(1).interest_rate[2] == 8.5  # the largest move on offer


def test_the_initial_state_can_be_set_by_the_configuration() -> None:
    simulation = rules(interventions=[{"turn": 0, "set": {"unemployment": 9}}])
    assert simulation.state.global_state.unemployment == 9


def test_what_is_set_agrees_with_the_recent_past_so_that_the_economy_continues_from_it() -> None:
    simulation = rules()
    simulation.intervene(0, set={"inflation": 9, "output_gap": 1, "interest_rate": 10})
    lags = simulation.state.global_state.lags
    assert (lags.inflation, lags.output_gap, lags.interest_rate) == (
        (9, 9, 9, 9),
        (1, 0),
        (10, 4, 4, 4),
    )
    simulation.run(2)


def test_what_is_not_set_keeps_its_past() -> None:
    economy = GlobalState(inflation=3)
    changed = Intervention.model_validate({"turn": 0, "set": {"output_gap": 1}}).apply(economy)
    assert changed.lags.inflation == economy.lags.inflation


def test_a_shock_hits_on_the_way_to_its_turn_and_not_before() -> None:
    hit, calm = rules(), rules()
    hit.intervene(2, shock={"supply": 4, "demand": -1})
    hit.run(2)
    calm.run(2)
    assert hit.turns[1].state == calm.turns[1].state
    moved, still = (run.state.global_state for run in (hit, calm))
    assert moved.inflation - still.inflation == pytest.approx(1.0)
    assert moved.output_gap - still.output_gap == pytest.approx(-1.0)


def test_shocks_of_one_turn_add_up() -> None:
    simulation = rules()
    for size in (1, 2):
        simulation.intervene(1, shock={"demand": size})
    assert simulation.run(1).output_gap[1] == pytest.approx(3)


def test_a_shock_comes_on_top_of_the_random_ones() -> None:
    fields = {"seed": 4, "economy": {"shock_scale": 1}}
    hit, calm = rules(**fields), rules(**fields)
    hit.intervene(1, shock={"demand": 2})
    assert hit.run(1).output_gap[1] - calm.run(1).output_gap[1] == pytest.approx(2)


def test_shock_and_setting_may_come_together() -> None:
    simulation = rules()
    made = simulation.intervene(1, set={"unemployment": 7}, shock={"demand": 2}, note="strike")
    assert str(made) == "turn 1: unemployment=7, demand shock +2 (strike)"
    frame = simulation.run(1)
    assert (frame.unemployment[1], frame.output_gap[1]) == (7, 2)


def test_a_turn_that_has_been_played_is_an_error_with_the_way_out() -> None:
    simulation = rules()
    simulation.run(3)
    with pytest.raises(
        ConfigError, match=r"turn 2 has been played \(the run is at turn 3\); intervene at turn 3"
    ):
        simulation.intervene(2, set={"inflation": 9})


def test_a_shock_to_the_turn_reached_is_an_error_with_the_way_out() -> None:
    simulation = rules()
    simulation.run(1)
    with pytest.raises(ConfigError, match=r"turn 1 is reached; use turn=2, or set="):
        simulation.intervene(1, shock={"supply": 1})


def test_a_shock_without_an_economy_to_hit_is_an_error() -> None:
    simulation = Simulation(make_config(), engine=EconLLMEngine())
    with pytest.raises(ConfigError, match="EconLLMEngine has no economy for a shock to hit"):
        simulation.intervene(1, shock={"supply": 1})


def test_a_shock_to_a_static_economy_is_an_error_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"no equation for the shock at turn 1: supply shock"):
        make_config(
            economy={"model": "static"}, interventions=[{"turn": 1, "shock": {"supply": 1}}]
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs 'set' or 'shock', for example shock: {supply: 2}"),
        ({"set": {"inflatoin": 3}}, "set.inflatoin: Input should be 'interest_rate', 'inflation'"),
        ({"set": {"inflation": float("nan")}}, "set.inflation: Input should be a finite number"),
        ({"set": {"unemployment": -3}}, "unemployment: Input should be greater than or equal to 0"),
        ({"set": {"unemployment": 130}}, "unemployment: Input should be less than or equal to 100"),
        ({"shock": {"oil": 3}}, "shock.oil: Input should be 'supply' or 'demand'"),
        ({"shock": {"supply": float("inf")}}, "shock.supply: Input should be a finite number"),
    ],
)
def test_a_wrong_intervention_says_what_is_wrong(arguments: Any, message: str) -> None:
    simulation = rules()
    with pytest.raises(ConfigError) as caught:
        simulation.intervene(1, **arguments)
    assert str(caught.value).startswith("intervention at turn 1: ")
    assert message in str(caught.value)
    assert "[key]" not in str(caught.value)
    assert "Value error" not in str(caught.value)


def test_a_negative_turn_is_an_error() -> None:
    with pytest.raises(ConfigError, match="turn: Input should be greater than or equal to 0"):
        rules().intervene(-1, set={"inflation": 3})


def test_a_shock_at_turn_0_is_an_error_in_a_configuration() -> None:
    with pytest.raises(ConfigError, match="use turn 1, or 'set'"):
        make_config(interventions=[{"turn": 0, "shock": {"supply": 1}}])


def test_a_rate_set_beyond_the_bounds_does_not_lock_the_run() -> None:
    simulation = make_simulation(names=("Aland",))
    simulation.intervene(0, set={"interest_rate": 30})
    frame = simulation.run(2)
    assert frame.interest_rate[1] < 25.001


def test_a_static_economy_can_be_set() -> None:
    engine = EconomicEngine(macro=StaticEconomy())
    simulation = Simulation(make_config(), engine=engine, state=make_state())
    simulation.intervene(1, set={"inflation": 5})
    assert simulation.run(2).inflation.tolist() == [2, 5, 5]


def test_growth_and_output_can_be_set_and_leave_the_past_alone() -> None:
    simulation = rules(start="1979Q3")
    before = simulation.state.global_state
    simulation.intervene(0, set={"gdp_growth": -3, "total_economic_value": 900})
    after = simulation.state.global_state
    assert (after.gdp_growth, after.total_economic_value) == (-3, 900)
    assert (after.lags, after.inflation) == (before.lags, before.inflation)


@pytest.mark.parametrize("state", [{"inflation": 9}, 5])
def test_a_wrong_state_is_an_error_with_the_way_to_set_a_variable(state: Any) -> None:
    simulation = rules()
    simulation.run(1)
    with pytest.raises(ConfigError, match=r"is not a GlobalState .* fork\(intervene="):
        simulation.fork(1, state=state)


def test_a_state_for_a_fork_gets_the_runs_own_agents() -> None:
    simulation = rules()
    simulation.run(1)
    other = simulation.fork(1, state=make_state(names=("Borduria",), inflation=9))
    assert set(other.state.agents) == {"Aland", "Borduria"}
    assert other.run(1).inflation[1] == 9
