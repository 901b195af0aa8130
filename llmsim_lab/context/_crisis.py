"""The crisis world: rules change it, an engine judges, and agents answer, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.config import YamlFile, beside
from llmsim_lab._util.text import brief, clip
from llmsim_lab.context._engine import (
    EngineOutput,
    engine_output_for,
    engine_prompt,
    happenings,
)
from llmsim_lab.context._modules import ComposedModules, ModuleLoader
from llmsim_lab.context._reply import reply_model
from llmsim_lab.context._variables import Scalar
from llmsim_lab.context._world import (
    ENGINE,
    OUTSIDE,
    GameEngine,
    UpdateRecord,
    apply_deterministic_updates,
    count_made,
    count_refused,
)
from llmsim_lab.context.scenario import CrisisScenario, Happening
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run.state import COMMON_COLUMNS

_TAKEN = {"events", "changes", "refused", "muted", *COMMON_COLUMNS}
"""Columns of every crisis's frame, and what an intervention sets, besides the variables."""
_WORLD = "world"
"""Whom the engine judges: the player of its decisions."""


class CrisisState(State):
    """The world after a turn.

    Attributes:
        global_vars: the world's variables by name.
        agent_vars: each agent's, by the agent's name.
        responses: each agent's public words in the turn; empty where it said nothing.
        events: what had happened, as the agents read in the turn.
        pending: what they will read in the next turn, besides the engine's events.
        muted: agents that are not asked.
        changes: how many variables the turn changed.
        refused: how many changes it did not make, since they are impossible.
    """

    global_vars: dict[str, Scalar]
    agent_vars: dict[str, dict[str, Scalar]]
    responses: dict[str, str] = Field(default_factory=dict)
    events: tuple[Happening, ...] = ()
    pending: tuple[Happening, ...] = ()
    muted: tuple[str, ...] = ()
    changes: int = 0
    refused: int = 0

    def columns(self) -> dict[str, Any]:
        """Return all variables, the agents' as ``agent.variable``, and how much happened."""
        columns: dict[str, Any] = dict(self.global_vars)
        for agent, values in self.agent_vars.items():
            for name, value in values.items():
                columns[f"{agent}.{name}"] = value
        columns["events"] = len(self.events)
        columns["changes"] = self.changes
        columns["refused"] = self.refused
        return columns


def _scenario(source: object, info: ValidationInfo) -> object:
    """Return the scenario that a parameter names: a shipped one, or a file."""
    if isinstance(source, str) and source.endswith((".yaml", ".yml")):
        source = beside(Path(source), info)
    if isinstance(source, str | Path):
        return CrisisScenario.load(source)
    return source


