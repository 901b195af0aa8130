"""Writing to a run: one process at a time, and every row with a seal that shows later changes.

A seal is the CRC-32 of each cell, four bytes a column, in the columns' order. A run's tally counts
its rows and keeps one digest of all their seals, so that a removed or added row shows as well.
This finds damage and edits by hand. It does not stop somebody who computes the seals again.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import struct
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from llmsim_lab.errors import TapeError
from llmsim_lab.tape._codec import loads
from llmsim_lab.tape._file import COLUMNS, TapeFile

SEALED = {
    # A run's writer changes whenever somebody opens or closes it.
    table: tuple(column for column in COLUMNS[table] if column not in ("writer", "seal"))
    for table in ("runs", "calls", "turns")
}
"""The columns that a table's seals cover, in order."""

DIGEST_BYTES = 16
_CRC_BYTES = 4
_CLOCK_STEP_S = 2.0
"""How far two readings of when one process started may be apart."""

# --- seals ---------------------------------------------------------------------------------------


def seal(cells: Iterable[Any]) -> bytes:
    """Return the seal of a row's cells, given in the order of ``SEALED``."""
    found = []
    for cell in cells:
        # The second argument, the checksum's start, tells equal bytes of different types apart.
        its_type = type(cell)
        # Exact types, so that a bool, which would come back as a number, is an error.
        if its_type is int:
            # Most are small: runs, turns, attempts, settings.
            found.append(_CRC[cell] if 0 <= cell < _SMALL else crc32(b"%d" % cell, 2))
        elif its_type is str:
            found.append(crc32(cell.encode("utf-8", "surrogatepass"), 1))
        elif cell is None:
            found.append(0)
        elif its_type is bytes:
            found.append(crc32(cell, 3))
        elif its_type is float:
            found.append(crc32(_DOUBLE(cell), 4))
        else:
            raise TypeError(f"a cell of the type {its_type.__name__}")
    return struct.pack(f">{len(found)}I", *found)


_DOUBLE = struct.Struct("<d").pack
_SMALL = 512
_CRC = [crc32(b"%d" % number, 2) for number in range(_SMALL)]


def broken_cells(table: str, row: Mapping[str, Any] | Any) -> list[str]:
    """Return the columns of a row whose cells do not fit its seal, or ``seal`` if it has none."""
    columns, recorded = SEALED[table], row["seal"]
    if not isinstance(recorded, bytes) or len(recorded) != _CRC_BYTES * len(columns):
        return ["seal"]
    computed = seal([row[column] for column in columns])
    parts = [slice(at, at + _CRC_BYTES) for at in range(0, len(recorded), _CRC_BYTES)]
    return [
        column
        for column, part in zip(columns, parts, strict=True)
        if computed[part] != recorded[part]
    ]


def mixed(digest: bytes, *seals: bytes) -> bytes:
    """Return a tally's digest with seals added, or removed again; their order does not matter."""
    # XOR removes what it added. Hashed first: of bare checksums, two rows that swap cells would
    # leave it as it is.
    number = int.from_bytes(digest, "big")
    for one in seals:
        number ^= int.from_bytes(hashlib.blake2b(one, digest_size=DIGEST_BYTES).digest(), "big")
    return number.to_bytes(DIGEST_BYTES, "big")


# --- rows ----------------------------------------------------------------------------------------


