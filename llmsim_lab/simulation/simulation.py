"""The economic simulation: agents propose at once, the validator marks, the engine applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmsim_lab.agents import Agent
from llmsim_lab.concurrency import gather_all
from llmsim_lab.economy.shocks import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine, Engine
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.models import GlobalState, LLMReasoningChain, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import Run
from llmsim_lab.simulation import build
from llmsim_lab.simulation.config import SimulationConfig
from llmsim_lab.simulation.frames import outcomes
from llmsim_lab.simulation.interventions import Intervention
from llmsim_lab.simulation.turn import Turn
from llmsim_lab.validators import Validator

__all__ = ["Simulation"]


class Simulation(Run[SimulationState, Turn, SimulationConfig, Intervention]):
    """A run of the economic simulation, one quarter a turn.

    A turn that fails changes nothing: the turns before it stay, and ``step`` may be called again.

    Args:
        config: what to run; the defaults need a model.
        llm_client: the model, where the configuration calls for one.
        agents: instead of those the configuration describes.
        validator: instead of the configured one.
        engine: likewise.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: prompts instead of the configured ones, by the part that uses them:
            ``agent:NAME``, ``validator``, ``engine``.
        state: the initial state; if not given, the one ``config.start`` names, else that of the
            engine given.

    Example:
        >>> from llmsim_lab.simulation import Simulation, SimulationConfig
        >>> config = SimulationConfig(
        ...     nations=[{"name": "Rule", "kind": "taylor"}], validator={"kind": "always_valid"}
        ... )
        >>> Simulation(config).run(4).interest_rate.tolist()
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """

    kind = "economic"
    part_names = ("validator", "engine", "agents")

    def __init__(
        self,
        config: SimulationConfig | None = None,
        *,
        llm_client: LLMClient | None = None,
        agents: Sequence[Agent] | None = None,
        validator: Validator | None = None,
        engine: Engine | None = None,
        state: SimulationState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        config = config or SimulationConfig()
        parts = {"agents": agents, "validator": validator, "engine": engine}
        given = {name for name, part in parts.items() if part is not None}
        prompts = prompts or {}
        build.check_prompts(prompts, config, given)
        if agents is None:
            agents = build.agents(config, llm_client, prompts)
        self.agents = tuple(agents)
        build.check_names(agent.name for agent in self.agents)
        self.validator = validator or build.validator(config, llm_client, prompts)
        self.engine = engine or build.engine(config, llm_client, prompts)
        if state is None and engine is not None and config.start is None:
            state = engine.current_state
        elif state is None:
            state = build.initial_state(config)
        state = build.with_agents(state, self.agents)
        state = state.model_copy(update={"reasoning_chains": ()})  # another run's
        first = Turn(number=state.turn, state=state)
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    # --- a turn ------------------------------------------------------------------------------

    async def _play(self, before: Turn, planned: Sequence[Intervention]) -> Turn:
        if isinstance(self.engine, EconomicEngine):
            shocks = sum((item.shocks for item in planned), start=NO_SHOCKS)
            self.engine.extra_shocks = {before.number + 1: shocks}
        seen = before.state
        proposed = await gather_all([agent.decide_action(seen) for agent in self.agents])
        actions = await self.validator.validate_actions(proposed, seen)
        self.engine.current_state = seen
        state = await self.engine.run_turn(actions)
        chains = [action.chain for action in actions if action.chain]
        verdicts = [action.validation_result for action in actions if action.validation_result]
        chains += [verdict.chain for verdict in verdicts if verdict.chain]
        state = state.model_copy(update={"reasoning_chains": (*chains, *state.reasoning_chains)})
        self.engine.current_state = state
        return Turn(
            number=state.turn,
            state=state,
            chains=state.reasoning_chains,
            actions=tuple(actions),
        )

    def _recount(self) -> None:
        self.validator.recount(action for turn in self.turns for action in turn.actions)

    def state_at(self, turn: Turn, state: GlobalState | SimulationState) -> SimulationState:
        """Return another state in a turn's place: its number, period and chains stay.

        Raises:
            ConfigError: it is no state.
        """
        economy = state.global_state if isinstance(state, SimulationState) else state
        if not isinstance(economy, GlobalState):
            raise ConfigError(
                f"state={state!r:.80} is no GlobalState or SimulationState; to set single "
                "variables: fork(intervene=[{'turn': ..., 'set': {'inflation': 9}}])"
            )
        agents = state.agents if isinstance(state, SimulationState) else turn.state.agents
        own = turn.state.model_copy(update={"global_state": economy, "agents": agents})
        return build.with_agents(own, self.agents)

    def _about(self) -> str:
        names = ", ".join(agent.name for agent in self.agents[:3])
        more = f" and {len(self.agents) - 3} more" if len(self.agents) > 3 else ""
        where = f" ({self.state.period})" if self.state.period else ""
        rate = self.state.global_state.interest_rate
        return f"{where}, rate {rate:.2f}%, agents {names}{more}"

    def outcomes(
        self, turn: Turn, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return ``accepted``, ``applied`` and ``new_rate`` of each decision's action.

        ``new_rate`` is the rate right after the engine applied the action, percent per year; the
        actions of other agents may have moved it on. ``applied`` is None where the engine leaves no
        record of what it did. An action that no model put in words is under ``action``.
        """
        before = self.turns[turn.number - self.turns[0].number - 1]
        return outcomes(turn.actions, chains, before=before.state.global_state, engine=self.engine)
