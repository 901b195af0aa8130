"""The turn loop: what a run records, how it fails, and that failing loses nothing."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import (
    answer,
    make_client,
    make_config,
    make_simulation,
    make_state,
    policy,
    rate_update,
    requests_of,
    second_by_second,
    verdict,
)

from llmsim_lab.agents import Agent, NationAgent, TaylorRuleAgent
from llmsim_lab.economy import initial_state
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._simulation import EconomicTurn
from llmsim_lab.types import ChatReply, ChatRequest
from llmsim_lab.validators import AlwaysValid


def outcome(simulation: Simulation) -> pd.DataFrame:
    """The run as a frame, without what the clock says."""
    return simulation.to_frame().drop(columns="seconds")


def failing_at(turn: int, component: str, *, agent: str = "Borduria") -> Any:
    """Replies as ever, but for one site, whose first two requests find no connection."""
    faults = Counter({"left": 2})

    def reply(request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        if (site.turn, site.component, site.agent) == (turn, component, agent) and faults["left"]:
            faults["left"] -= 1
            return ConnectionError("refused")
        return answer(request)

    return reply


# A turn


async def test_a_step_returns_the_turns_record() -> None:
    simulation = make_simulation()
    turn = await simulation.step()
    assert isinstance(turn, EconomicTurn)
    assert turn is simulation.turns[-1]
    assert (turn.number, turn.state.turn, simulation.turn_number) == (1, 1, 1)
    assert [action.agent_name for action in turn.actions] == ["Aland", "Borduria"]


async def test_the_first_record_holds_the_initial_state() -> None:
    simulation = make_simulation(start="1979Q3")
    (first,) = simulation.turns
    assert (first.number, first.actions, first.chains) == (0, (), ())
    assert first.state.period == "1979Q3"
    assert list(first.state.agents) == ["Aland", "Borduria"]


async def test_a_turns_chains_come_in_the_order_agents_validator_engine() -> None:
    turn = await make_simulation().step()
    assert [(chain.component, chain.agent) for chain in turn.chains] == [
        (component, nation)
        for component in ("agent", "validator", "engine")
        for nation in ("Aland", "Borduria")
    ]
    assert {chain.turn for chain in turn.chains} == {1}


async def test_a_rejected_action_is_recorded_and_not_applied() -> None:
    def no_borduria(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "validator" and request.site.agent == "Borduria":
            return verdict(False)
        return answer(request)

    turn = await make_simulation(no_borduria).step()
    assert [action.validated for action in turn.actions] == [True, False]
    assert [c.agent for c in turn.chains if c.component == "engine"] == ["Aland"]
    assert turn.state.global_state.interest_rate == 4.25


async def test_agents_decide_at_once_and_all_see_the_state_before_the_turn() -> None:
    together = asyncio.Barrier(3)

    class Meeting(Agent):
        async def decide_action(self, state: SimulationState) -> Action:
            await asyncio.wait_for(together.wait(), 5)
            return Action(agent_name=self.name, action_string="Hold", proposed_rate=4)

    agents = [Meeting(name) for name in "ABC"]
    simulation = Simulation(agents=agents, validator=AlwaysValid())
    turn = await simulation.step()
    assert [action.agent_name for action in turn.actions] == ["A", "B", "C"]


async def test_the_order_of_actions_is_the_agents_however_late_the_first_answers() -> None:
    async def slow_aland(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.agent == "Aland" and request.site.component == "agent":
            await asyncio.sleep(0.03)
        return answer(request)

    turn = await make_simulation(slow_aland).step()
    assert [action.agent_name for action in turn.actions] == ["Aland", "Borduria"]


async def test_the_next_turns_prompts_show_the_economy_that_the_last_one_left() -> None:
    client = make_client()
    simulation = Simulation(SimulationConfig(nations=("Aland",)), llm_client=client)
    await simulation.arun(2)
    shown = [
        r.messages[1].content.split("The policy rate is ")[1][:5]
        for r in requests_of(client)
        if r.site and r.site.component == "agent"
    ]
    assert [text.split("%")[0] for text in shown] == ["4", "4.25"]


# Running


def test_run_plays_the_configured_number_of_turns() -> None:
    frame = make_simulation(turns=3).run()
    assert frame.turn.tolist() == [0, 1, 2, 3]


def test_run_continues_where_it_was() -> None:
    simulation = make_simulation()
    simulation.run(2)
    assert simulation.run(1).turn.tolist() == [0, 1, 2, 3]


def test_no_turns_leave_the_initial_state() -> None:
    assert make_simulation().run(0).turn.tolist() == [0]


@pytest.mark.parametrize("turns", [-1, 1.5, "3", True])
def test_a_wrong_number_of_turns_is_an_error(turns: Any) -> None:
    simulation = make_simulation()
    with pytest.raises(ConfigError, match=r"turns=.* must be a whole number from 0 on"):
        simulation.run(turns)
    assert simulation.turn_number == 0


async def test_a_negative_number_is_an_error_of_arun_too() -> None:
    with pytest.raises(ConfigError, match="turns=-1"):
        await make_simulation().arun(-1)


async def test_run_works_where_a_loop_runs_already_as_in_a_notebook_cell() -> None:
    assert make_simulation().run(2).turn.tolist() == [0, 1, 2]


async def test_step_and_run_may_take_turns() -> None:
    simulation = make_simulation()
    await simulation.step()
    simulation.run(1)
    await simulation.arun(1)
    assert outcome(simulation).equals(make_simulation().run(3).drop(columns="seconds"))


def test_run_calls_back_after_each_turn() -> None:
    seen: list[int] = []
    make_simulation().run(3, on_turn=lambda turn: seen.append(turn.number))
    assert seen == [1, 2, 3]


def test_an_error_of_the_callers_callback_is_raised_and_the_turn_is_kept() -> None:
    simulation = make_simulation()

    def stop(turn: EconomicTurn) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        simulation.run(3, on_turn=stop)
    assert simulation.turn_number == 1


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_keeps_the_turns_done_and_the_run_can_go_on() -> None:
    started = threading.Event()

    async def hang_in_turn_2(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.turn == 2 and not started.is_set():
            started.set()
            await asyncio.sleep(60)
        return answer(request)

    simulation = make_simulation(hang_in_turn_2)

    def interrupt() -> None:
        started.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        simulation.run(3)
    thread.join()
    assert simulation.turn_number == 1
    simulation.run(2)
    assert outcome(simulation).equals(make_simulation().run(3).drop(columns="seconds"))


@pytest.mark.process
def test_the_design_page_s_lines_run_as_a_script() -> None:
    code = (
        "from llmsim_lab.simulation import Simulation, SimulationConfig\n"
        "c = SimulationConfig(nations=[{'name': 'Rule', 'kind': 'taylor'}],"
        " validator={'kind': 'always_valid'}, economy={'shock_scale': 0})\n"
        "print(Simulation(c).run(2).interest_rate.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[4.0, 4.0, 4.0]\n", "")


async def test_a_second_step_while_one_is_under_way_is_an_error() -> None:
    release = asyncio.Event()

    async def wait(request: ChatRequest) -> Any:
        await release.wait()
        return answer(request)

    simulation = make_simulation(wait)
    first = asyncio.create_task(simulation.step())
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="a step of this run is under way; wait for it"):
        await simulation.step()
    release.set()
    assert (await first).number == 1
    assert (await simulation.step()).number == 2


async def test_a_cancelled_step_changes_nothing_and_leaves_no_task() -> None:
    simulation = make_simulation(lambda request: asyncio.sleep(60))
    step = asyncio.create_task(simulation.step())
    await asyncio.sleep(0.01)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert simulation.turn_number == 0
    assert len(asyncio.all_tasks()) == 1


# Failing


@pytest.mark.parametrize("component", ["agent", "validator", "engine"])
def test_a_failed_call_stops_the_turn_and_loses_nothing_before_it(component: str) -> None:
    simulation = make_simulation(failing_at(3, component))
    with pytest.raises(LLMFailureException) as caught:
        simulation.run(5)
    assert (caught.value.component, caught.value.reason) == (component, "connection_error")
    assert simulation.turn_number == 2
    assert simulation.engine.current_state is simulation.state
    assert outcome(simulation).equals(make_simulation().run(2).drop(columns="seconds"))


@pytest.mark.parametrize("component", ["agent", "validator", "engine"])
def test_a_run_stepped_again_after_a_failure_equals_one_that_never_failed(component: str) -> None:
    fields: dict[str, Any] = {"seed": 3, "economy": {"shock_scale": 1.0}, "start": "1979Q3"}
    fields["interventions"] = [
        {"turn": 3, "shock": {"supply": 2}},
        {"turn": 4, "set": {"inflation": 9}},
    ]
    broken = make_simulation(failing_at(3, component), **fields)
    with pytest.raises(LLMFailureException):
        broken.run(5)
    broken.run(3)
    whole = make_simulation(**fields)
    whole.run(5)
    assert outcome(broken).equals(outcome(whole))
    assert [str(chain) for chain in broken.chains] == [str(chain) for chain in whole.chains]


async def test_a_failed_step_keeps_the_cause_and_leaves_no_task_behind() -> None:
    simulation = make_simulation(failing_at(1, "agent"))
    with pytest.raises(LLMFailureException) as caught:
        await simulation.step()
    assert str(caught.value.__cause__) == "refused"
    assert len(asyncio.all_tasks()) == 1


async def test_a_failed_agent_is_named_in_the_one_error_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(LLMFailureException):
        await make_simulation(failing_at(1, "agent")).step()
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert line.startswith("LLM_FAILURE component=agent agent=Borduria turn=1 reason=connection")


async def test_an_agent_off_its_subject_is_a_failed_decision_in_every_record() -> None:
    def singer(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent" and request.site.agent == "Borduria":
            return policy("Sing a song")
        return answer(request)

    simulation = make_simulation(singer)
    turn = await simulation.step()
    assert turn.statuses == {"ok": 3, "failed": 1}
    assert simulation.statuses == {"ok": 0.75, "failed": 0.25}
    assert simulation.to_frame().failed.tolist() == [0, 1]
    frame = simulation.decisions()
    assert frame.status.tolist() == ["ok", "failed", "ok", "ok"]
    assert frame.attempts.tolist() == [1, 2, 1, 1]


# Reproducing


def run_with(policy_target: float, *, seed: int) -> Simulation:
    simulation = Simulation(
        make_config(
            seed=seed,
            economy={"shock_scale": 1.0},
            nations=[{"name": "Bank", "kind": "taylor", "inflation_target": policy_target}],
        )
    )
    simulation.run(6)
    return simulation


def test_the_same_configuration_gives_the_same_run() -> None:
    assert outcome(run_with(2, seed=5)).equals(outcome(run_with(2, seed=5)))


def test_another_seed_gives_another_run() -> None:
    assert not outcome(run_with(2, seed=5)).equals(outcome(run_with(2, seed=6)))


def test_two_policies_meet_the_same_shocks() -> None:
    dove, hawk = run_with(4, seed=5), run_with(0, seed=5)
    engines = [run.engine for run in (dove, hawk)]
    assert all(isinstance(engine, EconomicEngine) for engine in engines)
    first, second = ([e.shocks_at(t) for t in range(1, 7)] for e in engines)  # type: ignore[attr-defined]
    assert first == second
    assert not outcome(dove).equals(outcome(hawk))
    # Policy needs a quarter to reach the gap: until then both see the shocks alone.
    assert dove.to_frame().output_gap[1] == hawk.to_frame().output_gap[1]


# Frames


async def test_the_frame_has_one_tidy_row_a_turn() -> None:
    frame = await make_simulation(start="1979Q3").arun(2)
    assert frame.columns.tolist() == [
        "turn", "period", "interest_rate", "inflation", "output_gap", "unemployment",
        "gdp_growth", "total_economic_value", "taylor_rate", "actions", "accepted", "calls", "ok",
        "repaired", "fallback", "failed", "tokens", "seconds", "interventions",
    ]  # fmt: skip
    assert frame.period.tolist() == ["1979Q3", "1979Q4", "1980Q1"]
    assert frame.actions.tolist() == frame.accepted.tolist() == [0, 2, 2]
    assert frame.calls.tolist() == frame.ok.tolist() == [0, 6, 6]


async def test_tokens_are_summed_over_a_turns_calls_and_attempts() -> None:
    def counted(request: ChatRequest) -> Any:
        reply = answer(request)
        assert request.site is not None
        bad = request.site.component == "agent" and request.attempt == 1
        text = "no" if bad else reply.model_dump_json()
        return ChatReply(text=text, prompt_tokens=100, reply_tokens=10)

    simulation = make_simulation(counted, names=("Aland",))
    frame = await simulation.arun(1)
    assert frame.tokens.tolist() == [0, 440]
    assert (frame.repaired[1], frame.ok[1]) == (1, 2)
    assert simulation.decisions().prompt_tokens.tolist() == [200, 100, 100]


async def test_the_frame_of_decisions_has_one_row_each() -> None:
    simulation = make_simulation(names=("Aland",))
    await simulation.arun(2)
    frame = simulation.decisions()
    assert frame.columns.tolist() == [
        "run", "seed", "period", "turn", "player", "component", "action", "is_valid",
        "new_interest_rate", "action_applied", "reasoning", "confidence", "accepted", "applied",
        "new_rate", "status", "interventions", "attempts", "prompt_tokens", "reply_tokens",
        "tokens", "seconds", "model",
    ]  # fmt: skip
    assert frame.turn.tolist() == [1, 1, 1, 2, 2, 2]
    assert frame.component.tolist() == ["agent", "validator", "engine"] * 2
    assert frame.action[0] == "Raise the interest rate by 0.25"
    assert frame.is_valid.dropna().tolist() == [True, True]
    assert frame.new_interest_rate.dropna().tolist() == [4.25, 4.5]
    assert frame.new_rate.tolist() == [4.25] * 3 + [4.5] * 3
    assert frame.applied.all()
    assert set(frame.model) == {"auto"}


async def test_a_decision_that_was_rejected_is_distinguished_from_one_that_moved_the_rate() -> None:
    def strict(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "validator" and request.site.agent == "Borduria":
            return verdict(is_valid=False)
        return answer(request)

    simulation = make_simulation(strict, start="1979Q3")
    simulation.intervene(1, set={"inflation": 9}, note="oil")
    await simulation.arun(1)
    frame = simulation.decisions().query("component == 'agent'").set_index("player")
    assert frame.accepted.to_dict() == {"Aland": True, "Borduria": False}
    assert frame.applied.to_dict() == {"Aland": True, "Borduria": False}
    assert frame.new_rate["Aland"] == simulation.state.global_state.interest_rate
    assert math.isnan(frame.new_rate["Borduria"])
    assert frame.period.tolist() == ["1979Q4"] * 2
    assert frame.interventions.tolist() == ["turn 1: inflation=9 (oil)"] * 2


def test_a_rules_decision_says_what_it_did_and_how_far_it_got() -> None:
    nations = [
        {"name": "Hawk", "kind": "taylor", "inflation_target": 0},
        {"name": "Dove", "kind": "taylor", "inflation_target": 4},
    ]
    config = make_config(nations=nations, moves_bp=None, committee="sequential")
    simulation = Simulation(config, state=make_state(inflation=3))
    simulation.run(1)
    frame = simulation.decisions().query("component == 'agent'").set_index("player")
    rates = {action.agent_name: action.proposed_rate for action in simulation.turns[1].actions}
    assert frame.action.str.contains("rate").all()
    assert frame.new_rate["Hawk"] == rates["Hawk"]
    assert frame.new_rate["Dove"] == simulation.state.global_state.interest_rate


def test_a_reply_with_the_names_of_other_columns_hides_none_of_them() -> None:
    reply = (
        '{"action": "Raise taxes", "turn": 99, "accepted": [1], "reasoning": "So", "confidence": 1}'
    )

    def loud(request: ChatRequest) -> Any:
        assert request.site is not None
        return reply if request.site.component == "agent" else answer(request)

    simulation = make_simulation(loud, names=("Aland",))
    simulation.run(1)
    frame = simulation.decisions()
    assert frame.turn.tolist() == [1, 1, 1]
    assert frame.reply_turn[0] == 99
    assert frame.reply_accepted[0] == "[1]"
    assert frame.accepted[0]


async def test_frames_of_a_run_are_written_as_parquet(tmp_path: Path) -> None:
    simulation = make_simulation(start="1979Q3")
    await simulation.arun(1)
    for frame in (simulation.to_frame(), simulation.decisions(), make_simulation().decisions()):
        frame.to_parquet(tmp_path / "x.parquet")
        again = pd.read_parquet(tmp_path / "x.parquet")
        assert again.columns.tolist() == frame.columns.tolist()
        assert len(again) == len(frame)


def test_the_frame_of_decisions_has_its_columns_also_when_empty() -> None:
    frame = make_simulation().decisions()
    assert len(frame) == 0
    assert "reasoning" in frame.columns


def test_rules_decisions_are_in_the_frame_without_a_model() -> None:
    simulation = Simulation(make_config())
    simulation.run(1)
    frame = simulation.decisions()
    assert frame.component.tolist() == ["agent", "engine"]
    assert frame.attempts.tolist() == [0, 0]
    assert frame.model.isna().all()
    assert simulation.statuses == {}


def test_the_frame_shows_what_the_taylor_rule_asks_for() -> None:
    frame = Simulation(make_config(), state=make_state(inflation=3, output_gap=1)).to_frame()
    assert frame.taylor_rate.tolist() == [6.0]


def test_all_chains_are_the_turns_chains_in_order() -> None:
    simulation = make_simulation(names=("Aland",))
    simulation.run(3)
    assert [chain.turn for chain in simulation.chains] == [1] * 3 + [2] * 3 + [3] * 3


def test_a_state_holds_only_its_own_turns_chains_so_that_turns_do_not_grow() -> None:
    simulation = make_simulation()
    simulation.run(12)
    assert {len(turn.state.reasoning_chains) for turn in simulation.turns[1:]} == {6}
    sizes = [len(turn.state.model_dump_json()) for turn in simulation.turns]
    assert sizes[12] < 1.05 * sizes[2]


# Making one


def test_the_defaults_need_a_model_and_say_how_to_get_one() -> None:
    with pytest.raises(ConfigError, match=r"nation 'United States'.*connect\('auto'\).*'taylor'"):
        Simulation()
    with pytest.raises(ConfigError, match=r"the validator .* needs a model"):
        Simulation(SimulationConfig(nations=[{"name": "A", "kind": "taylor"}]))


async def test_the_defaults_run_on_a_model() -> None:
    turn = await Simulation(llm_client=make_client()).step()
    assert [action.agent_name for action in turn.actions] == ["United States"]


@pytest.mark.parametrize("start", ["1958Q4", "1959Q4", "2009Q4", "2050Q1"])
def test_a_start_outside_the_data_names_the_quarters_there_are(start: str) -> None:
    with pytest.raises(ConfigError, match=f"quarter={start} is outside the data; choose 1960Q1 to"):
        Simulation(make_config(start=start))


def test_a_start_that_is_not_a_quarter_shows_the_form() -> None:
    with pytest.raises(ConfigError, match="'autumn' is not of the form 1979Q3"):
        Simulation(make_config(start="autumn"))


def test_two_agents_of_one_name_are_errors() -> None:
    agents = [TaylorRuleAgent("A"), NationAgent(" A", make_client())]
    with pytest.raises(ConfigError, match="different names; twice: A"):
        Simulation(agents=agents, validator=AlwaysValid())


def test_a_nations_profile_reaches_its_agent() -> None:
    nation = {"name": "Aland", "temperament": "stern", "inflation_target": 1.0}
    simulation = Simulation(SimulationConfig(nations=[nation]), llm_client=make_client())
    (agent,) = simulation.agents
    assert isinstance(agent, NationAgent)
    assert (agent.profile.temperament, agent.profile.inflation_target) == ("stern", 1.0)


def test_a_rules_target_reaches_its_agent() -> None:
    nations = [{"name": "Aland", "kind": "taylor", "inflation_target": 1.0}]
    (agent,) = Simulation(make_config(nations=nations, engine={"max_move": 0.5})).agents
    assert isinstance(agent, TaylorRuleAgent)
    assert (agent.rule.inflation_target, agent.limits.max_move) == (1.0, 0.5)


def test_a_given_state_is_where_the_run_starts() -> None:
    simulation = Simulation(make_config(), state=make_state(turn=5, names=("Sylda",)))
    assert simulation.run(1).turn.tolist() == [5, 6]
    assert list(simulation.state.agents) == ["Sylda", "Aland"]


def test_a_given_engines_state_is_where_the_run_starts() -> None:
    engine = EconomicEngine(initial_state=initial_state("1979Q3"))
    assert Simulation(make_config(), engine=engine).state.period == "1979Q3"


def test_a_configured_start_counts_before_the_engines_state() -> None:
    engine = EconomicEngine(initial_state=initial_state("1979Q3"))
    simulation = Simulation(make_config(start="1990Q1"), engine=engine)
    assert simulation.run(1).period.tolist() == ["1990Q1", "1990Q2"]


def test_rules_that_pull_in_opposite_directions_do_not_stop_the_run() -> None:
    nations = [
        {"name": "Hawk", "kind": "taylor", "inflation_target": 0},
        {"name": "Dove", "kind": "taylor", "inflation_target": 30},
    ]
    frame = Simulation(make_config(nations=nations, start="1979Q3")).run(4)
    assert frame.turn.tolist() == [0, 1, 2, 3, 4]


def test_the_repr_says_where_the_run_is() -> None:
    simulation = make_simulation(names=("A", "B", "C", "D"), name="demo", start="1979Q3")
    assert repr(simulation) == (
        "<Simulation 'demo': turn 0 (1979Q3), rate 9.67%, agents A, B, C and 1 more>"
    )


async def test_a_limit_of_requests_in_flight_holds_for_the_whole_run() -> None:
    flying, most = 0, 0

    async def count(request: ChatRequest) -> Any:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        flying -= 1
        return answer(request)

    client = LLMClient(LLMConfig(max_concurrency=3), ScriptedBackend(count))
    names = tuple(f"Nation {number}" for number in range(9))
    await Simulation(SimulationConfig(nations=names), llm_client=client).step()
    assert most == 3


async def test_a_model_that_only_holds_the_rate_keeps_it() -> None:
    def hold(request: ChatRequest) -> Any:
        assert request.site is not None
        return rate_update(4) if request.site.component == "engine" else answer(request)

    frame = await make_simulation(hold).arun(3)
    assert frame.interest_rate.tolist() == [4, 4, 4, 4]
    assert frame.inflation.tolist() == [2, 2, 2, 2]


async def test_a_bug_in_a_users_agent_is_raised_as_it_is_and_the_run_stays_where_it_was() -> None:
    class Broken(Agent):
        async def decide_action(self, state: SimulationState) -> Action:
            raise KeyError("oops")

    agents = [TaylorRuleAgent("A"), Broken("B")]
    simulation = Simulation(agents=agents, validator=AlwaysValid())
    with pytest.raises(KeyError, match="oops"):
        await simulation.step()
    assert (simulation.turn_number, len(simulation.turns)) == (0, 1)


def test_a_rate_that_a_fallback_set_is_counted() -> None:
    nations = [
        {"name": "Low", "kind": "taylor", "inflation_target": 0},
        {"name": "High", "kind": "taylor", "inflation_target": 40},
    ]
    config = make_config(start="1979Q3", nations=nations, moves_bp=None, committee="sequential")
    simulation = Simulation(config)
    frame = simulation.run(1)
    assert frame["fallback"].tolist() == [0, 1]
    assert frame["calls"].tolist() == [0, 0]
    assert simulation.statuses == {"fallback": 1.0}


def test_a_turns_seconds_are_those_between_its_start_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(make_config())
    second_by_second(monkeypatch)
    simulation.run(2)
    assert [turn.seconds for turn in simulation.turns] == [0, 1, 1]
