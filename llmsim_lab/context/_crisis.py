"""The crisis simulation: its state and turns, what may be done from outside, its configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from llmsim_lab._util.config import YamlFile
from llmsim_lab._util.text import clip, number
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.context._builder import AgentContextBuilder, StableFirst
from llmsim_lab.context._engine import CrisisEngine, RuleCrisisEngine, SimulatorAgent, TurnEngine
from llmsim_lab.context._modules import BehaviorModule, ComposedModules, ModuleLoader
from llmsim_lab.context._players import (
    CrisisAction,
    CrisisAgent,
    LLMCrisisAgent,
    RuleCrisisAgent,
    ScriptedCrisisAgent,
)
from llmsim_lab.context._scenario import CrisisScenario, Happening, ScenarioEvent
from llmsim_lab.context._variables import (
    NumericVariable,
    Scalar,
    ScaleVariable,
    Variable,
    Variables,
)
from llmsim_lab.context._world import ENGINE, OUTSIDE, GameEngine, UpdateRecord
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig, RunIntervention, one_or_more
from llmsim_lab.run._state import COMMON_COLUMNS
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.types import FrozenDict, LLMReasoningChain

_COUNTS = ("events", "changes", "refused")
"""The frame's columns besides the variables."""
_MOST_AGENTS = 20
"""With more, nobody would find one in a list; the frame has their columns all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrisisState:
    """The world after a turn.

    Attributes:
        global_vars: the world's variables by name.
        agent_vars: each agent's, by the agent's name.
        responses: each agent's public words in the turn; empty where it said nothing.
        events: what had happened, as the agents read in the turn.
        pending: what they will read in the next turn, besides the engine's events.
        muted: agents that are not asked.
    """

    global_vars: dict[str, Scalar]
    agent_vars: dict[str, dict[str, Scalar]]
    responses: dict[str, str] = field(default_factory=dict)
    events: tuple[Happening, ...] = ()
    pending: tuple[Happening, ...] = ()
    muted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = {agent: FrozenDict(values) for agent, values in self.agent_vars.items()}
        # Frozen dicts inside too, else ``state.global_vars["tension"] = 0`` would rewrite history.
        # ``object.__setattr__`` is the one way to set a field of a frozen dataclass.
        object.__setattr__(self, "global_vars", FrozenDict(self.global_vars))
        object.__setattr__(self, "agent_vars", FrozenDict(own))
        object.__setattr__(self, "responses", FrozenDict(self.responses))

    @property
    def columns(self) -> dict[str, Scalar]:
        """All variables: the world's by name, the agents' as ``agent.variable``."""
        columns: dict[str, Scalar] = dict(self.global_vars)
        for agent, values in self.agent_vars.items():
            columns |= {f"{agent}.{name}": value for name, value in values.items()}
        return columns


class CrisisIntervention(RunIntervention):
    """Something done from outside after a turn; it matters from the next turn on.

    Attributes:
        turn: the number of the turn whose state is changed.
        set_to: new values of the world's variables by name; ``set`` in files.
        set_agents: new values of agents' variables: ``{"Taiwan": {"trust_level": 30}}``.
        events: what everybody will read has happened: texts, or ``{type, description}``.
        mute: agents that are no longer asked.
        unmute: agents that are asked again.
        note: why, for the record.
    """

    model_config = ConfigDict(populate_by_name=True)

    set_to: dict[str, Any] = Field(default_factory=dict, alias="set")
    set_agents: dict[str, dict[str, Any]] = Field(default_factory=dict)
    events: tuple[ScenarioEvent, ...] = ()
    mute: tuple[str, ...] = ()
    unmute: tuple[str, ...] = ()
    note: Annotated[str, Field(max_length=500)] = ""

    @field_validator("events", mode="before")
    @classmethod
    def _texts_are_events(cls, events: Any) -> Any:
        if isinstance(events, str):
            events = [events]
        # Anything else goes to pydantic as it is, whose message says what is wrong.
        if not isinstance(events, list | tuple):
            return events
        return [
            {"type": OUTSIDE, "description": item} if isinstance(item, str) else item
            for item in events
        ]

    _names = field_validator("mute", "unmute", mode="before")(one_or_more)

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        own = any(self.set_agents.values())
        if not (self.set_to or own or self.events or self.mute or self.unmute):
            raise ValueError(
                "an intervention needs 'set', 'set_agents', 'events', 'mute' or 'unmute'"
            )
        return self

    def __str__(self) -> str:
        parts = [f"{name} = {value}" for name, value in self.set_to.items()]
        for agent, values in self.set_agents.items():
            parts += [f"{agent}.{name} = {value}" for name, value in values.items()]
        parts += [f'event "{clip(event.description, 60)}"' for event in self.events]
        parts += [f"mute {name}" for name in self.mute]
        parts += [f"unmute {name}" for name in self.unmute]
        note = f" ({self.note})" if self.note else ""
        return f"turn {self.turn}: {clip(', '.join(parts), 200)}{note}"

    def applied(self, state: CrisisState, run: CrisisSimulation) -> CrisisState:
        """Return a state after the intervention.

        Args:
            state: the state.
            run: whose agents and variables it has.

        Raises:
            ConfigError: there is no such variable or agent, or the value is impossible.
        """
        world = run.world(state)
        named = (*self.mute, *self.unmute)
        if unknown := [name for name in named if name not in world.agents]:
            raise ConfigError(
                f"there is no agent {unknown[0]!r} to mute or unmute; there are: "
                f"{', '.join(world.agents)}"
            )
        if both := set(self.mute) & set(self.unmute):
            raise ConfigError(f"{', '.join(sorted(both))}: cannot be muted and unmuted at once")
        updates = {"global_vars": self.set_to, "agent_vars": self.set_agents}
        for record in world.apply_state_updates(updates, source=OUTSIDE):
            # For a model an impossible value is a record; a person can correct it.
            if record.status == "failed":
                raise ConfigError(f"{record.column} = {record.asked!r}: {record.reason}")
        injected = [
            Happening(event.description, event.type, source=OUTSIDE) for event in self.events
        ]
        # In the agents' order, so that equal states are equal however they came about.
        muted = {*state.muted, *self.mute} - {*self.unmute}
        return replace(
            state,
            **world.get_current_state(),
            pending=(*state.pending, *injected),
            muted=tuple(name for name in state.agent_vars if name in muted),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrisisTurn(RunTurn[CrisisState, CrisisIntervention]):
    """A turn.

    Attributes:
        actions: what the agents did, in the scenario's order; muted ones are left out.
        updates: every change asked for, first by modules, then by the engine, and what became of
            it.
        reasoning: the engine's.
    """

    actions: tuple[CrisisAction, ...] = ()
    updates: tuple[UpdateRecord, ...] = ()
    reasoning: str = ""

    @property
    def changes(self) -> tuple[UpdateRecord, ...]:
        """The changes that were made and made a difference."""
        return tuple(
            record
            for record in self.updates
            if record.status != "failed" and record.after != record.before
        )

    @property
    def refused(self) -> tuple[UpdateRecord, ...]:
        """The changes that were not made."""
        return tuple(record for record in self.updates if record.status == "failed")

    def own_columns(self) -> dict[str, Any]:
        """Return all variables, and what became of the changes asked for.

        Columns: the world's variables by name; each agent's as ``agent.variable``; ``events``, how
        many the agents read of in the turn; ``changes``, how many values changed in it;
        ``refused``, how many changes were impossible.
        """
        return {
            **self.state.columns,
            "events": len(self.state.events),
            "changes": len(self.changes),
            "refused": len(self.refused),
        }

    def in_words(self) -> Sequence[str]:
        """Return the events, the engine's reasoning, the changes and the agents' words."""
        lines = [f"event: {clip(item.description, 200)}" for item in self.state.events]
        if self.reasoning:
            lines.append(f"engine: {clip(self.reasoning, 300)}")
        lines += [
            f"{record.column}: {record.before} -> {record.after} ({record.source})"
            for record in self.changes
        ]
        for record in self.refused:
            asked = clip(repr(record.asked), 60)
            lines.append(f"{record.column}: {asked} REFUSED: {record.reason} ({record.source})")
        lines += [
            f"{action.agent_name}: {clip(action.action_string, 300) or '(said nothing)'}"
            for action in self.actions
        ]
        return lines

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return how many changes the engine asked for that were made, and that were refused."""
        counts = {
            "changes": sum(record.source == ENGINE for record in self.changes),
            "refused": sum(record.source == ENGINE for record in self.refused),
        }
        # The same keys for every chain, since they become columns of one table.
        none = dict.fromkeys(counts)
        return [counts if chain.component == "engine" else none for chain in chains]


