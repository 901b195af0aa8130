"""What a tape does once, however long a run is, and what a recorder does with a turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_kit import LATE, ask, begun, findings, record
from tape_kit import make_recorded

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import replay
from llmsim_lab.tape import recorder as recorders
from llmsim_lab.tape.lines import read_line
from llmsim_lab.tape.recorder import LiveRecorder
from llmsim_lab.types import CallSite, ChatRequest, Message


@pytest.fixture
def recorder(tmp_path: Path) -> LiveRecorder:
    return begun(Tape(tmp_path / "x.tape"))


# --- once ----------------------------------------------------------------------------------------


def test_what_calls_share_is_on_the_tape_once(path: Path) -> None:
    nations = [f"Nation {number}" for number in range(9)]
    make_recorded(path, nations=nations).close()
    lines = [read_line(raw) for raw in path.read_bytes().splitlines(keepends=True)]
    calls = [line for line in lines if line.get("is") == "call"]
    assert len(calls) > 50
    assert len({line["origin"][0] for line in calls}) == 3
    assert sum(len(str(line["origin"][1])) for line in calls) / len(calls) < 60
    texts = [line["text"] for line in lines if "text" in line]
    assert len(texts) == len(set(texts))


def test_a_call_that_does_not_say_where_it_comes_from_has_its_turn(recorder: LiveRecorder) -> None:
    request = ChatRequest(model="m", messages=(Message("user", "Hi"),))
    assert recorder.find(request).request.site == CallSite(component="call", turn=1)
    mine = CallSite(component="mine", agent="me", turn=0)
    assert recorder.find(replace(request, site=mine)).request.site == replace(mine, turn=1)


def test_a_replay_reads_each_turn_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_recorded(path).close()
    read: list[int] = []
    whole = Tape.turn_lines

    def counting(tape: Tape, *args: Any, **options: Any) -> Any:
        lines = whole(tape, *args, **options)
        read.extend(lines)
        return lines

    monkeypatch.setattr(Tape, "turn_lines", counting)
    assert [turn.number for turn in replay(path).turns] == read


# --- runs beside each other ----------------------------------------------------------------------


def test_texts_that_went_with_another_run_are_written_again(recorder: LiveRecorder) -> None:
    tape = recorder.tape
    pruned = begun(tape)
    ask(recorder, "a")
    ask(pruned, "b", model="gone")
    pruned.close()
    tape.prune([2])
    ask(recorder, "c", model="gone")
    assert [call.attempt.request.model for call in tape.calls(1)] == ["m", "gone"]
    assert findings(tape.path) == []


# --- turns ---------------------------------------------------------------------------------------


def interrupted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let a Ctrl-C come after a function's work."""
    whole = getattr(owner, name)

    def once(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        whole(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, once)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_line_of_which_ctrl_c_left_half_is_cut_off_before_the_next_one(
    recorder: LiveRecorder, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    write = os.write

    def half(fd: int, data: bytes) -> int:
        monkeypatch.undo()
        write(fd, data[: len(data) // 2])
        raise KeyboardInterrupt

    with recorder.writing():
        assert ask(recorder, "a") == 1
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(KeyboardInterrupt):
            ask(recorder, "b")
        if restarts:
            recorder.restart_turn(KeyboardInterrupt())
            assert ask(recorder, "a") == 1
        assert ask(recorder, "b") == 2
    assert findings(recorder.tape.path) == []


@pytest.mark.parametrize("met", ["append", "Known"])
def test_a_turn_that_ctrl_c_met_at_its_commit_is_left_as_it_is(
    recorder: LiveRecorder, monkeypatch: pytest.MonkeyPatch, met: str
) -> None:
    tape = recorder.tape
    ask(recorder, "a", **LATE)
    owner = tape.journal if met == "append" else recorders
    interrupted(monkeypatch, owner, met)
    with pytest.raises(KeyboardInterrupt):
        recorder.commit_turn(*record(1))
    recorder.restart_turn(KeyboardInterrupt())
    # It is whole: what failed in it is not made again.
    assert [call.forgotten for call in tape.calls(1, forgotten=True)] == [False]
    replaces: list[Callable[[], None]] = [
        lambda: recorder.begin_turn(1),
        lambda: recorder.replace_turn(*record(0)),
    ]
    for again in replaces:
        with pytest.raises(TapeError, match=r"run 1 on .* has turn 1 already.*resume\('.*', 1\)"):
            again()
    recorder.begin_turn(2)
    assert ask(recorder, "b") == 2
    recorder.commit_turn(*record(2))
    assert findings(tape.path) == []
