"""The tape's file as lines: what is written, where it is, what is refused when it is opened."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders import recorded
from counter_kit import make_counter
from journal_kit import MANIFEST, add_run, findings, lines_of, make_small, record
from tape_kit import bytes_in

from llmsim_lab.errors import TapeError
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.tape import Tape
from llmsim_lab.tape._journal import MAX_LINE, Journal
from llmsim_lab.tape.recorder import LiveRecorder


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A tape's file with a run begun, open for writing."""
    with Tape(tmp_path / "x.tape") as tape, tape.writing():
        tape.add_run(MANIFEST, name="x", first=record(0))
        yield tape.journal


def another(journal: Journal) -> Journal:
    """Return the same file as another process has it."""
    other = Journal(journal.path)
    other.refresh()
    return other


# --- lines -------------------------------------------------------------------------------------


def test_a_line_is_in_the_file_and_found_again_when_append_returns(journal: Journal) -> None:
    journal.append(1, "turn", b',"record":{},"row":{"a":"\xe2\x80\xa8"}', turn=1)
    assert journal.append(1, "call", b',"seconds":1', turn=1) == 1
    assert journal.append(1, "call", b',"seconds":2') == 2
    turn, first, second = lines_of(journal.path)[-3:]
    assert turn.startswith(b'{"run":1,"is":"turn","turn":1,"record":{},"row":{"a":"\xe2\x80\xa8"},')
    assert second.startswith(b'{"run":1,"is":"call","turn":null,"no":2,"seconds":2,"sum":"')
    for known in (journal, another(journal)):
        index = known.index
        assert [*known.read([index.turns[1][1]])] == [turn]
        assert {number: run for number, (run, _) in index.places.items()} == {1: 1, 2: 1}
        assert [*known.read([place for _, place in index.places.values()])] == [first, second]
        assert (index.counts[1], index.next_call) == (2, 3)
        assert index.calls == {1: {1: [1], None: [2]}}
        assert (index.lines, index.faulty) == (len(lines_of(journal.path)), 0)


def test_the_file_is_not_kept_open_by_who_stops_reading_in_the_middle(tmp_path: Path) -> None:
    path = make_small(tmp_path / "x.tape")
    reader = Tape(path, read_only=True).journal
    unread = [reader.lines(), reader.read([reader.index.turns[1][0]] * 2)]
    assert all(map(next, unread))
    assert str(path) not in [file.path for file in psutil.Process().open_files()]


def test_a_reader_takes_in_whole_lines_as_they_come(journal: Journal) -> None:
    reader = another(journal)
    journal.append(1, "call", b',"seconds":1', turn=1)
    assert reader.index.places == {}
    reader.refresh()
    assert reader.index.places == journal.index.places
    whole = journal.path.read_bytes()
    with journal.path.open("ab") as file:
        file.write(lines_of(journal.path)[-1][:40])
    reader.refresh()
    assert reader.index.end == len(whole)


def test_a_text_is_written_once_and_read_by_its_digest(journal: Journal) -> None:
    digest = journal.intern('{"a":"\u2028é"}')
    before = journal.path.read_bytes()
    assert journal.intern('{"a":"\u2028é"}') == digest
    reader = another(journal)
    assert reader.text(digest.decode(), str) == '{"a":"\u2028é"}'
    assert journal.path.read_bytes() == before
    with pytest.raises(TapeError, match="the text 0123456789abcdef is not on the tape"):
        reader.text("0123456789abcdef", str)
    journal.path.write_bytes(before.replace(b'{"a":"', b'{"b":"'))
    with pytest.raises(TapeError, match=r"is not on the tape .*, or was changed"):
        another(journal).text(digest.decode(), str)


def test_a_line_has_at_most_32_mib_and_two_million_values(journal: Journal) -> None:
    before = journal.path.read_bytes()
    room = MAX_LINE - len(b'{"run":1,"is":"set","x":""') - len(b',"sum":"01234567"}\n')
    with pytest.raises(TapeError, match=r"has more than 33,554,432 bytes; shorten"):
        journal.append(1, "set", b',"x":"%b"' % (b"x" * (room + 1)))
    with pytest.raises(TapeError, match=r"has more than 2,097,152 values; shorten"):
        journal.append(1, "set", b',"x":[%b1]' % (b"1," * 2**21))
    assert journal.path.read_bytes() == before
    journal.append(1, "set", b',"x":"%b"' % (b"x" * room))
    assert another(journal).index.faulty == 0


def test_numbers_that_a_line_cannot_have_are_refused(journal: Journal) -> None:
    before = journal.path.read_bytes()
    for run, turn, number in (
        (10**9, 1, 1),
        (0, 1, 1),
        (1, 10**9, 1),
        (1, -(10**9), 1),
        (1, 1, 10**15),
    ):
        journal.index.next_call = number
        with pytest.raises(TapeError, match="than a tape can number"):
            journal.append(run, "call", b"", turn=turn)
    assert journal.path.read_bytes() == before


