"""``llmsim-lab lab``: the tutorials in JupyterLab."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from cli_kit import Run

from llmsim_lab._util.files import data_path
from llmsim_lab.cli import _lab


def test_the_first_tutorial_is_opened(llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    run = lambda command, **_: started.append(command)  # noqa: E731
    monkeypatch.setattr(_lab, "subprocess", SimpleNamespace(run=run))
    assert llmsim_lab("lab")[0] == 0
    [command] = started
    assert command[1:3] == ["-m", "jupyterlab"]
    assert command[3] == str(data_path("tapes").parents[1] / "notebooks" / "01_first_run.ipynb")


def test_what_is_missing_is_named(llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lab, "find_spec", lambda name: None)
    status, _, errors = llmsim_lab("lab")
    assert status == 1
    assert "pip install 'llmsim-lab[notebooks]'" in errors
