"""The demo as the first command someone runs: a recording at once, then live."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from cli_kit import Run, reply

from llmsim_lab.llm import Tape, connect
from llmsim_lab.testing import FakeOllama


@pytest.fixture(autouse=True)
def no_model_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


def test_the_demo_replays_a_recording_and_continues_live_and_says_which_is_which(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 1_000.0)
    with FakeOllama(reply=reply) as server:
        status, out, err = llmsim_lab("demo", "--turns", "2", "--host", server.host)
        asked = len(server.requests)
    assert (status, err) == (0, "")
    assert "Turns 1 to 12: a recording of United States, Germany with qwen2.5-coder-1.5b" in out
    assert "replayed in 0.0 s; no model was asked." in out
    assert "Turns 13 to 14: a fork of it, live." in out
    assert asked == 2 * 6
    rows = [line for line in out.splitlines() if line.startswith("19")]
    assert ["live" if " live " in row else "tape" for row in rows] == ["tape"] * 13 + ["live"] * 2
    assert all(" tape " in row for row in rows[:13])
    assert "on the tape: 72 model calls: ok 100%" in out
    assert "live: 12 model calls: ok 100%" in out
    assert len(pd.read_csv("out/demo/turns.csv")) == 15
    runs = Tape("out/demo/demo.tape", read_only=True).runs()
    assert [(run.verb, run.parent, run.fork_turn, run.turns) for run in runs] == [
        ("run", None, None, 12),
        ("fork", 1, 12, 14),
    ]


def test_without_any_model_the_demo_shows_the_recording_and_the_ways_to_a_model(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect.__globals__, "runtime_installed", lambda: False)
    ticks = itertools.count(100, 2.5)
    clock = SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr("llmsim_lab.cli._demo.time", clock)
    status, out, _ = llmsim_lab("demo")
    assert status == 0
    assert "replayed in 2.5 s; no model was asked." in out
    assert "It ends there, since there is no model to continue with" in out
    assert "ollama pull llama3.1:8b" in out
    assert len(pd.read_csv("out/demo/turns.csv")) == 13


def test_a_model_that_was_asked_for_and_is_not_there_is_an_error(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("demo", "--model", "ollama:llama3.2")
    assert status == 1
    assert "no Ollama server answers" in err


def test_the_demo_may_be_run_again_into_the_same_folder(llmsim_lab: Run) -> None:
    for _ in range(2):
        with FakeOllama(reply=reply) as server:
            status, _, _ = llmsim_lab("demo", "--turns", "1", "--host", server.host)
        assert status == 0
    for name in ("demo", "demo-2"):
        assert len(Tape(f"out/demo/{name}.tape", read_only=True)) == 2
