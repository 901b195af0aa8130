"""``llmsim-lab new NAME --from TEMPLATE``: a folder with a world to start from."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.files import data_path
from llmsim_lab.cli._output import say
from llmsim_lab.errors import ConfigError

_FIRST_CELL = """\
# Rules that play by the textbook, and a very small model, recorded; dashed is the prediction.
from {module} import {world}

from llmsim_lab.lab import RateChart

rules = {world}(players={{"*": "rule"}})
rules.run()
recorded = {world}.replay("{module}.tape")
RateChart({{"rules": rules, "recorded": recorded}})"""
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
    """Make a folder with a world to start from: a program, a notebook, a recorded run."""
    # The files keep the template's name, since a tape names a world by its file and its class.
    templates = data_path("templates")
    about = {path.stem: _first_line(path) for path in sorted(templates.glob("*.py"))}
    if template not in about:
        wrong = "say what it starts from" if template is None else f"no template {template!r:.60}"
        known = "\n".join(f"  --from {name:<17} {line}" for name, line in about.items())
        raise ConfigError(f"{wrong}; there are:\n{known}")
    code = (templates / f"{template}.py").read_text(encoding="utf-8")
    [world] = re.findall(r"^class (\w+)\(Run\[", code, re.MULTILINE)
    try:
        folder.mkdir(parents=True)
        for ending in ("py", "tape"):
            shutil.copyfile(templates / f"{template}.{ending}", folder / f"{template}.{ending}")
        cells = (text.format(module=template, world=world) for text in (_FIRST_CELL, _SECOND_CELL))
        text = json.dumps(notebook(*cells), indent=1) + "\n"
        (folder / f"{template}.ipynb").write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{folder} is there already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error}; choose another name") from error
    say(
        f"{folder} has {template}.py, the world; {template}.ipynb, a notebook; and {template}.tape,"
        "\na run recorded with a very small model. No model is needed for:"
        f"\n  cd {folder}"
        f"\n  python {template}.py"
        f"\n  llmsim-lab run {template}.py --model random --turns 5"
        f"\n  jupyter lab {template}.ipynb"
    )


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix('"""')


def notebook(*cells: str) -> dict[str, object]:
    """Return a notebook of code cells, as its file has it."""
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": text.splitlines(keepends=True),
            }
            for number, text in enumerate(cells, 1)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
