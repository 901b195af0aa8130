"""What a tape does once, however long a run is: work that grew with its calls, agents and turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from llmsim_lab.tape._codec import loads
from llmsim_lab.tape._file import TapeFile
from llmsim_lab.tape._ledger import Ledger
from tape_kit import hash_client, make_recorded, steady_config

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run, load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, Message


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[LiveRecorder]:
    """Records the first turn of a run."""
    with Tape(tmp_path / "x.tape") as tape:
        made = LiveRecorder(tape, tape.add_run({}, name="x", first=(0, "{}", "{}")))
        yield made
        made.close()


def readings(statements: list[str]) -> int:
    """How often a run's calls were read to continue its tally."""
    return sum("SELECT place, seal FROM calls" in statement for statement in statements)


def watched(tape: Tape) -> list[str]:
    statements: list[str] = []
    tape.file._connection.set_trace_callback(statements.append)
    return statements


def test_a_run_reads_its_tally_once_not_with_every_turn(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "x.tape")
    statements = watched(tape)
    Simulation(steady_config(), llm_client=hash_client(), tape=tape).run(3)
    assert readings(statements) == 1


async def test_answers_that_are_all_there_are_committed_at_once_and_together(
    recorder: LiveRecorder,
) -> None:
    requests = [ChatRequest(model="m", messages=(Message("user", it),)) for it in ("a", "b")]
    for request in requests:
        assert recorder.find(request) is None
    statements = watched(recorder.tape)
    replies = [
        Attempt(request=request, reply=ChatReply(text="c"), seconds=1.0) for request in requests
    ]
    keeping = [asyncio.create_task(recorder.keep(reply)) for reply in replies]
    for _ in range(3):  # of the loop, which is no time to wait for anything
        await asyncio.sleep(0)
    assert [task.done() and task.result().number for task in keeping] == [1, 2]
    assert statements.count("COMMIT") == 1


async def test_answers_kept_one_by_one_share_a_file_with_those_of_others(tmp_path: Path) -> None:
    with Tape(tmp_path / "x.tape") as tape, Tape(tmp_path / "x.tape") as other:
        recorders = [
            LiveRecorder(it, it.add_run({}, name="x", first=(0, "{}", "{}")))
            for it in (tape, other)
        ]
        statements = watched(tape)
        numbers = []
        # Of the first recorder alone, in turn with the other one's, and alone again.
        for at, recorder in enumerate(recorders[it] for it in (0, 0, 0, 1, 0, 1, 0, 0)):
            request = ChatRequest(model="m", messages=(Message("user", str(at)),))
            assert recorder.find(request) is None
            reply = Attempt(request=request, reply=ChatReply(text="c"), seconds=1.0)
            numbers.append((await recorder.keep(reply)).number)
        assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
        for recorder in recorders:
            recorder.settle()
            recorder.close()
        # The first, and each whose number the other had taken, needed a transaction.
        assert statements.count("COMMIT") - len(recorders) == 3
        assert [len(tape.calls(run)) for run in (1, 2)] == [6, 2]
        # Their manifests and first turns are no real ones.
        others = [it.what for it in verify(tape) if "manifest" not in it.what and it.turn != 0]
        assert others == []


def test_an_import_reads_no_tally_since_it_has_written_all_that_is_there(tmp_path: Path) -> None:
    simulation = make_recorded(tmp_path / "x.tape")
    assert simulation.tape is not None
    simulation.tape.export(tmp_path / "x.jsonl")
    tape = Tape(tmp_path / "y.tape")
    statements = watched(tape)
    tape.import_jsonl(tmp_path / "x.jsonl")
    assert readings(statements) == 0
    assert tape.calls(1)


def test_loading_parses_a_prompt_that_all_agents_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recorded(tmp_path / "x.tape", nations=[f"Nation {n}" for n in range(9)])
    load(tmp_path / "x.tape")
    parsed: list[str] = []
    parse = Prompt.parse.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Prompt], text: str, **names: Any) -> Prompt:
        parsed.append(text)
        prompt: Prompt = parse(cls, text, **names)
        return prompt

    monkeypatch.setattr(Prompt, "parse", classmethod(counted))
    loaded = load(tmp_path / "x.tape")
    assert len(loaded.agents) == 9
    assert len(parsed) == len(set(parsed))


