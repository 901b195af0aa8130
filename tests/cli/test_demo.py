"""The demo as the first command someone runs: a recording and its verdict at once, then live."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest
from cli_kit import Run, succeeds
from fake_ollama import FakeOllama

from llmsim_lab._util.files import data_path
from llmsim_lab.llm import Tape, _connect
from llmsim_lab.study import Demonstration
from llmsim_lab.study._demo import demo_runs

LETTERS = FakeOllama.tokens([dict.fromkeys("ABCDEFG", -1.95)])
"""Any of the seven moves, whatever the economy does."""


@pytest.fixture(autouse=True)
def no_model_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture(autouse=True)
def read(shipped: Demonstration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the tests the reading of what is shipped, which was read once."""
    monkeypatch.setattr(Demonstration, "read", lambda _: shipped)


@pytest.mark.usefixtures("drawn")
def test_the_demo_shows_a_recording_with_its_verdict_and_continues_live(
    llmsim_lab: Run, shipped: Demonstration
) -> None:
    with FakeOllama(reply=LETTERS) as server:
        status, out, err = llmsim_lab("demo", "--turns", "2", "--host", server.host)
        asked = len(server.requests)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    count = len(shipped.runs)
    seeds = f"{count} seed{'' if count == 1 else 's'}"
    assert f"{shipped.model} as a central bank: {seeds} of shocks, up to 20 quarters" in words
    assert "a recording, and no model was asked." in words
    assert shipped.verdict in words
    assert shipped.headline in words
    for player in shipped.players:
        assert player in words
    assert "Quarters 21 to 22 of seed 1: a fork of its run, live." in words
    assert "That is about 14 calls of a model." in words
    assert "When it was recorded a quarter took 53 s, which makes 2 min." in words
    assert asked == 2 * 7
    assert [line.split()[0] for line in out.splitlines() if " 2005Q" in line] == ["20", "21", "22"]
    assert out.count("United States: rate_change_bp ") == 2
    assert "live: 14 model calls: ok 100%" in out
    assert "llmsim-lab doctor ollama:llama3.1:8b --economics" in words
    assert len(pd.read_csv("out/demo/turns.csv")) == 23
    assert Path("out/demo/demo.png").read_bytes().startswith(b"\x89PNG")
    quarters = pd.read_csv("out/demo/demo.csv")
    assert set(quarters["player"]) == set(shipped.players)
    fork = Tape("out/demo/demo.tape", read_only=True).runs()[-1]
    with Tape(data_path("tapes/demo.tape.gz"), read_only=True) as tape:
        parent = demo_runs(tape)[1]["plain"]
    assert (fork.verb, fork.parent, fork.fork_turn, fork.turns) == ("fork", parent, 20, 22)


def test_without_any_model_the_demo_shows_the_recording_and_the_ways_to_a_model(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, shipped: Demonstration
) -> None:
    monkeypatch.setattr(_connect, "runtime_installed", lambda: False)
    out = succeeds(llmsim_lab, "demo")
    assert shipped.verdict in out
    assert "It ends there, since there is no model to continue with" in out
    assert "ollama pull llama3.1:8b" in out
    assert Path("out/demo/demo.png").exists()


def test_the_demo_without_its_live_part_asks_for_no_model(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, shipped: Demonstration
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._demo.client_for", None)
    out = succeeds(llmsim_lab, "demo", "--no-live")
    assert shipped.verdict in out
    assert "live:" not in out
    assert Path("out/demo/demo.csv").exists()


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
