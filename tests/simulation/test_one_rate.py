"""Decisions that state their size, a committee's votes, and how true an engine's model is."""

from __future__ import annotations

import logging
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_client, make_config, make_state, policy, rate_update, requests_of

from llmsim_lab import data_path
from llmsim_lab.agents import EconLLMAgent, NationAgent, TaylorRuleAgent
from llmsim_lab.agents._agents import RateDecision
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import Tape
from llmsim_lab.models import PolicyDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatRequest
from llmsim_lab.validators import AlwaysValid

MOVES = (-50, -25, 0, 25, 50)
VOTES = {"Ann": 50, "Bob": -25, "Cy": 25, "Di": 50}


def moving(change_bp: Any, action: str = "Raise the interest rate") -> dict[str, Any]:
    """What a model answers that decides among moves."""
    return {
        "reasoning": "Inflation is high.",
        "rate_change_bp": change_bp,
        "action": action,
        "confidence": 0.8,
    }


def voting(request: ChatRequest) -> Any:
    """Each member's vote, by name."""
    assert request.site is not None
    assert request.site.agent is not None
    if request.site.component == "agent":
        return moving(VOTES[request.site.agent], f"Vote of {request.site.agent}")
    return answer(request)


def committee_of(*names: str, **fields: Any) -> Simulation:
    fields.setdefault("validator", {"kind": "always_valid"})
    config = SimulationConfig(nations=names, economy={"shock_scale": 1.0}, **fields)
    return Simulation(config, llm_client=make_client(voting))


def timeless(simulation: Simulation) -> Any:
    """The state without how long its calls took."""
    state = simulation.state
    return state.model_copy(update={"reasoning_chains": ()}), *map(str, state.reasoning_chains)


# A decision's size


async def test_the_moves_on_offer_stand_in_the_prompt_and_in_the_schema() -> None:
    client = make_client(moving(25))
    agent = EconLLMAgent("Aland", client, moves_bp=MOVES)
    action = await agent.decide_action(make_state())
    (request,) = requests_of(client)
    assert request.schema is not None
    fields = request.schema["properties"]
    assert fields["rate_change_bp"] == {"enum": list(MOVES)}
    assert list(fields) == ["reasoning", "rate_change_bp", "action", "confidence"]
    assert request.schema["required"] == list(fields)
    assert "-50, -25, 0, +25, +50." in request.messages[0].content
    assert action.rate_change_bp == 25
    assert type(action.policy_decision) is PolicyDecision


async def test_without_moves_the_contracts_prompt_and_decision_are_asked_for() -> None:
    client = make_client(policy())
    action = await NationAgent("Aland", client).decide_action(make_state())
    (request,) = requests_of(client)
    assert request.schema is not None
    assert "rate_change_bp" not in request.schema["properties"]
    assert "basis points" not in request.prompt
    assert action.rate_change_bp is None


@pytest.mark.parametrize("wrong", [30, None, -500])
async def test_a_move_that_is_not_on_offer_is_sent_back_once(wrong: Any) -> None:
    client = make_client([moving(wrong), moving(-25, "Lower the rate")])
    agent = NationAgent("Aland", client, moves_bp=MOVES)
    action = await agent.decide_action(make_state())
    assert (action.rate_change_bp, action.status) == (-25, "repaired")
    assert "rate_change_bp must be one of -50, -25, 0, +25, +50" in requests_of(client)[1].prompt


async def test_two_moves_that_are_not_on_offer_fail_the_turn() -> None:
    agent = NationAgent("Aland", make_client(moving(30)), moves_bp=MOVES)
    with pytest.raises(LLMFailureException, match="rate_change_bp must be one of"):
        await agent.decide_action(make_state())


async def test_a_decision_that_states_its_size_needs_no_word_of_economics() -> None:
    agent = NationAgent("Aland", make_client(moving(0, "Stay put")), moves_bp=MOVES)
    action = await agent.decide_action(make_state())
    assert (action.status, action.rate_change_bp) == ("ok", 0)


def test_a_prompt_without_a_slot_for_the_moves_is_an_error_with_two_ways_out() -> None:
    with pytest.raises(ConfigError, match=r"no slot \{\{ moves \}\}.*agent_rate.*null"):
        NationAgent("A", make_client(), prompt=Prompt.load("agent_policy"), moves_bp=MOVES)


def test_a_run_applies_exactly_the_move_decided_on_and_asks_no_engine() -> None:
    client = make_client(lambda request: moving(300) if is_agent(request) else answer(request))
    simulation = Simulation(SimulationConfig(start="1979Q3"), llm_client=client)
    before = simulation.state.global_state.interest_rate
    frame = simulation.run(1)
    assert frame.interest_rate[1] == pytest.approx(before + 3, abs=1e-9)
    assert requests_of(client, "engine") == []
    decided = simulation.decisions().query("component == 'agent'").iloc[0]
    assert (decided.wanted_bp, decided.applied_bp, decided.rate_change_bp) == (300, 300, 300)