def _check_columns(names: Iterable[str]) -> None:
    """Raise ConfigError for a variable that has the name of another column of the frame."""
    columns = {*_COUNTS, *COMMON_COLUMNS}
    if taken := [name for name in names if name in columns]:
        raise ConfigError(
            f"the variable {taken[0]!r} has the name of a column that every crisis's frame has: "
            f"{', '.join(sorted(columns))}; rename it"
        )


def _state_faults(state: CrisisState, agents: Sequence[str], variables: Variables) -> Iterator[str]:
    """Yield what is wrong with a state but for its values, which ``GameEngine`` judges."""
    yield from _name_faults("global_vars", state.global_vars, variables.global_vars)
    for agent, own in state.agent_vars.items():
        yield from _name_faults(f"agent_vars.{agent}", own, variables.agent_vars)
    for where, names in (("muted", state.muted), ("responses", state.responses)):
        for name in names:
            if name not in agents:
                yield f"{where}: there is no agent {name!r}; there are: {', '.join(agents)}"
    for agent, words in state.responses.items():
        if not isinstance(words, str):
            yield f"responses: what {agent!r} said is {type(words).__name__}, not a text"
    for where, happened in (("events", state.events), ("pending", state.pending)):
        for item in happened:
            if not isinstance(item, Happening):
                yield f"{where}: {item!r:.80} is not a Happening; make it Happening({item!r:.80})"
            elif not item.description.strip():
                yield f"{where}: an event of type {item.type!r} says nothing; describe it"


