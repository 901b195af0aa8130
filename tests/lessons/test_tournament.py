"""A round robin of functions in processes with limits."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab import data_path, load
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import ProcessLimits, tournament

pytestmark = pytest.mark.process

NICE = {
    "returns": "past = question.values['past']\n    return past[-1][1] if past else 'C'",
    "defects": "return 'D'",
    "draws": "return 'C' if question.rng.random() < 0.7 else 'D'",
    "draws_by_random": "import random\n    return {'move': random.choice('CD')}",
}
BROKEN = {
    "raises": "return {}['oops']",
    "never_ends": "while True: pass",
    "sleeps": "import time\n    time.sleep(60)",
    "answers_wrong": "return 'E'",
    "answers_nothing": "pass",
    "prints": "while True: print('x' * 1000)",
    "forks": "import os\n    while True: os.fork()",
    "exits": "import sys\n    sys.exit()",
    "ends": "import os\n    os._exit(3)",
    "fills_memory": "kept = []\n    while True: kept.append('x' * 10**6)",
    "kills": "import os\n    os.kill(os.getppid(), 9)",
    "calls_home": "import socket\n    socket.create_connection(('127.0.0.1', 9))",
    "writes": "open('../../spoiled', 'w')",
    "answers_much": "return 'C' * 10**6",
}
SAID = {
    "raises": "line 2: KeyError: 'oops'",
    "never_ends": "it ",  # the processor's limit; on a busy machine the clock's
    "sleeps": "it took more than 12 s",
    "answers_wrong": "it answered 'E': turn 1, Move: the rule of Ann answered move: Input should",
    "answers_nothing": "it answered None: turn 1, Move: the rule of Ann returned None",
    "prints": "line 2: RuntimeError: it printed more than 1,000,000 characters",
    "forks": "line 3: PermissionError: a hand-in starts and ends no process",
    "exits": "line 3: it called exit()",
    "ends": "its process ended: exit status 3",
    "fills_memory": "it used more than 200 MB of memory",
    "kills": "line 3: PermissionError: a hand-in starts and ends no process",
    "calls_home": "line 3: PermissionError: a hand-in has no network",
    "writes": "line 2: PermissionError: a hand-in writes to its own folder only, not to ",
    "answers_much": "it answered more than 64 kB",
}


@pytest.fixture
def dilemma(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(data_path("templates"))
    yield importlib.import_module("prisoners_dilemma").PrisonersDilemma
    sys.modules.pop("prisoners_dilemma", None)


def write_players(folder: Path, players: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, body in players.items():
        (folder / f"{name}.py").write_text(f"def play(question):\n    {body}\n")
    return folder


def test_a_broken_hand_in_is_out_with_its_error_and_the_others_play(
    dilemma: Any, tmp_path: Path
) -> None:
    players = write_players(tmp_path / "players", {**NICE, **BROKEN})
    limits = ProcessLimits(cpu_s=1, wall_s=12, memory_mb=200)
    found = tournament(players, dilemma, rounds=3, seeds=1, limits=limits)
    faults = {forfeit.player: forfeit.fault for forfeit in found.forfeits}
    assert sorted(faults) == sorted(BROKEN)
    assert [name for name, said in SAID.items() if not faults[name].startswith(said)] == []
    assert sorted(found.to_frame()["player"]) == sorted(NICE)
    assert not (tmp_path / "spoiled").exists()


def test_the_same_players_have_the_same_scores_and_only_what_changed_is_played_again(
    dilemma: Any, tmp_path: Path
) -> None:
    players = write_players(tmp_path / "players", NICE)
    said: list[str] = []

    def play() -> Any:
        folder = tmp_path / "out"
        return tournament(
            players, dilemma, rounds=8, seeds=2, folder=folder, self_play=True, report=said.append
        )

    first = play()
    results = tmp_path / "out" / "results.jsonl"
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    results.write_text("".join(json.dumps(row) + "\n" for row in kept[:4]) + '{"key": "cut')
    assert play().to_frame().equals(first.to_frame())
    assert [words.split("; ")[1] for words in said] == ["10 pairs to play", "6 pairs to play"]
    seats = dict.fromkeys(["Ann", "Bob"], "rule")  # who played were functions, on no tape
    run = load(tmp_path / "out" / "matches" / "defects" / "returns.tape", players=seats)
    assert (run.state.past["Bob"][:2], run.payoff("Ann")) == ("CD", 5 + 7)
    frame = first.to_frame().set_index("player")
    # Whoever draws varies over seeds; who meets only such players too.
    assert (frame["low"] < frame["score"]).all()
    assert first.against().loc["returns", "returns"] == 3
    index = first.page(tmp_path / "out").read_text()
    assert 'href="pages/returns.html"' in index
    assert (tmp_path / "out" / "pages" / "returns.html").stat().st_size > 100_000
    assert "without self-play" not in index


def test_a_game_whose_seats_differ_is_played_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(data_path("templates"))
    ultimatum = importlib.import_module("ultimatum").Ultimatum
    players = write_players(
        tmp_path / "players",
        {
            "fair": "return 5 if question.player == 'Ann' else question.values['offer'] > 2",
            "greedy": "return 1 if question.player == 'Ann' else True",
        },
    )
    found = tournament(players, ultimatum, rounds=2, seeds=1)
    scores = found.to_frame().set_index("player")["score"]
    # As Ann fair keeps 5; as Bob it refuses 1, and neither gets anything.
    assert scores.to_dict() == {"fair": 2.5, "greedy": 2.5}
    assert "each match in both seats" in str(found)
    sys.modules.pop("ultimatum", None)


def test_what_is_no_file_of_python_is_out_or_left_out_and_named(
    dilemma: Any, tmp_path: Path
) -> None:
    players = write_players(
        tmp_path / "players",
        {"Ann": "return 'C'", "ann": "return 'D'", "Ann and Cy": "return 'C'", "_di": "return 'C'"},
    )
    (players / "folder.py").mkdir()
    (players / "link.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(players / "pipe.py")
    (players / "latin.py").write_bytes(b"def play(question):\n    return '\xff'\n")
    (players / "empty.py").touch()
    (players / "class").mkdir()
    for name in (".hidden.py", "notes.txt", "upper.PY"):
        (players / name).touch()
    said: list[str] = []
    found = tournament(
        players, dilemma, rounds=1, seeds=1, folder=tmp_path / "out", report=said.append
    )
    assert sorted(found.to_frame()["player"]) == ["Ann", "Ann and Cy", "_di", "ann"]
    faults = {forfeit.player: forfeit.fault for forfeit in found.forfeits}
    assert sorted(faults) == ["empty", "folder", "latin", "link", "pipe"]
    assert "is not a file: a folder" in faults["folder"]
    assert said[0].endswith("a file that ends in .py: class, notes.txt, upper.PY")


def test_a_parameter_of_a_world_may_be_called_as_one_of_the_tournament(
    dilemma: Any, tmp_path: Path
) -> None:
    class Long(dilemma):  # type: ignore[misc]
        rounds: int = 1

        def payoff(self, player: str) -> int:
            return self.rounds * 10

    players = write_players(tmp_path / "players", {"one": "return question.run.rounds and 'C'"})
    found = tournament(players, Long, rounds=2, seeds=1, also=["random"], parameters={"rounds": 4})
    assert set(found.to_frame()["score"]) == {20.0}


def test_what_cannot_be_a_tournament_is_said(dilemma: Any, tmp_path: Path) -> None:
    players = write_players(tmp_path / "players", {"alone": "return 'C'"})
    with pytest.raises(ConfigError, match="has 1 player; it takes two to play"):
        tournament(players, dilemma)
    with pytest.raises(ConfigError, match="is not a folder"):
        tournament(tmp_path / "nowhere", dilemma)
    with pytest.raises(ConfigError, match="two players called 'random'"):
        tournament(players, dilemma, also=["random", "random"])
    with pytest.raises(ConfigError, match="no parameter of PrisonersDilemma called 'seed'"):
        tournament(players, dilemma, also=["random"], parameters={"seed": 3})
    with pytest.raises(ConfigError, match="cpu_s=-1 must be above 0"):
        ProcessLimits(cpu_s=-1)
    (tmp_path / "results.jsonl").write_text('{"of": "something else"}\n')
    with pytest.raises(ConfigError, match="a line that no tournament wrote"):
        tournament(players, dilemma, also=["random"], rounds=1, seeds=1, folder=tmp_path)
    net = importlib.import_module("contract_net").ContractNet
    with pytest.raises(ConfigError, match="ContractNet has no payoff"):
        tournament(players, net, also=["rule"])
    sys.modules.pop("contract_net", None)
