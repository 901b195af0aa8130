"""Engines: they apply a turn's accepted actions to the world in order, all of them or none.

``Engine`` and ``LLMEngine`` have no domain. ``EconLLMEngine`` moves the interest rate;
``EconomicEngine`` then computes the next quarter with a macro model. The prompts and the minutes
are functions, which the economic world uses too.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmsim_lab._util.text import number
from llmsim_lab.economy.data import next_quarter
from llmsim_lab.economy.macro import EngineConfig, RudebuschSvensson
from llmsim_lab.engines.committee import Committee
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.chains import chain_of
from llmsim_lab.llm.client import checked_client
from llmsim_lab.models import Action, GlobalState, SimulationState, StateUpdateDecision
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.types import CallSite, LLMReasoningChain

logger = logging.getLogger(__name__)

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
"""The sources of the values of the prompt's slots."""


class Engine(ABC):
    """Moves the world one turn at a time.

    Attributes:
        current_state: the state the next turn starts from. The caller sets it; ``run_turn`` does
            not change it.
    """

    def __init__(self) -> None:
        self.current_state = SimulationState()

    @abstractmethod
    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the actions to the current state and return the next one."""


class LLMEngine(Engine):
    """An engine that asks a language model for the effect of each accepted action.

    Actions are applied in order, each to the state after the one before. Unvalidated actions are
    skipped. The current state does not change, even if the model fails.

    It may also sit in a seat of an economic run: ``players={"engine": engine}``.

    Args:
        config: an ``EngineConfig``, or a ``SimulationConfig`` that has one; default limits if not
            given.
        llm_client: the model.
    """

    def __init__(
        self,
        config: Any = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        super().__init__()
        # A run's configuration has the engine's as ``engine``.
        self.config: EngineConfig = getattr(config, "engine", config) or EngineConfig()
        if llm_client is not None:
            llm_client = checked_client(llm_client, "llm_client")
        self.llm_client = llm_client

    @abstractmethod
    def _construct_state_update_prompt(
        self,
        action: Action,
        current_state: GlobalState,
    ) -> str:
        """Write the prompt about one action."""

    @abstractmethod
    def _apply_state_update(
        self,
        decision: StateUpdateDecision,
        current_state: SimulationState,
    ) -> SimulationState:
        """Return the state after one action."""

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the validated actions in order and return the next state.

        Raises:
            LLMFailureException: the model failed.
        """
        state = self.current_state
        turn = state.turn + 1
        chains: list[LLMReasoningChain] = []
        for action in validated_actions:
            if not action.validated:
                # The contract's tests look for these words.
                logger.info("SKIPPED Agent [%s] due to unvalidated Action", action.agent_name)
                continue
            # One after the other, since each action starts from the rate that the last one set.
            decision, chain = await self._decide(
                action,
                state.global_state,
                turn,
            )
            chains.append(chain)
            state = self._apply_state_update(decision, state)
        # Also in a turn without actions, since time passes.
        return state.model_copy(
            update={
                "turn": turn,
                "reasoning_chains": tuple(chains),
            }
        )

    async def __call__(self, question: Question) -> StateUpdateDecision:
        """Judge an action's words as a player of an economic run.

        Raises:
            LLMFailureException: the model failed.
        """
        # With the rate before this action, which the run's state does not have yet.
        economy = question.values["economy"]
        # The prompt has the number of the state's turn.
        self.current_state = SimulationState(
            turn=question.turn - 1,
            global_state=economy,
        )
        action = Action(
            agent_name=question.player,
            action_string=question.values["action"],
        )
        decision, _ = await self._decide(action, economy, question.turn)
        # Without the chain, since the run records every call.
        return decision

    async def _decide(
        self,
        action: Action,
        current_state: GlobalState,
        turn: int,
        **bounds: Any,
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        """Ask the model; ``choices`` and ``check`` restrict its decision."""
        if self.llm_client is None:
            raise ConfigError(
                f"no model judges the action of {action.agent_name}, {action.action_string!r}; "
                "give the engine an llm_client, or use agents that state a size, such as "
                "TaylorRuleAgent"
            )
        prompt = self._construct_state_update_prompt(action, current_state)
        site = CallSite(
            component="engine",
            agent=action.agent_name,
            turn=turn,
        )
        decision = await self.llm_client.call_with_retry(
            total_timeout_s=self.llm_client.config.timeout_s,
            prompt=prompt,
            response_model=StateUpdateDecision,
            site=site,
            **bounds,
        )
        # A user's own client may not run the check, and records no call.
        if decision.call is None and bounds:
            problem = bounds["check"](decision)
            if problem:
                # One attempt, since it is not known whether such a client asked again.
                raise LLMFailureException(
                    "invalid_response",
                    1,
                    None,
                    "engine",
                    detail=problem,
                )
        chain = chain_of(
            decision,
            site,
            logger=logger,
            prompt=prompt,
            new_interest_rate=decision.new_interest_rate,
        )
        return decision, chain


class EconLLMEngine(LLMEngine):
    """Moves the interest rate, and nothing else.

    The model judges an action's words; a stated size is applied by the run itself. The schema
    offers the model a grid of rates around the current one; a rate outside the bounds or too far
    away is an invalid response.

    Arguments are those of ``LLMEngine``.
    """

    def _construct_state_update_prompt(
        self,
        action: Action,
        current_state: GlobalState,
    ) -> str:
        """Write the prompt about one action, the same as for a run's player."""
        write = update_prompts(
            Prompt.load("engine_interest_rate"),
            self.config,
            current_state,
            self.current_state.turn,
        )
        return write(
            current_state.interest_rate,
            action.action_string,
            action.agent_name,
        )

    def _apply_state_update(
        self,
        decision: StateUpdateDecision,
        current_state: SimulationState,
    ) -> SimulationState:
        """Set the rate and count the turn; the lags that macro models read stay as they are."""
        economy = current_state.global_state.model_copy(
            update={"interest_rate": decision.new_interest_rate}
        )
        return current_state.model_copy(
            update={
                "global_state": economy,
                "turn": self.current_state.turn + 1,
            }
        )

    async def _decide(
        self,
        action: Action,
        current_state: GlobalState,
        turn: int,
        **bounds: Any,
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        # Refused, since a model that judges the words could set another rate than the stated one.
        if action.rate_change_bp is not None or action.proposed_rate is not None:
            raise ConfigError(
                f"the action of {action.agent_name!r}, {action.action_string!r}, states its size; "
                "give its agent a seat in a Simulation, which applies it"
            )
        # Rounded to the prompt's digits, of which real data have more; the schema has the same.
        here = round(current_state.interest_rate, 2)

        def problem(decision: StateUpdateDecision) -> str | None:
            return self.config.problem(decision.new_interest_rate, current=here)

        choices = tuple(self.config.choices(here))
        return await super()._decide(
            action,
            current_state,
            turn,
            choices={"new_interest_rate": choices},
            # Not every server enforces the choices.
            check=problem,
            **bounds,
        )


def dissents(vote: float, outcome: float) -> bool:
    """Return True if a member voted for another rate than the outcome."""
    # With a tolerance, since 0.1 + 0.2 is not 0.3.
    return abs(vote - outcome) > 1e-9


def minutes(
    committee: Committee,
    votes: Mapping[str, float],
    rate: float,
    *,
    current: float,
) -> str:
    """Return a committee's minutes: each vote, the outcome, and who dissents."""
    if not votes:
        return f"No vote counts, so the rate stays at {number(current)}%."

    def change(to: float) -> str:
        # Adding 0 turns -0.0 into 0.0.
        points = round(100 * (to - current), 2) + 0
        return f"{number(to)}% ({points:+g} bp)"

    # By name, since the order of the members does not matter.
    in_order = sorted(votes.items())
    cast = [f"{name} {change(vote)}" for name, vote in in_order]
    against = [name for name, vote in in_order if dissents(vote, rate)]
    dissent = "no dissent"
    if against:
        dissent = f"dissent: {', '.join(against)}"
    return f"Votes: {', '.join(cast)}. By the rule {committee}: {change(rate)}; {dissent}."


def update_prompts(
    prompt: Prompt,
    limits: EngineConfig,
    economy: GlobalState,
    turn: int,
) -> Callable[[float, str, str], RenderedPrompt]:
    """Return a function that writes the prompt about the rate that an action leads to.

    The function is called with the rate before the action, the action in words, and its agent.

    Args:
        prompt: has the slots of the shipped ``engine_interest_rate``.
        limits: the limits of the rate.
        economy: the quarter.
        turn: the number of the state that is shown.
    """
    render = prompt.sharing(
        {
            "lowest_rate": number(limits.lower),
            "highest_rate": number(limits.upper),
            "max_move": number(limits.max_move),
            "rate_step": number(limits.rate_step),
            "inflation": number(economy.inflation),
            "gdp": number(economy.gdp_growth),
        }
    )

    def write(
        rate: float,
        action: str,
        agent: str,
    ) -> RenderedPrompt:
        text = render({"current_rate": number(rate), "action_string": action})
        return text.sourced(
            _SOURCES,
            turn=turn,
            agent=agent,
        )

    return write


class EconomicEngine(EconLLMEngine):
    """Moves the interest rate, then computes the economy's response: one turn is one quarter.

    The actions of several agents move one common rate, in order. At the end of the turn, the macro
    model computes the quarter after the one that the agents saw, with the new rate.

    Arguments are those of ``LLMEngine``.
    """

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the validated actions in order and return the next quarter."""
        state = await super().run_turn(validated_actions)
        # From the quarter before the actions, since rates in between were never in force.
        economy = RudebuschSvensson().advance(
            self.current_state.global_state,
            interest_rate=state.global_state.interest_rate,
        )
        # A state without a date stays without one.
        period = next_quarter(state.period) if state.period else None
        return state.model_copy(
            update={
                "global_state": economy,
                "period": period,
            }
        )
