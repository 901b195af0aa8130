"""``llmsim-lab lab``: the tutorials, in a folder of the user's own, opened in JupyterLab."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.text import counted, listed
from llmsim_lab.cli._output import errors, say
from llmsim_lab.errors import ConfigError, DataError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "_data" / "notebooks", _PACKAGE.parent / "notebooks")
"""An installed wheel has the first; a checkout has the second."""

_SETTINGS = Path(__file__).with_name("jupyter")
"""Without it JupyterLab's first page is a question about its news."""

# JupyterLab's server imports jsonschema, which compiles grammars of rfc3987_syntax if it finds it:
# half of the time until the page opens, for formats that no schema of the server's names.
_RUN_JUPYTERLAB = """
import runpy
import sys

sys.modules["rfc3987_syntax"] = None
runpy.run_module("jupyterlab", run_name="__main__", alter_sys=True)
"""


def shipped_tutorials() -> list[Path]:
    """Return the notebooks that come with the package, in their order.

    Raises:
        DataError: there are none.
    """
    for place in _PLACES:
        notebooks = sorted(place.glob("[0-9]*.ipynb"))
        if notebooks:
            return notebooks
    places = " or ".join(map(str, _PLACES))
    raise DataError(f"no tutorials in {places}; reinstall the package")


@dataclass(frozen=True)
class Copies:
    """What became of the tutorials: names of files."""

    new: list[str]
    kept: list[str]
    """Those that were there and differ from this version's."""


def copy_tutorials(folder: Path) -> Copies:
    """Copy the tutorials that a folder lacks; a file that is there stays as it is.

    Raises:
        ConfigError: the folder cannot be made or written to.
    """
    new: list[str] = []
    kept: list[str] = []
    for notebook in shipped_tutorials():
        # As bytes, so that what is there already is compared to the last line end.
        content = notebook.read_bytes()
        copy = folder / notebook.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # "x": a file that appears meanwhile is the user's too.
            with copy.open("xb") as file:
                file.write(content)
            new.append(copy.name)
        except FileExistsError as error:
            if not folder.is_dir():
                raise ConfigError(f"{folder} is a file; name a folder") from error
            # A folder of that name, or a link that leads nowhere, is the user's as well.
            if not copy.is_file() or copy.read_bytes() != content:
                kept.append(copy.name)
        except OSError as error:
            raise ConfigError(
                f"cannot write the tutorials to {folder}: {error.strerror}; name another folder: "
                "llmsim-lab lab FOLDER"
            ) from error
    return Copies(new, kept)


def lab(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where your copies are; made if need be.")
    ] = Path("llmsim-tutorials"),
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Copy the tutorials, and do not open JupyterLab.")
    ] = False,
) -> None:
    """Copy the tutorials to a folder and open them in JupyterLab, 01 first.

    What is in the folder already is yours and is never replaced. They need no model and no network.
    """
    copies = copy_tutorials(folder)
    if copies.new:
        say(f"{counted(len(copies.new), 'tutorial')} copied to {folder.resolve()}")
    if copies.kept:
        say(
            f"Kept as you left them: {listed(copies.kept)}. To get one anew, rename yours and run "
            "this again."
        )
    if no_open:
        return
    # Only now: the copies are of use without JupyterLab too.
    if find_spec("jupyterlab") is None:
        raise ConfigError(
            "JupyterLab is not installed: pip install 'llmsim-lab[lab]', or from a file "
            "'./llmsim_lab-VERSION-py3-none-any.whl[lab]'. Any other program that opens notebooks "
            f"can read those in {folder}"
        )
    first = folder / shipped_tutorials()[0].name
    say("JupyterLab opens in your browser. Ctrl-C twice in this window ends it.")
    status = _open_in_jupyterlab(first)
    if status != 0:
        say(
            "JupyterLab could not go on; its last lines say why. With an option of its own, such "
            f'as --allow-root or --no-browser: jupyter lab --allow-root "{folder}"',
            to=errors,
        )
    raise typer.Exit(status)


def _open_in_jupyterlab(notebook: Path) -> int:
    """Run JupyterLab until it is ended; return its exit status."""
    # In the path of settings, so that nothing is written to those of the user.
    places = [str(_SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    path = os.pathsep.join(filter(None, places))
    program = subprocess.Popen(
        [sys.executable, "-P", "-c", _RUN_JUPYTERLAB, str(notebook)],
        env={**os.environ, "JUPYTER_CONFIG_PATH": path},
    )
    # The terminal sends a Ctrl-C to both programs. JupyterLab asks whether it is meant; this one
    # waits for what it decides.
    while True:
        try:
            return program.wait()
        except KeyboardInterrupt:
            continue