@pytest.mark.parametrize("when", ["before", "between the look and the write"])
def test_lines_that_somebody_else_wrote_stop_the_writer_and_stay(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    write = os.write

    def write_mine(fd: int = -1, data: bytes = b"") -> int:
        with journal.path.open("ab") as file:
            file.write(b"mine\n")
        return write(fd, data) if data else 0

    if when == "before":
        write_mine()
    else:
        monkeypatch.setattr(os, "write", write_mine)
    said = r"something else wrote to the end of .* Nothing is written behind it; .* x.tape.cut, and"
    for _ in range(2):
        with pytest.raises(TapeError, match=said):
            journal.append(1, "set", b',"process":7')
        with pytest.raises(TapeError, match=said):
            journal.refresh()
        assert lines_of(journal.path)[-1] == b"mine\n"


# --- opening -----------------------------------------------------------------------------------


HEAD = b'{"tape":3,"by":"llmsim_lab 0.1.0","id":"0123456789abcdef","sum":"01234567"}'
NO_TAPES: dict[str, tuple[bytes | Callable[[Path], object], str]] = {
    "text": (b"turn,rate\n0,4\n" * 50, "is not a tape of format 3: it begins with b'turn,rate"),
    "zeros": (bytes(8192), "is not a tape of format 3: it begins with b'"),
    "other JSON": (b'{"a": 1}\n' * 9, "is not a tape of format 3: it begins with b'{"),
    "a later format": (
        HEAD.replace(b"3", b"4", 1) + b"\n",
        'begins with b\'{"tape":4,.*pip install --upgrade',
    ),
    "a database": (b"SQLite format 3\0" * 9, "it is a database, as earlier versions wrote"),
    "cut in its first line": (HEAD[:60], "is not a tape of format 3: it begins with b'{"),
    "other line ends": (HEAD + b"\r\n", r"its lines end in \\r\\n: dos2unix, .*-text"),
    "a line too long": (HEAD + b"\n" + b"x" * (MAX_LINE + 1), "line 2 of .* 33,554,432 bytes"),
    "a line of too much": (HEAD + b"\n" + b"[" * 2**22, "line 2 of .* 2,097,152 values"),
    "a folder": (lambda path: path.mkdir(), "is not a file"),
    "a pipe": (lambda path: os.mkfifo(path), "is not a file"),
    "a packed text": (gzip.compress(b"turn,rate\n"), "is not a tape of format 3"),
}


@pytest.mark.parametrize("kind", NO_TAPES)
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
@pytest.mark.posix
def test_what_is_no_tape_is_refused_and_left_as_it_is(
    tmp_path: Path, kind: str, read_only: bool
) -> None:
    content, message = NO_TAPES[kind]
    path = tmp_path / ("x.tape.gz" if kind == "a packed text" else "x.tape")
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
    before = bytes_in(tmp_path)
    with pytest.raises(TapeError, match=message) as caught:
        Tape(path, read_only=read_only)
    assert str(path) in str(caught.value)
    assert bytes_in(tmp_path) == before


@pytest.mark.parametrize("verb", [load, replay, resume, rerun, fork])
def test_no_verb_makes_a_tape_of_a_file_that_is_missing_or_empty(
    tmp_path: Path, verb: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tape"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TapeError, match=re.escape(f"there is no tape at {path}")):
        verb("x.tape")  # the message says where it was looked for
    assert bytes_in(tmp_path) == {}
    path.touch()
    with pytest.raises(TapeError, match="there is no tape at"):
        verb(path)
    assert [*bytes_in(tmp_path)] == ["x.tape"]
    assert path.stat().st_size == 0


@pytest.mark.parametrize("name", ["a? b#c%20d.tape", "töpfe 磁带.tape", "x"])
def test_a_tape_may_have_any_name_and_reading_leaves_no_trace(tmp_path: Path, name: str) -> None:
    recorded(make_counter(tmp_path / name), 1)
    (tmp_path / f"{name}.lock").unlink()
    before = bytes_in(tmp_path)
    assert replay(tmp_path / name).turn_number == load(tmp_path / name).turn_number == 1
    with Tape(tmp_path / name) as tape:
        assert (len(tape), findings(tmp_path / name)) == (1, [])
    assert bytes_in(tmp_path) == before
    assert [*before] == [name]


@pytest.mark.posix
def test_a_link_is_followed_and_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path, link = tmp_path / "there" / "x.tape", tmp_path / "link.tape"
    link.symlink_to(path)
    with Tape(link) as tape, Tape(path) as same:
        assert tape.journal is same.journal
        add_run(tape)
        add_run(same)
        tape.prune([1])
        assert [info.id for info in same.runs()] == [2]
    assert link.is_symlink()
    assert [*bytes_in(path.parent)] == ["x.tape", "x.tape.lock"]
    assert path.with_name("x.tape.lock").stat().st_size == 0


def test_nothing_is_written_through_a_tape_that_is_packed_or_for_reading_only(
    tmp_path: Path,
) -> None:
    path = make_small(tmp_path / "x.tape")
    packed = tmp_path / "x.tape.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    before = bytes_in(tmp_path)
    writes: list[Any] = [add_run, make_counter, lambda tape: tape.prune([3])]
    for tape, way_out in ((Tape(path, read_only=True), "open it"), (Tape(packed), "gunzip it")):
        for write in (*writes, lambda tape: LiveRecorder(tape, 1)):
            with pytest.raises(TapeError, match=f"is open for reading only; {way_out}"):
                write(tape)
    with pytest.raises(TapeError, match=r"no tape at .*; record on a \.tape, which gzip packs"):
        Tape(tmp_path / "new.tape.gz")
    assert bytes_in(tmp_path) == before


def test_a_run_that_is_not_there_is_named_with_those_that_are(path: Path) -> None:
    tape = Tape(make_small(path))
    for run in (0, 4, -1, True):
        with pytest.raises(TapeError, match=f"has no run {run}; it has: 1, 2, 3"):
            tape.run(run)


def test_a_run_with_a_turn_missing_is_refused_by_the_gap(path: Path) -> None:
    recorded(make_counter(path), 3)
    lines = [raw for raw in lines_of(path) if b'"is":"turn","turn":2' not in raw]
    path.write_bytes(b"".join(lines))
    for verb in (load, resume):
        with pytest.raises(TapeError, match=r"run 1 .* damaged: turn 3 follows turn 1; .*verify"):
            verb(path)