def _name_faults(
    where: str, given: Mapping[str, object], defined: Mapping[str, object]
) -> Iterator[str]:
    for name in given:
        if name not in defined:
            known = ", ".join(defined) or "none"
            yield f"{where}.{name}: unknown variable; defined are: {known}"
    for name in defined:
        if name not in given:
            yield f"{where}: no value for {name!r}, which a state must have even at its default"


class CrisisConfig(RunConfig):
    """All that defines a crisis simulation but what the model answers.

    Attributes:
        kind: ``crisis``, by which a file says what it describes.
        scenario: the scenario; a shipped one's name, a file's path, or the scenario itself.
        agents: who plays the agents that have no script: a language model, or a rule that keeps
            the course.
        engine: who judges: a language model, or nobody (only the modules' rules apply).
        scripts: by agent, what it says in each turn; nobody is asked.
        module_folders: where modules are looked for before the package's own. Their Python files
            are run, so name only folders that you trust.
        stable_first: whether what does not change in a run stands first in the agents' prompts:
            ``shared``, what all agents read before each one's role; true, each one's role before
            it; false, nothing, the usual order.
        max_events: the most events that the engine may name in a turn.
        interventions: what is done from outside, and when.
    """

    kind: Literal["crisis"] = "crisis"
    name: Annotated[str, Field(min_length=1)] = "crisis"
    turns: Annotated[int, Field(ge=0, le=100_000)] = 6
    llm: LLMConfig = Field(
        default_factory=lambda: LLMConfig(max_tokens=600, max_text_chars=300, timeout_s=180)
    )
    scenario: CrisisScenario
    agents: Literal["llm", "rule"] = "llm"
    engine: Literal["llm", "rule"] = "llm"
    scripts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    module_folders: tuple[Path, ...] = ()
    stable_first: StableFirst = "shared"
    max_events: Annotated[int, Field(ge=0, le=20)] = 3
    interventions: tuple[CrisisIntervention, ...] = ()

    @field_validator("scenario", mode="before")
    @classmethod
    def _by_name(cls, scenario: Any) -> Any:
        return CrisisScenario.load(scenario) if isinstance(scenario, str | Path) else scenario

    @model_validator(mode="after")
    def _scripts_are_of_agents(self) -> Self:
        if unknown := [name for name in self.scripts if name not in self.scenario.agents]:
            raise ValueError(
                f"scripts: there is no agent {unknown[0]!r}; there are: "
                f"{', '.join(self.scenario.agents)}"
            )
        return self

    @property
    def needs_model(self) -> bool:
        """True if a language model judges or plays."""
        return self.engine == "llm" or (
            self.agents == "llm" and any(name not in self.scripts for name in self.scenario.agents)
        )

    @property
    def seed_idle(self) -> bool:
        """True: nothing in a crisis is drawn at random but what the model says."""
        return True

    @property
    def series(self) -> Sequence[Series]:
        """The variables that can be charted, the world's first."""
        scenario = self.scenario
        try:
            definitions = scenario.engine(scenario.compose(self.loader)).variables
        # A tape from elsewhere: the modules' folders are not on this machine.
        except ConfigError:
            definitions = scenario.variables
        return _series_in(definitions, scenario.agents)

    def by_rules(self) -> CrisisConfig:
        """Return the same configuration without any model: the baseline."""
        return self.model_copy(update={"agents": "rule", "engine": "rule"})

    @property
    def loader(self) -> ModuleLoader:
        """What finds the scenario's modules."""
        return ModuleLoader(*self.module_folders, ModuleLoader.shipped)

    @classmethod
    def from_yaml(cls, path: str | Path) -> CrisisConfig:
        """Return a run's configuration from a file that holds one, or a scenario to run as it is.

        A configuration has the key ``scenario``: the scenario itself, a shipped one's name, or a
        file's path; paths in it are relative to the file.

        Raises:
            ConfigError: the file cannot be read or something in it is wrong, with its line.
        """
        path = Path(path)
        source = YamlFile.read(path, example="scenario: strait")
        if "scenario" not in source.values:
            return cls(name=path.stem, scenario=CrisisScenario.load(path))
        values = {"name": path.stem, **source.values}
        named = values["scenario"]
        if isinstance(named, str) and named.endswith((".yaml", ".yml")):
            values["scenario"] = path.parent / named
        folders = values.get("module_folders", ())
        # Anything else is left for pydantic, whose message has the line.
        if isinstance(folders, list) and all(isinstance(item, str) for item in folders):
            values["module_folders"] = [path.parent / item for item in folders]
        # Not ``cls(**values)``: faults get the file's lines this way.
        return replace(source, values=values).parse(cls)


