"""What a crisis simulation is configured with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from llmsim_lab.context.crisis_state import CrisisIntervention
from llmsim_lab.context.loader import SHIPPED_MODULES, ModuleLoader
from llmsim_lab.context.quantities import NumberVariable, PercentVariable, ScaleVariable
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.context.table import Variables
from llmsim_lab.context.variables import Variable
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.runs._config import RunConfig
from llmsim_lab.runs._turn import Series
from llmsim_lab.text import number
from llmsim_lab.yaml_file import YamlFile

__all__ = ["CrisisConfig", "series_in"]

_MOST_AGENTS = 20
"""With more, nobody would find one in a list; their columns are in the frame all the same."""


class CrisisConfig(RunConfig):
    """Everything that defines a crisis simulation, apart from the model's own whims.

    Attributes:
        kind: ``crisis``, by which a file says what it describes.
        scenario: the scenario; a shipped one's name, a file's path, or the scenario itself.
        agents: who plays those agents that have no script: a language model, or a rule that keeps
            the course.
        engine: who judges: a language model, or nobody but the modules' rules.
        scripts: by agent, what it says in each step instead of asking anybody.
        module_folders: where modules are looked for before the package's own. Their Python files
            are run, so name only folders that you trust.
        stable_first: whether what does not change in a run stands first in the agents' prompts.
        budget_tokens: the most an agent's prompt may take; None: no limit.
        max_events: the most events that the engine may name in a step.
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
    stable_first: bool = True
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    max_events: Annotated[int, Field(ge=0, le=20)] = 3
    interventions: tuple[CrisisIntervention, ...] = ()

    @field_validator("scenario", mode="before")
    @classmethod
    def _by_name(cls, scenario: Any) -> Any:
        return CrisisScenario.load(scenario) if isinstance(scenario, str | Path) else scenario

    @model_validator(mode="after")
    def _scripts_are_of_agents(self) -> Self:
        if strangers := [name for name in self.scripts if name not in self.scenario.agents]:
            raise ValueError(
                f"scripts: there is no agent {strangers[0]!r}; there are: "
                f"{', '.join(self.scenario.agents)}"
            )
        return self

    @property
    def needs_model(self) -> bool:
        """Whether a language model judges or plays."""
        return self.engine == "llm" or (
            self.agents == "llm" and any(name not in self.scripts for name in self.scenario.agents)
        )

    @property
    def seed_idle(self) -> str:
        """Why ``seed`` changes nothing: a crisis draws nothing."""
        return "nothing in a crisis is drawn at random but what the model says"

    @property
    def series(self) -> Sequence[Series]:
        """The variables that can be charted, the world's first."""
        scenario = self.scenario
        try:
            definitions = scenario.engine(scenario.compose(self.loader)).variables
        except ConfigError:  # its folders are not on this machine: the modules' cannot be charted
            definitions = scenario.variables
        return series_in(definitions, scenario.agents)

    def by_rules(self) -> CrisisConfig:
        """Return the same without any model: the baseline."""
        return self.model_copy(update={"agents": "rule", "engine": "rule"})

    @property
    def loader(self) -> ModuleLoader:
        """What finds the scenario's modules."""
        return ModuleLoader(*self.module_folders, SHIPPED_MODULES)

    @classmethod
    def from_yaml(cls, path: str | Path) -> CrisisConfig:
        """Read a run's configuration, or a bare scenario to run as it is.

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
        if isinstance(folders, list) and all(isinstance(item, str) for item in folders):
            values["module_folders"] = [path.parent / item for item in folders]
        return replace(source, values=values).parse(cls)


def series_in(definitions: Variables, agents: Collection[str]) -> tuple[Series, ...]:
    """Return the variables that are numbers: the world's, then the agents' by agent.

    Args:
        definitions: of all variables.
        agents: by name; the variables of more than twenty are left out.
    """
    world = _numeric(definitions.global_vars.items())
    found = [
        Series(
            column=name,
            label=definitions.label(name),
            unit=_unit(variable),
            short=definitions.label(name).lower(),
        )
        for name, variable in world
    ]
    if len(agents) > _MOST_AGENTS:
        return tuple(found)
    own = _numeric(definitions.agent_vars.items())
    found += [
        Series(
            column=f"{agent}.{name}",
            label=f"{agent}: {definitions.label(name).lower()}",
            unit=_unit(variable),
        )
        for agent in agents
        for name, variable in own
    ]
    return tuple(found)


def _numeric(items: Iterable[tuple[str, Variable]]) -> list[tuple[str, Variable]]:
    kinds = (ScaleVariable, PercentVariable, NumberVariable)
    return [(name, variable) for name, variable in items if isinstance(variable, kinds)]


def _unit(variable: Variable) -> str:
    if isinstance(variable, ScaleVariable):
        return f"{number(variable.min)} to {number(variable.max)}"
    if isinstance(variable, PercentVariable):
        return "%"
    return variable.unit if isinstance(variable, NumberVariable) else ""
