"""The part of a model-driven engine that knows no domain: actions in order, all or none."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, runtime_checkable

from pydantic import Field

from llmsim_lab.calls import CallSite, Status
from llmsim_lab.economy.limits import RateLimits
from llmsim_lab.engines.base import Engine
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.models import (
    Action,
    GlobalState,
    LLMReasoningChain,
    SimulationState,
    StateUpdateDecision,
)
from llmsim_lab.settings import Settings

__all__ = ["EngineConfig", "HasEngineConfig", "LLMEngine", "engine_config"]

logger = logging.getLogger(__name__)

Finite = Annotated[float, Field(allow_inf_nan=False)]


class EngineConfig(Settings):
    """Limits of the interest rate in a run; percent per year and percentage points.

    Attributes:
        rate_bounds: lowest and highest rate; beyond them a reply is invalid, never clamped.
        max_move: largest change by one action.
        rate_step: the grid of rates a model is offered.
    """

    rate_bounds: tuple[Finite, Finite] = (0.0, 25.0)
    max_move: Finite = 2.0
    rate_step: Finite = 0.25

    def model_post_init(self, _context: Any, /) -> None:
        """Check that the limits make sense together."""
        _ = self.limits

    @property
    def limits(self) -> RateLimits:
        """The same as one value."""
        lower, upper = self.rate_bounds
        return RateLimits(lower=lower, upper=upper, max_move=self.max_move, step=self.rate_step)


@runtime_checkable
class HasEngineConfig(Protocol):
    """A larger configuration, such as a simulation's, that holds an engine's."""

    @property
    def engine(self) -> EngineConfig:
        """The engine's part."""
        ...


def engine_config(config: EngineConfig | HasEngineConfig | None) -> EngineConfig:
    """Return the engine's part of whatever configuration was given."""
    if config is None:
        return EngineConfig()
    if isinstance(config, EngineConfig):
        return config
    if isinstance(config, HasEngineConfig) and isinstance(config.engine, EngineConfig):
        return config.engine
    raise ConfigError(
        f"config must be an EngineConfig or a SimulationConfig, not {type(config).__name__}"
    )


class LLMEngine(Engine):
    """An engine that asks a language model what each accepted action does.

    Actions are applied in order, each seeing what the one before left. Unvalidated actions are
    skipped. The current state stays as it is, whether the model fails or not.

    Args:
        config: the engine's limits, or a whole simulation's configuration.
        llm_client: the model.
        initial_state: the state to start from.
    """

    def __init__(
        self,
        config: EngineConfig | HasEngineConfig | None = None,
        llm_client: LLMClient | None = None,
        *,
        initial_state: SimulationState | None = None,
    ) -> None:
        super().__init__(initial_state)
        self.config = engine_config(config)
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
        """Say what is wrong with a decision in this state, or None."""
        del decision, current_state
        return None

    def _finish_turn(self, state: SimulationState) -> SimulationState:
        """Do what happens at a turn's end whatever was decided."""
        return state

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        """Apply the validated actions in order and return the next state.

        Raises:
            LLMFailureException: the model failed.
        """
        start = self.current_state
        state = start
        chains: list[LLMReasoningChain] = []
        for action in validated_actions:
            if not action.validated:
                logger.info("SKIPPED Agent [%s] due to unvalidated Action", action.agent_name)
                continue
            decision, chain = await self._decide(action, state.global_state, start.turn + 1)
            chains.append(chain)
            state = self._apply_state_update(decision, state)
        state = self._finish_turn(state)
        return state.model_copy(update={"turn": start.turn + 1, "reasoning_chains": tuple(chains)})

    async def _decide(
        self, action: Action, current_state: GlobalState, turn: int
    ) -> tuple[StateUpdateDecision, LLMReasoningChain]:
        if self.llm_client is None:
            raise ConfigError(
                f"the engine has no model and the action of {action.agent_name!r}, "
                f"{action.action_string!r}, names no rate; give the engine an llm_client, or use "
                "agents that propose a rate, such as TaylorRuleAgent"
            )
        prompt = self._construct_state_update_prompt(action, current_state)
        site = self._site(action, turn)

        def check(decision: StateUpdateDecision) -> str | None:
            return self._problem(decision, current_state)

        decision = await self.llm_client.call_with_retry(
            prompt=prompt,
            response_model=StateUpdateDecision,
            choices=self._choices(current_state),
            check=check,
            site=site,
        )
        if decision.call is None and (problem := check(decision)):
            raise LLMFailureException("invalid_response", 1, None, "engine", detail=problem)
        return decision, self._chain(decision, site, prompt=prompt)

    @staticmethod
    def _chain(
        decision: StateUpdateDecision,
        site: CallSite,
        *,
        prompt: str = "",
        status: Status | None = None,
    ) -> LLMReasoningChain:
        return chain_of(
            decision,
            site,
            logger=logger,
            prompt=prompt,
            status=status,
            new_interest_rate=decision.new_interest_rate,
        )

    @staticmethod
    def _site(action: Action, turn: int) -> CallSite:
        return CallSite(component="engine", agent=action.agent_name, turn=turn)
