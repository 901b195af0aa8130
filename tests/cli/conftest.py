"""The command, run in an empty folder."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from cli_kit import Run

from llmsim_lab.cli import main
from llmsim_lab.run import registry

WORLDS = Path(__file__).parents[1] / "worlds.py"


@pytest.fixture(autouse=True)
def _pictures(undrawn: None) -> None:
    """Draw a run's chart for the tests that look at it."""


@pytest.fixture(autouse=True, scope="session")
def _built_once() -> Iterator[None]:
    """Build the commands once a session, not in each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def llmsim_lab(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """Run the command in an empty folder; returns its status, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["llmsim-lab", *arguments])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        out, err = capfd.readouterr()
        return status, out, err

    return run


@pytest.fixture
def lab(llmsim_lab: Run) -> Iterator[Run]:
    """The command, in a folder with ``pot.py``, whose worlds are new to it each time."""
    known = set(sys.modules)
    Path("pot.py").write_text(WORLDS.read_text())

    def run(*arguments: str) -> tuple[int, str, str]:
        _forget(known)
        return llmsim_lab(*arguments)

    yield run
    _forget(known)
    sys.path[:] = [place for place in sys.path if place != str(Path.cwd())]


def _forget(known: set[str]) -> None:
    """Do what ends with the program: no module of the last command is known any more."""
    own = ("pot", "ruled", "broken")
    for name in {*own} - known:
        sys.modules.pop(name, None)
    for name in [name for name in registry._known if name.partition(":")[0] in own]:
        del registry._known[name]
