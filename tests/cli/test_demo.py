"""The demo as the first command someone runs: a recording and its verdict at once, then live."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from cli_kit import Run
from fake_ollama import FakeOllama

from llmsim_lab._util.files import data_path
from llmsim_lab.llm import Tape, _connect
from llmsim_lab.study import Demonstration
from llmsim_lab.study._demo import demo_runs

LETTERS = FakeOllama.tokens([{"A": -1.6, "B": -1.6, "C": -1.6, "D": -1.6, "E": -1.7}])
"""Any of the five moves, whatever the economy does."""


@pytest.fixture(autouse=True)
def no_model_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture
def read(shipped: Demonstration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare a test that is about what comes after the recorded part the reading of it."""
    monkeypatch.setattr(Demonstration, "read", lambda _: shipped)


@pytest.mark.usefixtures("drawn")
def test_the_demo_shows_a_recording_with_its_verdict_and_continues_live(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, shipped: Demonstration
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 1_000.0)
    with FakeOllama(reply=LETTERS) as server:
        status, out, err = llmsim_lab("demo", "--turns", "2", "--host", server.host)
        asked = len(server.requests)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    count = len(shipped.runs)
    seeds = f"{count} seed{'' if count == 1 else 's'}"
    assert (
        f"{shipped.model} as a central bank: {seeds} of shocks, {shipped.quarters} quarters"
        in words
    )
    assert "read in 0.0 s, and no model was asked." in words
    assert shipped.verdict in words
    assert shipped.headline in words
    for player in shipped.players:
        assert player in words
    assert "Quarters 21 to 22 of seed 1: a fork of its run, live." in words
    assert "That is about 10 calls of a model." in words
    assert f"As {shipped.model} was recorded a quarter took 33 s, which makes 66 s;" in words
    assert asked == 2 * 5
    rows = [line for line in out.splitlines() if line.startswith("2005Q")]
    assert ["live" if " live " in row else "tape" for row in rows] == ["tape", "live", "live"]
    assert "live: 10 model calls: ok 100%" in out
    assert "llmsim-lab doctor ollama:llama3.1:8b --economics" in words
    assert len(pd.read_csv("out/demo/turns.csv")) == 23
    assert Path("out/demo/demo.png").read_bytes().startswith(b"\x89PNG")
    quarters = pd.read_csv("out/demo/demo.csv")
    assert set(quarters["player"]) == set(shipped.players)
    fork = Tape("out/demo/demo.tape", read_only=True).runs()[-1]
    parent = demo_runs(data_path("tapes/demo.tape.gz"))[1]["plain"]
    assert (fork.verb, fork.parent, fork.fork_turn, fork.turns) == ("fork", parent, 20, 22)


@pytest.mark.usefixtures("read")
def test_without_any_model_the_demo_shows_the_recording_and_the_ways_to_a_model(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, shipped: Demonstration
) -> None:
    monkeypatch.setattr(_connect, "runtime_installed", lambda: False)
    ticks = itertools.count(100, 2.5)
    clock = SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr("llmsim_lab.cli._demo.time", clock)
    status, out, _ = llmsim_lab("demo")
    assert status == 0
    assert "read in 2.5 s, and no model was asked." in out
    assert shipped.verdict in out
    assert "It ends there, since there is no model to continue with" in out
    assert "ollama pull llama3.1:8b" in out
    assert Path("out/demo/demo.png").exists()


@pytest.mark.usefixtures("read")
def test_the_demo_without_its_live_part_asks_for_no_model(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, shipped: Demonstration
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._demo.client_for", None)
    status, out, err = llmsim_lab("demo", "--no-live")
    assert (status, err) == (0, "")
    assert shipped.verdict in out
    assert "live:" not in out
    assert Path("out/demo/demo.csv").exists()
    status, _, err = llmsim_lab("demo", "--no-live", "--seed", "3")
    assert (status, "leave out --turns, --model, --seed and --start" in err) == (1, True)


def test_a_demo_that_is_live_from_the_start_says_how_long_that_takes(llmsim_lab: Run) -> None:
    with FakeOllama(reply=LETTERS) as server:
        status, out, _ = llmsim_lab("demo", "--live", "--turns", "1", "--host", server.host)
    assert status == 0
    assert "a quarter took 33 s, which makes 33 s" in out


@pytest.mark.usefixtures("read")
def test_a_model_that_was_asked_for_and_is_not_there_is_an_error(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("demo", "--model", "ollama:llama3.2")
    assert status == 1
    assert "no Ollama server answers" in err


def test_what_is_wrong_with_the_demos_quarters_is_said_once(
    llmsim_lab: Run, caplog: pytest.LogCaptureFixture
) -> None:
    live = ("demo", "--model", "rule", "--start", "1979Q3", "--turns", "1")
    assert llmsim_lab(*live)[0] == 0
    assert caplog.text.count("LINT rule=") == caplog.text.count("L9 moves") == 2
    assert caplog.text.count("in these quarters the rate moved by 2.17 points") == 1


@pytest.mark.usefixtures("read")
def test_the_demo_may_be_run_again_into_the_same_folder(llmsim_lab: Run) -> None:
    out = Path("out/demo")
    out.mkdir(parents=True)
    for name in ("demo.png", "demo.csv", "rates.png", "turns.csv", "decisions.csv", "config.yaml"):
        (out / name).write_text("of the run before")
    before = gzip.decompress(data_path("tapes/demo.tape.gz").read_bytes())
    (out / "demo.tape").write_bytes(before)
    with FakeOllama(reply=LETTERS) as server:
        status, _, _ = llmsim_lab("demo", "--turns", "1", "--host", server.host)
    assert status == 0
    assert (out / "demo.tape").read_bytes() == before
    recorded = len(Tape(data_path("tapes/demo.tape.gz"), read_only=True))
    assert len(Tape(out / "demo-2.tape", read_only=True)) == recorded + 1
    assert "of the run before" not in [path.read_text("latin-1") for path in out.iterdir()]
