"""An agent that needs no model: it follows the Taylor rule, in the steps a central bank takes."""

from __future__ import annotations

from llmsim_lab.agents.base import Agent
from llmsim_lab.economy.limits import RateLimits
from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.models import Action, LLMReasoningChain, PolicyDecision, SimulationState
from llmsim_lab.text import number

__all__ = ["TaylorRuleAgent"]


class TaylorRuleAgent(Agent):
    """Proposes the allowed rate closest to what the rule asks for.

    Args:
        name: unique in a run.
        rule: the rule; Taylor (1993) with its own coefficients if not given.
        limits: how far one action may move the rate; the engine's defaults if not given.
    """

    def __init__(
        self,
        name: str = "Taylor rule",
        *,
        rule: TaylorRule | None = None,
        limits: RateLimits | None = None,
    ) -> None:
        super().__init__(name)
        self.rule = rule or TaylorRule()
        self.limits = limits or RateLimits()

    async def decide_action(self, state: SimulationState) -> Action:
        """Propose a rate by the rule."""
        economy = state.global_state
        asked = self.rule.rate(
            inflation=economy.inflation,
            output_gap=economy.output_gap,
            previous_rate=economy.interest_rate,
        )
        rate = self.limits.nearest(asked, current=economy.interest_rate)
        reasoning = (
            f"With inflation at {number(economy.inflation)}% and an output gap of "
            f"{number(economy.output_gap)}% the rule asks for {number(asked)}%."
        )
        if abs(rate - asked) > self.limits.step:
            reasoning += f" One step from {number(economy.interest_rate)}% goes no further."
        decision = PolicyDecision(
            action=f"Set the interest rate to {number(rate)}%", reasoning=reasoning, confidence=1.0
        )
        turn = state.turn + 1
        return Action(
            agent_name=self.name,
            action_string=decision.action,
            policy_decision=decision,
            proposed_rate=rate,
            reasoning_chain_id=f"{turn}/agent/{self.name}",
            chain=LLMReasoningChain(
                component="agent", agent=self.name, turn=turn, reasoning=reasoning
            ),
        )
