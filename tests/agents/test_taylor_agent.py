"""The agent that follows the Taylor rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import make_state

from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.agents.agents import rule_proposal
from llmsim_lab.economy import TaylorRule
from llmsim_lab.economy.macro import EngineConfig
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState

MOVES = (-50, -25, 0, 25, 50)


async def test_its_action_has_the_rate_its_reasoning_and_no_call() -> None:
    agent = TaylorRuleAgent(rule=TaylorRule(inflation_target=1.0))
    action = await agent.decide_action(make_state(turn=3))
    assert (action.agent_name, action.proposed_rate) == ("Taylor rule", 4.5)
    assert action.chain is not None
    assert "asks for 4.5%" in action.chain.reasoning
    assert (action.chain.call, action.chain.prompt) == (None, "")
    assert action.reasoning_chain_id == "4/agent/Taylor rule"


ODD = 9.673333333333334


@pytest.mark.parametrize(
    ("economy", "how", "rate", "move", "further"),
    [
        ({"inflation": 2.4}, {}, 4.5, None, False),  # the rule asks for 4.6
        ({"inflation": 5}, {}, 6.0, None, True),  # one step at most
        ({"interest_rate": 0.5, "inflation": -1, "output_gap": -8}, {}, 0.0, None, False),
        # An odd rate in force is not moved by rounding alone.
        ({"interest_rate": ODD, "inflation": 2 + (ODD - 4) / 1.5}, {}, ODD, None, False),
        ({"inflation": 2.1}, {"moves_bp": MOVES}, 4.25, 25, False),
        ({"inflation": 1.9}, {"moves_bp": MOVES}, 3.75, -25, False),
        ({"inflation": 9}, {"moves_bp": MOVES}, 4.5, 50, True),
        # The rule asks for half a point: of two equally close moves it takes the smaller.
        ({"inflation": 2 + 1 / 3}, {"moves_bp": (-100, 0, 100)}, 4, 0, False),
        ({"inflation": 2 - 1 / 3}, {"moves_bp": (-100, 0, 100)}, 4, 0, False),
    ],
)
def test_a_proposal_goes_as_far_as_what_is_on_offer(
    economy: Any, how: Any, rate: float, move: Any, further: bool
) -> None:
    proposal = rule_proposal(TaylorRule(), GlobalState(**economy), EngineConfig(), **how)
    assert proposal.rate_change_bp == move
    assert proposal.proposed_rate == (pytest.approx(rate, abs=1e-6) if move is None else None)
    assert proposal.action == f"Set the interest rate to {round(rate, 2):g}%"
    assert ("goes no further" in proposal.reasoning) is further


async def test_a_function_is_a_rule_too() -> None:
    def dove(*, inflation: float, output_gap: float, previous_rate: float) -> float:
        return previous_rate - 0.2

    for moves, move in ((MOVES, -25), (np.arange(-50.0, 51, 25), -25), ([-12.5, 0], -12.5)):
        action = await TaylorRuleAgent(rule=dove, moves_bp=moves).decide_action(make_state())
        assert str(action.rate_change_bp) == str(move)
    with pytest.raises(ConfigError, match="moves_bp=True must be a finite number"):
        TaylorRuleAgent(moves_bp=[True])
