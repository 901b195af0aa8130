"""A study as a file, which the command line plays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab.errors import ConfigError


class StudyFile(Settings):
    """The keys of a study's file.

    Attributes:
        study: its name; the file's if not given.
        world: ``economic``, ``social``, ``crisis``, or ``pot.py:PublicGoods``, relative to the
            file.
        config: the world's configuration, as in a run's file; its parameters are fixed.
        vary: levels by factor.
        fixed: what is the same in all arms.
        seeds, turns, outcome: as ``Study`` takes them.
        model: of arms that name none, as ``connect`` takes it.
        tape: the folder of its runs, relative to the file; beside it and called like it if not
            given.
    """

    study: str = ""
    world: Annotated[str, Field(min_length=1)]
    config: dict[str, Any] | None = None
    vary: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
    fixed: dict[str, Any] = Field(default_factory=dict)
    seeds: int | list[int] = 20
    turns: int | None = None
    outcome: str | list[str] | dict[str, str] | None = None
    model: str | None = None
    tape: str | None = None

    def arguments(self, path: Path) -> dict[str, Any]:
        """Return what ``Study`` takes beside the world; the file is at ``path``."""
        tape = path.parent / self.tape if self.tape else path.with_suffix("")
        same = ("vary", "seeds", "turns", "outcome")
        own = {"tape": tape, "llm_client": self.model, "name": self.study or path.stem}
        return {**{key: getattr(self, key) for key in same}, **own}


def read_study(path: Path) -> tuple[StudyFile, YamlFile]:
    """Return a study's file as checked, and with its lines.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; the message names file, line
            and key.
    """
    source = YamlFile.read(path, example="world: economic")
    return source.parse(StudyFile), source


def located(error: ConfigError, file: StudyFile, source: YamlFile) -> ConfigError:
    """Return an error of ``Study`` with the line of the file that it is most likely about."""
    named: list[Any] = [(part, it) for part in ("fixed", "vary") for it in getattr(file, part)]
    named += [(key,) for key in ("outcome", "seeds", "turns") if key in source.values]
    # An arm's name has the factors' names in it, and what is wrong may be another part of it.
    text = re.sub(r"^arm '.*?': ", "", str(error))
    for location in named:
        if re.search(rf"(?<![\w.]){re.escape(location[-1])}[.: ='\"]", text):
            return ConfigError(source.fault(location, str(error)))
    return ConfigError(source.fault((), str(error)))