def test_loading_reads_the_row_of_the_last_turn_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recorded(tmp_path / "x.tape", turns=3)
    read: list[str] = []

    def counted(text: str, what: str) -> Any:
        read.append(what)
        return loads(text, what)

    monkeypatch.setattr("llmsim_lab.tape._tape.loads", counted)
    loaded = load(tmp_path / "x.tape")
    assert loaded.turn_number == 3
    assert [what for what in read if "of run" not in what] == ["turn 3"], "but for the records"
    assert len(loaded.to_frame()) == 4


def test_where_values_came_from_takes_a_text_a_prompt_and_a_few_bytes_a_call(
    tmp_path: Path,
) -> None:
    made = make_recorded(tmp_path / "x.tape", nations=[f"Nation {n}" for n in range(9)])
    assert made.tape is not None
    [row] = made.tape.file.query(
        "SELECT count(*) AS calls, count(DISTINCT origin) AS forms, avg(length(spans)) AS size "
        "FROM calls"
    )
    assert row["calls"] > 50
    assert row["forms"] == 3
    assert row["size"] < 16


@pytest.mark.parametrize("verb", [load, replay])
def test_a_recorded_turn_is_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Path], Simulation]
) -> None:
    run = make_recorded(tmp_path / "x.tape")
    parsed: list[str] = []

    def counted(text: str, what: str) -> Any:
        parsed.append(what)
        return loads(text, what)

    monkeypatch.setattr("llmsim_lab.tape._tape.loads", counted)
    verb(tmp_path / "x.tape")
    assert sum(what.endswith("of run 1") for what in parsed) == len(run.turns)


def test_a_replay_makes_no_frame_that_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recorded(tmp_path / "x.tape")
    monkeypatch.delattr(Run, "to_frame")
    assert replay(tmp_path / "x.tape").turn_number > 0


def asked_again(recorder: LiveRecorder, text: str, model: str = "m") -> int | None:
    """Ask for an answer as a call of a turn does; returns its number on the tape."""
    request = recorder.place(ChatRequest(model=model, messages=(Message("user", text),)))
    known = recorder.find(request)
    reply = Attempt(request=request, reply=ChatReply(text="c"), seconds=1.0)
    return (known or recorder.keep_now(reply)).number


def times_out(recorder: LiveRecorder, text: str) -> None:
    """Record a call that got no answer."""
    request = recorder.place(ChatRequest(model="m", messages=(Message("user", text),)))
    assert recorder.find(request) is None
    recorder.keep_now(Attempt(request=request, reply=None, seconds=1.0, reason="timeout"))


def test_an_answer_whose_event_loop_was_closed_before_its_commit_is_kept(
    recorder: LiveRecorder,
) -> None:
    asked = [recorder.place(ChatRequest(model=it, messages=())) for it in ("m", "slower")]
    for request in asked:
        assert recorder.find(request) is None
    loop, reply = asyncio.new_event_loop(), ChatReply(text="c")
    keeping = recorder.keep(Attempt(request=asked[0], reply=reply, seconds=1.0))
    task = loop.create_task(keeping)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    recorder.restart_turn()
    assert recorder.find(asked[0]) is not None
    keeping.close()


def test_texts_that_went_with_another_run_are_written_again(tmp_path: Path) -> None:
    with Tape(tmp_path / "x.tape") as tape, Tape(tmp_path / "x.tape") as other:
        recorder, pruned = (
            LiveRecorder(tape, tape.add_run({}, name="x", first=(0, "{}", "{}"))) for _ in range(2)
        )
        for text in "ab":
            asked_again(recorder, text)
        asked_again(pruned, "c", "gone")
        pruned.commit_turn(1, "{}", "{}")
        pruned.close()
        other.prune(runs=[2])
        # The number of the text that is gone is that of another one now.
        third = LiveRecorder(other, other.add_run({}, name="x", first=(0, "{}", "{}")))
        asked_again(third, "d", "third")
        asked_again(recorder, "e", "gone")
        found = other.calls(1)
        assert [call.attempt.request.model for call in found] == ["m", "m", "gone"]
        assert not [it for it in verify(tape) if it.call is not None]
        for one in (recorder, third):
            one.close()


def interrupts_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TapeFile.insert

    def insert(file: TapeFile, sql: str, values: tuple[Any, ...]) -> bool:
        whole(file, sql, values)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(TapeFile, "insert", insert)


def interrupts_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def committed(ledger: Ledger) -> None:
        ledger._place = (ledger._place or 0) + len(ledger._new)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "committed", committed)