class Ledger:
    """Writes one run's rows, each with its seal, and keeps the run's tally; inside transactions.

    The tally is updated with every whole turn, not with every answer, which would double the cost
    of an answer. Until then the calls of the unfinished turn are not counted in it.

    Call ``committed`` after a transaction that was committed, ``rolled_back`` after another one.

    Args:
        run: the run's number on the tape.
    """

    def __init__(self, run: int) -> None:
        self.run = run
        self._place: int | None = None
        """Of the latest call that was committed, 1 for the run's first; None if not read yet."""
        self._uncounted: list[bytes] = []
        """Seals of committed calls that the tally does not count yet."""
        self._new: list[bytes] = []
        """Seals of the calls that were written in the current transaction."""

    @classmethod
    def begin(cls, connection: sqlite3.Connection, values: Mapping[str, Any]) -> Ledger:
        """Add a run.

        Args:
            connection: in a transaction.
            values: of the columns of ``runs``, without ``id``, ``writer`` and ``seal``.
        """
        count = connection.execute("SELECT value FROM meta WHERE key = 'runs'").fetchone()[0]
        # A number is never used again, so that a run that was pruned stays missing.
        ledger = cls(int(count) + 1)
        ledger._place = 0
        row = {"id": ledger.run, "writer": None, **values}
        row["seal"] = seal([row[column] for column in SEALED["runs"]])
        connection.execute(_INSERT["runs"], [row[column] for column in COLUMNS["runs"]])
        # No turns yet: the last comes before the first.
        connection.execute(_INSERT["tallies"], (ledger.run, 0, 0, -1, bytes(DIGEST_BYTES)))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'runs'", (str(ledger.run),))
        return ledger

    def change(self, connection: sqlite3.Connection, **values: str | None) -> None:
        """Change columns of the run's own row."""
        columns = SEALED["runs"]
        sql = f"SELECT {', '.join(columns)} FROM runs WHERE id = ?"
        row = connection.execute(sql, (self.run,)).fetchone()
        if row is None:
            raise TapeError(f"the tape has no run {self.run}")
        now = {**dict(zip(columns, row, strict=True)), **values}
        places = ", ".join(f"{name} = ?" for name in values)
        connection.execute(
            f"UPDATE runs SET {places}, seal = ? WHERE id = ?",
            (*values.values(), seal(now.values()), self.run),
        )

    def add_calls(
        self, connection: sqlite3.Connection, calls: Sequence[Sequence[Any]]
    ) -> list[int]:
        """Add calls; returns their numbers.

        Args:
            connection: in a transaction.
            calls: of each the columns from ``key`` to ``forgotten``.
        """
        if self._place is None:
            self._read(connection)
        # An import adds many calls in one transaction, before ``committed``.
        place = (self._place or 0) + len(self._new)
        # Not left to SQLite: the number is sealed with its row, so it has to be known before.
        [first] = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM calls").fetchone()
        rows = []
        for at, cells in enumerate(calls):
            row = (first + at, self.run, place + 1 + at, *cells)
            self._new.append(seal(row))
            rows.append((*row, self._new[-1]))
        connection.executemany(_INSERT["calls"], rows)
        return list(range(first, first + len(rows)))

    def add_call(self, file: TapeFile, cells: Sequence[Any]) -> int | None:
        """Add one call in a transaction of its own; returns its number, or None if it is not added.

        Args:
            file: the tape's.
            cells: the columns from ``key`` to ``forgotten``.
        """
        with file.lock:
            number, place = file.next_call, self._place
            if number is None or place is None or self._new:
                return None  # what is on the tape is not known yet
            row = (number, self.run, place + 1, *cells)
            own = seal(row)
            # Until all is counted: after a Ctrl-C in between, what is on the tape is read again.
            self._place = None
            is_added = file.insert(_INSERT["calls"], (*row, own))
            if is_added:
                file.next_call, place = number + 1, place + 1
                self._uncounted.append(own)
            self._place = place
        return number if is_added else None

    def committed(self) -> None:
        """Record that the transaction was committed."""
        if self._new:
            self._place = (self._place or 0) + len(self._new)
            self._uncounted += self._new
            self._new = []

    def rolled_back(self) -> None:
        """Record that the transaction failed; what is on the tape is read again when needed."""
        self._place, self._uncounted, self._new = None, [], []

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read what is on the tape already, also of a turn that broke off."""
        counted, *_ = self._tally(connection)
        rows = connection.execute(
            "SELECT place, seal FROM calls WHERE run = ? AND place > ?", (self.run, counted)
        ).fetchall()
        self._place = counted + len(rows)
        self._uncounted = [row[1] for row in rows]

    def forget(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        """Mark calls that failed for good and are made again; updates the tally."""
        # First of all, or a seal would be taken out of a digest that it is not in yet.
        self.count_calls(connection)
        *_, digest = self._tally(connection)
        columns = SEALED["calls"]
        for number in numbers:
            sql = f"SELECT {', '.join(columns)}, seal FROM calls WHERE id = ?"
            *cells, before = connection.execute(sql, (number,)).fetchone()
            cells[columns.index("forgotten")] = 1
            after = seal(cells)
            digest = mixed(digest, before, after)
            connection.execute(
                "UPDATE calls SET forgotten = 1, seal = ? WHERE id = ?", (after, number)
            )
        connection.execute("UPDATE tallies SET digest = ? WHERE run = ?", (digest, self.run))

    def add_turn(self, connection: sqlite3.Connection, turn: int, record: str, row: str) -> None:
        """Add a whole turn, and its calls to the tally."""
        self.count_calls(connection)
        own = seal((self.run, turn, record, row))
        connection.executemany(_INSERT["turns"], [(self.run, turn, record, row, own)])
        _, first, last, digest = self._tally(connection)
        connection.execute(
            "UPDATE tallies SET first_turn = ?, last_turn = ?, digest = ? WHERE run = ?",
            (first if first <= last else turn, turn, mixed(digest, own), self.run),
        )

    def replace_turn(
        self, connection: sqlite3.Connection, turn: int, record: str, row: str
    ) -> None:
        """Write a turn again, after it was changed from outside."""
        *_, digest = self._tally(connection)
        [before] = connection.execute(
            "SELECT seal FROM turns WHERE run = ? AND turn = ?", (self.run, turn)
        ).fetchone()
        own = seal((self.run, turn, record, row))
        connection.execute(
            "UPDATE turns SET record = ?, row = ?, seal = ? WHERE run = ? AND turn = ?",
            (record, row, own, self.run, turn),
        )
        connection.execute(
            "UPDATE tallies SET digest = ? WHERE run = ?", (mixed(digest, before, own), self.run)
        )

    def count_calls(self, connection: sqlite3.Connection) -> None:
        """Add the calls that the tally does not count yet to it."""
        if self._place is None:
            self._read(connection)
        uncounted = [*self._uncounted, *self._new]
        if not uncounted:
            return
        calls, _, _, digest = self._tally(connection)
        connection.execute(
            "UPDATE tallies SET calls = ?, digest = ? WHERE run = ?",
            (calls + len(uncounted), mixed(digest, *uncounted), self.run),
        )
        self._place = (self._place or 0) + len(self._new)
        self._uncounted, self._new = [], []

    def _tally(self, connection: sqlite3.Connection) -> tuple[int, int, int, bytes]:
        row = connection.execute(
            "SELECT calls, first_turn, last_turn, digest FROM tallies WHERE run = ?", (self.run,)
        ).fetchone()
        if row is None:
            raise TapeError(f"run {self.run} on the tape is damaged: it has no tally")
        calls, first, last, digest = row
        return calls, first, last, digest


_INSERT = {
    table: f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for table, columns in COLUMNS.items()
}


# --- one writer at a time ------------------------------------------------------------------------

_holders: dict[tuple[Path, int], weakref.ref[object]] = {}
"""What writes to runs in this process, by the tape's path and the run."""