def is_agent(request: ChatRequest) -> bool:
    assert request.site is not None
    return request.site.component == "agent"


def test_a_decision_says_what_was_wanted_and_what_the_bounds_left_of_it() -> None:
    client = make_client(moving(-50, "Cut the rate"))
    config = SimulationConfig(moves_bp=MOVES, validator={"kind": "always_valid"})
    simulation = Simulation(config, llm_client=client, state=make_state(interest_rate=0.3))
    frame = simulation.run(1)
    assert frame.interest_rate[1] == 0
    assert frame.fallback[1] == 1
    decided = simulation.decisions()
    assert decided.wanted_bp.tolist() == [-50, -50]
    assert decided.applied_bp.tolist() == [-30, -30]
    assert decided.new_rate.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("inflation", "change"), [(2.0, 0), (2.1, 25), (1.9, -25), (9, 50), (-5, -50)]
)
async def test_a_taylor_rule_takes_the_move_that_leads_closest(
    inflation: float, change: int
) -> None:
    agent = TaylorRuleAgent(moves_bp=MOVES)
    action = await agent.decide_action(make_state(inflation=inflation))
    assert (action.rate_change_bp, action.proposed_rate) == (change, None)
    assert action.policy_decision is not None
    assert ("goes no further" in action.policy_decision.reasoning) == (abs(change) == 50)


async def test_of_two_equally_close_moves_a_taylor_rule_takes_the_smaller() -> None:
    rule = TaylorRuleAgent(moves_bp=(-100, 0, 100))
    for inflation in (2 + 1 / 3, 2 - 1 / 3):  # the rule asks for half a point
        action = await rule.decide_action(make_state(inflation=inflation))
        assert action.rate_change_bp == 0


def test_the_default_moves_mirror_each_other_and_reach_as_far_as_history_did() -> None:
    moves = SimulationConfig().moves_bp
    assert moves is not None
    assert moves == tuple(sorted(-move for move in moves))
    assert {-50, -25, 0, 25, 50} < set(moves)
    assert max(moves) >= 446


@pytest.mark.parametrize(
    ("moves", "why"),
    [([25, 50], "0 (no change)"), ([0], "2 to 101"), ([0, 25, 25], "twice"), ([0, 2.5], "integer")],
)
def test_moves_that_make_no_sense_are_an_error(moves: Any, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SimulationConfig(moves_bp=moves)
    assert why in str(caught.value)


def test_a_run_of_moves_replays_from_its_tape(tmp_path: Path) -> None:
    simulation = committee_of("Ann", "Bob", "Cy")
    recorded = Simulation(
        simulation.config, llm_client=make_client(voting), tape=tmp_path / "run.tape"
    )
    recorded.run(3)
    recorded.close()
    again = Simulation.replay(tmp_path / "run.tape")
    assert again.decisions().equals(recorded.decisions())
    assert again.state == recorded.state


# A committee


def test_several_agents_are_a_committee_whose_median_counts() -> None:
    simulation = committee_of("Ann", "Bob", "Cy")
    frame = simulation.run(1)
    assert frame.interest_rate.tolist() == [4, 4.25]
    decided = simulation.decisions().query("component == 'agent'").set_index("player")
    assert decided.vote_bp.to_dict() == {"Ann": 50, "Bob": -25, "Cy": 25}
    assert decided.outcome_bp.tolist() == [25, 25, 25]
    assert decided.dissent.to_dict() == {"Ann": True, "Bob": True, "Cy": False}
    assert decided.new_rate.tolist() == [4.25] * 3
    (minutes,) = [chain for chain in simulation.chains if chain.component == "committee"]
    assert "dissent: Ann, Bob" in minutes.reasoning
    row = simulation.decisions().query("component == 'committee'").iloc[0]
    assert (row.player, row.outcome_bp, row.new_rate) == ("committee", 25, 4.25)


@pytest.mark.parametrize(
    "committee", ["median", "majority", {"rule": "chair", "chair": "Bob", "tolerance_bp": 50}]
)
def test_the_order_of_the_members_changes_nothing(committee: Any) -> None:
    orders = list(permutations(VOTES))
    runs = [committee_of(*order, committee=committee, turns=2) for order in orders]
    frames = [run.run().drop(columns="seconds") for run in runs]
    decisions = [run.decisions().drop(columns="seconds") for run in runs]
    assert len(orders) == 24
    assert all(timeless(run) == timeless(runs[0]) for run in runs)
    assert all(frame.equals(frames[0]) for frame in frames)
    assert all(decided.equals(decisions[0]) for decided in decisions)


def test_the_order_of_given_agents_changes_nothing() -> None:
    states = []
    for order in permutations(VOTES):
        client = make_client(voting)
        agents = [NationAgent(name, client, moves_bp=(-25, 25, 50)) for name in order]
        simulation = Simulation(make_config(), agents=agents, validator=AlwaysValid())
        simulation.run(2)
        states.append(timeless(simulation))
    assert all(state == states[0] for state in states)


def test_one_member_of_one_is_no_committee() -> None:
    simulation = committee_of("Ann")
    simulation.run(1)
    assert [chain.component for chain in simulation.chains] == ["agent", "engine"]
    assert "vote_bp" not in simulation.decisions()


def test_members_may_still_act_one_after_the_other_as_in_the_contract() -> None:
    simulation = committee_of("Ann", "Bob", "Cy", committee="sequential")
    assert simulation.run(1).interest_rate[1] == 4.5
    decided = simulation.decisions().query("component == 'engine'")
    assert decided.applied_bp.tolist() == [50, -25, 25]
    assert decided.new_rate.tolist() == [4.5, 4.25, 4.5]


def test_a_chair_who_is_no_member_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"chair 'Anna' is not one of .*did you mean 'Ann'"):
        committee_of("Ann", "Bob", committee={"rule": "chair", "chair": "Anna"})


