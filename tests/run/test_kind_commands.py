"""The commands that read tapes work on a kind that they do not know."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_config
from counter_kit import counter_client, make_counter
from tape_text import changed_manifest

from llmsim_lab.cli import main
from llmsim_lab.run import fork
from llmsim_lab.simulation import Simulation

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def llmsim_lab(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """Run the command beside a tape with a run of a counter and a fork of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    made = make_counter("a.tape", interventions=[{"turn": 1, "set": {"value": 40}}])
    made.run(2)
    made.close()
    new = fork(
        "a.tape", turn=1, intervene=[{"turn": 2, "set": {"value": 7}}], llm_client=counter_client()
    )
    new.run(1)
    new.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["llmsim-lab", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return int(end.value.code or 0), out, err

    return run


def test_runs_of_two_kinds_are_told_apart(llmsim_lab: Run) -> None:
    other = Simulation(make_config(), tape="a.tape")
    other.run(1)
    other.close()
    status, out, _ = llmsim_lab("tape", "diff", "a.tape", "1", "3")
    assert status == 0
    assert 'kind: "counter" -> "economic"' in out


def test_a_replay_writes_frames_and_no_chart_of_rates(llmsim_lab: Run) -> None:
    status, out, err = llmsim_lab("replay", "a.tape", "--out", "out")
    assert status == 0, err
    assert "on the tape: 4 model calls" in out
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("config.yaml", "decisions.csv", "turns.csv")
    ]
    assert Path("out/turns.csv").read_text().startswith("turn,value,calls")


def test_a_kind_that_is_not_known_is_shown_with_the_numbers_recorded(llmsim_lab: Run) -> None:
    changed_manifest(Path("a.tape"), 1, kind="other")
    status, out, _ = llmsim_lab("tape", "show", "a.tape", "--run", "1")
    assert status == 0
    assert 'kind: "other"' in out
    assert any(line.split()[:3] == ["2", "50", "2"] for line in out.splitlines())