def _series_in(definitions: Variables, agents: Collection[str]) -> tuple[Series, ...]:
    """Return the variables that are numbers: the world's, then the agents' by agent.

    Args:
        definitions: of all variables.
        agents: by name; the variables of more than twenty are left out.
    """

    def numbers(kind: Mapping[str, Variable]) -> list[tuple[str, str, str]]:
        """Return name, label and unit of the variables that are numbers."""
        return [
            (name, definitions.label(name), _unit(variable))
            for name, variable in kind.items()
            if isinstance(variable, NumericVariable)
        ]

    found = [
        Series(column=name, label=label, unit=unit, short=label.lower())
        for name, label, unit in numbers(definitions.global_vars)
    ]
    if len(agents) <= _MOST_AGENTS:
        found += [
            Series(column=f"{agent}.{name}", label=f"{agent}: {label.lower()}", unit=unit)
            for agent in agents
            for name, label, unit in numbers(definitions.agent_vars)
        ]
    return tuple(found)


def _unit(variable: NumericVariable) -> str:
    # A scale's suffix, "/100", is written after each value; an axis has the range once.
    if isinstance(variable, ScaleVariable):
        return f"{number(variable.min)} to {number(variable.max)}"
    return variable.suffix.strip()


class CrisisSimulation(Run[CrisisState, CrisisTurn, CrisisConfig, CrisisIntervention]):
    """A run of a crisis.

    In a turn the modules' rules change the world; the engine judges what the agents' last words
    lead to; code builds what each agent reads; the agents answer, all at once. Impossible changes
    are not made; the turn's ``updates`` and ``chains`` record them.

    Args:
        config: what to run.
        llm_client: the model, where the configuration calls for one.
        agents: who plays, instead of the configured ones: objects with ``name`` and ``respond``.
        engine: who judges, instead of the configured one: an object with ``judge``.
        modules: the modules, instead of those that the scenario names.
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
        engine: TurnEngine | None = None,
        modules: Iterable[BehaviorModule] | None = None,
        state: CrisisState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        # Recorded: the configuration does not describe them, so a replay must be given them again.
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
        self.engine: TurnEngine = engine or _make_engine(
            config, llm_client, (prompts or {}).get("engine")
        )
        self.builder: AgentContextBuilder = scenario.builder(
            self.modules,
            stable_first=config.stable_first,
        )
        at_start = scenario.engine(self.modules)
        self._definitions = at_start.variables
        if state is None:
            state = CrisisState(**at_start.get_current_state(), pending=scenario.first_happenings())
        else:
            self._check(state)
        first = CrisisTurn(number=0, state=state)
        _check_columns(state.columns)
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    # --- a turn ------------------------------------------------------------------------------

    def simulator(self, state: CrisisState) -> SimulatorAgent:
        """Return what plays the turn after a state, up to the agents' prompts.

        Args:
            state: the state; it is not changed.
        """
        return SimulatorAgent(
            self.world(state),
            self.builder,
            self.engine,
            pending=state.pending,
            known=state.events,
        )

    def world(self, state: CrisisState) -> GameEngine:
        """Return a copy of a state's variables with their definitions, to be changed."""
        return GameEngine(
            state.global_vars,
            state.agent_vars,
            self.modules,
            variables=self._scenario.variables,
        )

    async def _play(self, before: CrisisTurn, planned: Sequence[CrisisIntervention]) -> CrisisTurn:
        number, start = before.number + 1, before.state
        simulator = self.simulator(start)
        prompts = await simulator.aprocess_step(number, start.responses)
        record = simulator.last
        assert record is not None  # it is what the turn just played left
        asked = [agent for agent in self.agents if agent.name not in start.muted]
        # All at once: nobody reads another's answer of the same turn.
        deeds = await gather_all(
            [agent.respond(prompts[agent.name], step_number=number) for agent in asked]
        )
        # Everybody has an entry, so that the others read of a muted agent that it said nothing.
        responses = dict.fromkeys((agent.name for agent in self.agents), "")
        responses |= {deed.action.agent_name: deed.action.action_string for deed in deeds}
        return CrisisTurn(
            number=number,
            state=CrisisState(
                **simulator.game_engine.get_current_state(),
                responses=responses,
                events=record.events,
                muted=start.muted,
            ),
            chains=(*record.chains, *(deed.chain for deed in deeds)),
            actions=tuple(deed.action for deed in deeds),
            updates=record.updates,
            reasoning=record.reasoning,
        )

    # --- what is done from outside -----------------------------------------------------------

    def state_at(self, turn: CrisisTurn, state: Any) -> CrisisState:
        """Return another state in a turn's place, for a fork.

        Raises:
            ConfigError: it is not a state, has other agents or variables, or an impossible value.
        """
        found = super().state_at(turn, state)
        self._check(found)
        return found

    def _check(self, state: CrisisState) -> None:
        agents, given = list(self._scenario.agents), list(state.agent_vars)
        if sorted(given) != sorted(agents):
            raise ConfigError(f"the state has agents {given}; the scenario's are {agents}")
        if fault := next(_state_faults(state, agents, self._definitions), ""):
            raise ConfigError(f"the state is not valid: {fault}")
        self.world(state)  # raises for values that are impossible

    @classmethod
    def rebuilt(
        cls, config: CrisisConfig, *, state: Any, parts: Mapping[str, Any], **recorded: Any
    ) -> Self:
        """Return a run made of recorded parts, which gets its turns afterwards."""
        # The state is not checked: modules that have changed since may define other variables, and
        # the run can be looked at all the same.
        return cls(config, **recorded, **parts)

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
            turn: its number; the latest if not given. The next one is a preview: the prompt as it
                would be if neither rules nor engine changed anything.
            silenced: modules that say nothing; what they changed of the state stays changed, and
                their variables stay listed.
            modules: what speaks instead of the run's own modules, such as those and one more.

        Raises:
            ConfigError: there is no such agent, turn or module.
        """
        builder = self.builder
        if silenced or modules is not None:
            speaking = self.modules if modules is None else ComposedModules(modules)
            builder = self.config.scenario.builder(
                speaking.silenced(*([silenced] if isinstance(silenced, str) else silenced)),
                stable_first=self.config.stable_first,
            )
        if agent not in self.config.scenario.agents:
            raise ConfigError(
                f"there is no agent {agent!r}; there are: {', '.join(self.config.scenario.agents)}"
            )
        number, before, state, events = self._prompted_with(turn)
        return builder.build_prompt(
            agent_name=agent,
            step_number=number,
            agent_state=state["agent_vars"][agent],
            global_state=state["global_vars"],
            other_responses=before.responses,
            events=[item.event for item in events],
        )

    def _prompted_with(
        self, turn: int | None
    ) -> tuple[int, CrisisState, dict[str, Any], Sequence[Happening]]:
        """Return a turn's number, the state before it, and variables and events of its prompts."""
        first = self.turns[0].number
        number = max(self.turn_number, first + 1) if turn is None else turn
        place = number - first
        if not 1 <= place <= len(self.turns):
            raise ConfigError(
                f"there is no prompt of turn {number}: turns {first + 1} to {self.turn_number} "
                f"were played, and turn {self.turn_number + 1} can be previewed"
            )
        before = self.turns[place - 1].state
        world = self.world(before)
        if place == len(self.turns):
            return number, before, world.get_current_state(), before.pending
        played = self.turns[place]
        # Recorded changes are made again; neither rules nor engine are asked. The turn's own state
        # would not do, since interventions after the prompts may have changed it.
        for record in played.updates:
            if record.status != "failed":
                change = {record.variable: record.after}
                updates = (
                    {"global_vars": change}
                    if record.agent is None
                    else {"agent_vars": {record.agent: change}}
                )
                world.apply_state_updates(updates, source=record.source)
        return number, before, world.get_current_state(), played.state.events

    # --- views -------------------------------------------------------------------------------

    @property
    def series(self) -> Sequence[Series]:
        """The variables that can be charted, the world's first."""
        return _series_in(self._definitions, self.config.scenario.agents)


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
) -> TurnEngine:
    if config.engine == "rule":
        return RuleCrisisEngine()
    client = _model(llm_client, "the engine is", "engine: rule")
    prompt = prompt or Prompt.load("crisis_engine")
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
    wanted, by_name = list(names), {agent.name: agent for agent in agents}
    if sorted(given := [agent.name for agent in agents]) != sorted(wanted):
        raise ConfigError(f"agents={given} do not play the scenario's agents, {wanted}, each once")
    return tuple(by_name[name] for name in wanted)
