"""The crisis simulation: rules, the engine's judgement, what each agent reads, what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from llmsim_lab.concurrency import gather_all
from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.crisis_config import CrisisConfig, series_in
from llmsim_lab.context.crisis_engine import CrisisEngine, Judges, RuleCrisisEngine
from llmsim_lab.context.crisis_state import CrisisIntervention, CrisisState, CrisisTurn
from llmsim_lab.context.game_engine import GameEngine, UpdateRecord
from llmsim_lab.context.modules import BehaviorModule
from llmsim_lab.context.players import (
    CrisisAgent,
    LLMCrisisAgent,
    RuleCrisisAgent,
    ScriptedCrisisAgent,
)
from llmsim_lab.context.simulator_agent import SimulatorAgent, first_events
from llmsim_lab.context.soundness import check_columns, check_state
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.runs import Run
from llmsim_lab.runs._turn import Series

__all__ = ["CrisisSimulation"]


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
    """

    kind = "crisis"
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
        self.modules: ComposedModules = (
            scenario.compose(config.loader) if modules is None else ComposedModules(modules)
        )
        self.agents: tuple[CrisisAgent, ...] = _in_order(
            scenario.agents, _make_agents(config, llm_client) if agents is None else agents
        )
        self.engine: Judges = engine or _make_engine(
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

    # --- what is done from outside -----------------------------------------------------------

    def _intervened(
        self, state: CrisisState, interventions: Sequence[CrisisIntervention]
    ) -> CrisisState:
        for item in interventions:
            state = item.applied(state, self.world(state))
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
        # It follows from the turns: what the rules and the engine changed, the turn says.
        first = self.turns[0].number
        place = at - first
        if not 1 <= place <= len(self.turns):
            raise ConfigError(
                f"there is no prompt of turn {at}: turns {first + 1} to {self.turn_number} were "
                f"played, and turn {self.turn_number + 1} can be previewed"
            )
        before = self.turns[place - 1].state
        world = self.world(before)
        events = before.pending
        if place < len(self.turns):
            played = self.turns[place]
            _change(world, played.updates)
            events = played.state.events
        state = world.get_current_state()
        return builder.build_prompt(
            agent_name=agent,
            step_number=at,
            agent_state=state["agent_vars"][agent],
            global_state=state["global_vars"],
            other_responses=before.responses,
            events=[item.event for item in events],
        )

    # --- views -------------------------------------------------------------------------------

    @property
    def series(self) -> Sequence[Series]:
        """The variables that can be charted, the world's first."""
        return series_in(self._definitions, self.config.scenario.agents)


def _change(world: GameEngine, records: Iterable[UpdateRecord]) -> None:
    """Make recorded changes again, the modules' and the engine's."""
    for record in records:
        if record.status == "failed":
            continue
        change = {record.variable: record.after}
        updates = (
            {"global_vars": change}
            if record.agent is None
            else {"agent_vars": {record.agent: change}}
        )
        world.apply_state_updates(updates, source=record.source)


def _make_agents(config: CrisisConfig, llm_client: LLMClient | None) -> tuple[CrisisAgent, ...]:
    """Return who plays the scenario's agents: a script where there is one, else as configured."""
    form = config.scenario.briefing.response_format
    found: list[CrisisAgent] = []
    for name in config.scenario.agents:
        if name in config.scripts:
            found.append(ScriptedCrisisAgent(name, config.scripts[name]))
        elif config.agents == "rule":
            found.append(RuleCrisisAgent(name))
        else:
            client = _model(llm_client, f"agent {name!r} is", "agents: rule")
            found.append(LLMCrisisAgent(name, client, response_format=form))
    return tuple(found)


def _make_engine(
    config: CrisisConfig, llm_client: LLMClient | None, prompt: Prompt | None
) -> Judges:
    if config.engine == "rule":
        return RuleCrisisEngine()
    client = _model(llm_client, "the engine is", "engine: rule")
    return CrisisEngine(client, config.scenario, prompt=prompt, max_events=config.max_events)


def _model(llm_client: LLMClient | None, who: str, instead: str) -> LLMClient:
    if llm_client is None:
        raise ConfigError(
            f"{who} of kind 'llm' and needs a model: CrisisSimulation(config, "
            f"llm_client=connect('auto')); or set '{instead}' in the configuration"
        )
    return llm_client


def _in_order(names: Iterable[str], agents: Sequence[CrisisAgent]) -> tuple[CrisisAgent, ...]:
    """Return the agents in the scenario's order."""
    wanted, there = list(names), [agent.name for agent in agents]
    if sorted(there) != sorted(wanted):
        raise ConfigError(f"agents={there} do not play the scenario's agents, {wanted}, each once")
    by_name = {agent.name: agent for agent in agents}
    return tuple(by_name[name] for name in wanted)
