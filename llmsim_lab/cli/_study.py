"""``llmsim-lab study``: a study that a file describes, played, looked at, reported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from llmsim_lab._util.config import YamlFile
from llmsim_lab.cli._output import errors, open_folder, say
from llmsim_lab.cli._playing import world_from
from llmsim_lab.errors import ConfigError
from llmsim_lab.run._registry import find_class
from llmsim_lab.study import Study
from llmsim_lab.study._file import StudyFile, located, read_study


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
) -> None:
    """Play what is left of the study that a file describes, say how far it is, or write its report.

    A world in a Python file that it names is run as code. What is complete is not played again;
    Ctrl-C keeps what is done, and run continues.
    """
    described, source = read_study(file)
    world = _world(file, described, source)
    arguments = _arguments(file, described, source)
    folder = arguments["tape"] = tape or arguments["tape"]
    if action != "run" and not folder.exists():
        what = f"there is no folder {folder}, so nothing of this study was played"
        raise ConfigError(f"{what}; llmsim-lab study {file} run, or --tape where it is")
    try:
        made = Study(world, **arguments)
        if action == "run" and any(map(made.lacks_model, made._arms.values())):
            made = Study(world, **{**arguments, "llm_client": "auto"})
    except ConfigError as error:
        raise located(error, described, source) from error
    if action == "report":
        target = out or folder.with_name(f"{folder.name}.html")
        open_folder(target.parent)
        made.report(target)
        say(f"Written: {target}")
        return
    if action == "run":
        say(made.plan())
        try:
            made.run(parallel=parallel)
        except KeyboardInterrupt:
            say("Stopped. What is done is kept; run it again.", style="red", to=errors)
            raise
    say(made)
    if made.counts["failed"]:
        say("Runs failed; 'run' tries them again.", style="red", to=errors)
        raise typer.Exit(1)


def _arguments(path: Path, described: StudyFile, source: YamlFile) -> dict[str, Any]:
    """Return what ``Study`` takes beside the world."""
    given = described.arguments(path)
    for name in described.fixed.keys() & given.keys():
        what = f"stands at the top of the file, {name}: ..., not among what is fixed"
        raise ConfigError(source.fault(("fixed", name), what))
    # In Python a study is given its client; here the world's configuration may name the model.
    config = dict(described.config or {})
    llm = dict(config.pop("llm", None) or {})
    named = llm.pop("model", None)
    arguments = {**config, **({"llm": llm} if llm else {}), **described.fixed, **given}
    arguments["llm_client"] = given["llm_client"] or named
    return arguments


def _world(path: Path, described: StudyFile, source: YamlFile) -> Any:
    named, own = described.world, ".py" in described.world
    try:
        return world_from(str(path.parent / named)) if own else find_class(named)
    except ConfigError as error:
        hint = "" if own else "; a world of your own is named by its file: pot.py:PublicGoods"
        raise ConfigError(source.fault(("world",), f"{error}{hint}")) from error
