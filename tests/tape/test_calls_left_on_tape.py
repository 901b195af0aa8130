"""A run on a tape keeps no texts of calls in memory; who asks for a call has it read."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tape_kit import hash_client, make_recorded, steady_config

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._journal import Place
from llmsim_lab.types import Attempt, CallRecord


def recorded(path: Path) -> Simulation:
    with Tape(path) as tape:
        run = Simulation(steady_config(), llm_client=hash_client(), tape=tape)
        run.run(2)
    return run


def read_from(tape: Tape) -> list[object]:
    """Return what will be read from a tape's file from now on: a place for each line."""
    read: list[object] = []
    whole = tape.journal.read

    def counted(places: Sequence[Place]) -> Iterator[bytes]:
        read.extend(places)
        return whole(places)

    tape.journal.read = counted  # type: ignore[method-assign]
    return read


@pytest.mark.parametrize("verb", ["run", "load", "replay"])
def test_a_runs_written_turns_keep_no_attempt_in_memory(tmp_path: Path, verb: str) -> None:
    run = make_recorded(tmp_path / "x.tape")
    if verb != "run":
        run = {"load": load, "replay": replay}[verb](tmp_path / "x.tape")
        run._session = None  # a replay has the latest turn's at hand
    calls = {id(call) for call in run.calls}
    gc.collect()
    holders = [one for one in gc.get_objects() if id(one) in calls and isinstance(one, CallRecord)]
    assert len(holders) == len(calls) > 0
    assert not [
        one
        for holder in holders
        for one in gc.get_referents(holder, *gc.get_referents(holder))
        if isinstance(one, Attempt)
    ]


def test_what_a_frame_needs_of_a_call_is_known_without_reading_it(tmp_path: Path) -> None:
    run = make_recorded(tmp_path / "x.tape")
    assert run.tape is not None
    read = read_from(run.tape)
    frame = run.to_frame()
    told = repr(run.calls)
    assert frame["tokens"].sum() == sum(call.tokens for call in run.calls) > 0
    assert all(call.seconds > 0 and call.attempts for call in run.calls)
    assert "on tape" in told
    assert not read


def test_a_call_that_is_asked_for_again_is_read_once_with_those_of_its_turn(tmp_path: Path) -> None:
    recorded(tmp_path / "x.tape")
    run = load(tmp_path / "x.tape")
    assert run.tape is not None
    read = read_from(run.tape)
    call, *others = run.turns[1].calls
    assert call.request.prompt
    once = len(read)
    assert all(other.reply for other in (call, *others))
    assert len(read) == once > len(others)


def test_calls_are_read_after_their_tape_was_closed(tmp_path: Path) -> None:
    run = recorded(tmp_path / "x.tape")
    with Tape(tmp_path / "x.tape", read_only=True) as tape:
        there = {call.id: call.attempt for call in tape.calls(1)}
    assert run.tape is not None
    assert run.tape.closed
    found = [attempt for call in run.calls for attempt in call.history]
    assert found == [there[attempt.number or 0] for attempt in found]
    assert len(found) == len(there)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_call_whose_tape_was_deleted_or_replaced_says_so_and_is_not_another_runs(
    tmp_path: Path, is_replaced: bool
) -> None:
    path = tmp_path / "x.tape"
    recorded(path)
    run = load(path)
    path.unlink()
    if is_replaced:
        recorded(path)
    with pytest.raises(TapeError, match=r"x\.tape is another file by now: it was deleted, repl"):
        _ = run.calls[0].request


def test_copies_of_a_call_are_whole_and_equal_to_it(tmp_path: Path) -> None:
    run = recorded(tmp_path / "x.tape")
    [call, *_] = run.calls
    copies = [pickle.loads(pickle.dumps(call)), copy.deepcopy(call)]
    assert copies == [call, call]
    (tmp_path / "x.tape").unlink()
    assert [one.request.prompt for one in copies] == [copies[0].request.prompt] * 2
