"""A person's turn on the command line: asked field by field, until each is right."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pandas as pd
import pytest
from cli_kit import Run, fails, succeeds

CHAIR = """
start_at: 1979Q3
turns: 1
nations: [Aland]
players: {Aland: person, "*": rule}
"""


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> io.StringIO:
    """What the person types, with the run's file beside; to be filled by the test."""
    (tmp_path / "chair.yaml").write_text(CHAIR)
    keyboard = io.StringIO()
    monkeypatch.setattr(sys, "stdin", keyboard)
    return keyboard


def types(keyboard: io.StringIO, *lines: str) -> None:
    keyboard.write("".join(f"{line}\n" for line in lines))
    keyboard.seek(0)


def test_a_refused_action_is_asked_for_once_more(llmsim_lab: Run, typed: io.StringIO) -> None:
    Path("chair.yaml").write_text(f"{CHAIR}moves_bp: null\n")
    first = ("Plant tulips", "They are pretty.", "0.5")
    types(typed, *first, "Raise the rate", "Prices rise.", "0.8")
    out = succeeds(llmsim_lab, "run", "chair.yaml", "--out", "out")
    assert "Not accepted: the action names nothing of economic policy" in out
    decisions = pd.read_csv("out/decisions.csv").query("component == 'agent'")
    assert decisions["status"].tolist() == ["repaired"]


def test_with_nobody_at_the_keyboard_the_run_ends_and_says_so(
    llmsim_lab: Run, typed: io.StringIO
) -> None:
    types(typed, "Raise the rate")
    err = fails(llmsim_lab, "run", "chair.yaml", "--out", "out")
    assert "no one answers for Aland: standard input has ended" in err
