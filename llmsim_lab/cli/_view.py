"""``llmsim-lab view``: a tape's runs as one HTML page, for people without this package."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.text import clip
from llmsim_lab.cli._output import say
from llmsim_lab.cli._playing import ImportFiles, import_files
from llmsim_lab.cli._run import TapeFile
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run._run import class_on, page


def view(
    file: TapeFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; beside the tape if not given, as .html."),
    ] = None,
    run: Annotated[
        int | None,
        typer.Option(
            "--run", help="This run, those that it came from and their forks; else all runs."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    import_: ImportFiles = None,
) -> None:
    """Write a tape's runs as one HTML page that anybody can read, offline.

    It has the tree of runs, charts, turns, every call with its prompt and reply, decisions and what
    defines each run, with search, filters and comparison.
    """
    import_files(import_)
    with Tape(file, read_only=True) as tape:  # what is wrong with it is said here
        target = out or file.with_suffix(".html")
        if out is None and target != file and target.exists():
            raise ConfigError(f"{target} is there already; say --out {target} to replace it")
        page(tape, target, run=run)
        unknown = _unknown(tape)
    say(f"Written: {target} ({_size(target.stat().st_size)})")
    if unknown:
        say(f"Without what only its class can tell, since {clip(unknown, 400)}", style="yellow")
    if show:
        webbrowser.open(target.resolve().as_uri())


def _unknown(tape: Tape) -> str:
    """Return why a run's class is not known here; empty if all are."""
    for info in tape.runs():
        try:
            class_on(tape, info)
        except TapeError as error:
            return str(error)
    return ""


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