@pytest.mark.parametrize(
    ("committee", "why"),
    [
        ({"rule": "chair"}, "needs the chair's name"),
        ({"rule": "median", "chair": "Ann"}, "chair would have no effect"),
        ("mean", "'median', 'majority', 'chair' or 'sequential'"),
    ],
)
def test_a_committee_that_makes_no_sense_is_an_error(committee: Any, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SimulationConfig(committee=committee)
    assert why in str(caught.value)


# What was recorded before


def test_a_configuration_recorded_before_there_were_moves_means_what_it_meant() -> None:
    values = SimulationConfig(nations=["A", "B"]).model_dump(mode="json", by_alias=True)
    new = ("moves_bp", "committee", "briefing")
    old = {name: value for name, value in values.items() if name not in new}
    config = SimulationConfig.recorded(old)
    assert (config.moves_bp, config.committee.rule) == (None, "sequential")
    assert config.briefing == "thin"
    assert SimulationConfig.recorded(values) == SimulationConfig(nations=["A", "B"])


def test_the_recorded_run_of_two_nations_replays_as_it_was() -> None:
    tape = Tape(data_path("tapes/two_nations.tape"), read_only=True)
    again = Simulation.replay(tape)
    assert again.turn_number == 12
    assert again.committee is None
    assert again.config.moves_bp is None


# How true the engine's model is


def in_words(rates: list[float], *actions: str) -> Simulation:
    """A run whose agents speak and whose engine's model sets these rates."""
    spoken, made = iter(actions), iter(rates)

    def reply(request: ChatRequest) -> Any:
        return policy(next(spoken)) if is_agent(request) else rate_update(next(made))

    config = SimulationConfig(moves_bp=None, validator={"kind": "always_valid"}, turns=len(actions))
    return Simulation(config, llm_client=make_client(reply))


def test_an_engine_that_does_what_the_words_say_is_not_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulation = in_words([4.25, 4.25], "Raise the interest rate by 0.25%", "Hold interest rates")
    simulation.run()
    engine = simulation.decisions().query("component == 'engine'")
    assert engine.stated_rate.tolist() == [4.25, 4.25]
    assert engine.faithful.tolist() == [True, True]
    assert "ENGINE_UNFAITHFUL" not in caplog.text


def test_an_engine_that_does_something_else_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    simulation = in_words(
        [4.25, 5.0, 4.0, 5.0],
        "Raise the interest rate by 0.25%",
        "Hold interest rates",
        "Raise taxes",  # names no rate, so nothing can be said of it
        "Raise the interest rate by 9 percentage points",  # out of the engine's reach
    )
    simulation.run(3)
    simulation.run(1)
    engine = simulation.decisions().query("component == 'engine'")
    assert engine.faithful.tolist()[:2] == [True, False]
    assert engine.stated_rate.isna().tolist() == [False, False, True, True]
    (line,) = [r.message for r in caplog.records if "ENGINE_UNFAITHFUL" in r.message]
    assert "measured=2 within_12_5_bp=1 share=0.50" in line


def test_a_decision_with_a_size_is_no_engines_to_judge(caplog: pytest.LogCaptureFixture) -> None:
    simulation = committee_of("Ann")
    simulation.run(2)
    assert "faithful" not in simulation.decisions()
    assert "ENGINE_UNFAITHFUL" not in caplog.text


def test_a_rate_decision_need_not_state_its_size() -> None:
    decision = RateDecision(action="Hold", reasoning="Calm.", confidence=0.5)
    assert decision.rate_change_bp is None
    assert isinstance(decision, PolicyDecision)


def test_further_fields_of_a_rate_decision_are_asked_for_before_confidence() -> None:
    class Dated(RateDecision):
        until: str = ""

    asked = [*Dated.model_json_schema()["properties"]]
    assert asked == ["reasoning", "rate_change_bp", "action", "until", "confidence"]
