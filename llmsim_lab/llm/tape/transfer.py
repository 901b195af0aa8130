"""Tapes from JSON lines: the runs of a file taken onto a tape, all of them or none.

``export.py`` says what is in such a file. A number in it is that file's own; runs and calls get new
ones on the tape that they come to.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.checks import call_numbers, manifest_faults
from llmsim_lab.llm.tape.export import FORMAT, KINDS
from llmsim_lab.llm.tape.info import Verb
from llmsim_lab.llm.tape.keys import SettingsCache, call_key, dumps, key_fits
from llmsim_lab.llm.tape.rows import attempt_of

if TYPE_CHECKING:
    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["import_runs"]

_MAX_LINE_BYTES = 64 * 1024 * 1024
_COPIED = ("run", "turn", "component", "agent", "replicate", "attempt", "seconds")


def import_runs(source: str | Path, tape: Tape) -> list[int]:
    """Take the runs of a JSON lines file onto a tape, all of them or, if one is wrong, none.

    Returns:
        The numbers that they have on the tape.

    Raises:
        TapeError: the file cannot be read or is no export of a tape; the line is named.
    """
    source = Path(source)
    arrival = _Arrival(tape)
    try:
        with source.open("rb") as file, tape.transaction() as connection:
            arrival.connection = connection
            number = 0
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                with _Naming(f"{source}, line {number}"):
                    arrival.take(line)
            with _Naming(f"{source}, after line {number}"):
                arrival.finish()
    except OSError as error:
        raise TapeError(f"cannot read {source}: {error}") from error
    return sorted(arrival.runs.values())


class _Naming:
    """Turns what a bad line raises into an error that names the line."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        wrong = (ValueError, TypeError, OverflowError, RecursionError, sqlite3.IntegrityError)
        if isinstance(error, KeyError):
            fault: object = f"{error.args[0]!r} is not there"
        elif isinstance(error, (*wrong, TapeError)):
            fault = error
        else:
            return
        raise TapeError(f"{self.where}: {fault}; nothing was imported") from error


class _Arrival:
    """One file's way onto a tape."""

    connection: sqlite3.Connection

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.runs: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._texts: dict[int, tuple[int, str]] = {}
        self._settings = SettingsCache()
        self._seen: Counter[str] = Counter()
        self._expected: dict[str, int] | None = None
        self._takers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "text": self._take_text,
            "run": self._take_run,
            "call": self._take_call,
            "turn": self._take_turn,
        }

    def take(self, line: bytes) -> None:
        """Take one line."""
        if len(line) > _MAX_LINE_BYTES:
            raise ValueError(f"a line is longer than {_MAX_LINE_BYTES:,} bytes")
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError("a line is no JSON object")
        kind = values["kind"]
        if self._expected is None:
            self._take_header(kind, values)
        elif kind not in self._takers:
            raise ValueError(f"a line of the kind {kind!r:.50}")
        else:
            self._seen[kind] += 1
            self._takers[kind](values)

    def finish(self) -> None:
        """Check that the file was whole."""
        if self._expected is None:
            raise ValueError("the file is empty")
        for kind, count in self._expected.items():
            if self._seen[kind] != count:
                raise ValueError(
                    f"the file has {self._seen[kind]} lines of the kind {kind}; its header says "
                    f"{count}"
                )

    def _take_header(self, kind: object, values: dict[str, Any]) -> None:
        if kind != "header":
            raise ValueError("it does not begin with a header: this is no export of a tape")
        if values["format"] != FORMAT:
            raise ValueError(
                f"format {values['format']!r:.20}; this version of llmsim_lab reads {FORMAT}"
            )
        self._expected = {name: _whole(values[name]) for name in KINDS}

    def _take_text(self, values: dict[str, Any]) -> None:
        text = values["text"]
        digest = hashlib.sha256(text.encode()).digest()
        if digest.hex() != values["digest"]:
            raise ValueError("the text does not have its digest")
        number = self.tape.text_id(self.connection, text, digest)
        self._texts[values["id"]] = (number, text)

    def _take_run(self, values: dict[str, Any]) -> None:
        parent, fork_turn = values["parent"], values["fork_turn"]
        if values["verb"] not in get_args(Verb):
            raise ValueError(f"the verb {values['verb']!r:.50}")
        if faults := manifest_faults(values["manifest"]):
            raise ValueError("; ".join(faults))
        for name in ("name", "started", "ended", "outcome"):
            optional = values[name] is None and name in ("ended", "outcome")
            if not isinstance(values[name], str) and not optional:
                raise ValueError(f"{name} is no text")
        cursor = self.connection.execute(
            "INSERT INTO runs (name, parent, fork_turn, verb, started, ended, outcome, manifest) "
            "VALUES (?,?,?,?,?,?,?,?)",
            (
                values["name"],
                None if parent is None else self.runs[parent],
                None if fork_turn is None else _whole(fork_turn),
                values["verb"],
                values["started"],
                values["ended"],
                values["outcome"],
                dumps(values["manifest"]),
            ),
        )
        self.runs[_whole(values["id"])] = int(cursor.lastrowid or 0)

    def _take_call(self, values: dict[str, Any]) -> None:
        number, (settings_id, settings) = _whole(values["id"]), self._texts[values["settings"]]
        row = {name: values[name] for name in _COPIED}
        for name in ("messages", "reply", "fault"):
            row[name] = None if values[name] is None else dumps(values[name])
        key = bytes.fromhex(values["key"])
        request = attempt_of(row | {"id": number, "settings": settings}).request
        if not key_fits(key, call_key(request, self._settings.of(request))):
            raise ValueError("the call's key is not that of its content")
        if row["turn"] is not None:
            _whole(row["turn"])
        row |= {"run": self.runs[values["run"]], "settings": settings_id, "key": key}
        row["forgotten"] = int(values["forgotten"] is True)
        cursor = self.connection.execute(
            f"INSERT INTO calls ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            tuple(row.values()),
        )
        self._calls[number] = int(cursor.lastrowid or 0)

    def _take_turn(self, values: dict[str, Any]) -> None:
        record, row = values["record"], values["row"]
        call_numbers(record)
        if record["turn"] != values["turn"] or not isinstance(row, dict):
            raise ValueError("its record or its row is not that of the turn")
        for chain in record["chains"]:
            if "call" in chain:
                status, numbers = chain["call"]
                chain["call"] = [status, [self._calls[number] for number in numbers]]
        self.connection.execute(
            "INSERT INTO turns (run, turn, record, row) VALUES (?,?,?,?)",
            (self.runs[values["run"]], _whole(values["turn"]), dumps(record), dumps(row)),
        )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.50} is no whole number")
    return value
