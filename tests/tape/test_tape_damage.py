"""Damage: verify names the line, a cut tail is kept beside, repair keeps what is whole."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from counter_kit import make_counter
from journal_kit import add_run, findings, lines_of, make_small, record
from tape_text import sealed

from llmsim_lab._util.jsontext import dumps
from llmsim_lab.errors import TapeError
from llmsim_lab.tape import Tape, repair, verify
from llmsim_lab.tape.recorder import LiveRecorder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_small(tmp_path / "small.tape")


def named(path: Path, lines: Iterable[bytes]) -> set[int | None]:
    """Return the numbers of the lines that verify names when the tape has these."""
    path.write_bytes(b"".join(lines))
    return {finding.line for finding in verify(path)}


def run_of(raw: bytes) -> int:
    found = re.match(rb'\{"run":(\d+),', raw)
    return int(found[1]) if found else 0


def test_a_sound_tape_has_no_findings_and_is_left_as_it_is(small: Path) -> None:
    before = small.read_bytes()
    with Tape(small) as tape:
        assert verify(tape) == verify(small) == verify(str(small)) == []
    assert small.read_bytes() == before
    packed = small.with_name("small.tape.gz")
    packed.write_bytes(gzip.compress(before))
    assert findings(packed) == []


def test_a_finding_says_the_line_the_run_and_what_is_wrong(small: Path) -> None:
    lines = lines_of(small)
    what = "it was changed, or a line of its run before it was added, removed or moved"
    named(small, [*lines[:6], lines[6].replace(b'"one"', b'"six"'), *lines[7:]])
    assert findings(small) == [f"line 7, run 1: {what}"]
    # What follows from a missing line, such as a turn that names a call, is not said again.
    place = next(n for n, raw in enumerate(lines) if b'"no":1,' in raw)
    named(small, lines[:place] + lines[place + 1 :])
    assert findings(small) == [f"line {place + 1}, run 1: {what}"]


@pytest.mark.process
def test_a_changed_byte_is_named_with_its_line(small: Path) -> None:
    with Tape(small) as tape:
        tape.prune([2, 3])  # run 1 has lines of all kinds but a fork's
        LiveRecorder(tape, 1).end("done")
    whole, at = small.read_bytes(), 0
    for number, raw in enumerate(lines_of(small), 1):
        for place in {*range(at, at + len(raw), 3), at + len(raw) - 1}:
            changed = bytearray(whole)
            changed[place] ^= 1 << place % 8
            # Of a file that begins with something else no line is a tape's.
            wanted = {number, None} if number == 1 else {number}
            assert named(small, [bytes(changed)]) & wanted, (number, place - at)
        at += len(raw)


def test_every_missing_line_is_named_but_the_last_of_a_run_and_every_doubled_one(
    small: Path,
) -> None:
    lines = lines_of(small)
    lasts = {run_of(raw): place for place, raw in enumerate(lines) if run_of(raw)}
    for place, raw in enumerate(lines):
        is_named = bool(named(small, lines[:place] + lines[place + 1 :]))
        assert is_named == (place not in lasts.values())
        assert place + 2 in named(small, [*lines[: place + 1], raw, *lines[place + 1 :]])


def test_lines_of_a_run_that_changed_places_are_named_and_texts_below_their_first_use(
    small: Path,
) -> None:
    lines = lines_of(small)
    swaps = 0
    for place, raw in enumerate(lines):
        used = raw[8:26] if raw.startswith(b'{"text"') else b'{"run":%d,' % run_of(raw)
        for other in [n for n in range(place + 1, len(lines)) if used in lines[n]][:1]:
            moved = [*lines]
            moved.insert(other, moved.pop(place))
            assert named(small, moved), (place, other)
            swaps += 1
    assert swaps > 20


def line(kind: str, *, run: int = 1, **values: Any) -> bytes:
    """Return a line without its sum."""
    return dumps({"run": run, "is": kind, **values, "sum": ""}).encode() + b"\n"


def begins(**values: Any) -> bytes:
    rest = {"name": "x", "verb": "fork", "started": "", "manifest": {}, "texts": {}}
    return line("run", run=4, **rest | values)


def turn(number: int, **values: Any) -> bytes:
    rest = json.loads(b"{%b}" % record(number)[1][1:])
    return line("turn", turn=number, record=rest["record"] | values, row={})


LINES = {
    "its run has not begun": (line("set", run=9), "run 9 has not begun"),
    "a member missing": (line("end", ended=""), "outcome: Field required"),
    "a member of another type": (line("set", process="1"), "process: "),
    "a number out of bounds": (line("set", process=-1), "process: "),
    "a call that is not there": (line("forget", turn=2, calls=[99]), "99"),
    "a fork of nothing": (begins(parent=8, fork_turn=0), "its parent, run 8, is not above it"),
    "a fork of no turn": (begins(parent=1, fork_turn=7), "run 1, has no turn 7 to fork from"),
    "an unknown verb": (begins(verb="exec"), "verb: Input should be 'run'"),
    "no such text": (line("set", manifest={}, texts={"config": "0" * 16}), "text 0000000000000000"),
    "another turn's record": (turn(3, turn=2), "its record is that of turn 2"),
    "a record without its parts": (turn(3, state=None), "record.state: "),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_line_whose_sum_is_right_is_named_for_what_it_says(small: Path, kind: str) -> None:
    bad, what = LINES[kind]
    lines = sealed([*lines_of(small), bad])
    assert named(small, lines) - {None} == {len(lines)}
    assert what in findings(small)[0]


def test_findings_are_at_most_a_thousand_and_hold_no_terminal_codes(small: Path) -> None:
    bad = [turn(9, turn="\x1b[2J")]
    named(small, sealed(lines_of(small) + bad * 2_000))
    found = findings(small)
    assert len(found) == 1_000
    assert all(finding.isprintable() for finding in found)


# --- the end cut off ---------------------------------------------------------------------------


def test_cut_anywhere_in_its_last_lines_a_tape_is_the_one_without_that_line(small: Path) -> None:
    whole, lines = small.read_bytes(), lines_of(small)
    beside = small.with_name("small.tape.cut")
    kept = b"".join(lines[:-3])
    for raw in lines[-3:]:
        for length in {*range(1, len(raw), 9), len(raw) - 2, len(raw) - 1}:
            small.write_bytes(kept + raw[:length])
            assert "no whole line" in "".join(findings(small))
            assert small.read_bytes() == kept + raw[:length]
            assert not beside.exists()
            with Tape(small) as tape, tape.writing():
                pass
            assert (small.read_bytes(), beside.read_bytes()) == (kept, raw[:length])
            beside.unlink()
        kept += raw
    assert kept == whole


def test_whole_lines_at_the_end_that_are_none_of_a_tape_are_cut_too(small: Path) -> None:
    whole, rest = small.read_bytes(), b"\0" * 4096 + b"\nnoise\n"
    small.write_bytes(whole + rest)
    with Tape(small) as tape:
        add_run(tape)
    assert small.read_bytes().startswith(whole)
    assert small.with_name("small.tape.cut").read_bytes() == rest
    assert findings(small) == []


def change_middle(lines: list[bytes]) -> list[bytes]:
    return [*lines[:6], lines[6].replace(b"late", b"LATE"), *lines[7:]]


def test_nothing_is_written_to_a_tape_that_is_damaged_before_its_end(small: Path) -> None:
    lines = lines_of(small)
    for damaged in (change_middle(lines), [lines[0].replace(b'"by":"', b'"by":"x')]):
        named(small, damaged)
        what = r"is damaged in line \d.*Nothing is written to it; .* repair"
        with Tape(small) as tape, pytest.raises(TapeError, match=what):
            add_run(tape)
        assert lines_of(small) == damaged
        assert not small.with_name("small.tape.cut").exists()


# --- repair ------------------------------------------------------------------------------------


def test_a_file_that_another_process_makes_while_runs_are_copied_is_not_replaced(
    small: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab.tape._verify.is_there", lambda _: False)
    monkeypatch.setattr("llmsim_lab.tape._tape.is_there", lambda _: False)
    path.write_bytes(b"another's")
    for copy in (repair, lambda source, target: Tape(source, read_only=True).copy([1], target)):
        with pytest.raises(TapeError, match="is there already: name a new file"):
            copy(small, path)
    assert path.read_bytes() == b"another's"
    assert sorted(path.parent.glob(".*")) == []


def test_repair_keeps_of_each_run_what_is_before_its_first_fault(small: Path, path: Path) -> None:
    lines = lines_of(small)
    place = next(n for n, raw in enumerate(lines) if b'"no":6' in raw)
    lines[place] = lines[place].replace(b"3.3", b"4.4")
    named(small, lines)
    before = small.read_bytes()
    assert repair(small, path) == {1: (2, 2), 2: (2, 2), 3: (3, 2)}
    assert small.read_bytes() == before
    assert findings(path) == []
    assert lines_of(path) == [raw for n, raw in enumerate(lines) if n < place or run_of(raw) != 3]
    path.with_name("link").symlink_to("nowhere")
    for taken in (path, path.with_suffix(".gz"), path.with_name("link")):
        with pytest.raises(TapeError, match=r"is there already: name a new file|ends in \.gz"):
            repair(small, taken)


def test_repair_leaves_out_runs_that_came_from_what_is_lost(small: Path, path: Path) -> None:
    lines = lines_of(small)
    lines[8] = lines[8].replace(b'"turn": 1', b'"turn": 0')
    named(small, lines)
    assert repair(small, path) == {1: (2, 0), 2: (2, -1), 3: (3, -1)}
    assert findings(path) == []


def test_repair_leaves_out_a_run_that_a_line_with_a_right_sum_spoils(
    small: Path, path: Path
) -> None:
    lines = lines_of(small)
    spoilt = [raw.replace(b'"outcome":"done"', b'"outcome":NaN') for raw in lines[:-1]]
    text = lines[-4].replace(b'"long":"x', b'"long":"y')
    assert text != lines[-4]
    named(small, sealed([*spoilt[:-3], text, *spoilt[-3:], lines[-1]]))
    assert repair(small, path) == {1: (2, 2), 2: (2, 2), 3: (3, -1)}
    assert findings(path) == []
    text = b'{"text":"c0430650c0f06ec3","value":NaN,"sum":""}\n'  # which run 2 names
    lines[-4:] = [text, *(raw.replace(lines[-4][9:25], text[9:25]) for raw in lines[-3:])]
    named(small, sealed(lines))
    assert repair(small, path.with_name("y.tape")) == {1: (2, 2), 2: (2, -1), 3: (3, -1)}
    assert findings(path.with_name("y.tape")) == []


# --- prune and take ----------------------------------------------------------------------------


@pytest.mark.posix
def test_pruning_leaves_all_other_lines_byte_for_byte(small: Path) -> None:
    lines = lines_of(small)
    small.chmod(0o640)
    other = Tape(small)
    assert other.line(3) == [(1, 1), (2, 2), (3, 3)]
    with Tape(small) as tape:
        with pytest.raises(TapeError, match=r"run 3 came from it; name that one as well"):
            tape.prune([2])
        with pytest.raises(TapeError, match="no run 9"):
            tape.prune([9])
        with tape.writing(), pytest.raises(TapeError, match=r"a run is recorded on .* stop it"):
            tape.prune([3])
        assert lines_of(small) == lines
        tape.prune([3])
        assert lines_of(small) == [raw for raw in lines if run_of(raw) != 3]
        assert verify(tape) == []
        assert add_run(tape) == 3
        assert other.line(3) == [(3, 1)]  # not those of the run that had the number before
        tape.prune([1, 2, 3])
        assert (len(tape), verify(tape)) == (0, [])
    assert lines_of(small) == lines[:1]
    assert small.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in small.parent.iterdir()) == ["small.tape", "small.tape.lock"]


def test_a_run_is_copied_up_to_a_turn_with_its_turns_calls_and_parents(
    small: Path, tmp_path: Path
) -> None:
    with Tape(small) as source, source.copy([3], tmp_path / "other.tape") as tape:
        assert tape.runs() == source.runs()
        assert [tape.calls(run) for run in (1, 2, 3)] == [source.calls(run) for run in (1, 2, 3)]
        assert tape.turns_frame(3).equals(source.turns_frame(3))
        assert add_run(tape) == 4
        assert verify(tape) == []
        early = source.copy([2], tmp_path / "early.tape", up_to=1)
        ends = [(info.id, info.turns, info.outcome) for info in early.runs()]
        assert ends == [(1, 1, None), (2, 1, None)]
        assert [call.id for call in early.calls(1)] == [1, 2]
        assert verify(early) == []
        before = (tmp_path / "other.tape").read_bytes()
        for name in ("other.tape", "new.tape.gz"):
            with pytest.raises(
                TapeError, match=r"is there already: .* a new file|ends in \.gz, and"
            ):
                source.copy([1], tmp_path / name)
        assert not (tmp_path / "new.tape.gz").exists()
        assert (tmp_path / "other.tape").read_bytes() == before
        again = add_run(source, verb="rerun", parent=1)
        repeated = source.copy([again], tmp_path / "again.tape")
        assert [info.id for info in repeated.runs()] == [1, again]


def test_a_run_that_was_pruned_while_it_was_open_writes_nothing_more(path: Path) -> None:
    first, second = make_counter(path), make_counter(path)
    second.run(1)
    Tape(path).prune([2])
    third = make_counter(path)
    assert third.run_id == 2
    with pytest.raises(TapeError, match="closed by this simulation, or pruned"):
        second.run(1)
    first.run(1)
    assert verify(path) == []


def test_a_changed_run_is_read_as_it_is_now_with_a_warning_and_not_copied(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = len(Tape(small).turn_records(3))
    assert "TAPE_DAMAGED" not in caplog.text
    named(small, change_middle(lines_of(small)))
    tape = Tape(small)
    assert len(tape.turn_records(3)) == turns
    assert re.search(r'TAPE_DAMAGED tape=.* found="line \d+ of run 1 is not as it was', caplog.text)
    with pytest.raises(TapeError, match=r"run 1 on .* is damaged; verify"):
        tape.copy([3], small.with_name("other.tape"))
    assert not small.with_name("other.tape").exists()
