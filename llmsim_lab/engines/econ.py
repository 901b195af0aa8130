"""Engines of the economic simulation: the interest rate alone, and the whole economy behind it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llmsim_lab.calls import Status
from llmsim_lab.economy.data import next_quarter
from llmsim_lab.economy.limits import RateLimits
from llmsim_lab.economy.macro import MacroModel, RudebuschSvensson
from llmsim_lab.economy.shocks import ShockGenerator, Shocks
from llmsim_lab.engines.llm_engine import EngineConfig, HasEngineConfig, LLMEngine
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import (
    Action,
    GlobalState,
    LLMReasoningChain,
    SimulationState,
    StateUpdateDecision,
)
from llmsim_lab.prompts import Prompt
from llmsim_lab.text import number

__all__ = ["EconLLMEngine", "EconomicEngine"]

_SOURCES = {
    "lowest_rate": "the engine's rate_bounds",
    "highest_rate": "the engine's rate_bounds",
    "max_move": "the engine's max_move",
    "rate_step": "the engine's rate_step",
    "current_rate": "state.global_state.interest_rate, turn {turn}, and earlier actions",
    "inflation": "state.global_state.inflation, turn {turn}",
    "gdp": "state.global_state.gdp_growth, turn {turn}",
    "action_string": "the accepted action of {agent}",
}
"""Where what stands in the prompt's slots comes from."""


class EconLLMEngine(LLMEngine):
    """Moves the interest rate, and nothing else.

    The model is held to a grid of rates around the current one by the schema; a rate outside the
    bounds or too far away is an invalid response.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model; None if every action names its rate.
        prompt: a prompt with the slots of the shipped ``engine_interest_rate``.
        initial_state: the state to start from.
    """

    def __init__(
        self,
        config: EngineConfig | HasEngineConfig | None = None,
        llm_client: LLMClient | None = None,
        *,
        prompt: Prompt | None = None,
        initial_state: SimulationState | None = None,
    ) -> None:
        super().__init__(config, llm_client, initial_state=initial_state)
        self.prompt = prompt or Prompt.load("engine_interest_rate")
        self.limits = self.config.limits

    def _construct_state_update_prompt(self, action: Action, current_state: GlobalState) -> str:
        limits = self.limits
        return self.prompt.render(
            lowest_rate=number(limits.lower),
            highest_rate=number(limits.upper),
            max_move=number(limits.max_move),
            rate_step=number(limits.step),
            current_rate=number(current_state.interest_rate),
            inflation=number(current_state.inflation),
            gdp=number(current_state.gdp_growth),
            action_string=action.action_string,
        ).sourced(_SOURCES, turn=self.current_state.turn, agent=action.agent_name)

    def _choices(self, current_state: GlobalState) -> Mapping[str, tuple[Any, ...]]:
        return {"new_interest_rate": _rates(self.limits, round(current_state.interest_rate, 2))}

    def _problem(self, decision: StateUpdateDecision, current_state: GlobalState) -> str | None:
        return self.limits.problem(
            decision.new_interest_rate, current=round(current_state.interest_rate, 2)
        )

    def _apply_state_update(
        self, decision: StateUpdateDecision, current_state: SimulationState
    ) -> SimulationState:
        """Set the rate and count the turn; the past that macro models read stays as it is."""
        economy = current_state.global_state.model_copy(
            update={"interest_rate": decision.new_interest_rate}
        )
        return current_state.model_copy(
            update={"global_state": economy, "turn": self.current_state.turn + 1}
        )

    async def _decide(
        self, action: Action, current_state: GlobalState, turn: int
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        """Take an action that names its rate at its word; ask the model about any other.

        A rate within reach at the turn's start, but no longer after another agent's action, is
        approached as far as one action may go; the chain's status is then ``fallback``.
        """
        if action.proposed_rate is None:
            return await super()._decide(action, current_state, turn)
        decision, status = self.named_rate(action, current_state)
        return decision, self._chain(decision, self._site(action, turn), status=status)

    def named_rate(
        self, action: Action, current_state: GlobalState
    ) -> tuple[StateUpdateDecision, Status]:
        """Return what becomes of an action that names its rate, and how that came about.

        Raises:
            ConfigError: the action names none, or one out of reach when the turn began.
        """
        asked, here = action.proposed_rate, current_state.interest_rate
        if asked is None:
            raise ConfigError(f"the action of {action.agent_name!r} names no rate")
        rate = asked
        status: Status = "ok"
        reasoning = f"The action names the rate: {number(asked)}%."
        if problem := self.limits.problem(asked, current=here):
            if self.limits.problem(asked, current=self.current_state.global_state.interest_rate):
                raise ConfigError(
                    f"action of {action.agent_name!r}: {problem}; propose a rate within the "
                    "limits, or widen EngineConfig's rate_bounds or max_move"
                )
            rate, status = self.limits.nearest(asked, current=here), "fallback"
            reasoning += (
                f" Actions before it moved the rate to {number(here)}%, from where one action "
                f"reaches {number(rate)}%."
            )
        decision = StateUpdateDecision(
            new_interest_rate=rate,
            reasoning=reasoning,
            confidence=1.0,
            action_applied=action.action_string,
        )
        return decision, status


@lru_cache(maxsize=1024)
def _rates(limits: RateLimits, current_rate: float) -> tuple[float, ...]:
    return tuple(limits.choices(current_rate))


class EconomicEngine(EconLLMEngine):
    """Moves the interest rate, then lets the economy answer: one turn is one quarter.

    Several nations' actions move one common rate, in order. At the end of the turn the macro model
    leads the economy from the quarter the agents saw to the next, which has the new rate.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model; None if every action names its rate.
        macro: the model of the economy; Rudebusch and Svensson's if not given.
        shocks: what hits the economy each quarter; nothing if not given.
        prompt: a prompt with the slots of the shipped ``engine_interest_rate``.
        initial_state: the state to start from.

    Attributes:
        extra_shocks: shocks by turn, on top of the generated ones.
    """

    def __init__(
        self,
        config: EngineConfig | HasEngineConfig | None = None,
        llm_client: LLMClient | None = None,
        *,
        macro: MacroModel | None = None,
        shocks: ShockGenerator | None = None,
        prompt: Prompt | None = None,
        initial_state: SimulationState | None = None,
    ) -> None:
        super().__init__(config, llm_client, prompt=prompt, initial_state=initial_state)
        self.macro = macro or RudebuschSvensson()
        self.shocks = shocks
        self.extra_shocks: dict[int, Shocks] = {}

    def shocks_at(self, turn: int) -> Shocks:
        """Return what hits the economy in the quarter that a turn leads to."""
        shocks = self.shocks.at(turn) if self.shocks else Shocks()
        extra = self.extra_shocks.get(turn)
        return shocks + extra if extra else shocks

    def _finish_turn(self, state: SimulationState) -> SimulationState:
        start = self.current_state
        economy = self.macro.advance(
            start.global_state,
            interest_rate=state.global_state.interest_rate,
            shocks=self.shocks_at(start.turn + 1),
        )
        period = next_quarter(state.period) if state.period else None
        return state.model_copy(update={"global_state": economy, "period": period})
