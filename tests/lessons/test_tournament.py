"""A round robin of functions in processes with limits."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from _thread import interrupt_main
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from lessons_kit import SameProcess
from page_kit import PageData
from scipy import stats

from llmsim_lab import Ask, Reply, Run, State, data_path, load
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import ProcessLimits, tournament

NICE = {
    "returns": "past = question.values['past']\n    return past[-1][1] if past else 'C'",
    "defects": "return 'D'",
    "draws": "return 'C' if question.rng.random() < 0.7 else 'D'",
    "draws_by_random": "import random\n    return {'move': random.choice('CD')}",
}
BROKEN = {
    "raises": ("return {}['oops']", "line 2: KeyError: 'oops'"),
    "never_ends": ("while True: pass", "it "),  # its limit; on a busy machine the clock's
    "sleeps": ("import time\n    time.sleep(60)", "it took more than 12 s"),
    "answers_wrong": (
        "return 'E'",
        "it answered 'E': turn 1, Move: the rule of Ann answered move: Input should",
    ),
    "answers_nothing": ("pass", "it answered None: turn 1, Move: the rule of Ann returned None"),
    "prints": (
        "while True: print('x' * 1000)",
        "line 2: RuntimeError: it printed more than 1,000,000 characters",
    ),
    "exits": ("import sys\n    sys.exit()", "line 3: it called exit()"),
    "ends": ("import os\n    os._exit(3)", "its process ended: exit status 3"),
    "writes": (
        "open('../../spoiled', 'w')",
        "line 2: PermissionError: a hand-in writes to its own folder only, not to ",
    ),
    "answers_much": ("return 'C' * 10**6", "it answered more than 64 kB"),
}
"""Hand-ins, and how what is told of each begins."""


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


@pytest.mark.process
def test_a_broken_hand_in_is_out_with_its_error_and_the_others_play(
    dilemma: Any, tmp_path: Path
) -> None:
    players = write_players(
        tmp_path / "players", NICE | {name: body for name, (body, _) in BROKEN.items()}
    )
    limits = ProcessLimits(cpu_s=1, wall_s=12, memory_mb=200)
    found = tournament(players, dilemma, rounds=3, seeds=1, limits=limits)
    faults = {forfeit.player: forfeit.fault for forfeit in found.forfeits}
    assert sorted(faults) == sorted(BROKEN)
    assert [name for name, (_, said) in BROKEN.items() if not faults[name].startswith(said)] == []
    assert sorted(found.to_frame()["player"]) == sorted(NICE)
    assert not (tmp_path / "spoiled").exists()


@pytest.mark.process
def test_a_hand_in_that_cannot_even_begin_is_out(dilemma: Any, tmp_path: Path) -> None:
    players = write_players(tmp_path, NICE)
    limits = ProcessLimits(memory_mb=1)
    found = tournament(players, dilemma, rounds=1, seeds=1, limits=limits)
    faults = {forfeit.fault for forfeit in found.forfeits}
    assert faults == {"it used more than 1 MB of memory"}


def test_a_game_whose_seats_differ_is_played_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_process: list[SameProcess]
) -> None:
    monkeypatch.syspath_prepend(data_path("templates"))
    ultimatum = importlib.import_module("ultimatum").Ultimatum
    players = write_players(
        tmp_path / "players",
        {
            "fair": "return 5 if question.player == 'Ann' else question.values['offer'] > 2",
            "greedy": "return 1 if question.player == 'Ann' else True",
            "meek": "return 4 if question.player == 'Ann' else True",
        },
    )
    found = tournament(players, ultimatum, rounds=2, seeds=1)
    assert found.against().loc["meek"].to_dict() == {
        "fair": (6 + 5) / 2,  # as Ann meek keeps 6; as Bob it gets 5
        "greedy": (6 + 1) / 2,
        "meek": pytest.approx(float("nan"), nan_ok=True),
    }
    scores = found.to_frame().set_index("player")["score"]
    # As Ann fair keeps 5; as Bob it refuses 1, and neither gets anything.
    assert scores.to_dict() == {"fair": 3.5, "greedy": 4.5, "meek": 4.5}
    assert "2 rounds, 1 seed, each match in both seats, without self-play" in str(found)
    # Each plays chance and two others, each in both seats; a match runs the file anew.
    assert [(process.begun, process.asked_for) for process in same_process] == [(2, 2)] * 9
    sys.modules.pop("ultimatum", None)


@pytest.mark.usefixtures("same_process")
def test_what_is_no_file_of_python_is_out_or_left_out_and_named(
    dilemma: Any, tmp_path: Path
) -> None:
    players = write_players(
        tmp_path / "players",
        {"Ann": "return 'C'", "ann": "return 'D'", "Ann and Cy": "return 'C'", "_di": "return 'C'"},
    )
    (players / "folder.py").mkdir()
    (players / "link.py").symlink_to(tmp_path / "nowhere")
    (players / "loop.py").symlink_to("loop.py")
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
    assert sorted(faults) == ["empty", "folder", "latin", "link", "loop", "pipe"]
    assert "is not a file: a folder" in faults["folder"]
    assert said[0].endswith("a file that ends in .py: class, notes.txt, upper.PY")


@pytest.mark.usefixtures("same_process")
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


@pytest.mark.usefixtures("same_process")
def test_what_cannot_be_a_tournament_is_said(dilemma: Any, tmp_path: Path) -> None:
    players = write_players(tmp_path / "players", {"alone": "return 'C'"})
    with pytest.raises(ConfigError, match=r"has 1 player; it takes two .*: --also random"):
        tournament(players, dilemma)
    with pytest.raises(ConfigError, match="is not a folder"):
        tournament(tmp_path / "nowhere", dilemma)
    with pytest.raises(ConfigError, match="no parameter of PrisonersDilemma called 'seed'"):
        tournament(players, dilemma, also=["random"], parameters={"seed": 3})
    (tmp_path / "results.jsonl").write_text('{"of": "something else"}\n')
    with pytest.raises(ConfigError, match=r"results\.jsonl is there already and would"):
        tournament(players, dilemma, also=["random"], rounds=1, seeds=1, folder=tmp_path)
    settings = {"also": ["random", "rule"], "rounds": 1, "seeds": 1, "folder": tmp_path / "kept"}
    tournament({}, dilemma, **settings)
    (tmp_path / "kept" / "results.jsonl").unlink()
    tape = tmp_path / "kept" / "matches" / "random" / "rule.tape"
    tape.unlink()
    tape.mkdir()
    with pytest.raises(ConfigError, match=r"cannot replace .*rule\.tape: "):
        tournament({}, dilemma, **settings)
    net = importlib.import_module("contract_net").ContractNet
    with pytest.raises(ConfigError, match="ContractNet has no payoff"):
        tournament(players, net, also=["rule"])
    sys.modules.pop("contract_net", None)


def test_ctrl_c_ends_a_tournament_between_two_matches(dilemma: Any) -> None:
    seeds: list[int] = []

    class Interrupted(dilemma):  # type: ignore[misc]
        def payoff(self, player: str) -> int:
            if self.config.seed == 3 and seeds[-1] != 3:
                interrupt_main()
            seeds.append(self.config.seed)
            return 0

    with pytest.raises(KeyboardInterrupt):
        tournament({}, Interrupted, rounds=1, seeds=1_000, also=["random", "rule"])
    played = len(seeds)
    time.sleep(0.1)
    assert len(seeds) == played


TIT = "past = question.values['past']\n    return past[-1][1] if past else 'C'"
FOUR = {"Ann": "return 'C'", "Bob": "return 'C'", "nasty": "return 'D'", "tit": TIT}


@pytest.mark.parametrize(
    ("self_play", "scores", "itself", "pairs"),
    [
        (False, (4.0, 2.25, 2.0, 2.0), ("nan", "nan", "nan"), 6),
        (True, (3.25, 2.4375, 2.25, 2.25), (1.0, 3.0, 3.0), 10),
    ],
)
def test_a_score_is_the_mean_over_opponents_of_points_a_round(
    dilemma: Any,
    tmp_path: Path,
    same_process: list[SameProcess],
    self_play: bool,
    scores: tuple[float, ...],
    itself: tuple[object, ...],
    pairs: int,
) -> None:
    def lines(rows: Any) -> list[str]:
        return [" ".join(map(str, row)) for row in rows]

    players = write_players(tmp_path / "players", FOUR)
    with ThreadPoolExecutor(1) as executor:
        found = tournament(
            players, dilemma, rounds=4, seeds=2, self_play=self_play, executor=executor
        )
    frame = found.to_frame()
    assert list(frame.columns) == ["place", "player", "score", "low", "high", "seeds"]
    # All seeds give the same, and so there is nothing to compute an interval from.
    nasty, tit, ann, bob = scores
    assert lines(frame.itertuples(index=False)) == [
        f"1 nasty {nasty} nan nan 2",
        f"2 tit {tit} nan nan 2",
        f"3 Ann {ann} nan nan 2",
        f"3 Bob {bob} nan nan 2",
    ]
    # By hand: 3 for both, 5 and 0, 1 for both; tit loses the first of its four turns to nasty.
    assert lines(found.against().itertuples()) == [
        f"nasty {itself[0]} 2.0 5.0 5.0",
        f"tit 0.75 {itself[1]} 3.0 3.0",
        f"Ann 0.0 3.0 {itself[2]} 3.0",
        f"Bob 0.0 3.0 3.0 {itself[2]}",
    ]
    assert [row["seed"] for row in found.rows].count(1) == 2 * 6 + (pairs - 6)
    [first] = [line for line in str(found.effects()).splitlines() if line.startswith("tit")]
    minus = "\N{MINUS SIGN}"
    assert first == f"tit {minus} nasty: {minus}{nasty - tit:.2f} (score, 2 runs)"
    ways = "with" if self_play else "without"
    assert str(found).startswith(
        f"PrisonersDilemma, round robin of 4 players, 4 rounds, 2 seeds, {ways} self-play. A score"
    )
    # One process a player and pair, with a match a seed; before, one match against chance.
    matches = [(process.begun, process.asked_for) for process in same_process]
    assert matches == [(1, 1)] * 4 + [(2, 2)] * 2 * pairs


def test_scores_vary_over_seeds_and_have_students_interval(
    dilemma: Any, tmp_path: Path, same_process: list[SameProcess]
) -> None:
    players = write_players(tmp_path, {"draws": "return 'CD'[question.rng.randrange(2)]"})
    named = {"Ann": players / "draws.py", "Bob": players / "draws.py"}
    found = tournament(named, dilemma, rounds=3, seeds=5, also=["random", "rule"])
    frame = found.to_frame().set_index("player")
    assert sorted(frame.index) == ["Ann", "Bob", "random", "rule"]
    for player, of_player in found.scores.groupby("player")["score"]:
        low, high = stats.t.interval(0.95, 4, of_player.mean(), stats.sem(of_player))
        assert frame.loc[str(player), ["low", "high"]].to_list() == pytest.approx([low, high])
    # The same file draws others in each seat, and others for each seed.
    assert found.scores.set_index("player")["score"].groupby("player").nunique().min() > 1
    of_pair = [row["score"] for row in found.rows if {row["player"], row["against"]} <= {*named}]
    assert len({*zip(of_pair[::2], of_pair[1::2], strict=True)}) > 1
    assert of_pair[::2] != of_pair[1::2]
    assert tournament(named, dilemma, rounds=3, seeds=1).to_frame()["low"].isna().all()


def test_who_fails_is_out_with_the_first_fault_and_its_matches_do_not_count(
    dilemma: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, same_process: list[SameProcess]
) -> None:
    class Odd(dilemma):  # type: ignore[misc]
        def rule(self, question: Any) -> Any:
            return 7 if question.turn == 2 else super().rule(question)

    beaten = (
        "past = question.values['past']\n    if len(past) == 3 and {o for _, o in past} == {'D'}"
    )
    players = write_players(
        tmp_path / "players",
        {
            **FOUR,
            "empty": "",
            "late": "return 'CCX'[question.turn - 1]",
            "picky": f"{beaten}: raise ValueError('enough')\n    return 'C'",
            "worse": "return 'D'",
        },
    )
    (players / "empty.py").write_text("")
    said: list[str] = []
    found = tournament(
        players, Odd, rounds=4, seeds=1, also=["rule"], folder=tmp_path, report=said.append
    )
    wrong = "answered move: Input should be 'C' or 'D' (it is {}); return Move(move=...)"
    of_ann, of_bob = wrong.format("'X'"), wrong.format("7")
    assert [str(forfeit) for forfeit in found.forfeits] == [
        "empty: TypeError: it has 0 functions, and none is called play(question) (turn 0 against "
        "random, seed 0)",
        f"late: it answered 'X': turn 3, Move: the rule of Ann {of_ann} "
        "(turn 3 against random, seed 0)",
        f"rule: turn 2, Move: the rule of Bob {of_bob} (turn 2 against Ann, seed 0)",
        "picky: line 3: ValueError: enough (turn 4 against nasty, seed 0)",
    ]
    assert said == ["7 players, 2 out; 21 pairs to play"]
    assert "round robin of 5 players" in found.label
    assert sorted(found.to_frame()["player"]) == ["Ann", "Bob", "nasty", "tit", "worse"]
    assert str(found).endswith("\n".join(f"out: {forfeit}" for forfeit in found.forfeits))
    assert found._repr_html_().count("<tr>") == 1 + 5 + 1 + 4
    assert "<p>Odd, round robin" in found._repr_html_()
    # The table says so, and not the log besides.
    assert [record for record in caplog.records if record.name == "llmsim_lab.run"] == []
    said.clear()
    tournament(players, Odd, rounds=4, seeds=1, also=["rule"], folder=tmp_path, report=said.append)
    # What failed is not kept: it may have been the machine, as with a limit of time.
    assert said == ["7 players, 2 out; 8 pairs to play"]


def test_only_what_nothing_changed_of_is_kept(
    dilemma: Any, tmp_path: Path, same_process: list[SameProcess]
) -> None:
    players = write_players(tmp_path / "players", {"Ann": "return 'C'", "nasty": "return 'D'"})
    said: list[str] = []

    class Dearer(dilemma):  # type: ignore[misc]
        both_defect: int = 2

    def pairs_played(world: Any = dilemma, **changed: Any) -> str:
        said.clear()
        settings = {"rounds": 2, "seeds": 2, **changed}
        tournament(players, world, folder=tmp_path, report=said.append, **settings)
        return said[0].partition("; ")[2]

    assert pairs_played() == "1 pair to play"
    assert pairs_played() == "0 pairs to play"
    results = tmp_path / "results.jsonl"
    [kept] = [json.loads(line) for line in results.read_text().splitlines()]
    assert (kept["players"], kept["scores"]) == (["Ann", "nasty"], [[0, 5], [0, 5]])
    results.write_text(results.read_text() + '{"key": "cut')
    assert pairs_played() == "0 pairs to play"
    assert len(results.read_text().splitlines()) == 1
    assert pairs_played(self_play=True) == "2 pairs to play"
    for changed in ({"rounds": 3}, {"seeds": 3}, {"parameters": {"both_defect": 2}}):
        assert pairs_played(**changed) == "1 pair to play"
    assert pairs_played(Dearer) == "1 pair to play"
    write_players(players, {"Ann": "return  'C'"})
    assert pairs_played() == "1 pair to play"
    # One run on each tape, of the first seed.
    seats = dict.fromkeys(["Ann", "Bob"], "rule")
    run = load(tmp_path / "matches" / "Ann" / "nasty.tape", players=seats)
    assert (run.config.seed, run.state.past) == (0, {"Ann": "CC", "Bob": "DD"})
    results.write_text('{"key": "short", "scores": [[1, 2]]}\n')
    with pytest.raises(ConfigError, match="a line that no tournament wrote"):
        pairs_played()


def test_a_tournaments_page_links_to_a_page_of_each_player(
    dilemma: Any, tmp_path: Path, same_process: list[SameProcess]
) -> None:
    players = write_players(tmp_path / "players", {name: FOUR[name] for name in ("nasty", "tit")})
    found = tournament(players, dilemma, rounds=4, seeds=2, also=["random"], folder=tmp_path)
    index = found.page(tmp_path / "out")
    assert index == tmp_path / "out" / "index.html"
    text = unescape(index.read_text())
    assert ">Mean score of the row's player against the column's</caption>" in text
    assert "<h2>Behind the first</h2>\n<p>random \N{MINUS SIGN} nasty: " in text
    order = found.to_frame()["player"].to_list()
    links = "\n".join(f'<p><a href="pages/{name}.html">{name}</a></p>' for name in order)
    assert links in text
    page = (tmp_path / "out" / "pages" / "tit.html").read_text()
    assert "<h1>tit</h1>" in page
    assert ">Points a round, over seeds</caption>" in page
    # Against nasty the same with each seed: mean, least and most.
    assert page.count(">0.75</td>") == 3
    runs = PageData(tmp_path / "out" / "pages" / "tit.html").runs
    names = {number: run["name"] for number, run in runs.items()}
    assert names == {1: "nasty and tit", 2: "tit and random"}
    # Without tapes, or when nobody is left, there is nothing to play on a page.
    found = tournament(players, dilemma, rounds=1, seeds=1)
    found.page(tmp_path / "new" / "folder")
    assert "<script" not in (tmp_path / "new" / "folder" / "pages" / "tit.html").read_text()
    players = write_players(tmp_path / "bad", {"Ann": "pass", "Bob": "pass"})
    found = tournament(players, dilemma, rounds=1, seeds=1)
    assert str(found) == "\n".join([found.label, *(f"out: {out}" for out in found.forfeits)])
    assert "Behind the first" not in found.page(tmp_path / "bad").read_text()


class Word(Reply):
    word: bool


class Empty(State):
    pass


class Guests(Run[Empty]):
    guests: int = 2
    since: int = 1  # the turn from which on others than Ann are asked
    last: int = 9

    async def turn(self, state: Empty, ask: Ask) -> Empty:
        names = ["Ann", "Bob", "Cy"][: self.guests]
        for name in names[: 1 if self.turn_number + 1 < self.since else None]:
            await ask(name, Word, "Yes?")
        return state

    def done(self, state: Empty) -> bool:
        return self.turn_number >= self.last

    def payoff(self, player: str) -> float:
        return 6.0

    def rule(self, question: Any) -> Word:
        return Word(word=True)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"guests": 0}, "Guests asks nobody; a round robin is of pairs, and takes a world"),
        ({"guests": 1}, "Guests asks Ann; "),
        ({"guests": 3}, "Guests asks Ann, Bob, Cy; "),
        ({"since": 4}, "Guests asks Ann; "),
    ],
)
def test_a_round_robin_takes_worlds_that_ask_two_in_their_first_three_turns(
    parameters: dict[str, int], said: str
) -> None:
    words = {"also": ["random", "rule"], "rounds": 4, "seeds": 1}
    with pytest.raises(ConfigError, match=said):
        tournament({}, Guests, **words, parameters=parameters)


@pytest.mark.parametrize(("parameters", "score"), [({"since": 3}, 6 / 4), ({"last": 2}, 6 / 2)])
def test_points_are_of_the_rounds_that_were_played(
    parameters: dict[str, int], score: float
) -> None:
    words = ["random", "rule"]
    found = tournament({}, Guests, also=words, rounds=4, seeds=1, parameters=parameters)
    assert found.to_frame()["score"].to_list() == [score, score]


@pytest.mark.parametrize(
    ("players", "settings", "said"),
    [
        ({"Ann": "no.py"}, {}, r"there is no file no\.py of player 'Ann'"),
        ({"a/b": __file__}, {}, "a player is called 'a/b', which no file can be; rename it"),
        ({"..": __file__}, {}, r"a player is called '\.\.', which no file can be; rename it"),
        ({}, {"also": ["randm"]}, "also='randm'.*'random'.* must be one of random, rule"),
        ({"rule": __file__}, {"also": ["rule"]}, "two players called 'rule': also='rule' can be"),
        ({}, {"also": ["rule", "rule"]}, "two players called 'rule': also='rule' can be"),
        ({}, {"also": 3}, r"also=3 must be names: \['random', 'rule'\]"),
        ({}, {"parameters": 3}, "parameters=3 must be values by name"),
        ({}, {"also": ["rule", "random"], "rounds": 0}, "must be a whole number, 1 to 100,000"),
        ({}, {"also": ["rule", "random"], "seeds": 10**30}, "a whole number, 1 to 100,000"),
    ],
)
def test_players_that_cannot_be_are_named(
    players: dict[str, str], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        tournament(players, Guests, **settings)