def claim(
    file: TapeFile, run: int, holder: object
) -> weakref.finalize[[TapeFile, int, str], object]:
    """Make this process the run's writer; returns what gives the run back.

    Args:
        file: the tape's.
        run: the run.
        holder: who writes; the run is given back when it is gone.

    Raises:
        TapeError: somebody else writes to this run, or there is no such run.
    """
    pid = os.getpid()
    me = json.dumps({"host": socket.gethostname(), "pid": pid, "since": started_at(pid)})
    with file.transaction() as connection:
        row = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise TapeError(f"the tape {file.path} has no run {run}")
        check_free(row[0], file.path, run, me=me)
        connection.execute("UPDATE runs SET writer = ? WHERE id = ?", (me, run))
    _holders[file.path.resolve(), run] = weakref.ref(holder)
    return weakref.finalize(holder, _give_back, file, run, me)


def _give_back(file: TapeFile, run: int, me: str) -> None:
    if json.loads(me)["pid"] != os.getpid():
        return  # a forked child has a copy of what its parent still writes with
    _holders.pop((file.path.resolve(), run), None)
    # If it cannot be written, the entry names a process that soon ends, and then counts no more.
    file.write_when_possible("UPDATE runs SET writer = NULL WHERE id = ? AND writer = ?", (run, me))


def check_free(writer: str | None, path: Path, run: int, *, me: str | None = None) -> None:
    """Raise TapeError if somebody else writes to a run.

    Args:
        writer: the run's entry on the tape.
        path: the tape's.
        run: the run.
        me: this process's entry, if it is to become the writer.
    """
    path = path.resolve()
    if writer is None:
        return
    if writer == me:
        holder = _holders.get((path, run))
        if holder is not None and holder() is not None:
            raise TapeError(
                f"run {run} on {path} is being recorded by another simulation of this process; "
                "continue with that one, or close() it"
            )
        return
    other = loads(writer, f"the writer of run {run}")
    if not (isinstance(other, dict) and isinstance(other.get("pid"), int)):
        raise TapeError(
            f"the writer of run {run} on the tape {path} is damaged; if nobody records it, "
            f"Tape({str(path)!r}).release({run})"
        )
    if other.get("host") != socket.gethostname():
        raise TapeError(
            f"run {run} on {path} is being recorded on {other.get('host')} (process "
            f"{other['pid']}); fork it, or, if that process is surely gone, "
            f"Tape({str(path)!r}).release({run})"
        )
    start, since = started_at(other["pid"]), other.get("since")
    # Not exactly: setting the clock moves the times at which processes seem to have started.
    if start is not None and isinstance(since, int | float) and abs(start - since) < _CLOCK_STEP_S:
        raise TapeError(
            f"run {run} on {path} is being recorded by process {other['pid']}; "
            "end that one first, or fork the run"
        )


def started_at(pid: int) -> float | None:
    """Return when a process started, or None if it is gone; process numbers are used again."""
    import psutil  # here, since it takes long to import

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
