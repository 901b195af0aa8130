"""The crisis simulation: rules, the engine's judgement, what each agent reads, what it answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from llmsim_lab.concurrency import gather_all
from llmsim_lab.context.build import in_order, make_agents, make_engine, modules_differ
from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.crisis_config import CrisisConfig
from llmsim_lab.context.crisis_engine import Judges
from llmsim_lab.context.crisis_state import CrisisIntervention, CrisisState, CrisisTurn
from llmsim_lab.context.game_engine import ENGINE, GameEngine
from llmsim_lab.context.modules import BehaviorModule
from llmsim_lab.context.outside import changed_from_outside, check_possible
from llmsim_lab.context.players import CrisisAgent
from llmsim_lab.context.rebuilt import context_at
from llmsim_lab.context.shown import series_in, words_of
from llmsim_lab.context.simulator_agent import SimulatorAgent, first_events
from llmsim_lab.context.soundness import check_columns, check_state
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.logs import log_event
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.runs import Run, Series
from llmsim_lab.runs.taping import Recording

__all__ = ["CrisisSimulation"]

logger = logging.getLogger(__name__)


class CrisisSimulation(Run[CrisisState, CrisisTurn, CrisisConfig, CrisisIntervention]):
    """A run of a crisis, one step a turn.

    A step: the modules' rules change the world; the engine judges what the agents' last words lead
    to; code builds what each agent reads; the agents answer, all at once. Changes that are
    impossible are refused and stand in the turn's ``updates`` and ``chains``.

    Args:
        config: what to run.
        llm_client: the model, where the configuration calls for one.
        agents: who plays, instead of the configured ones: objects with ``name`` and ``respond``.
        engine: who judges, instead of the configured one: an object with ``judge``.
        modules: instead of those that the scenario names.
        state: the state to start from; the scenario's if not given.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: recorded prompts by place, for the engine.

    Attributes:
        agents: who plays, in the scenario's order.
        engine: who judges.
        modules: what they add to prompts, and their rules.
        builder: writes what agents read.
        module_changes: how the modules differ from those the run was recorded with; empty if they
            do not.
    """

    kind = "crisis"
    config_type = CrisisConfig
    state_type = CrisisState
    turn_type = CrisisTurn
    intervention_type = CrisisIntervention
    part_names = ("agents", "engine", "modules")

    def __init__(
        self,
        config: CrisisConfig,
        *,
        llm_client: LLMClient | None = None,
        agents: Sequence[CrisisAgent] | None = None,
        engine: Judges | None = None,
        modules: Iterable[BehaviorModule] | None = None,
        state: CrisisState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        parts = {"agents": agents, "engine": engine, "modules": modules}
        given = {name for name, part in parts.items() if part is not None}
        scenario = config.scenario
        self._scenario = scenario
        self.module_changes = ""
        self.modules: ComposedModules = (
            scenario.compose(config.loader) if modules is None else ComposedModules(modules)
        )
        self.agents: tuple[CrisisAgent, ...] = in_order(
            scenario.agents, make_agents(config, llm_client) if agents is None else agents
        )
        self.engine: Judges = engine or make_engine(
            config, llm_client, (prompts or {}).get("engine")
        )
        self.builder: AgentContextBuilder = scenario.builder(
            self.modules,
            stable_first=config.stable_first,
            budget_tokens=config.budget_tokens,
        )
        at_start = scenario.engine(self.modules)
        self._definitions = at_start.variables
        if state is None:
            state = CrisisState(**at_start.get_current_state(), pending=first_events(scenario))
        else:
            self._check_sound(state)
        first = CrisisTurn(number=0, state=state)
        check_columns(state.columns)
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    # --- a step ------------------------------------------------------------------------------

    def simulator(self, state: CrisisState) -> SimulatorAgent:
        """Return what plays the step after a state, up to the agents' prompts.

        Args:
            state: the state; it is not changed.
        """
        return SimulatorAgent(
            self.world(state),
            self.builder,
            self.engine,
            composed_modules=self.modules,
            pending=state.pending,
            known=state.events,
        )

    def world(self, state: CrisisState) -> GameEngine:
        """Return a state's variables with their definitions, free to be changed."""
        return GameEngine(
            state.global_vars,
            state.agent_vars,
            self.modules,
            variables=self._scenario.variables,
        )

    async def _play(self, before: CrisisTurn, planned: Sequence[CrisisIntervention]) -> CrisisTurn:
        del planned
        number, start = before.number + 1, before.state
        simulator = self.simulator(start)
        prompts = await simulator.aprocess_step(number, start.responses)
        record = simulator.last
        assert record is not None
        asked = [agent for agent in self.agents if agent.name not in start.muted]
        deeds = await gather_all(
            [agent.respond(prompts[agent.name], step_number=number) for agent in asked]
        )
        said = dict.fromkeys((agent.name for agent in self.agents), "")
        said |= {deed.action.agent_name: deed.action.action_string for deed in deeds}
        return CrisisTurn(
            number=number,
            state=CrisisState(
                **simulator.game_engine.get_current_state(),
                responses=said,
                events=record.events,
                muted=start.muted,
            ),
            chains=(*record.chains, *(deed.chain for deed in deeds)),
            actions=tuple(deed.action for deed in deeds),
            updates=record.updates,
            reasoning=record.reasoning,
        )

    async def step(self, *, progress: bool = True) -> CrisisTurn:
        """Play one step and return its record.

        Args:
            progress: whether a line says what is waited for, if it takes long; see ``arun``.

        Raises:
            LLMFailureException: the engine's model failed, or an agent's cannot be reached.
            ModuleError: a module's code failed; the error names it, and the agent.
            TapeError: the run cannot go on with the modules that are there now.
            ConfigError: a step is already under way.
        """
        if self.module_changes and isinstance(self._taping, Recording):
            raise TapeError(
                f"run {self.run_id} cannot go on: {self.module_changes}. Bring back those modules, "
                "or fork the run to go on with these"
            )
        try:
            return await super().step(progress=progress)
        except TapeError as error:
            if self.module_changes:
                raise type(error)(f"{error}. Mind that {self.module_changes}") from error
            raise

    @property
    def code_digests(self) -> dict[str, str]:
        """The modules' digests, data and code: part of what defines the run."""
        return self.modules.digests

    def _recount(self) -> None:
        """Say loudly if the modules are not those that the run was recorded with."""
        self.module_changes = ""
        if self._taping is None:
            return
        recorded = self._taping.tape.run(self._taping.run).manifest.get("code") or {}
        self.module_changes = modules_differ(recorded, self.modules.digests)
        if self.module_changes:
            log_event(
                logger,
                logging.WARNING,
                "MODULES_DIFFER",
                run=self.run_id,
                what=self.module_changes,
            )

    # --- what is done from outside -----------------------------------------------------------

    def _check_possible(self, intervention: CrisisIntervention) -> None:
        check_possible(intervention, self.world(self.turns[0].state))

    def _intervened(
        self, state: CrisisState, interventions: Sequence[CrisisIntervention]
    ) -> CrisisState:
        for item in interventions:
            state = changed_from_outside(state, item, self.world(state))
        return state

    def state_at(self, turn: CrisisTurn, state: Any) -> CrisisState:
        """Return another state in a turn's place, for a fork.

        Raises:
            ConfigError: it is none, has other agents or variables, or an impossible value.
        """
        found = super().state_at(turn, state)
        self._check_sound(found)
        return found

    def _check_sound(self, state: CrisisState) -> None:
        check_state(state, agents=tuple(self._scenario.agents), variables=self._definitions)
        self.world(state)

    @classmethod
    def rebuilt(
        cls,
        config: CrisisConfig,
        *,
        llm_client: LLMClient | None,
        state: CrisisState,
        prompts: Mapping[str, Prompt],
        parts: Mapping[str, Any],
    ) -> Self:
        """Return a run made of recorded things; it gets its turns, with their states, afterwards.

        The state is not looked at: where modules differ from the recorded ones it may have other
        variables than they define, and the run can be looked at all the same.
        """
        del state
        return cls(config, llm_client=llm_client, prompts=prompts, **parts)

    # --- prompts -----------------------------------------------------------------------------

    def context_of(
        self,
        agent: str,
        turn: int | None = None,
        *,
        silenced: Sequence[str] | str = (),
        modules: Iterable[BehaviorModule] | None = None,
    ) -> RenderedPrompt:
        """Return what an agent read in a turn, or would have read without some modules' words.

        Args:
            agent: whose prompt.
            turn: the latest if not given. The one after it is a preview: the prompt as it would be
                if neither rules nor engine changed anything.
            silenced: modules that say nothing; what they changed of the state stays changed, and
                their variables stay listed.
            modules: what speaks instead of the run's own modules: those and one more, say.

        Raises:
            ConfigError: there is no such agent, turn or module.
        """
        builder = self.builder
        if silenced or modules is not None:
            speaking = self.modules if modules is None else ComposedModules(modules)
            builder = self.config.scenario.builder(
                speaking.silenced(*([silenced] if isinstance(silenced, str) else silenced)),
                stable_first=self.config.stable_first,
                budget_tokens=self.config.budget_tokens,
            )
        at = max(self.turn_number, self.turns[0].number + 1) if turn is None else turn
        if agent not in self.config.scenario.agents:
            raise ConfigError(
                f"there is no agent {agent!r}; there are: {', '.join(self.config.scenario.agents)}"
            )
        return context_at(self, at, agent, builder)

    # --- views -------------------------------------------------------------------------------

    @property
    def series(self) -> Sequence[Series]:
        """The variables that can be charted, the world's first."""
        return series_in(self._definitions, self.config.scenario)

    def _about(self) -> str:
        changed = ", MODULES DIFFER" if self.module_changes else ""
        return f", {len(self.agents)} agents, {len(self.modules)} modules{changed}"

    @classmethod
    def own_columns(cls, turn: CrisisTurn) -> dict[str, Any]:
        """Return all variables, and what became of the changes asked for.

        Columns: the world's variables by name; each agent's as ``agent.variable``; ``events``,
        told in the step; ``changes``, values that became others in it; ``refused``, changes that
        were impossible.
        """
        return {
            **turn.state.columns,
            "events": len(turn.state.events),
            "changes": len(turn.changes),
            "refused": len(turn.refused),
        }

    def outcomes(
        self, turn: CrisisTurn, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return ``changes`` and ``refused``: how many the engine asked for and were (not) made."""
        updates = {"changes": turn.changes, "refused": turn.refused}
        counts = {
            name: sum(record.source == ENGINE for record in records)
            for name, records in updates.items()
        }
        none = dict.fromkeys(counts)
        return [counts if chain.component == "engine" else none for chain in chains]

    @classmethod
    def series_of(cls, config: CrisisConfig) -> Sequence[Series]:
        """Return the variables that can be charted, the world's first."""
        scenario = config.scenario
        try:
            definitions = scenario.engine(scenario.compose(config.loader)).variables
        except ConfigError:  # its folders are not on this machine: the modules' cannot be charted
            definitions = scenario.variables
        return series_in(definitions, scenario)

    @classmethod
    def in_words(cls, turn: CrisisTurn) -> Sequence[str]:
        """Return what happened, what was said, what changed, and what was refused."""
        return words_of(turn)