class CrisisSimulation(Run[CrisisState]):
    """A run of a crisis.

    In a turn the modules' rules change the world; the engine judges what the agents' last words
    lead to; code builds what each agent reads; the agents answer, all at once. Impossible changes
    are not made, and the turn says so. An agent without a valid answer says nothing.

    In ``players`` the one who judges is ``engine``; ``agent`` stands for all agents. The rule of
    the engine changes nothing, so that only the modules' rules do; the agents' keeps the course.

    Args:
        scenario: the scenario; a shipped one's name, a file's path, or the scenario itself.
        module_folders: where modules are looked for before the package's own. Their Python files
            are run, so name only folders that you trust.
        stable_first: whether what all agents read stands first in their prompts, so that a server
            reads it once; if false, the sections come in the order of ``AgentContextBuilder``.
        max_events: the most events that the engine may name in a turn.
        silenced: modules whose words no agent reads; their rules stay.

    Attributes:
        modules: what adds to prompts, and has rules.
    """

    kind: ClassVar[str] = "crisis"
    defaults: ClassVar[Mapping[str, Any]] = {
        "name": "crisis",
        "turns": 6,
        "llm": LLMConfig(
            max_tokens=600,
            max_text_chars=300,
            timeout_s=180,
        ),
    }
    gone: ClassVar[Mapping[str, str]] = {
        "engine": "say who answers by the seat: players={'engine': 'rule'}",
        "agents": "say who answers by the seat: players={'agent': 'rule', 'Japan': 'person'}",
    }
    scenario: Annotated[CrisisScenario, BeforeValidator(_scenario)]
    module_folders: tuple[Annotated[Path, AfterValidator(beside)], ...] = ()
    stable_first: bool = True
    max_events: Annotated[int, Field(ge=0, le=20)] = 3
    silenced: tuple[str, ...] = ()

    def compose(self) -> ComposedModules:
        """Return the modules: the scenario's. A class derived from this one may add its own."""
        # Folders of one's own and the shipped one: a scenario may use modules of both.
        return self.scenario.compose(ModuleLoader(*self.module_folders, ModuleLoader.shipped))

    def ready(self) -> None:
        """Make what follows from the parameters: the modules, the prompts' builder, the reply."""
        self.modules = self.compose()
        # Of a silenced module only the words go: ``modules`` has its rules and variables.
        speaking = self.modules.silenced(*self.silenced)
        self._builder = self.scenario.builder(speaking, stable_first=self.stable_first)
        self._reply = reply_model(self.scenario.briefing.response_format)
        self._start = self.scenario.engine(self.modules)
        # Made once: clients keep what they work out of a reply's class.
        self._judgement = engine_output_for(self._start, max_events=self.max_events)
        # In a frame two columns of one name would hide each other.
        taken = _TAKEN & self._start.variables.global_vars.keys()
        if taken:
            raise ConfigError(
                f"the variable {min(taken)!r} has a name that every crisis has for something else; "
                "rename it"
            )

    def start(self) -> CrisisState:
        """Return the scenario's start."""
        return CrisisState(
            **self._start.get_current_state(),
            pending=self.scenario.events,
        )

    async def turn(self, state: CrisisState, ask: Ask) -> CrisisState:
        """Play a turn: rules, the engine's judgement, the agents' prompts and answers."""
        world = self.world(state)
        updates = apply_deterministic_updates(self.modules, world, ask.turn)
        judgement = await self._judged(state, world, ask)
        updates += world.apply_state_updates(judgement.state_updates)
        # Agents read only what is new; what they read last turn is in ``state.events`` still.
        events = (*state.pending, *happenings(judgement))
        after = state.replace(
            **world.get_current_state(),
            events=events,
            pending=(),
        )
        words = await self._answered(after, ask)
        for line in story_of(events, judgement.reasoning, updates, words):
            ask.note(text=line)
        # The engine's row has what it asked for; the turn's columns count the rules' changes too.
        by_engine = [update for update in updates if update.source == ENGINE]
        ask.note(
            _WORLD,
            changes=count_made(by_engine),
            refused=count_refused(by_engine),
        )
        return after.replace(
            responses=words,
            changes=count_made(updates),
            refused=count_refused(updates),
        )

    async def _judged(
        self,
        state: CrisisState,
        world: GameEngine,
        ask: Ask,
    ) -> EngineOutput:
        """Ask the engine what the agents' last words lead to, after the modules' rules."""
        # It reads what agents know already and what is pending; agents read only what is new.
        known_events = (*state.events, *state.pending)

        def prompt(_: str) -> RenderedPrompt:
            return engine_prompt(
                self.prompt("crisis_engine"),
                self.scenario,
                world,
                ask.turn,
                state.responses,
                known_events,
            )

        return await ask(
            _WORLD,
            self._judgement,
            prompt,
            by=ENGINE,
        )

    async def _answered(
        self,
        state: CrisisState,
        ask: Ask,
    ) -> dict[str, str]:
        """Ask the agents; return what each says in public, empty where it says nothing."""
        replies = await ask.each(
            [agent for agent in state.agent_vars if agent not in state.muted],
            self._reply,
            lambda agent: self._read_by(agent, state, ask.turn),
            tag="agent",
            # Without a valid answer it stays silent: one agent's fault does not end the crisis.
            fallback=lambda _: self._reply.saying(""),
        )
        # Everyone has an entry, so that the others read of a muted agent that it said nothing.
        words = dict.fromkeys(state.agent_vars, "")
        for agent, reply in replies.items():
            words[agent] = reply.public
        return words

    def rule(self, question: Question) -> Any:
        """Return what needs no model: no change, or the course kept."""
        if question.by == ENGINE:
            return {
                "state_updates": {},
                "events": [],
                "reasoning": "",
            }
        return self._reply.saying("We keep our course and change nothing.")

    # --- from outside ------------------------------------------------------------------------

    def changed(
        self,
        state: CrisisState,
        values: Mapping[str, Any],
    ) -> CrisisState:
        """Return a state with values that are set from outside.

        Args:
            state: the state.
            values: of the variables by name, ``tension`` or ``Japan.trust_level``; ``events``, what
                all agents will read has happened, a text or several, or ``{type, description}``;
                ``muted``, the agents that are not asked from now on.

        Raises:
            ConfigError: there is no such variable or agent, or a value is impossible.
        """
        variables = dict(values)
        events = variables.pop("events", ())
        if not isinstance(events, list | tuple):
            events = [events]
        pending = [*state.pending, *map(_from_outside, events)]
        muted = known_names(
            "agent",
            variables.pop("muted", state.muted),
            state.agent_vars,
        )
        world = self.world(state)
        for name, value in variables.items():
            agent, dot, variable = name.rpartition(".")  # an agent's name may have a dot
            record = world.change(
                agent if dot else None,
                variable,
                value,
                OUTSIDE,
            )
            # For a model an impossible value is a record; a person can correct it.
            if record.status == "ok":
                continue
            if not dot and name not in state.global_vars:
                raise ConfigError(f"{name} = {value!r}: {record.reason}; and events, muted")
            raise ConfigError(f"{name} = {value!r}: {record.reason}")
        return state.replace(
            **world.get_current_state(),
            pending=tuple(pending),
            muted=muted,
        )

    def world(self, state: CrisisState) -> GameEngine:
        """Return a copy of a state's variables with their definitions, to be changed.

        Raises:
            ConfigError: the state is not one of this scenario.
        """
        agents = list(self.scenario.agents)
        if sorted(state.agent_vars) != sorted(agents):
            raise ConfigError(
                f"the state has agents {list(state.agent_vars)}; the scenario's are {agents}"
            )
        return GameEngine(
            state.global_vars,
            state.agent_vars,
            self.modules,
            variables=self.scenario.variables,
            closed=True,
        )

    @classmethod
    def _parameters_in(cls, file: YamlFile) -> Mapping[str, Any]:
        """Return the parameters that a file holds; a scenario's file is one, to be run as it is."""
        parameters = file.values if "scenario" in file.values else {"scenario": file.path}
        # The file's own name, if it gives one, comes last and counts.
        return {"name": file.path.stem, **parameters}

    # --- views -------------------------------------------------------------------------------

    def context_of(self, agent: str) -> RenderedPrompt:
        """Return what an agent reads in the next turn if neither rules nor engine change anything.

        What it read in turns that were played is in ``calls``.
        """
        [agent] = known_names("agent", agent, self.scenario.agents)
        # What is pending now is what agents read next, unless the engine adds to it.
        state = self.state.replace(events=self.state.pending)
        return self._read_by(agent, state, self.turn_number + 1)

    def _read_by(
        self,
        agent: str,
        state: CrisisState,
        number: int,
    ) -> RenderedPrompt:
        return self._builder.build_prompt(
            agent,
            number,
            state.agent_vars[agent],
            state.global_vars,
            state.responses,
            [event.model_dump() for event in state.events],
        )

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of the modules, and of a derived class's own code."""
        # Their code decides what agents read: a replay with other code has to say so.
        of_modules = {module.name: module.digest for module in self.modules}
        return {**super().code_digests, **of_modules}


