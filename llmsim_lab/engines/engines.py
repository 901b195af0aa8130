"""What accepted actions do to the world: apply them in order, all of a turn's or none.

``Engine`` and ``LLMEngine`` know no domain. ``EconLLMEngine`` moves the interest rate;
``EconomicEngine`` then lets a macro model lead the economy into the next quarter. What its model is
asked, and what follows from a rate, are functions: the economic world has them too.
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
"""Where the value of each of the prompt's slots comes from."""


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
    """An engine that asks a language model what each accepted action does.

    Actions are applied in order, each to the state that the one before left. Unvalidated actions
    are skipped. The current state does not change, whether the model fails or not.

    It may also sit in a seat of an economic run: ``players={"engine": engine}``.

    Args:
        config: an ``EngineConfig``, or a ``SimulationConfig`` that has one; the usual if not given.
        llm_client: the model.
    """

    def __init__(
        self,
        config: Any = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        super().__init__()
        # A run's configuration has it as ``engine``.
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
                # The contract's words, which its tests look for.
                logger.info("SKIPPED Agent [%s] due to unvalidated Action", action.agent_name)
                continue
            # One after the other, not at once: each action finds the rate that the last one left.
            decision, chain = await self._decide(
                action,
                state.global_state,
                turn,
            )
            chains.append(chain)
            state = self._apply_state_update(decision, state)
        # Also of a turn without an action: time passes.
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
        # With the rate that this action meets, which is not yet the state's.
        economy = question.values["economy"]
        # Its prompt says which turn the state is of.
        self.current_state = SimulationState(
            turn=question.turn - 1,
            global_state=economy,
        )
        action = Action(
            agent_name=question.player,
            action_string=question.values["action"],
        )
        decision, _ = await self._decide(action, economy, question.turn)
        # The run has the chain: it records every call.
        return decision

    async def _decide(
        self,
        action: Action,
        current_state: GlobalState,
        turn: int,
        **bounds: Any,
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        """Ask the model; ``choices`` and ``check`` of its decision may be given."""
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
        # A client of the user's own need not run the check, and leaves no call.
        if decision.call is None and bounds:
            problem = bounds["check"](decision)
            if problem:
                # One attempt: whether such a client asked again is not known.
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

    The model judges an action's words; a run applies sizes that agents state by itself. The schema
    offers it a grid of rates around the current one; a rate outside the bounds or too far away is
    an invalid response.

    Arguments are those of ``LLMEngine``.
    """

    def _construct_state_update_prompt(
        self,
        action: Action,
        current_state: GlobalState,
    ) -> str:
        """Write the prompt about one action; that of a run's player is the same."""
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
        """Set the rate and count the turn; the past that macro models read stays as it is."""
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
        # A model that judged the words could set another rate than they state.
        if action.rate_change_bp is not None or action.proposed_rate is not None:
            raise ConfigError(
                f"the action of {action.agent_name!r}, {action.action_string!r}, states its size; "
                "give its agent a seat in a Simulation, which applies it"
            )
        # Real data have more digits than the prompt shows, and the schema offers what it shows.
        here = round(current_state.interest_rate, 2)

        def problem(decision: StateUpdateDecision) -> str | None:
            return self.config.problem(decision.new_interest_rate, current=here)

        choices = tuple(self.config.choices(here))
        return await super()._decide(
            action,
            current_state,
            turn,
            choices={"new_interest_rate": choices},
            # Not every server holds a reply to the choices.
            check=problem,
            **bounds,
        )


def dissents(vote: float, outcome: float) -> bool:
    """Return True if a member wanted another rate than the one that was set."""
    # 0.1 + 0.2 is not 0.3.
    return abs(vote - outcome) > 1e-9


def minutes(
    committee: Committee,
    votes: Mapping[str, float],
    rate: float,
    *,
    current: float,
) -> str:
    """Return how a committee came to its rate: each vote, the outcome, and who dissents."""
    if not votes:
        return f"No vote counts, so the rate stays at {number(current)}%."

    def change(to: float) -> str:
        # Plus 0, so that a hold is no -0.
        points = round(100 * (to - current), 2) + 0
        return f"{number(to)}% ({points:+g} bp)"

    # By name, since the order in which members are named does not matter.
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
    """Return what writes to the one who judges which rates a quarter's actions lead to.

    It is called with the rate that an action meets, the action in words, and whose it is.

    Args:
        prompt: with the slots of the shipped ``engine_interest_rate``.
        limits: of the rate.
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
    """Moves the interest rate, then lets the economy answer: one turn is one quarter.

    The actions of several agents move one common rate, in order. At the end of the turn the macro
    model leads the economy from the quarter the agents saw to the next, which has the new rate.

    Arguments are those of ``LLMEngine``.
    """

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the validated actions in order and return the next quarter."""
        state = await super().run_turn(validated_actions)
        # From the turn's start, not from ``state``: the rates in between were never in force.
        economy = RudebuschSvensson().advance(
            self.current_state.global_state,
            interest_rate=state.global_state.interest_rate,
        )
        # An undated state stays undated.
        period = next_quarter(state.period) if state.period else None
        return state.model_copy(
            update={
                "global_state": economy,
                "period": period,
            }
        )
