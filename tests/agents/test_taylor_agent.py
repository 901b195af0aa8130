"""The agent that follows the Taylor rule."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_state

from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.agents._agents import rule_proposal
from llmsim_lab.economy import TaylorRule
from llmsim_lab.economy._macro import EngineConfig
from llmsim_lab.models import GlobalState


async def test_it_proposes_the_grid_rate_closest_to_what_the_rule_asks() -> None:
    action = await TaylorRuleAgent().decide_action(make_state(inflation=2.4))
    assert action.proposed_rate == 4.5  # the rule asks for 4.6
    assert action.chain is not None
    assert "asks for 4.6%" in action.chain.reasoning


async def test_it_goes_no_further_than_one_action_may_and_says_so() -> None:
    agent = TaylorRuleAgent(limits=EngineConfig(max_move=0.5))
    action = await agent.decide_action(make_state(inflation=12))
    assert action.proposed_rate == 4.5
    assert action.policy_decision is not None
    assert "One step from 4% goes no further." in action.policy_decision.reasoning


async def test_it_stays_at_the_lower_bound_in_a_slump() -> None:
    action = await TaylorRuleAgent().decide_action(
        make_state(interest_rate=0.5, inflation=-1, output_gap=-8)
    )
    assert action.proposed_rate == 0.0


async def test_an_odd_current_rate_is_not_moved_by_rounding_alone() -> None:
    rate = 9.673333333333334
    gapless = make_state(interest_rate=rate, inflation=2 + (rate - 4) / 1.5)
    action = await TaylorRuleAgent().decide_action(gapless)
    assert action.proposed_rate == pytest.approx(rate, abs=1e-6)


async def test_it_uses_the_rule_it_was_given() -> None:
    agent = TaylorRuleAgent("Hawk", rule=TaylorRule(inflation_target=1.0))
    action = await agent.decide_action(make_state())
    assert action.proposed_rate == 4.5
    assert action.agent_name == "Hawk"


async def test_no_model_call_stands_behind_its_action() -> None:
    action = await TaylorRuleAgent().decide_action(make_state(turn=3))
    assert action.chain is not None
    assert action.chain.call is None
    assert action.chain.prompt == ""
    assert action.reasoning_chain_id == "4/agent/Taylor rule"


async def test_exactly_it_states_the_very_change_that_the_rule_asks_for() -> None:
    agent = TaylorRuleAgent(
        moves_bp=[-25, 0, 25], limits=EngineConfig(rate_bounds=(0, 6)), exact=True
    )
    action = await agent.decide_action(make_state(inflation=2.4))
    assert action.rate_change_bp == pytest.approx(60)
    assert action.proposed_rate is None
    beyond = await agent.decide_action(make_state(inflation=12))
    assert beyond.rate_change_bp == pytest.approx(200)
    assert beyond.policy_decision is not None
    assert "goes no further" in beyond.policy_decision.reasoning


@pytest.mark.parametrize(
    ("how", "rate", "move"),
    [
        ({}, 6.0, None),  # one step at most
        ({"moves_bp": [-25, 0, 25]}, 4.25, 25),
        ({"moves_bp": [-25, 0, 25], "exact": True}, 8.5, 450),
    ],
)
def test_a_proposal_goes_as_far_as_what_is_on_offer(how: Any, rate: float, move: Any) -> None:
    economy = GlobalState(inflation=5)
    proposal = rule_proposal(TaylorRule(), economy, EngineConfig(), **how)
    assert (proposal.rate, proposal.move) == (rate, move)
    assert proposal.action == f"Set the interest rate to {rate:g}%"
    assert ("goes no further" in proposal.reasoning) is ("exact" not in how)


async def test_a_function_is_a_rule_too() -> None:
    def dove(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        return previous_rate - 0.1

    action = await TaylorRuleAgent(rule=dove, exact=True).decide_action(make_state())
    assert action.rate_change_bp == pytest.approx(-10)


@pytest.mark.parametrize(
    ("inflation", "change"), [(2.0, 0), (2.1, 25), (1.9, -25), (9, 50), (-5, -50)]
)
async def test_a_taylor_rule_takes_the_move_that_leads_closest(
    inflation: float, change: int
) -> None:
    agent = TaylorRuleAgent(moves_bp=(-50, -25, 0, 25, 50))
    action = await agent.decide_action(make_state(inflation=inflation))
    assert (action.rate_change_bp, action.proposed_rate) == (change, None)
    assert action.policy_decision is not None
    assert ("goes no further" in action.policy_decision.reasoning) == (abs(change) == 50)


async def test_of_two_equally_close_moves_a_taylor_rule_takes_the_smaller() -> None:
    rule = TaylorRuleAgent(moves_bp=(-100, 0, 100))
    for inflation in (2 + 1 / 3, 2 - 1 / 3):  # the rule asks for half a point
        action = await rule.decide_action(make_state(inflation=inflation))
        assert action.rate_change_bp == 0
