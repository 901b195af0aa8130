"""``llmsim-lab new`` and ``view``: a world to start from, and a tape's runs as one page."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim_lab._util.files import data_path, is_there, write_file
from llmsim_lab.cli._output import say
from llmsim_lab.cli._playing import ImportFiles
from llmsim_lab.cli._run import TapeFile
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.run.recorded import page

_FIRST_CELL = """\
# Rules that play by the textbook; dashed is the prediction.
from {module} import {world}

from llmsim_lab.lab import RateChart

rules = {world}(players={{"*": "rule"}})
rules.run()
RateChart(rules)"""
_FIRST_CELL_OF_RECORDED = """\
# Rules that play by the textbook, and a very small model, recorded; dashed is the prediction.
from {module} import {world}

from llmsim_lab.lab import RateChart

rules = {world}(players={{"*": "rule"}})
rules.run()
recorded = {world}.replay("{module}.tape")
RateChart({{"rules": rules, "recorded": recorded}})"""
_LESSON = "lesson"
_WORLD_OF_LESSON = "contract_net"
_SECOND_CELL = """\
# Your model: Ollama if it answers here, else the embedded one. What it says is kept on my.tape.
from llmsim_lab import connect

live = {world}(llm_client=connect("auto"), tape="my.tape")
live.run(3)
RateChart(live)"""


def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make.")],
    template: Annotated[
        str | None, typer.Option("--from", help="A template; without one they are listed.")
    ] = None,
) -> None:
    """Make a folder with a world to start from: a program, a notebook, a recorded run.

    From lesson it is a lesson's source for a teacher, with its solutions and its world.
    """
    templates = data_path("templates")
    # From the folder and not from a list: a template is a file that one adds.
    codes = {path.stem: path.read_text(encoding="utf-8") for path in templates.glob("*.py")}
    if template not in [*codes, _LESSON]:
        options = "".join(f"\n  --from {name}" for name in sorted([*codes, _LESSON]))
        if template is None:
            raise ConfigError(f"choose a template; there are:{options}")
        raise ConfigError(f"there is no template {template!r}; there are:{options}")
    # Not into a folder that is there: it may have a user's own pot.py.
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}; choose another name") from error
    if template == _LESSON:
        source = f"{_LESSON}.ipynb"
        names = [source, f"{_WORLD_OF_LESSON}.py", f"{_WORLD_OF_LESSON}.tape"]
        _fill(folder, {name: (templates / name).read_bytes() for name in names})
        say(f"{folder} has {source}, the teacher's source with its solutions, and its world.")
        say(f'Make the student\'s version of it:\n  llmsim-lab lesson "{folder / source}" --to out')
        return
    # By its text: importing it would run it.
    [world] = re.findall(
        r"^class (\w+)\(Run\[",
        codes[template],
        re.MULTILINE,
    )
    # The files keep the template's name, since a tape names a world by its file and its class.
    is_recorded = (templates / f"{template}.tape").exists()
    names = [f"{template}.py"]
    if is_recorded:
        names.append(f"{template}.tape")
    files = {name: (templates / name).read_bytes() for name in names}
    empty: dict[str, Any] = {"cell_type": "code", "execution_count": None}
    empty |= {"metadata": {}, "outputs": []}
    first_cell = _FIRST_CELL_OF_RECORDED if is_recorded else _FIRST_CELL
    cells = (text.format(module=template, world=world) for text in (first_cell, _SECOND_CELL))
    notebook = {"cells": [{**empty, "source": cell} for cell in cells], "metadata": {}}
    # As JSON, since nbformat is not among what is installed.
    text = json.dumps(
        {**notebook, "nbformat": 4, "nbformat_minor": 4},
        indent=1,
    )
    _fill(folder, {**files, f"{template}.ipynb": text.encode()})
    recorded = f", and {template}.tape, a recorded run" if is_recorded else ""
    say(f"{folder} has {template}.py, the world{recorded}. Look at it")
    say(f'in {template}.ipynb, or begin without a model:\n  cd "{folder}"\n  python {template}.py')


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a new folder, which goes again if they cannot be."""
    try:
        for name, content in files.items():
            write_file(folder / name, content)
    except BaseException:  # also Ctrl-C: a second try would find half a folder in its place
        shutil.rmtree(folder, ignore_errors=True)
        raise


def view(
    file: TapeFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; else beside the tape.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(help="This run, those it came from, their forks; else all.")
    ] = None,
    import_: ImportFiles = None,
) -> None:
    """Write a tape's runs as one HTML page that opens in any browser, offline.

    It has the tree of runs, charts, turns, every call with its prompt and reply, decisions and what
    defines each run, with search, filters and comparison.
    """
    with Tape(file, read_only=True) as tape:  # what is wrong with it is said here
        target = out or file.with_suffix(".html")
        # Only a page that is named is replaced.
        if out is None and target != file and is_there(target):
            raise ConfigError(f"{target} is there already; say --out {target} to replace it")
        page(tape, target, run=run)
    say(f"Written: {target} ({target.stat().st_size / 1e3:,.0f} kB)")
