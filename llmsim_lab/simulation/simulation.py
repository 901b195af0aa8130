"""The economic simulation: agents propose at once, the validator marks, the engine applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from llmsim_lab.agents import Agent
from llmsim_lab.concurrency import gather_all
from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.economy.shocks import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine, Engine
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.models import GlobalState, LLMReasoningChain, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import Run, Series
from llmsim_lab.simulation import build, records
from llmsim_lab.simulation.config import SimulationConfig
from llmsim_lab.simulation.frames import SERIES, in_words, outcomes, own_columns
from llmsim_lab.simulation.interventions import (
    Intervention,
    ShockName,
    Variable,
    check_possible,
)
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
    config_type = SimulationConfig
    state_type = SimulationState
    turn_type = Turn
    intervention_type = Intervention
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
        return Turn(number=state.turn, state=state, actions=tuple(actions))

    def _intervened(
        self, state: SimulationState, interventions: Sequence[Intervention]
    ) -> SimulationState:
        if not interventions:
            return state
        economy = state.global_state
        for intervention in interventions:
            economy = intervention.apply(economy)
        return state.model_copy(update={"global_state": economy})

    def _arrived(self, turn: Turn) -> None:
        self.engine.current_state = turn.state

    def _recount(self) -> None:
        self.validator.recount(action for turn in self.turns for action in turn.actions)

    def _check_possible(self, intervention: Intervention) -> None:
        check_possible(intervention, now=self.turn_number, engine=self.engine)

    # --- what is done from outside -----------------------------------------------------------

    def intervene(  # type: ignore[override]  # narrower: the economy's own names
        self,
        turn: int,
        *,
        set: Mapping[Variable, float] | None = None,  # noqa: A002 - the word of the YAML files
        shock: Mapping[ShockName, float] | None = None,
        note: str = "",
    ) -> Intervention:
        """Change the state of a turn from outside, now or when the run gets there.

        One planned for a turn after ``run_reaches`` is kept, and a WARNING says that ``run()``
        does not get there.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            set: variables and their new values, in their own units.
            shock: percentage points on inflation (``supply``) or the output gap (``demand``) of a
                turn to come.
            note: why, for the record.

        Raises:
            ConfigError: the turn has passed or is being played, or a name or value is wrong.
        """
        return super().intervene(turn, set=dict(set or {}), shock=dict(shock or {}), note=note)

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        state: GlobalState | SimulationState | None = None,
        intervene: Iterable[Mapping[str, Any]] = (),
        llm_client: LLMClient | None = None,
    ) -> Self:
        """Return a simulation that goes on from one of this run's turns, with something changed.

        The turns up to there are this run's, at no cost; those after are live. On a tape the fork
        is a run of its own that knows where it came from. Where the tape is open for reading only
        the fork lives in memory and is not recorded; a WARNING and its ``repr`` say so.

        Args:
            turn: the turn to go on from; the latest if not given.
            prompt: an edited prompt, or several; each takes the place of those of its name.
            state: the state instead of that turn's.
            intervene: interventions as dicts, as ``intervene`` takes them: ``{"turn": 3, "set":
                {"inflation": 9}}``.
            llm_client: another model; a replay's fork needs one.

        Raises:
            ConfigError: there is no such turn, or no part uses a prompt of that name.
        """
        return super().fork(
            turn, prompt=prompt, state=state, intervene=intervene, llm_client=llm_client
        )

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

    # --- frames and tape ---------------------------------------------------------------------

    @classmethod
    def own_columns(cls, turn: Turn) -> dict[str, Any]:
        """Return ``period``, the economy's variables, ``taylor_rate``, ``actions``, ``accepted``.

        See ``frames.own_columns``.
        """
        return own_columns(turn, TaylorRule())

    def outcomes(
        self, turn: Turn, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return ``accepted``, ``applied`` and ``new_rate`` of each decision's action.

        ``new_rate`` is the rate right after the engine applied the action, percent per year; the
        actions of other agents may have moved it on. ``applied`` is None where the engine leaves no
        record of what it did. An action that no model put in words is under ``action``.
        """
        before = self.turns[turn.number - self.turns[0].number - 1]
        return outcomes(turn, chains, before=before.state.global_state, engine=self.engine)

    @classmethod
    def series_of(cls, config: SimulationConfig) -> Sequence[Series]:
        """Return the economy's variables and the rate that the Taylor rule asks for."""
        del config
        return SERIES

    @classmethod
    def in_words(cls, turn: Turn) -> Sequence[str]:
        """Return the economy's main figures, and each action with its verdict."""
        return in_words(turn)

    @classmethod
    def without_chains(cls, turn: Turn) -> Turn:
        """Return a turn as the first of a run: without another run's chains and calls."""
        state = turn.state.model_copy(update={"reasoning_chains": ()})
        return Turn(
            number=turn.number,
            state=state,
            actions=turn.actions,
            interventions=turn.interventions,
            seconds=turn.seconds,
        )

    @classmethod
    def encode_state(cls, turn: Turn) -> str:
        """Return the state as JSON, without the chains, which stand by themselves."""
        return turn.state.model_dump_json(exclude={"reasoning_chains"})

    @classmethod
    def encode_own(cls, turn: Turn) -> dict[str, Any]:
        """Return the actions as JSON; they name their chains by their places among the turn's."""
        return {"actions": records.encode_actions(turn)}

    @classmethod
    def decode_turn(
        cls,
        record: Mapping[str, Any],
        chains: tuple[LLMReasoningChain, ...],
        common: Mapping[str, Any],
    ) -> Turn:
        """Return the turn that a record holds."""
        return records.decode_turn(record, chains, common)

    @classmethod
    def difference(cls, recorded: Turn, now: Turn) -> str:
        """Say which of the economy's variables differ, at most three of them."""
        before, after = (dict(turn.state.global_state) for turn in (recorded, now))
        changed = [
            f"{name} was {before[name]!r} and is {after[name]!r}"
            for name in before
            if before[name] != after[name]
        ]
        return "; ".join(changed[:3])