@pytest.mark.parametrize(
    ("interrupts", "model"), [(interrupts_insert, "m"), (interrupts_committed, "another")]
)
def test_an_answer_that_ctrl_c_met_at_its_commit_is_found_again(
    recorder: LiveRecorder,
    monkeypatch: pytest.MonkeyPatch,
    interrupts: Callable[[pytest.MonkeyPatch], None],
    model: str,
) -> None:
    tape = recorder.tape
    assert [asked_again(recorder, text) for text in "ab"] == [1, 2]
    interrupts(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        asked_again(recorder, "c", model)
    recorder.restart_turn()
    assert asked_again(recorder, "c", model) == 3
    assert asked_again(recorder, "d") == 4
    recorder.commit_turn(1, "{}", "{}")
    assert [row[0] for row in tape.file.query("SELECT place FROM calls")] == [1, 2, 3, 4]
    assert not [it for it in verify(tape) if it.call is not None or "tally" in str(it)]


def interrupts_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("llmsim_lab.tape._recorder._Keys", keys)


@pytest.mark.parametrize("interrupts", [interrupts_committed, interrupts_turn])
def test_a_turn_that_ctrl_c_met_at_its_commit_is_left_as_it_is(
    recorder: LiveRecorder,
    monkeypatch: pytest.MonkeyPatch,
    interrupts: Callable[[pytest.MonkeyPatch], None],
) -> None:
    tape = recorder.tape
    recorder.begin_turn(1)
    times_out(recorder, "a")
    interrupts(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        recorder.commit_turn(1, "{}", "{}")
    recorder.restart_turn(KeyboardInterrupt())
    # It is whole: what failed in it is not made again.
    assert [call.forgotten for call in tape.calls(1, forgotten=True)] == [False]
    for again in (lambda: recorder.begin_turn(1), lambda: recorder.replace_turn(0, "{}", "{}")):
        with pytest.raises(TapeError, match=r"turn 1 of run 1 is on .*resume\('.*', 1\)"):
            again()
    recorder.begin_turn(2)
    assert asked_again(recorder, "b") == 2
    recorder.commit_turn(2, "{}", "{}")
    assert not [it for it in verify(tape) if it.call is not None or "tally" in str(it)]


def interrupts_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(_: LiveRecorder) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveRecorder, "flush", flush)


@pytest.mark.parametrize("interrupts", [interrupts_flush, interrupts_committed])
def test_a_turn_whose_restart_met_ctrl_c_as_well_begins_again_with_its_answers(
    recorder: LiveRecorder,
    monkeypatch: pytest.MonkeyPatch,
    interrupts: Callable[[pytest.MonkeyPatch], None],
) -> None:
    recorder.begin_turn(1)
    assert [asked_again(recorder, text) for text in "aa"] == [1, 2]
    times_out(recorder, "b")
    interrupts(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        recorder.restart_turn(KeyboardInterrupt())
    recorder.begin_turn(1)
    assert [asked_again(recorder, text) for text in "aab"] == [1, 2, 4]
    recorder.commit_turn(1, "{}", "{}")
    assert not [it for it in verify(recorder.tape) if it.call is not None or "tally" in str(it)]


def test_a_turn_that_is_under_way_goes_on_when_the_one_before_it_is_written_again(
    recorder: LiveRecorder,
) -> None:
    recorder.begin_turn(1)
    assert asked_again(recorder, "a") == 1
    recorder.replace_turn(0, '{"planned": []}', "{}")
    assert asked_again(recorder, "a") == 2


@pytest.mark.parametrize("begins", [TapeFile.transaction, TapeFile.snapshot])
def test_ctrl_c_as_a_transaction_begins_leaves_none_open(
    tmp_path: Path, begins: Callable[[TapeFile], AbstractContextManager[Any]]
) -> None:
    class Interrupted:
        """A connection whose first statement is done when Ctrl-C is noticed."""

        def __init__(self, connection: Any) -> None:
            self._connection, self._done = connection, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, *statement: Any) -> Any:
            self._done += 1
            found = self._connection.execute(*statement)
            if self._done == 1:
                raise KeyboardInterrupt
            return found

    with Tape(tmp_path / "x.tape") as tape:
        file = tape.file
        file._connection = Interrupted(file._connection)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), begins(file):
            raise AssertionError("it has not begun")
        tape.add_run({}, name="x", first=(0, "{}", "{}"))
