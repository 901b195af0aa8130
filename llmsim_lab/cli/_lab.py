"""``llmsim-lab lab FILE``: a recorded run in a window, in the browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from llmsim_lab import run as operations
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._new import notebook
from llmsim_lab.cli._output import say
from llmsim_lab.cli._playing import OTHER_MODEL_HELP, ImportFiles, errors_located, import_files
from llmsim_lab.cli._run import RunNumber, TapeFile, valid_run
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape, connect


def lab(
    file: TapeFile,
    run: RunNumber = None,
    model: Annotated[
        str | None, typer.Option(help=f"For forks and restarts: {OTHER_MODEL_HELP}.")
    ] = None,
    import_: ImportFiles = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Show a recorded run in a window: its turns, chart and prompts; fork it and play on."""
    import_files(import_)
    # What is wrong with the run or the model is said here: the page would only say that it failed.
    with Tape(file, read_only=True) as tape:
        run = valid_run(tape, run).id
        with errors_located():
            simulation = operations.load(tape, run)
    if model == "rule" and not simulation.config.needs_model:
        model = None
    with TemporaryDirectory(prefix="llmsim-lab-") as folder:
        command = prepared(
            Path(folder), file.resolve(), run, model=model, imports=import_ or (), browser=browser
        )
        if model:
            client = connect(model, download=True, quiet=True)
            say(client.chosen)
            run_sync(client.aclose())
        what = "The window opens" if command[2] == "voila" else "In the notebook press Shift+Enter"
        say(f"{what}; Ctrl-C here ends it. Only this machine can reach it.")
        subprocess.run(command, cwd=folder, check=False)


def prepared(
    folder: Path,
    file: Path,
    run: int,
    *,
    model: str | None = None,
    imports: Sequence[Path] = (),
    browser: bool = True,
) -> list[str]:
    """Write a notebook with the window into a folder; returns the command that serves it.

    Args:
        folder: an empty one.
        file: the tape.
        run: the run's number.
        model: for forks and restarts.
        imports: files with the run's class.
        browser: whether the page is opened.

    Raises:
        ConfigError: nothing is installed that could serve it.
    """
    served_by = next((name for name in ("voila", "jupyterlab") if find_spec(name)), None)
    if served_by is None:
        raise ConfigError("the window needs a server: pip install 'llmsim-lab[serve]'")
    lines = [
        f"import sys; sys.path.append({str(path.resolve().parent)!r}); import {path.stem}"
        for path in imports
    ]
    client = f"connect({model!r})" if model else "None"
    lines += [
        "from llmsim_lab import connect",
        "from llmsim_lab.lab import Lab",
        "",
        f"Lab({str(file)!r}, run={run}, llm_client={client})",
    ]
    path = folder / f"{file.stem}.ipynb"
    path.write_text(json.dumps(notebook("\n".join(lines))), encoding="utf-8")
    # Both make a token of their own; Voila only if asked to.
    own = (
        ["--Voila.ip=127.0.0.1", "--Voila.auto_token=True"]
        if served_by == "voila"
        else ["--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
    )
    return [
        *(sys.executable, "-m", served_by, str(path)),
        *own,
        *(() if browser else ("--no-browser",)),
    ]
