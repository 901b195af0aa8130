"""What runs code of hand-ins: its answers, its faults, and what it keeps them from."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lessons_kit import SameProcess

from llmsim_lab.lessons import ProcessLimits, _child, grade_answer
from llmsim_lab.lessons.limits import HandInFault


def asked(file: Path, **question: object) -> Any:
    """Return what a player answers in the second of two matches."""
    process = SameProcess(file.parent, ProcessLimits(), file=str(file))
    # Each match runs the file anew, and the seed gives its numbers.
    for seed in (4, 3):
        process.ask("begin", seed=seed, run={"rounds": 2})
    return process.ask("answer", question={"player": "Ann", "values": {}, "rng": 8, **question})


REPLY = {"reasoning": "", "confidence": None}


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("def play(question): return [question.player, question.values.price]", ["Ann", 4]),
        ("def any_name(question): return question.run.rounds", 2),
        ("runs = []\ndef play(question): return runs.append(1) or runs", [1]),
        ("async def play(question): return question.turn", 5),
        (
            "def _helper(): pass\ndef other(): pass\ndef play(question): return other.__name__",
            "other",
        ),
        ("from json import dumps\ndef one(question): return dumps([1])", "[1]"),
        ("def a(q): pass\ndef b(q): pass\nplay = bool", True),
        ("import random\ndef play(question): return random.random()", 0.23796462709189137),
        ("def play(question): return question.rng.random()", 0.2267058593810488),
        ("import pandas\ndef play(question): return pandas.Series([1.5])", [1.5]),
        ("from llmsim_lab import Reply\ndef play(question): return Reply()", REPLY),
        ("def play(question): return {'Bob', 'Ann'}", ["Ann", "Bob"]),
        ("def play(question): return float('inf')", float("inf")),
        ("def play(question): return hasattr(question, 'wealth'), __name__", [False, "player"]),
    ],
)
def test_a_player_is_a_file_with_one_function_or_one_called_play(
    code: str, answer: object, tmp_path: Path
) -> None:
    file = tmp_path / "ann.py"
    file.write_text(code)
    assert asked(file, values={"price": 4}, turn=5) == answer


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("", "TypeError: it has 0 functions, and none is called play(question)"),
        ("def a(q): 1\ndef b(q): 2", "TypeError: it has 2 functions, and none is called play(que"),
        ("def play(question):", "IndentationError: expected an indented block after function"),
        ("1\n1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("import json\ndef play(question):\n    json.loads('{')", "line 3: JSONDecodeError: Expec"),
        ("import sys\ndef play(question):\n    sys.exit('bye')", "line 3: it called exit()"),
        (
            "def play(question): question.wealth",
            "line 1: AttributeError: a question has no 'wealth' here; it has player, values, run, "
            "rng",
        ),
        (
            "def play(question): question.values.cost",
            "line 1: AttributeError: there is no 'cost'; there are price",
        ),
        ("def play(question): raise ValueError('x' * 900)", f"line 1: ValueError: {'x' * 488}"),
        (
            "def play(question): return [print]",
            "a hand-in answers numbers, texts, lists and dicts, not <built-in function print>",
        ),
    ],
)
def test_a_players_fault_is_a_line_with_its_place_in_the_file(
    code: str, fault: str, tmp_path: Path
) -> None:
    file = tmp_path / "ann.py"
    file.write_text(code)
    with pytest.raises(HandInFault) as raised:
        asked(file, values={"price": 4})
    assert str(raised.value).startswith(fault)
    assert len(str(raised.value)) <= 9 + 500


def test_what_is_printed_is_counted_up_to_its_limit() -> None:
    printed = _child.Printed(5)
    assert printed.writable()
    assert print("four", file=printed) is None
    with pytest.raises(RuntimeError, match="it printed more than 5 characters"):
        print("!", file=printed)


ELSEWHERE = "a hand-in writes to its own folder only, not to "
INSIDE, OUTSIDE = "{}/own/new.txt", "{}/theirs.txt"
WRITE = os.O_WRONLY | os.O_CREAT


@pytest.mark.parametrize(
    ("event", "path", "flags", "refused"),
    [
        ("open", OUTSIDE, os.O_RDONLY, ""),
        ("open", OUTSIDE, WRITE, ELSEWHERE),
        ("open", OUTSIDE, os.O_APPEND, ELSEWHERE),
        ("open", OUTSIDE, os.O_RDWR, ELSEWHERE),
        ("open", "{}/ownership", WRITE, ELSEWHERE),
        ("open", "{}/own/link", WRITE, ELSEWHERE),
        ("open", INSIDE, WRITE, ""),
        ("open", 7, WRITE, ""),
        ("open", os.devnull, WRITE, ""),
        ("os.remove", b"/etc/passwd", -1, f"{ELSEWHERE}/etc/passwd"),
        ("os.remove", INSIDE, -1, ""),
        ("os.mkdir", OUTSIDE, -1, ELSEWHERE),
        ("os.mkdir", "{}", -1, ""),  # it is there, and Python says so
        ("os.mkdir", INSIDE, -1, ""),
        ("os.listdir", OUTSIDE, -1, ""),
        ("os.kill", 1, 9, "a hand-in starts and ends no process"),
        ("socket.connect", None, -1, "a hand-in has no network"),
    ],
)
def test_a_hand_in_writes_to_its_folder_alone_and_has_neither_processes_nor_network(
    event: str, path: object, flags: int, refused: str, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(tmp_path / "theirs.txt")
    # As macOS's /tmp, the folder may be named by a link.
    (tmp_path / "named").symlink_to(own)
    guard = _child.guard_of(tmp_path / "named")
    target = path.format(tmp_path) if isinstance(path, str) else path
    with pytest.raises(PermissionError, match=refused) if refused else nullcontext():
        guard(event, (target, "w", flags))


@pytest.mark.parametrize("starts_threads", [True, False])
def test_the_system_is_to_keep_the_limits_too(starts_threads: bool) -> None:
    limits = _child.system_limits(30, 512, starts_threads=starts_threads)
    players = {} if starts_threads else {"RLIMIT_NPROC": 0}
    mega = 1_048_576
    assert limits == {
        "RLIMIT_CPU": 30,
        "RLIMIT_AS": 1_024 * mega,
        "RLIMIT_FSIZE": 100 * mega,
        "RLIMIT_CORE": 0,
        **players,
    }


def test_a_notebooks_answers_are_given_once_and_in_words_where_json_has_none(
    same_process: list[SameProcess],
) -> None:
    assert _child.answers_given(recording=True) == []
    assert str(grade_answer(1, np.float64(0.5))) == "1: right. It is what the key is made of."
    assert _child.answers_given(recording=True) == [("1", 0.5)]
    assert _child.answers_given(recording=True) == []
    grade_answer(2, print)
    grade_answer(3, {1, 2})
    grade_answer(4, "x" * 90)
    given = _child.answers_given(recording=False)
    assert given == [("2", "<built-in function print>"), ("3", {1, 2}), ("4", "x" * 90)]