def _from_outside(event: object) -> Happening:
    """Return an event that is set from outside: its description, or its fields."""
    fields = event if isinstance(event, Mapping) else {"description": event}
    return Happening(
        **{
            "type": OUTSIDE,
            "source": OUTSIDE,
            **fields,
        }
    )


# --- a turn's story ------------------------------------------------------------------------------


def story_of(
    events: Iterable[Happening],
    reasoning: str,
    updates: Iterable[UpdateRecord],
    words: Mapping[str, str],
) -> list[str]:
    """Return a turn as lines: what happened, the engine's reasons, the changes, the agents' words.

    Args:
        events: what the agents read had happened.
        reasoning: the engine's.
        updates: the changes that were asked for.
        words: what each agent said in public.
    """
    lines = [f"event: {clip(event.description, 200)}" for event in events]
    if reasoning:
        lines.append(f"engine: {clip(reasoning, 300)}")
    refused = []
    for update in updates:
        if update.is_refused:
            refused.append(
                f"{update.column}: {brief(update.asked)} REFUSED: {update.reason} ({update.source})"
            )
        elif update.is_made:
            lines.append(f"{update.column}: {update.before} -> {update.after} ({update.source})")
    lines += refused
    lines += [f"{agent}: {clip(text, 300) or '(said nothing)'}" for agent, text in words.items()]
    return lines
