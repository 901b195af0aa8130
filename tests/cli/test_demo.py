"""The demo as the first command someone runs: a recording and its verdict at once, then live."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from builders import in_words, make_client, recorded
from cli_kit import Run, fails, reply, succeeds
from fake_ollama import FakeOllama
from matplotlib.figure import Figure

from llmsim_lab.lab import figures
from llmsim_lab.llm import Tape, connecting
from llmsim_lab.run import load
from llmsim_lab.simulation import Demonstration, Simulation

LETTERS = FakeOllama.tokens([dict.fromkeys("ABCDEFG", -1.95)])
"""Any of the seven moves, whatever the economy does."""
OUT = Path("out/demo")


@pytest.fixture(autouse=True)
def no_model_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No model."""
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setattr(connecting, "runtime_installed", lambda: False)


@pytest.mark.process
def test_the_demo_shows_the_shipped_recording_with_its_verdict_and_continues_live(
    llmsim_lab: Run, shipped: Demonstration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Demonstration, "read", lambda: shipped)
    with FakeOllama(reply=LETTERS) as server:
        out = succeeds(llmsim_lab, "demo", "--turns", "2", "--host", server.host)
        assert len(server.requests) == 2 * 7
    words = " ".join(out.split())
    for told in (shipped.verdict, shipped.headline, *shipped.players):
        assert told in words
    assert "14 model calls: ok 100%" in out
    assert set(pd.read_csv(OUT / "demo.csv")["player"]) == set(shipped.players)
    recorded_run, fork = Tape(OUT / "demo.tape", read_only=True).runs()
    assert (recorded_run.id, recorded_run.turns) == (shipped.runs[1]["plain"].run_id, 20)
    assert (fork.verb, fork.parent, fork.fork_turn, fork.turns) == ("fork", recorded_run.id, 20, 22)


# --- the same of a recording of two quarters, which takes no time ---------------------------------

HEAD = [
    "tiny as a central bank: 2 seeds of shocks, up to 20 quarters from 1979Q3, their mirror "
    "images, and an oil shock; no model was asked.",
    "        rate",
    "player      ",
    "tiny     3.0",
    *("12 of 40 quarters are judged.", "An oil shock moves nothing.", "It does not respond."),
    "Written: out/demo/demo.png, out/demo/demo.csv",
]
NEXT = (
    "For a model that responds: get a larger one ('ollama pull llama3.1:8b'), see if it passes the "
    "economic gate ('llmsim-lab doctor ollama:llama3.1:8b --economics'; docs/models.md), and play "
    "it ('llmsim-lab demo --model ollama:llama3.1:8b')."
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """What the demo reads, of two seeds and two quarters; and what is drawn of it."""
    config = in_words(nations=["Aland"], turns=9, start_at="1979Q3", validator="none")
    plain = tmp_path / "shipped.tape"
    recorded(Simulation(config, llm_client=make_client(), tape=plain), 2)
    paths = pd.DataFrame({"player": ["tiny", "rule"], "turn": [1, 20]})
    frame = pd.DataFrame({"rate": [3.0]}, index=pd.Index(["tiny"], name="player"))
    *_, judged, headline, verdict, _written = HEAD
    shown: Any = SimpleNamespace(
        model="tiny",
        runs={5: {"mirrored": None, "plain": load(plain)}, 6: {}},
        paths=paths,
        to_frame=lambda: frame,
        judged=judged,
        headline=headline,
        verdict=verdict,
    )
    drawn: list[object] = []

    def draw(demonstration: object) -> Figure:
        drawn.append(demonstration)
        return Figure()

    monkeypatch.setattr(Demonstration, "read", lambda: shown)
    monkeypatch.setattr(figures, "demo_figure", draw)
    return drawn


def test_a_recording_is_told_line_by_line_and_continued_on_a_tape_of_its_own(
    llmsim_lab: Run, short: list[object]
) -> None:
    OUT.mkdir(parents=True)
    for name in ("demo.tape", "demo-2.tape"):
        (OUT / name).write_text("of the demo before")
    with FakeOllama(reply=reply) as server:
        lines = succeeds(llmsim_lab, "demo", "--turns", "3", "--host", server.host).splitlines()
    assert lines[:8] == HEAD
    assert lines[9:11] == [
        "Quarters 3 to 5 of seed 5: a fork of its run, live.",
        "Ctrl-C ends it and keeps what was played; --no-live leaves it out.",
    ]
    tape = OUT / "demo-3.tape"
    assert lines[-5:] == [
        "Turns up to 2 are from the tape; those after it are live.",
        f"All of it is recorded as run 2 of {tape}.",
        "'llmsim-lab tape show' and 'llmsim-lab replay' take it.",
        "Next: 'make lab' in the project's folder opens the tutorials, 01_first_run.ipynb first.",
        NEXT,
    ]
    assert Tape(tape, read_only=True).run().turns == 5
    assert pd.read_csv(OUT / "demo.csv")["turn"].tolist() == [1, 20]
    assert (OUT / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert len(short) == 1


def test_it_ends_after_the_recording_where_nobody_is_to_be_asked_or_no_model_is_there(
    llmsim_lab: Run, short: list[object]
) -> None:
    assert succeeds(llmsim_lab, "demo", "--no-live").splitlines() == [*HEAD, NEXT]
    *head, ends, following = succeeds(llmsim_lab, "demo").splitlines()
    assert (head, following) == (HEAD, NEXT)
    assert ends.startswith("The demo ends here, as no model was found to continue with: ")
    assert "no Ollama server" in fails(llmsim_lab, "demo", "--model", "ollama:tiny")
    assert not list(OUT.glob("*.tape"))
    assert len(short) == 3
