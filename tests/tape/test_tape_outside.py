"""What comes from outside (a tool's answer, a file, a clock) is on the tape, and found there."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from journal_kit import MANIFEST, ask, begun, findings, record

from llmsim_lab.errors import TapeError, TapeMiss
from llmsim_lab.llm import Tape
from llmsim_lab.tape.recorder import LiveRecorder, Outside, ReplayRecorder
from llmsim_lab.types import ChatReply, ToolCall


@pytest.fixture
def recorder(tmp_path: Path) -> LiveRecorder:
    """Records the first turn of a run."""
    return begun(Tape(tmp_path / "x.tape"))


def resumed(recorder: LiveRecorder) -> LiveRecorder:
    """Return what records the run after its process was killed, read from the file anew."""
    recorder.close()
    recorder.tape.journal.read_anew()
    again = LiveRecorder(recorder.tape, recorder.run)
    again.begin_turn(1)
    return again


def replayed(recorder: LiveRecorder) -> ReplayRecorder:
    again = ReplayRecorder(Tape(recorder.tape.path, read_only=True), recorder.run)
    again.begin_turn(1)
    return again


def done(result: Any, nth: int = 0) -> Outside:
    return Outside(nth, is_done=True, result=result)


def test_what_came_from_outside_is_found_by_what_it_is_and_its_key(recorder: LiveRecorder) -> None:
    assert recorder.find_outside("clock", None) == Outside(0)
    recorder.outside("clock", None, result=12.5)
    recorder.outside("file", {"path": "a.txt", "lines": (1, 2)}, result={"text": "é\u2028\n"})
    recorder.outside("file", {"path": "b.txt", "lines": (1, 2)}, result=None)
    assert findings(recorder.tape.path) == []
    for again in (resumed(recorder), replayed(recorder)):
        file = {"path": "a.txt", "lines": [1, 2]}
        assert again.find_outside("file", file) == done({"text": "é\u2028\n"})
        assert again.find_outside("clock", None) == done(12.5)
        assert again.find_outside("file", file | {"path": "b.txt"}) == done(None)


def test_equal_ones_are_found_in_the_order_in_which_they_were_wanted(
    recorder: LiveRecorder,
) -> None:
    wanted = [recorder.find_outside("die", 6) for _ in range(3)]
    for one in reversed(wanted):  # as they may come
        recorder.outside("die", 6, nth=one.nth, result=one.nth + 1)
    again = resumed(recorder)
    replay = replayed(again)
    for number in range(3):
        assert again.find_outside("die", 6) == done(number + 1, number)
        assert replay.find_outside("die", 6) == done(number + 1, number)
    assert again.find_outside("die", 6) == Outside(3)
    assert again.find_outside("die", 6.0) == Outside(0)


def test_a_turn_that_begins_again_finds_what_it_has_from_the_first_on(
    recorder: LiveRecorder,
) -> None:
    for number in range(2):
        assert recorder.find_outside("die", 6).nth == number
        recorder.outside("die", 6, nth=number, result=number)
    recorder.restart_turn(ValueError("a bug"))
    recorder.begin_turn(1)
    assert [recorder.find_outside("die", 6).result for _ in range(3)] == [0, 1, None]
    recorder.commit_turn(*record(1))
    recorder.begin_turn(2)
    assert recorder.find_outside("die", 6) == Outside(0)


def test_what_must_not_be_done_twice_counts_as_done_once_it_was_begun(
    recorder: LiveRecorder,
) -> None:
    recorder.outside("delete", "a.txt", once=True)  # and then the process was killed
    recorder.outside("delete", "b.txt", once=True)
    recorder.outside("delete", "b.txt", once=True, result="gone")
    recorder.outside("delete", "c.txt", once=True)
    recorder.outside("delete", "c.txt", once=True, stopped=True)
    assert findings(recorder.tape.path) == []
    for again in (resumed(recorder), replayed(recorder)):
        assert again.find_outside("delete", "b.txt") == done("gone")
        for name in ("a.txt", "c.txt"):
            assert again.find_outside("delete", name) == Outside(0, is_done=True, stopped=True)


def test_a_replay_that_wants_something_else_from_outside_is_told_so(recorder: LiveRecorder) -> None:
    recorder.outside("clock", "utc", result=1)
    again = replayed(recorder)
    again.find_outside("clock", "utc")
    for key, times in (("utc", 2), ("local", 1)):
        with pytest.raises(TapeMiss, match=rf'clock "{key}" in turn 1, asked {times} t'):
            again.find_outside("clock", key)


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1, 2}, reduce(lambda value, _: [value], range(300), []), 10**5_000],
    ids=["nan", "set", "deep", "long"],
)
def test_what_a_line_cannot_hold_is_an_error_and_not_on_the_tape(
    recorder: LiveRecorder, value: Any
) -> None:
    with pytest.raises(TapeError, match="what clock gave cannot be kept"):
        recorder.outside("clock", None, result=value)
    call = ToolCall(name="f", arguments={"x": value})
    with pytest.raises(TapeError, match=r"an answer cannot be kept on .*x\.tape"):
        ask(recorder, "a", reply=ChatReply(text="", tool_calls=(call,)))
    assert recorder.tape.outside(1, 1) == recorder.tape.calls(1) == []
    assert resumed(recorder).find_outside("clock", None) == Outside(0)


def test_a_fork_has_of_its_parents_turns_what_came_from_outside(recorder: LiveRecorder) -> None:
    recorder.outside("clock", None, result=1)
    recorder.commit_turn(*record(1))
    tape = recorder.tape
    origin: Any = {"verb": "fork", "parent": 1, "fork_turn": 1}
    fork = tape.add_run(MANIFEST, name="x", first=record(1), **origin)
    other = LiveRecorder(tape, fork)
    other.begin_turn(2)
    assert other.find_outside("clock", None) == Outside(0)
    other.outside("clock", None, result=2)
    other.commit_turn(*record(2))
    replay = ReplayRecorder(tape, fork)
    for number in (1, 2):
        replay.begin_turn(number)
        assert replay.find_outside("clock", None) == done(number)
    with tape.copy([fork], tape.path.with_name("y.tape")) as copy:
        assert [copy.outside(*at)[0]["result"] for at in ((1, 1), (2, 2))] == [1, 2]
