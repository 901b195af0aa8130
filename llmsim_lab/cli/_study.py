"""``llmsim-lab study``: a study that a file describes, played, looked at, reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab._util.files import as_path
from llmsim_lab.cli._output import errors, open_folder, open_results, say
from llmsim_lab.cli._playing import ImportFiles, world_from
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.registry import find_class
from llmsim_lab.study import Study


class StudyFile(Settings):
    """The keys of a study's file.

    Attributes:
        study: its name; the file's if not given.
        world: ``economic``, ``social``, ``crisis``, or ``pot.py:PublicGoods``, relative to the
            file.
        vary: levels by factor.
        fixed: what is the same in all arms: parameters of the world, players, prompts.
        seeds, turns, outcome: as ``Study`` takes them.
        model: of arms that name none, as ``connect`` takes it.
        tape: the folder of its runs, relative to the file; beside it and called like it if not
            given.
        registration: the file of what it claims, relative to this one: written when the study is
            first run, and read from then on.
    """

    gone: ClassVar[Mapping[str, str]] = {
        "config": "write its parameters below fixed:, and its model as model:",
        "aa": "vary: {replicate: [0, 1]} plays the same twice, with other answers",
    }
    study: str = ""
    world: Annotated[str, Field(min_length=1)]
    vary: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
    fixed: dict[str, Any] = Field(default_factory=dict)
    seeds: int | list[int] = 20
    turns: int | None = None
    outcome: str | list[str] | dict[str, str] | None = None
    model: str | None = None
    tape: str | None = None
    registration: str | None = None


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to vary and measure, YAML.")],
    action: Annotated[
        Literal["run", "status", "report"],
        typer.Argument(help="Play what is left; say how far it is; write a page."),
    ],
    parallel: Annotated[
        int | None, typer.Option(min=1, help="How many runs at once; 8 if not given.")
    ] = None,
    tape: Annotated[Path | None, typer.Option(help="A folder, instead of the file's.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The report; else beside the folder.")
    ] = None,
    import_: ImportFiles = None,
) -> None:
    """Play what is left of the study that a file describes, say how far it is, or write its report.

    A world in a Python file that it names is run as code by run; status and report want it named by
    --import. What is complete is not played again; Ctrl-C keeps what is done, and run continues.
    """
    source = YamlFile.read(file, example="world: economic")
    described = source.parse(StudyFile)
    arguments = _arguments(file, described, source)
    folder = as_path("tape", tape or arguments["tape"])
    arguments["tape"] = folder
    if action != "run" and not folder.exists():
        raise ConfigError(
            f"there is no folder {folder}, so nothing of this study was played; llmsim-lab study "
            f"{file} run, or --tape where it is"
        )
    code = _code_of(file, described)
    # Looking at a study must not run code that a file of unknown origin names.
    imported = {path.resolve() for path in import_ or ()}
    if code is not None and action != "run" and code.resolve() not in imported:
        raise ConfigError(
            f"{file} names a world of {code}, and {action} runs no code that you do not name: "
            f"llmsim-lab study {file} {action} --import {code}"
        )
    world = _world(file, described, source)
    # Errors of Study name a keyword; here they are said with the line of the file.
    try:
        played = Study(world, **arguments)
        # Only where a model is asked: connecting to one may fetch its weights.
        if action == "run" and any(map(played.lacks_model, played.arms)):
            played = Study(world, **{**arguments, "llm_client": "auto"})
    except ConfigError as error:
        raise _located(error, described, source) from error
    plan: Path | None = None
    if described.registration:
        plan = as_path("registration", file.parent / described.registration)
    # A report of a study that was never registered says so, and registers nothing.
    if plan is not None and (action == "run" or plan.exists()):
        say(played.register(plan))
    if action == "report":
        # The folder "." has an empty name.
        named = folder if folder.name else folder.resolve()
        target = out or named.with_name(f"{named.name or 'study'}.html")
        # One that is named is meant; another one is replaced if it is a report.
        if out is None:
            results = open_results(target.parent, "study's report", target.name)
            results.note(target.name)
        else:
            open_folder(target.parent)
        played.report(target)
        say(f"Written: {target}")
        return
    if action == "run":
        # Before hours of calls, what they will take and what they can show.
        say(played.plan())
        try:
            played.run(parallel=parallel)
        except KeyboardInterrupt:
            say("Stopped. What is done is kept; run it again.", style="red", to=errors)
            raise
    say(played)
    # Scripts read the status: a study with holes is not a success.
    if played.counts["failed"]:
        say("Runs failed; 'run' tries them again.", style="red", to=errors)
        raise typer.Exit(1)


def study_from(file: Path, *, tape: Path | None) -> Study:
    """Return the study that a file describes; its world's code is run.

    Args:
        file: YAML, as ``llmsim-lab study`` takes it.
        tape: the folder, in place of the file's.
    """
    source = YamlFile.read(file, example="world: economic")
    described = source.parse(StudyFile)
    arguments = _arguments(file, described, source)
    arguments["tape"] = tape or arguments["tape"]
    try:
        return Study(_world(file, described, source), **arguments)
    except ConfigError as error:
        raise _located(error, described, source) from error


def _arguments(
    path: Path,
    described: StudyFile,
    source: YamlFile,
) -> dict[str, Any]:
    """Return what ``Study`` takes beside the world."""
    tape = path.with_suffix("")
    if described.tape:
        tape = path.parent / described.tape
    arguments: dict[str, Any] = {
        "vary": described.vary,
        "seeds": described.seeds,
        "turns": described.turns,
        "outcome": described.outcome,
        "tape": tape,
        "name": described.study or path.stem,
        "llm_client": described.model,
    }
    # Else the one would silently replace the other.
    for name in described.fixed.keys() & arguments.keys():
        fault = f"stands at the top of the file, {name}: ..., not under fixed"
        raise ConfigError(source.fault(("fixed", name), fault))
    return {**described.fixed, **arguments}


def _code_of(path: Path, described: StudyFile) -> Path | None:
    """Return the Python file that a study's file names its world by; None for a shipped one."""
    if ".py" not in described.world:
        return None
    # From the right: a folder may be called "my.pyfiles".
    file, end, _ = described.world.rpartition(".py")
    return as_path("world", path.parent / f"{file}{end}")


def _world(
    path: Path,
    described: StudyFile,
    source: YamlFile,
) -> Any:
    try:
        if ".py" in described.world:
            return world_from(str(path.parent / described.world))
        return find_class(described.world)
    except ConfigError as error:
        text = str(error)
        if ".py" not in described.world:
            text += "; a world of your own is named by its file: pot.py:PublicGoods"
        raise ConfigError(source.fault(("world",), text)) from error


def _located(
    error: ConfigError,
    file: StudyFile,
    source: YamlFile,
) -> ConfigError:
    """Return an error of ``Study`` with the line of the file that it is most likely about."""
    places: list[tuple[str, ...]] = [("fixed", name) for name in file.fixed]
    places += [("vary", name) for name in file.vary]
    places += [(key,) for key in ("outcome", "seeds", "turns") if key in source.values]
    # An arm's name has the factors' names in it, and what is wrong may be another part of it.
    text = re.sub(r"^arm '.*?': ", "", str(error))
    # The first name that the message has as a word: "tax" is not in "taxes".
    for location in places:
        if re.search(rf"(?<![\w.]){re.escape(location[-1])}[.: ='\"]", text):
            return ConfigError(source.fault(location, str(error)))
    return ConfigError(source.fault((), str(error)))
