"""The demo as the first command someone runs: a recording and its verdict at once, then live."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cli_kit import Run, succeeds
from fake_ollama import FakeOllama

from llmsim_lab.llm import Tape, connecting
from llmsim_lab.simulation import Demonstration

LETTERS = FakeOllama.tokens([dict.fromkeys("ABCDEFG", -1.95)])
"""Any of the seven moves, whatever the economy does."""
OUT = Path("out/demo")


@pytest.fixture(autouse=True)
def no_model_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shipped: Demonstration) -> None:
    """No model, and what is shipped is not read once more."""
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setattr(connecting, "runtime_installed", lambda: False)
    monkeypatch.setattr(Demonstration, "read", lambda: shipped)


@pytest.mark.process
def test_the_demo_shows_a_recording_with_its_verdict_and_continues_live_as_often_as_one_wants(
    llmsim_lab: Run, shipped: Demonstration
) -> None:
    OUT.mkdir(parents=True)
    (OUT / "demo.tape").write_text("of the demo before")
    (OUT / "demo.csv").write_text("of the demo before")
    with FakeOllama(reply=LETTERS) as server:
        out = succeeds(llmsim_lab, "demo", "--turns", "2", "--host", server.host)
        assert len(server.requests) == 2 * 7
    words = " ".join(out.split())
    assert f"{shipped.model} as a central bank: " in words
    for told in (shipped.verdict, shipped.headline, *shipped.players):
        assert told in words
    assert "Quarters 21 to 22 of seed 1: a fork of its run, live." in words
    assert [line.split()[0] for line in out.splitlines() if " 2005Q" in line] == ["20", "21", "22"]
    assert out.count("United States: rate_change_bp ") == 2
    assert "14 model calls: ok 100%" in out
    assert len(pd.read_csv(OUT / "turns.csv")) == 23
    assert set(pd.read_csv(OUT / "demo.csv")["player"]) == set(shipped.players)
    assert (OUT / "demo.png").exists()
    assert (OUT / "demo.tape").read_text() == "of the demo before"
    recorded, fork = Tape(OUT / "demo-2.tape", read_only=True).runs()
    assert (recorded.id, recorded.turns) == (shipped.runs[1]["plain"].run_id, 20)
    assert (fork.verb, fork.parent, fork.fork_turn, fork.turns) == ("fork", recorded.id, 20, 22)


@pytest.mark.process  # takes seconds
@pytest.mark.parametrize(
    ("more", "ends"), [((), True), (("--no-live",), False)], ids=["none", "--no-live"]
)
def test_without_a_model_the_demo_shows_the_recording_and_the_ways_to_one(
    llmsim_lab: Run, shipped: Demonstration, more: tuple[str, ...], ends: bool
) -> None:
    out = succeeds(llmsim_lab, "demo", *more)
    assert shipped.verdict in out
    assert ("The demo ends here, as no model was found to continue with" in out) is ends
    assert "ollama pull llama3.1:8b" in out
    assert (OUT / "demo.csv").exists()
