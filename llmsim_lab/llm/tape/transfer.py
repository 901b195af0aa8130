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
from llmsim_lab.llm.tape.codec import (
    SettingsCache,
    Verb,
    asked,
    call_of,
    dumps,
    key_fits,
    manifest_faults,
)
from llmsim_lab.llm.tape.export import FORMAT, KINDS
from llmsim_lab.llm.tape.file import COLUMNS
from llmsim_lab.llm.tape.ledger import Ledger
from llmsim_lab.llm.tape.verify import call_numbers

if TYPE_CHECKING:
    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["import_runs"]

_MAX_LINE_BYTES = 64 * 1024 * 1024
_COPIED = ("run", "turn", "component", "agent", "replicate", "attempt", "seconds")
_CELLS = COLUMNS["calls"][COLUMNS["calls"].index("key") : COLUMNS["calls"].index("seal")]


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
        self._ledgers: dict[int, Ledger] = {}
        self._calls: dict[int, int] = {}
        self._texts: dict[int, tuple[int, str]] = {}
        self._settings = SettingsCache()
        self._keys: set[tuple[int, bytes]] = set()
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
        values = json.loads(line, parse_constant=_not_finite)
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
        copied = ("name", "verb", "started", "ended", "outcome")
        ledger = Ledger.begin(
            self.connection,
            {name: values[name] for name in copied}
            | {
                "parent": None if parent is None else self.runs[parent],
                "fork_turn": None if fork_turn is None else _whole(fork_turn),
                "manifest": dumps(values["manifest"]),
            },
        )
        self.runs[_whole(values["id"])] = ledger.run
        self._ledgers[ledger.run] = ledger

    def _take_call(self, values: dict[str, Any]) -> None:
        number, (settings_id, settings) = _whole(values["id"]), self._texts[values["settings"]]
        origin = values["origin"]
        origin_id, form = (None, None) if origin is None else self._texts[origin]
        row = {name: values[name] for name in _COPIED}
        for name in ("messages", "spans", "reply", "fault"):
            row[name] = None if values[name] is None else dumps(values[name])
        key = bytes.fromhex(values["key"])
        row["forgotten"] = int(values["forgotten"] is True)
        run = self.runs[_whole(row.pop("run"))]
        row |= {"key": key, "origin": origin_id}
        call = call_of(row | {"id": number, "run": run}, settings, form)
        _ = call.attempt.request.provenance  # read, since it is not before it is asked for
        if not key_fits(key, asked(call.attempt.request, self._settings).key):
            raise ValueError("the call's key is not that of its content")
        if not call.forgotten:
            if (run, key) in self._keys:
                raise ValueError("another call of the run has this key")
            self._keys.add((run, key))
        cells = row | {"settings": settings_id, "seconds": float(row["seconds"])}
        row_cells = [cells[name] for name in _CELLS]
        [self._calls[number]] = self._ledgers[run].add_calls(self.connection, [row_cells])

    def _take_turn(self, values: dict[str, Any]) -> None:
        record, row = values["record"], values["row"]
        call_numbers(record)
        if record["turn"] != values["turn"] or not isinstance(row, dict):
            raise ValueError("its record or its row is not that of the turn")
        named = [chain["call"] for chain in record["chains"] if isinstance(chain.get("call"), list)]
        for call in (*record["calls"], *named):
            call[1] = [self._calls[number] for number in call[1]]
        ledger, turn = self._ledgers[self.runs[values["run"]]], _whole(values["turn"])
        ledger.add_turn(self.connection, turn, dumps(record), dumps(row))


def _not_finite(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.50} is no whole number")
    return value
