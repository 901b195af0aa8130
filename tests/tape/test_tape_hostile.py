"""Files made to do harm: a clear error or findings, in bounded time and memory, and no change."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from builders import played
from counter_kit import make_counter
from journal_kit import lines_of
from tape_text import digest_of as text_digest
from tape_text import sealed

from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.run import load, replay
from llmsim_lab.tape import Tape, _journal, verify


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of a run and its fork."""
    path = tmp_path_factory.mktemp("hostile") / "x.tape"
    run = played(make_counter(path), 2)
    branch = played(run.fork(1), 1)
    for one in (run, branch):
        one.close()
    return lines_of(path)


def use_all(path: Path) -> None:
    """Read all that a tape has in every way; an error of one hides no other."""
    with suppress(LabError), Tape(path, read_only=True) as tape:
        for read in (str, repr, lambda tape: str(tape.tree()), Tape.runs):
            with suppress(LabError):
                read(tape)
        for run in (1, 2):
            for use in (Tape.calls, Tape.calls_frame, Tape.turns_frame, load, replay):
                with suppress(LabError):
                    use(tape, run)


def place_of(lines: list[bytes], kind: str, nth: int = 0) -> int:
    return [n for n, raw in enumerate(lines) if f'"is":"{kind}"'.encode() in raw][nth]


Edit = Callable[[list[bytes]], list[bytes]]


def put(kind: str, old: bytes, new: bytes, nth: int = 0) -> Edit:
    def edit(lines: list[bytes]) -> list[bytes]:
        place = place_of(lines, kind, nth)
        assert old in lines[place]
        return [*lines[:place], lines[place].replace(old, new, 1), *lines[place + 1 :]]

    return edit


def without_texts(lines: list[bytes]) -> list[bytes]:
    return [raw for raw in lines if not raw.startswith(b'{"text"')]


def text_twice(lines: list[bytes]) -> list[bytes]:
    place = place_of(lines, "call")
    text = next(raw for raw in lines if b'"schema"' in raw)
    return [*lines[:place], text.replace(b"Ann", b"Eve"), *lines[place:]]


def nan_in_settings(lines: list[bytes]) -> list[bytes]:
    """Put NaN into the settings of calls, and name them as their new text is named."""
    [digest, text] = next(
        match.groups()
        for raw in lines
        if (match := re.match(rb'\{"text":"(\w+)","value":(.*"schema":.*),"sum"', raw))
    )
    changed = text.replace(b'"options":{', b'"options":{"x":NaN,')
    name = text_digest(changed).encode()
    return [raw.replace(text, changed).replace(digest, name) for raw in lines]


def record_with(value: bytes) -> tuple[bytes, bytes]:
    return b'"record":{', b'"record":{"x":' + value + b","


