"""A run's configuration, from Python or from a YAML file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from llmsim_lab.agents import NationProfile
from llmsim_lab.engines import EngineConfig
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.simulation.interventions import Intervention

__all__ = ["EconomyConfig", "NationConfig", "SimulationConfig", "ValidatorConfig"]


class _NoKeyTwice(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not keep: it would let the last one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NationConfig(NationProfile):
    """One nation and who decides for it.

    Attributes:
        name: unique in the run.
        kind: ``llm``, a language model, or ``taylor``, the Taylor rule.
        prompt: a prompt file instead of the shipped one; only for ``llm``.
    """

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    kind: Literal["llm", "taylor"] = "llm"
    prompt: Path | None = None

    @property
    def profile(self) -> NationProfile:
        """What the model is told of the nation."""
        return NationProfile(**{key: getattr(self, key) for key in NationProfile.model_fields})


class ValidatorConfig(_Strict):
    """Who checks the actions.

    Attributes:
        kind: ``llm``, a language model, or ``always_valid``.
        domain: what actions must belong to.
        permissive: whether an indirect effect on the domain is enough.
        prompt: a prompt file instead of the shipped one.
    """

    kind: Literal["llm", "always_valid"] = "llm"
    domain: Annotated[str, Field(min_length=1)] = "economic"
    permissive: bool = True
    prompt: Path | None = None


class EconomyConfig(_Strict):
    """What answers to the interest rate.

    Attributes:
        model: ``rudebusch_svensson``, or ``static``, in which only the rate moves.
        shock_scale: size of the random shocks: 0 for none, 1 for their estimated spread.
    """

    model: Literal["rudebusch_svensson", "static"] = "rudebusch_svensson"
    shock_scale: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _check_shocks(self) -> Self:
        if self.model == "static" and self.shock_scale:
            raise ValueError(
                f"shock_scale={self.shock_scale:g} hits nothing in the static economy; "
                "set it to 0 or choose rudebusch_svensson"
            )
        return self


class SimulationConfig(_Strict):
    """Everything that defines a run, apart from the model's own whims.

    Attributes:
        name: for charts and records.
        seed: of the economy's shocks.
        turns: how many quarters ``run()`` plays.
        start: the quarter whose real data are the initial state, such as ``1979Q3``; None starts
            from the steady state.
        nations: who proposes policy, in the order in which actions are applied.
        llm: the model and how to talk to it.
        validator: who checks actions.
        engine: limits of the interest rate.
        engine_prompt: a prompt file for the engine instead of the shipped one.
        economy: what answers to the rate.
        interventions: what is done from outside, and when.
    """

    name: Annotated[str, Field(min_length=1)] = "economy"
    seed: Annotated[int, Field(ge=0)] = 0
    turns: Annotated[int, Field(ge=0, le=100_000)] = 8
    start: str | None = None
    nations: tuple[NationConfig, ...] = (NationConfig(name="United States"),)
    llm: LLMConfig = Field(default_factory=LLMConfig)
    validator: ValidatorConfig = Field(default_factory=ValidatorConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    engine_prompt: Path | None = None
    economy: EconomyConfig = Field(default_factory=EconomyConfig)
    interventions: tuple[Intervention, ...] = ()

    @field_validator("nations", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        """Let a nation be given by its name alone."""
        if isinstance(value, list | tuple):
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.nations:
            raise ValueError("nations is empty; name at least one, such as nations: [Aland]")
        counts = Counter(nation.name for nation in self.nations)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise ValueError(f"nations must have different names; twice: {', '.join(twice)}")
        if self.economy.model == "static" and (hit := [i for i in self.interventions if i.shock]):
            raise ValueError(
                f"economy.model 'static' has no equation for the shock at {hit[0]}; use 'set', or "
                "model 'rudebusch_svensson'"
            )
        return self

    @property
    def needs_model(self) -> bool:
        """Whether a run makes any model call."""
        return self.validator.kind == "llm" or any(nation.kind == "llm" for nation in self.nations)

    @classmethod
    def from_yaml(cls, path: str | Path) -> SimulationConfig:
        """Read a configuration file; prompt files in it are relative to its folder.

        Raises:
            ConfigError: the file cannot be read, or something in it is wrong; the message names
                file, line and key.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the configuration {path}: {error}") from error
        try:
            values = yaml.load(text, Loader=_NoKeyTwice)
            tree = yaml.compose(text, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from error
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise ConfigError(
                f"{path} must hold keys and values, such as 'turns: 8', not {type(values).__name__}"
            )
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_explain(error, path, tree)) from error
        return _with_prompts_beside(config, path.parent)


def _with_prompts_beside(config: SimulationConfig, folder: Path) -> SimulationConfig:
    def beside(prompt: Path | None) -> Path | None:
        return folder / prompt if prompt else None

    nations = tuple(
        nation.model_copy(update={"prompt": beside(nation.prompt)}) for nation in config.nations
    )
    validator = config.validator.model_copy(update={"prompt": beside(config.validator.prompt)})
    return config.model_copy(
        update={
            "nations": nations,
            "validator": validator,
            "engine_prompt": beside(config.engine_prompt),
        }
    )


def _explain(error: ValidationError, path: Path, tree: yaml.Node | None) -> str:
    """Say what is wrong in a configuration file, each fault with its line."""
    faults = []
    for fault in error.errors(include_url=False):
        location = [part for part in fault["loc"] if part != "[key]"]
        line = _line_of(tree, location)
        key = ".".join(str(part) for part in location) or "the file"
        if fault["type"] == "extra_forbidden":
            what = f"unknown key; known here are {', '.join(_known_keys(location[:-1]))}"
        else:
            what = f"{fault['msg'].removeprefix('Value error, ')} (it is {_shown(fault['input'])})"
        faults.append(f"{path}, line {line}: {key}: {what}")
    return "\n".join(faults)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _line_of(node: yaml.Node | None, location: list[Any]) -> int:
    """Return the line of a key, or of the closest thing around it."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
            else:
                return line
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def _known_keys(location: list[Any]) -> list[str]:
    """Return the keys that a place in the configuration may have."""
    model: Any = SimulationConfig
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        models = [item for item in inner if isinstance(item, type) and issubclass(item, BaseModel)]
        if not models:
            return ["those of its type"]
        model = models[0]
    return sorted(field.alias or name for name, field in model.model_fields.items())
