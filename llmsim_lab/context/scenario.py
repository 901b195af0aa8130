"""Scenarios: who takes part, which variables there are, where they start, what prompts ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from llmsim_lab._util.checks import instance_of
from llmsim_lab._util.config import Settings, Words, read_config
from llmsim_lab._util.files import data_path
from llmsim_lab._util.text import brief
from llmsim_lab.context._builder import AgentContextBuilder, Briefing, bullets
from llmsim_lab.context._modules import ComposedModules, ModuleLoader
from llmsim_lab.context._variables import Variables
from llmsim_lab.context._world import GameEngine
from llmsim_lab.errors import ConfigError

# Without quotes, colons and equals signs: names stand in ``Ada: "words"`` and ``--set Ada.gold=5``.
_AgentName = Annotated[str, Field(pattern=r"^[^\s\"=:]([^\n\"=:]*[^\s\"=:])?$")]


class ScenarioAgent(Settings):
    """An agent of a scenario.

    Attributes:
        role: who it is.
        objectives: what it wants, one line each.
        vars: its initial values; a variable left out starts at its default.
    """

    role: Annotated[str, Field(min_length=1)]
    objectives: tuple[str, ...] = ()
    vars: dict[str, object] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """Role and objectives, as the agent's prompts have them."""
        # YAML's block texts end in a newline.
        lines = [self.role.strip(), *bullets("Objectives:", self.objectives)]
        return "\n".join(lines)


class Happening(Settings):
    """Something that happened; prompts show its description.

    Attributes:
        description: one sentence.
        type: one word for what it is.
        source: ``engine``, ``scenario``, or ``outside`` where it was injected.
    """

    description: Words
    type: str = "background"
    source: str = "scenario"


class CrisisScenario(Settings):
    """All that a crisis simulation starts from.

    Attributes:
        kind: ``crisis``, by which a file says what it describes.
        title: a few words.
        description: what it is about and where it comes from, for people.
        time_step_duration: how long a turn is, in words: ``3 days``.
        simulator_awareness: whether agents are told that they take part in a simulation.
        modules: names of the modules to use; what they require comes along.
        variables: the scenario's own definitions.
        global_vars: the world's initial values.
        agents: by name.
        events: what agents know of before the first turn.
        briefing: the wording of the prompts.

    Example:
        >>> scenario = CrisisScenario.load("strait")
        >>> list(scenario.agents)
        ['Taiwan', 'China', 'United States', 'Japan']
    """

    kind: Literal["crisis"] = "crisis"
    title: Annotated[str, Field(min_length=1)]
    description: str = ""
    time_step_duration: Annotated[str, Field(min_length=1)]
    simulator_awareness: bool = False
    modules: tuple[str, ...] = ()
    variables: Variables = Field(default_factory=Variables)
    global_vars: dict[str, object] = Field(default_factory=dict)
    agents: Annotated[dict[_AgentName, ScenarioAgent], Field(min_length=1)]
    events: tuple[Happening, ...] = ()
    briefing: Briefing = Field(default_factory=Briefing)

    @classmethod
    def load(cls, name: str | Path) -> CrisisScenario:
        """Return a scenario: one that ships with the package, by name, or any other, by path.

        Raises:
            ConfigError: there is no such scenario, or something in it is wrong; the message names
                file, line and key.
        """
        # By its ending, not by looking for a file: what a name means must not depend on the folder.
        instance_of("name", name, str | Path, "a shipped scenario's name, or a file's path")
        path = Path(name)
        if isinstance(name, str) and path.suffix not in (".yaml", ".yml"):
            shipped = data_path("scenarios")
            path = shipped / f"{name}.yaml"
            if path not in shipped.iterdir():  # of a very long name ``is_file`` raises
                raise ConfigError(
                    f"no scenario {brief(name, 80)} ships with the package; strait does. For one "
                    "of your own give its file's path, ending in .yaml"
                )
        return read_config(path, cls)

    def compose(self, loader: ModuleLoader | None = None) -> ComposedModules:
        """Return the scenario's modules.

        Args:
            loader: what finds them; if None, they are the package's own.

        Raises:
            ConfigError: a module is missing or wrong.
        """
        instance_of("loader", loader, ModuleLoader | None, "a ModuleLoader, or None")
        return (loader or ModuleLoader()).load(self.modules)

    def engine(self, modules: ComposedModules | None = None) -> GameEngine:
        """Return the world at the start.

        Args:
            modules: what ``compose`` returned; composed anew if None.

        Raises:
            ConfigError: a value is impossible or missing, or of a variable that is not defined.
        """
        if modules is None:
            modules = self.compose()
        agents = {name: agent.vars for name, agent in self.agents.items()}
        return GameEngine(
            self.global_vars,
            agents,
            modules,
            variables=self.variables,
            # A misspelt variable is an error here, not a new variable.
            closed=True,
        )

    def builder(
        self, modules: ComposedModules | None = None, **options: Any
    ) -> AgentContextBuilder:
        """Return what builds the agents' prompts.

        Args:
            modules: what ``compose`` returned; composed anew if None.
            options: of ``AgentContextBuilder``, such as ``stable_first``.
        """
        if modules is None:
            modules = self.compose()
        return AgentContextBuilder(
            self.time_step_duration,
            self.simulator_awareness,
            modules,
            variables=self.variables,
            briefing=self.briefing,
            roles={name: agent.text for name, agent in self.agents.items()},
            **options,
        )