DEEP = b"[" * 200_000 + b"]" * 200_000
DEEP_OBJECT = b'{"a":' * 99_999 + b"1" + b"}" * 99_999
NINES, FORK = b"9" * 300_000, b'"parent":%d,"fork_turn":0,"verb":"fork"'
FORGET = b'{"run":1,"is":"forget","turn":2,"calls":[' + b"1" * 4_000_000 + b'],"sum":""}\n'
KINDS: dict[str, tuple[Edit, str]] = {
    "a deep list in a reply": (put("call", b'"reply":{', b'"reply":{"x":%b,' % DEEP), "deeply"),
    "a deep list in a record": (put("turn", *record_with(DEEP), 1), "deeply"),
    "a deep object": (put("run", b'"manifest":{', b'"manifest":{"x":%b,' % DEEP_OBJECT), "deeply"),
    "300,000 digits": (put("call", b'"seconds":', b'"seconds":' + NINES), "number out of range"),
    "300,000 digits in a record": (put("turn", *record_with(NINES), 1), "300000 digits"),
    "seconds beyond numbers": (put("call", b'"seconds":', b'"seconds":1e999,"x":'), "seconds: "),
    "seconds that are NaN": (put("call", b'"seconds":', b'"seconds":NaN,"x":'), "NaN"),
    "NaN in a record": (put("turn", *record_with(b"NaN"), 1), "NaN"),
    "-Infinity in a row": (put("turn", b'"row":{', b'"row":{"x":-Infinity,', 1), "-Infinity"),
    "a call's number twice": (put("call", b',"seconds"', b',"no":7,"seconds"'), "twice"),
    "a reply twice": (put("call", b',"seconds"', b',"reply":{"text":"x"},"seconds"'), "twice"),
    "a record twice": (put("turn", b',"row":', b',"record":{},"row":', 1), "twice"),
    "a turn twice": (put("turn", b',"row":', b',"turn":99,"row":', 1), "twice"),
    "an unknown kind": (put("call", b'"is":"call"', b'"is":"exec"'), "not a line of a tape"),
    "an unknown member": (put("call", b',"seconds"', b',"cmd":"rm","seconds"'), "cmd: Extra"),
    "a text for messages": (put("call", b'"messages":[', b'"messages":"x","m":['), "messages: "),
    "bytes that are not UTF-8": (put("call", b'"content":"', b'"content":"\xff\xfe'), "utf-8"),
    "its own parent": (put("run", b'"verb":"run"', FORK % 1), "its parent, run 1, is not above it"),
    "each other's parents": (put("run", b'"verb":"run"', FORK % 2), "run 2, is not above it"),
    "a run that begins twice": (put("run", b'{"run":2', b'{"run":1', 1), "run 1 begins twice"),
    "texts missing": (without_texts, "is not above it"),
    "a text twice": (text_twice, "it was changed"),
    "a forgotten number of 4,000,000 digits": (lambda known: [*known, FORGET], "digits"),
    "a logarithm above nought": (
        put("call", b'"reply":{', b'"reply":{"top_logprobs":[["A",800.0]],'),
        "top_logprobs.0.1: ",
    ),
    "NaN in settings": (nan_in_settings, "NaN, which is not a number"),
    "a truth for players": (
        put("set", b'"manifest":{', b'"manifest":{"given_players":true,', 2),
        "given_players: ",
    ),
    "NaN in an intervention": (
        put("turn", b'"interventions":[', b'"interventions":[{"turn":1,"set":{"value":NaN}}', 1),
        "NaN",
    ),
    "a text for a state": (put("turn", b'"state":{', b'"state":"x","y":{', 1), "record.state"),
}
HARMLESS: dict[str, Edit] = {
    "nothing": lambda lines: lines,
    "half a character in a message": put("call", b'"content":"', b'"content":"\\ud83d '),
    "terminal codes in a message": put("call", b'"content":"', b'"content":"\\u0000\\u001b[31m'),
    "the highest number of a call": put("call", b'"no":6,', b'"no":999999999999999,', -1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_made_to_do_harm_is_named(recorded: list[bytes], path: Path, kind: str) -> None:
    edit, what = KINDS[kind]
    path.write_bytes(b"".join(sealed(edit(recorded))))
    before = path.read_bytes()
    assert what in "\n".join(map(str, verify(path)))
    use_all(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_a_model_or_a_user_may_write_is_sound(
    recorded: list[bytes], path: Path, kind: str
) -> None:
    path.write_bytes(b"".join(sealed(HARMLESS[kind](recorded))))
    if kind != "the highest number of a call":  # its turn names it by the one that it had
        assert verify(path) == []
    use_all(path)
    with Tape(path) as tape:
        assert [len(tape.calls(run)) for run in (1, 2)] == [4, 2]


# --- packed ------------------------------------------------------------------------------------


def test_a_packed_tape_that_is_a_bomb_or_damaged_is_an_error(
    recorded: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, head = gzip.compress(b"".join(recorded)), recorded[0]
    monkeypatch.setattr(_journal, "_MAX_UNPACKED", 2**26)
    for packed, what in (
        (gzip.compress(bytes(10_000_000), 1), "is not a tape"),
        (gzip.compress(head + bytes(40_000_000), 1), "more than 33,554,432 bytes"),
        (gzip.compress(bytes(70_000_000), 1), "more than 128 MiB unpacked; gunzip it"),
        (whole[:-30], "cannot be unpacked"),
        (whole[:200] + b"\xff\xff\xff" + whole[203:], "cannot be unpacked"),
        (b"x" + whole[1:], "cannot be unpacked"),
    ):
        (tmp_path / "x.tape.gz").write_bytes(packed)
        with pytest.raises(TapeError, match=what):
            Tape(tmp_path / "x.tape.gz")
