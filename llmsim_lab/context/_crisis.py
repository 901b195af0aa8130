"""The crisis world: rules change it, an engine judges, and agents answer, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.config import YamlFile, beside
from llmsim_lab._util.text import brief, clip
from llmsim_lab.context._engine import engine_output_for, engine_prompt, happenings
from llmsim_lab.context._modules import ComposedModules, ModuleLoader
from llmsim_lab.context._reply import reply_model
from llmsim_lab.context._scenario import CrisisScenario, Happening
from llmsim_lab.context._variables import Scalar
from llmsim_lab.context._world import ENGINE, OUTSIDE, GameEngine, apply_deterministic_updates
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run._state import COMMON_COLUMNS

_TAKEN = {"events", "changes", "refused", "muted", *COMMON_COLUMNS}
"""Columns of every crisis's frame, and what an intervention sets, besides the variables."""


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
        agents = self.agent_vars.items()
        own = {f"{agent}.{name}": it for agent, its in agents for name, it in its.items()}
        counts = {"events": len(self.events), "changes": self.changes, "refused": self.refused}
        return {**self.global_vars, **own, **counts}


def _scenario(given: Any, info: ValidationInfo) -> Any:
    """Return the scenario that a parameter names: a shipped one, or a file."""
    if isinstance(given, str) and given.endswith((".yaml", ".yml")):
        given = beside(Path(given), info)
    return CrisisScenario.load(given) if isinstance(given, str | Path) else given


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
        "llm": LLMConfig(max_tokens=600, max_text_chars=300, timeout_s=180),
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
        return self.scenario.compose(ModuleLoader(*self.module_folders, ModuleLoader.shipped))

    def ready(self) -> None:
        """Make what follows from the parameters: the modules, the prompts' builder, the reply."""
        self.modules = self.compose()
        speaking = self.modules.silenced(*self.silenced)
        self._builder = self.scenario.builder(speaking, stable_first=self.stable_first)
        self._reply = reply_model(self.scenario.briefing.response_format)
        self._start = self.scenario.engine(self.modules)
        self._judgement = engine_output_for(self._start, max_events=self.max_events)
        if taken := _TAKEN & self._start.variables.global_vars.keys():
            what = "has a name that every crisis has for something else"
            raise ConfigError(f"the variable {min(taken)!r} {what}; rename it")

    def start(self) -> CrisisState:
        """Return the scenario's start."""
        return CrisisState(**self._start.get_current_state(), pending=self.scenario.events)

    async def turn(self, state: CrisisState, ask: Ask) -> CrisisState:
        """Play a turn: rules, the engine's judgement, the agents' prompts and answers."""
        world, number = self.world(state), ask.turn
        updates = apply_deterministic_updates(self.modules, world, number)
        known = (*state.events, *state.pending)
        # The engine reads what agents know already and what is pending; agents only what is new.
        judged = await ask(
            "world",
            self._judgement,
            lambda _: engine_prompt(
                self.prompt("crisis_engine"), self.scenario, world, number, state.responses, known
            ),
            by=ENGINE,
        )
        updates += world.apply_state_updates(judged.state_updates)
        after = state.replace(
            **world.get_current_state(), events=(*state.pending, *happenings(judged)), pending=()
        )
        replies = await ask.each(
            [agent for agent in state.agent_vars if agent not in state.muted],
            self._reply,
            lambda agent: self._read_by(agent, after, number),
            tag="agent",
            fallback=lambda _: self._reply.saying(""),
        )
        # Everyone has an entry, so that the others read of a muted agent that it said nothing.
        said = dict.fromkeys(state.agent_vars, "") | {
            agent: reply.public for agent, reply in replies.items()
        }
        made = [it for it in updates if it.status != "failed" and it.after != it.before]
        refused = [it for it in updates if it.status == "failed"]
        ask.note(
            "world",
            changes=sum(it.source == ENGINE for it in made),
            refused=sum(it.source == ENGINE for it in refused),
        )
        story = [f"event: {clip(it.description, 200)}" for it in after.events]
        story += [f"engine: {clip(judged.reasoning, 300)}"] if judged.reasoning else []
        story += [f"{it.column}: {it.before} -> {it.after} ({it.source})" for it in made]
        story += [
            f"{it.column}: {brief(it.asked)} REFUSED: {it.reason} ({it.source})" for it in refused
        ]
        story += [f"{agent}: {clip(it, 300) or '(said nothing)'}" for agent, it in said.items()]
        for line in story:
            ask.note(text=line)
        return after.replace(responses=said, changes=len(made), refused=len(refused))

    def rule(self, question: Question) -> Any:
        """Return what needs no model: no change, or the course kept."""
        if question.by == ENGINE:
            return {"state_updates": {}, "events": [], "reasoning": ""}
        return self._reply.saying("We keep our course and change nothing.")

    # --- from outside ------------------------------------------------------------------------

    def changed(self, state: CrisisState, values: Mapping[str, Any]) -> CrisisState:
        """Return a state with values that are set from outside.

        Args:
            state: the state.
            values: of the variables by name, ``tension`` or ``Japan.trust_level``; ``events``, what
                all agents will read has happened, a text or several, or ``{type, description}``;
                ``muted``, the agents that are not asked from now on.

        Raises:
            ConfigError: there is no such variable or agent, or a value is impossible.
        """
        left, world = dict(values), self.world(state)
        pending, told = [*state.pending], left.pop("events", ())
        for item in told if isinstance(told, list | tuple) else [told]:
            words = item if isinstance(item, Mapping) else {"description": item}
            pending.append(Happening(**{"type": OUTSIDE, "source": OUTSIDE, **words}))
        muted = known_names("agent", left.pop("muted", state.muted), state.agent_vars)
        for name, value in left.items():
            agent, dot, own = name.rpartition(".")  # an agent's name may have a dot
            record = world.change(agent if dot else None, own, value, OUTSIDE)
            # For a model an impossible value is a record; a person can correct it.
            if record.status == "failed":
                also = "" if dot or name in state.global_vars else "; and events, muted"
                raise ConfigError(f"{name} = {value!r}: {record.reason}{also}")
        return state.replace(**world.get_current_state(), pending=tuple(pending), muted=muted)

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
        now = state.global_vars, state.agent_vars, self.modules
        return GameEngine(*now, variables=self.scenario.variables, closed=True)

    @classmethod
    def _parameters_in(cls, file: YamlFile) -> Mapping[str, Any]:
        """Return the parameters that a file holds; a scenario's file is one, to be run as it is."""
        own = file.values if "scenario" in file.values else {"scenario": file.path}
        return {"name": file.path.stem, **own}

    # --- views -------------------------------------------------------------------------------

    def context_of(self, agent: str) -> RenderedPrompt:
        """Return what an agent reads in the next turn if neither rules nor engine change anything.

        What it read in turns that were played is in ``calls``.
        """
        [agent] = known_names("agent", agent, self.scenario.agents)
        now = self.state
        return self._read_by(agent, now.replace(events=now.pending), self.turn_number + 1)

    def _read_by(self, agent: str, state: CrisisState, number: int) -> RenderedPrompt:
        own, world, said = state.agent_vars[agent], state.global_vars, state.responses
        events = [item.model_dump() for item in state.events]
        return self._builder.build_prompt(agent, number, own, world, said, events)

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of the modules, and of a derived class's own code."""
        return {**super().code_digests, **{module.name: module.digest for module in self.modules}}
