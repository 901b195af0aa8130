"""A study as a file: what the command line plays, and what a registration writes down.

One format for both. A registered plan is the study's YAML with what is expected of it: hypotheses,
contrasts, alpha and the rule for stopping.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig
from llmsim_lab.run._registry import file_of
from llmsim_lab.study._design import AA, AnyStudy, World, label_of, said, seeds_of

_EXAMPLE = "world: economic"
_OF_A_STUDY = {"world", "study", "vary", "fixed", "design", "seeds", "outcome"}
"""Keys of which every study's file has one, and a run's none."""
_ONLY_IN_PYTHON = "only in Python"


class StudyFile(Settings):
    """The keys of a study's file.

    Attributes:
        study: its name, by which its runs are found on the tape; the file's if not given.
        world: ``economic``, ``social``, ``crisis``, or ``pot.py:PublicGoods``, relative to the
            file.
        config: the world's configuration, as in a run's file.
        vary: levels by factor.
        fixed: what is the same in all arms.
        design, seeds, turns, outcome, aa: as ``Study`` takes them.
        model: of arms that name none, as ``connect`` takes it.
        tape: relative to the file; beside it and called like it if not given.
        hypotheses: what is expected, in words. With one of these the file is a registration.
        contrasts: pairs of arms; each with the reference if not given.
        alpha: the family's error rate.
        stop: the rule for stopping.
        design_digest: of the design that was registered; written by ``study.register``.
    """

    study: str = ""
    world: Annotated[str, Field(min_length=1)]
    config: dict[str, Any] | None = None
    vary: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
    fixed: dict[str, Any] = Field(default_factory=dict)
    design: str | dict[str, int] = "full"
    seeds: int | list[int] = 20
    turns: int | None = None
    outcome: str | list[str] | dict[str, str] | None = None
    aa: bool = False
    model: str | None = None
    tape: str | None = None
    hypotheses: list[str] | None = None
    contrasts: list[tuple[str, str]] | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    stop: str | None = None
    design_digest: str | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the file says what is expected, and so is a registration."""
        said_ = (self.hypotheses, self.contrasts, self.alpha, self.stop, self.design_digest)
        return any(it is not None for it in said_)

    @property
    def is_own_code(self) -> bool:
        """Whether the world is in a Python file, which would be run."""
        return self.world.endswith(".py") or ".py:" in self.world

    @property
    def plan(self) -> dict[str, Any]:
        """What the file says of a registered plan, in the plan's words."""
        outcome = self.outcome
        labels = [outcome] if isinstance(outcome, str) else outcome and list(outcome)
        found: dict[str, Any] = {
            "study": self.study or None,
            "design_digest": self.design_digest,
            "hypotheses": self.hypotheses,
            "contrasts": self.contrasts and [list(pair) for pair in self.contrasts],
            "outcomes": labels,
            "n": len(seeds_of(self.seeds)),
            "alpha": self.alpha,
            "stop": self.stop,
        }
        return {name: value for name, value in found.items() if value is not None}

    def arguments(self, path: Path) -> dict[str, Any]:
        """Return what ``Study`` takes beside the world; the file is at ``path``."""
        tape = path.parent / self.tape if self.tape else path.with_suffix(".tape")
        same = ("vary", "seeds", "turns", "outcome", "design", "aa")
        own = {"tape": tape, "llm_client": self.model, "name": self.study or path.stem}
        return {**{key: getattr(self, key) for key in same}, **own}


def read_study(path: Path) -> tuple[StudyFile, YamlFile]:
    """Return a study's file as checked, and with its lines.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; the message names file, line
            and key.
    """
    source = YamlFile.read(path, example=_EXAMPLE)
    # Its errors would be that every key of a run's file is unknown.
    if source.values and not source.values.keys() & _OF_A_STUDY:
        raise ConfigError(
            f"{path} describes one run, and a study has a world and what varies in it, such as "
            f"{_EXAMPLE!r}; llmsim-lab run {path} plays it"
        )
    return source.parse(StudyFile), source


def located(error: ConfigError, file: StudyFile, source: YamlFile) -> ConfigError:
    """Return an error of ``Study`` with the line of the file that it is most likely about."""
    text = str(error)
    named: list[tuple[str, ...]] = [
        (part, name) for part in ("fixed", "vary") for name in getattr(file, part)
    ]
    # An arm's name has the factors' names in it, and what is wrong may be another part of it.
    for said_ in (re.sub(r"^arm '.*?': ", "", text), text):
        for location in named:
            if re.search(rf"(?<![\w.]){re.escape(location[1])}[.:='\"]", said_):
                return ConfigError(source.fault(location, text))
    for key in ("outcome", "design", "seeds", "turns"):
        if key in source.values and text.startswith((key, f"a {key.removesuffix('s')}")):
            return ConfigError(source.fault((key,), text))
    if text.startswith("a Latin hypercube"):
        return ConfigError(source.fault(("design",), text))
    return ConfigError(source.fault((), text))


def as_file(study: AnyStudy, path: Path) -> dict[str, Any]:
    """Return a study as the file at ``path`` says it, by the keys of ``StudyFile``.

    What is only in Python, such as a function, is there by its name and digest: it identifies the
    study, which then cannot be made from the file.
    """
    world, design, seeds, tape = study._world, study._design, study.seeds, study._tape_path
    model = study._models.given
    plain = all(label == item for label, item in study.outcome.items())
    first = {
        "study": study.name,
        "world": _world_name(world, path),
        "config": _config_of(world),
        "fixed": _plain(world.fixed),
        "vary": {factor: _levels(levels, design) for factor, levels in study._factors.items()},
        "design": said(design),
        "seeds": len(seeds) if seeds == list(range(len(seeds))) else seeds,
        "turns": study.turns,
        "outcome": list(study.outcome) if plain else said(study.outcome),
        "aa": AA in study.arms,
        "model": model if isinstance(model, str) else None,
        "tape": None if tape is None else _from(path.parent, tape),
    }
    empty: tuple[Any, ...] = (None, {}, False)
    return {key: value for key, value in first.items() if value not in empty}


def _world_name(world: World, path: Path) -> str:
    if world.make is not None:
        return str(said(world.make))
    cls = world.cls
    defined = file_of(cls)
    if defined is None or cls.__module__.partition(".")[0] == Run.__module__.partition(".")[0]:
        return str(cls.kind)
    return f"{_from(path.parent, defined)}:{cls.__qualname__}"


def _config_of(world: World) -> dict[str, Any] | None:
    if not isinstance(world.source, RunConfig):
        return None
    own = {"name", "seed", "turns"}
    return world.source.model_dump(mode="json", exclude=own, exclude_unset=True)


def _levels(levels: Mapping[str, Any], design: Any) -> Any:
    plain = isinstance(design, Mapping) or all(label_of(it) == n for n, it in levels.items())
    return _plain(list(levels.values()) if plain else dict(levels))


def _plain(value: Any) -> Any:
    """Return a value as YAML says it; what YAML cannot say in a form that no world takes."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(it) for name, it in value.items()}
    if isinstance(value, Sequence):
        return [_plain(it) for it in value]
    return {_ONLY_IN_PYTHON: said(value)}


def _from(folder: Path, path: Path) -> str:
    # With slashes, so that the file means the same on every system.
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()
