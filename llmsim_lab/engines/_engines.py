"""What accepted actions do to the world: apply them in order, all of a turn's or none.

``Engine`` and ``LLMEngine`` know no domain. ``EconLLMEngine`` moves the interest rate;
``EconomicEngine`` then lets a macro model lead the economy into the next quarter. What its model is
asked, and what follows from a rate, are functions: the economic world has them too.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import FiniteFloat

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import log_event, number
from llmsim_lab.economy._data import next_quarter
from llmsim_lab.economy._macro import (
    NO_SHOCKS,
    FiscalBackstop,
    MacroModel,
    RateLimits,
    RudebuschSvensson,
    ShockGenerator,
    Shocks,
)
from llmsim_lab.engines._committee import Committee
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.models import Action, GlobalState, SimulationState, StateUpdateDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.types import CallSite, LLMReasoningChain, Status

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
"""Where the value of each of the prompt's slots comes from."""


class Engine(ABC):
    """Moves the world one turn at a time.

    Attributes:
        current_state: the state the next turn starts from. The caller sets it; ``run_turn`` does
            not change it.
    """

    def __init__(self, initial_state: SimulationState | None = None) -> None:
        self.current_state = initial_state or SimulationState()

    @abstractmethod
    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the actions to the current state and return the next one."""


class EngineConfig(Settings):
    """Limits of the interest rate in a run; percent per year and percentage points.

    Attributes:
        rate_bounds: lowest and highest rate; beyond them a reply is invalid, never clamped.
        max_move: largest change by one action.
        rate_step: the grid of rates a model is offered.
    """

    rate_bounds: tuple[FiniteFloat, FiniteFloat] = (0.0, 25.0)
    max_move: FiniteFloat = 2.0
    rate_step: FiniteFloat = 0.25

    def model_post_init(self, _context: Any, /) -> None:
        """Raise ConfigError if the limits do not make sense together."""
        _ = self.limits

    @property
    def limits(self) -> RateLimits:
        """The limits as an engine applies them."""
        lower, upper = self.rate_bounds
        return RateLimits(lower=lower, upper=upper, max_move=self.max_move, step=self.rate_step)


def _validated(actions: Iterable[Action]) -> Iterator[Action]:
    for action in actions:
        if action.validated:
            yield action
        else:
            logger.info("SKIPPED Agent [%s] due to unvalidated Action", action.agent_name)


class LLMEngine(Engine):
    """An engine that asks a language model what each accepted action does.

    Actions are applied in order, each to the state that the one before left. Unvalidated actions
    are skipped. The current state does not change, whether the model fails or not.

    It may also sit in a seat of an economic run: ``players={"engine": engine}``.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model.
        initial_state: the state to start from.
    """

    def __init__(
        self,
        config: Settings | None = None,
        llm_client: LLMClient | None = None,
        *,
        initial_state: SimulationState | None = None,
    ) -> None:
        super().__init__(initial_state)
        own = EngineConfig() if config is None else getattr(config, "engine", config)
        if not isinstance(own, EngineConfig):
            raise ConfigError(
                f"config must be an EngineConfig or a SimulationConfig, not {type(config).__name__}"
            )
        self.config = own
        self.llm_client = llm_client

    @abstractmethod
    def _construct_state_update_prompt(self, action: Action, current_state: GlobalState) -> str:
        """Write the prompt about one action."""

    @abstractmethod
    def _apply_state_update(
        self, decision: StateUpdateDecision, current_state: SimulationState
    ) -> SimulationState:
        """Return the state after one action."""

    def _choices(self, current_state: GlobalState) -> Mapping[str, tuple[Any, ...]] | None:
        """Return the only values allowed for some fields of the decision in this state."""
        del current_state
        return None

    def _problem(self, decision: StateUpdateDecision, current_state: GlobalState) -> str | None:
        """Return what is wrong with a decision in this state, or None."""
        del decision, current_state
        return None

    def _finish_turn(self, state: SimulationState) -> SimulationState:
        """Return the state after whatever happens at a turn's end, whatever was decided."""
        return state

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the validated actions in order and return the next state.

        Raises:
            LLMFailureException: the model failed.
        """
        state = start = self.current_state
        chains: list[LLMReasoningChain] = []
        for action in _validated(validated_actions):
            # One after the other, not at once: each action finds the rate that the last one left.
            decision, chain = await self._decide(action, state.global_state, start.turn + 1)
            chains.append(chain)
            state = self._apply_state_update(decision, state)
        state = self._finish_turn(state)
        return state.model_copy(update={"turn": start.turn + 1, "reasoning_chains": tuple(chains)})

    async def __call__(self, question: Question) -> StateUpdateDecision:
        """Judge an action's words as a player of an economic run.

        Raises:
            LLMFailureException: the model failed.
        """
        here: GlobalState = question.values["economy"]
        self.current_state = SimulationState(turn=question.turn - 1, global_state=here)
        action = Action(agent_name=question.player, action_string=question.values["action"])
        decision, _ = await self._decide(action, here, question.turn)
        return decision

    async def _decide(
        self, action: Action, current_state: GlobalState, turn: int
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        if self.llm_client is None:
            raise ConfigError(
                f"the engine has no model and the action of {action.agent_name!r}, "
                f"{action.action_string!r}, names no rate and no change of it; give the engine an "
                "llm_client, or use agents that state a size, such as TaylorRuleAgent"
            )
        prompt = self._construct_state_update_prompt(action, current_state)
        site = CallSite(component="engine", agent=action.agent_name, turn=turn)

        def check(decision: StateUpdateDecision) -> str | None:
            return self._problem(decision, current_state)

        decision = await self.llm_client.call_with_retry(
            total_timeout_s=self.llm_client.config.timeout_s,
            prompt=prompt,
            response_model=StateUpdateDecision,
            choices=self._choices(current_state),
            check=check,
            site=site,
        )
        # A client of the user's own need not run the check, and leaves no call.
        if decision.call is None and (problem := check(decision)):
            raise LLMFailureException("invalid_response", 1, None, "engine", detail=problem)
        rate = decision.new_interest_rate
        chain = chain_of(decision, site, logger=logger, prompt=prompt, new_interest_rate=rate)
        return decision, chain


class EconLLMEngine(LLMEngine):
    """Moves the interest rate, and nothing else.

    An action that states its size is applied exactly, within the bounds of the rate; the model
    judges the others. The schema offers it a grid of rates around the current one; a rate outside
    the bounds or too far away is an invalid response.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model; None if every action states its size.
        prompt: a prompt with the slots of the shipped ``engine_interest_rate``.
        initial_state: the state to start from.
    """

    def __init__(
        self,
        config: Settings | None = None,
        llm_client: LLMClient | None = None,
        *,
        prompt: Prompt | None = None,
        initial_state: SimulationState | None = None,
    ) -> None:
        super().__init__(config, llm_client, initial_state=initial_state)
        self.prompt = prompt or Prompt.load("engine_interest_rate")
        self.limits = self.config.limits

    def _construct_state_update_prompt(self, action: Action, current_state: GlobalState) -> str:
        return update_prompt(
            self.prompt,
            self.limits,
            current_state,
            action.action_string,
            agent=action.agent_name,
            turn=self.current_state.turn,
        )

    def _choices(self, current_state: GlobalState) -> Mapping[str, tuple[Any, ...]]:
        rates = update_limits(self.limits, current_state.interest_rate)
        return {name: tuple(its) for name, its in rates.items()}

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
        """Apply the size that an action states; ask the model about an action that states none.

        A change that would leave the bounds of the rate ends there; the chain's status is then
        ``fallback``.

        A rate within reach at the turn's start, but no longer after another agent's action, is
        replaced by the nearest one within reach; the chain's status is then ``fallback``.

        Raises:
            ConfigError: the action names a rate that was out of reach when the turn began.
        """
        here = current_state.interest_rate
        status: Status = "ok"
        if action.rate_change_bp is not None:
            asked = changed_by(here, action.rate_change_bp)
            rate = self.limits.inside(asked)
            reasoning = (
                f"The action states its size: {action.rate_change_bp:+.10g} basis points from "
                f"{number(here)}%, which is {number(asked)}%."
            )
            if rate != asked:
                status = "fallback"
                reasoning += f" The bounds of the rate end at {number(rate)}%."
            return self._applied(action, rate, reasoning, status=status, turn=turn)
        if action.proposed_rate is None:
            return await super()._decide(action, current_state, turn)
        rate = asked = action.proposed_rate
        reasoning = f"The action names the rate: {number(asked)}%."
        if problem := self.limits.problem(asked, current=here):
            # Out of reach when the turn began is the agent's fault; since then, the others'.
            if self.limits.problem(asked, current=self.current_state.global_state.interest_rate):
                raise ConfigError(
                    f"action of {action.agent_name!r}: {problem}; propose a rate within the "
                    "limits, or widen the engine's rate_bounds or max_move"
                )
            rate, status = self.limits.nearest(asked, current=here), "fallback"
            reasoning += (
                f" Actions before it moved the rate to {number(here)}%, from where one action "
                f"reaches {number(rate)}%."
            )
        return self._applied(action, rate, reasoning, status=status, turn=turn)

    def _applied(
        self, action: Action, rate: float, reasoning: str, *, status: Status, turn: int
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        """Return what becomes of an action that states its size, for which no model is asked."""
        decision = StateUpdateDecision(
            new_interest_rate=rate,
            reasoning=reasoning,
            confidence=1.0,
            action_applied=action.action_string,
        )
        site = CallSite(component="engine", agent=action.agent_name, turn=turn)
        chain = chain_of(decision, site, logger=logger, status=status, new_interest_rate=rate)
        return decision, chain


def changed_by(rate: float, change_bp: float) -> float:
    """Return a rate changed by so many basis points.

    By a whole number of them without the dust of binary fractions; any other change is exact.
    """
    changed = rate + change_bp / 100
    return round(changed, 10) if isinstance(change_bp, int) else changed


def minutes(
    committee: Committee, votes: Mapping[str, float], rate: float, *, current: float
) -> str:
    """Return how a committee came to its rate: each vote, the outcome, and who dissents."""
    if not votes:
        return f"No vote counts, so the rate stays at {number(current)}%."

    def change(to: float) -> str:
        return f"{number(to)}% ({round(100 * (to - current), 2) + 0:+g} bp)"

    cast = ", ".join(f"{name} {change(vote)}" for name, vote in sorted(votes.items()))
    against = [name for name, vote in sorted(votes.items()) if committee.dissents(vote, rate)]
    dissent = f"dissent: {', '.join(against)}" if against else "no dissent"
    return f"Votes: {cast}. By the rule {committee}: {change(rate)}; {dissent}."


_rates = lru_cache(maxsize=1024)(RateLimits.choices)  # asked for at every call, many the same


def update_limits(limits: RateLimits, rate: float) -> dict[str, list[float]]:
    """Return what the model that judges an action may answer from a rate, by field."""
    # Real data and rules leave more digits than the two that the prompt shows.
    return {"new_interest_rate": list(_rates(limits, round(rate, 2)))}


def update_prompt(
    prompt: Prompt,
    limits: RateLimits,
    economy: GlobalState,
    action: str,
    *,
    agent: str,
    turn: int = 0,
) -> RenderedPrompt:
    """Return what is read by the one who judges which rate an action leads to.

    Args:
        prompt: with the slots of the shipped ``engine_interest_rate``.
        limits: of the rate.
        economy: the quarter, with the rate that the action meets.
        action: in words.
        agent: whose action it is.
        turn: the number of the state that is shown.
    """
    return prompt.render(
        lowest_rate=number(limits.lower),
        highest_rate=number(limits.upper),
        max_move=number(limits.max_move),
        rate_step=number(limits.step),
        current_rate=number(economy.interest_rate),
        inflation=number(economy.inflation),
        gdp=number(economy.gdp_growth),
        action_string=action,
    ).sourced(_SOURCES, turn=turn, agent=agent)


def next_economy(
    economy: GlobalState,
    rate: float,
    shocks: Shocks,
    *,
    macro: MacroModel,
    lower_bound: float,
    backstop: FiscalBackstop | None = None,
    turn: int = 0,
) -> GlobalState:
    """Return the economy a quarter later, under a rate.

    Args:
        economy: this quarter.
        rate: percent per year.
        shocks: what hits the next quarter.
        macro: the model of the economy.
        lower_bound: of the rate, percent per year.
        backstop: what the budget adds where the rate is at its lower bound; nothing if not given.
        turn: the number of the state that comes out, for the log.
    """
    if backstop is not None and rate <= lower_bound:
        demand = backstop.demand(economy, lower_bound=lower_bound, model=macro)
        if demand:
            log_event(logger, logging.INFO, "FISCAL_BACKSTOP", turn=turn, demand=number(demand))
        shocks += Shocks(demand=demand)
    return macro.advance(economy, interest_rate=rate, shocks=shocks)


class EconomicEngine(EconLLMEngine):
    """Moves the interest rate, then lets the economy answer: one turn is one quarter.

    The actions of several agents move one common rate, in order. At the end of the turn the macro
    model leads the economy from the quarter the agents saw to the next, which has the new rate.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model; None if every action states its size.
        macro: the model of the economy; Rudebusch and Svensson's if not given.
        shocks: what hits the economy each quarter; nothing if not given.
        prompt: a prompt with the slots of the shipped ``engine_interest_rate``.
        initial_state: the state to start from.
    """

    def __init__(
        self,
        config: Settings | None = None,
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

    def _finish_turn(self, state: SimulationState) -> SimulationState:
        start, turn = self.current_state, self.current_state.turn + 1
        # From the turn's start, not from ``state``: the rates in between were never in force.
        economy = next_economy(
            start.global_state,
            state.global_state.interest_rate,
            self.shocks.at(turn) if self.shocks else NO_SHOCKS,
            macro=self.macro,
            lower_bound=self.limits.lower,
            turn=turn,
        )
        period = next_quarter(state.period) if state.period else None
        return state.model_copy(update={"global_state": economy, "period": period})
