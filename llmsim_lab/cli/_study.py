"""``llmsim-lab study``: a study that a file describes, played, looked at, reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from llmsim_lab._util.config import YamlFile
from llmsim_lab.cli._output import console, errors, literal, open_folder, plain_table, right, say
from llmsim_lab.cli._playing import MODEL_HELP, errors_located, world_from
from llmsim_lab.errors import ConfigError
from llmsim_lab.run._registry import find_class
from llmsim_lab.study import Study
from llmsim_lab.study._file import StudyFile, located, read_study

_PLAYERS = ("rule", "random")
_STATUSES = ("done", "failed", "stopped", "left")


def study(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A study, YAML: its world, what is varied, seeds, turns, outcome. A world in a "
            "Python file that it names is run as code.",
        ),
    ],
    action: Annotated[
        Literal["run", "status", "report"],
        typer.Argument(
            help="run plays what is left; status says how far it is, and the effects so far; "
            "report writes a page for a referee."
        ),
    ],
    parallel: Annotated[
        int | None, typer.Option(min=1, help="How many runs at once; 8 if not given.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Instead of the file's: {MODEL_HELP}; for a world of your own also random"
        ),
    ] = None,
    tape: Annotated[
        Path | None,
        typer.Option(help="A folder, instead of the file's; made if it is not there."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The report; beside the folder if not given, as .html."),
    ] = None,
) -> None:
    """Play the study that a file describes, look at it, or write its report.

    What is complete is not played again; Ctrl-C keeps what is done, and run continues.
    """
    described = _Described.read(file, model=model, tape=tape)
    if action == "run":
        _run(described, parallel)
        return
    made = described.made(writes=False)
    if action == "status":
        _show(made)
    else:
        target = out or described.tape.with_name(f"{described.tape.name}.html")
        open_folder(target.parent)
        with errors_located():
            made.report(target)
        say(f"Written: {target}")


@dataclass(frozen=True, slots=True)
class _Described:
    """A study's file, and what the command line says instead of it."""

    path: Path
    file: StudyFile
    source: YamlFile
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, *, model: str | None, tape: Path | None) -> _Described:
        """Read the file.

        Raises:
            ConfigError: something in it is wrong, or does not go with ``--model``.
        """
        file, source = read_study(path)
        given = file.arguments(path)
        if taken := file.fixed.keys() & given.keys():
            name = sorted(taken)[0]
            what = f"stands at the top of the file, {name}: ..., not among what is fixed"
            raise ConfigError(source.fault(("fixed", name), what))
        arguments = {**(file.config or {}), **file.fixed, **given}
        if tape is not None:
            arguments["tape"] = tape
        part = "players" if model in _PLAYERS else "model"
        if model is not None and (part in file.vary or part in file.fixed):
            where = source.place(("vary" if part in file.vary else "fixed", part))
            raise ConfigError(
                f"--model {model}: {where} says {part} already; leave one of them out"
            )
        if model in _PLAYERS:
            arguments["players"] = model
        elif model is not None:
            arguments["llm_client"] = model
        return cls(path, file, source, arguments)

    @property
    def tape(self) -> Path:
        """The folder of the study's runs."""
        tape: Path = self.arguments["tape"]
        return tape

    def made(self, *, writes: bool) -> Study:
        """Return the study.

        Args:
            writes: whether it will be played; else a folder that is not there is an error.

        Raises:
            ConfigError: something in the file is wrong.
        """
        if not writes and not self.tape.exists():
            raise ConfigError(
                f"there is no folder {self.tape}, so nothing of this study was played; "
                f"llmsim-lab study {self.path} run, or --tape where it is"
            )
        world = self._world()
        try:
            with errors_located():
                made = Study(world, **self.arguments)
        except ConfigError as error:
            raise located(error, self.file, self.source) from error
        return made

    def _world(self) -> Any:
        named, own = self.file.world, self.file.is_own_code
        try:
            cls: Any = world_from(str(self.path.parent / named)) if own else find_class(named)
        except ConfigError as error:
            hint = "" if own else "; a world of your own is named by its file: pot.py:PublicGoods"
            raise ConfigError(self.source.fault(("world",), f"{error}{hint}")) from error
        try:
            cls.config_type(**(self.file.config or {}))
        except ConfigError as error:
            raise ConfigError(self.source.fault(("config",), str(error))) from error
        return cls


def _run(described: _Described, parallel: int | None) -> None:
    made = described.made(writes=True)
    # A study in Python is given its client; here the world's configuration may name the model.
    if any(made.lacks_model(arm) for arm in made._arms.values()):
        made._player.models.given = str(made._world.base.llm.model)
    say(made.plan())
    try:
        with errors_located():
            made.run(parallel=parallel)
    except KeyboardInterrupt:
        errors.print(f"Stopped: {_counted(made)}. What is done is kept; run it again.", style="red")
        raise
    _show(made)
    say(f"All of it is in {described.tape}.")
    if made.counts["failed"]:
        say("Runs failed; the same command tries them again.", style="red", to=errors)
        raise typer.Exit(1)


def _counted(made: Study) -> str:
    return ", ".join(f"{made.counts[it]} {it}" for it in _STATUSES if made.counts[it])


def _show(made: Study) -> None:
    table = plain_table("arm", *map(right, _STATUSES))
    runs = made.runs
    for arm in made.arms:
        there = runs["status"][runs["arm"] == arm].value_counts()
        table.add_row(literal(arm), *(str(there.get(status, 0)) for status in _STATUSES))
    console.print(table)
    for error in made.errors:
        say(error, style="red")
    if not made.counts["done"] or not made.outcome:
        return
    if len(made.arms) > 1:
        left = made.counts["left"] + made.counts["stopped"]
        say(f"\nEffects{' so far' if left else ''}:")
        say(made.effects())
