"""Writing a tape's rows with their seals, from which one can tell what was changed since.

A seal is the CRC-32 of each cell, four bytes a column, in the columns' order. A run's tally counts
its rows and keeps one digest of all their seals, so that a row taken away or put in shows as well.
This finds damage and edits by hand. It does not stop somebody who computes the seals again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.file import COLUMNS

__all__ = ["DIGEST_BYTES", "SEALED", "Ledger", "broken_cells", "mixed", "seal"]

_NOT_SEALED = {"writer", "seal"}
"""A run's writer changes whenever somebody opens or closes it."""

SEALED = {
    table: tuple(column for column in COLUMNS[table] if column not in _NOT_SEALED)
    for table in ("runs", "calls", "turns")
}
"""The columns that a table's seals cover, in order."""

DIGEST_BYTES = 16
_WIDTH = 4


def seal(cells: Iterable[Any]) -> bytes:
    """Return the seal of a row's cells, given in the order of ``SEALED``."""
    found = []
    for cell in cells:
        # The second argument keeps apart what has the same bytes in another type.
        kind = type(cell)
        if kind is str:
            found.append(crc32(cell.encode("utf-8", "surrogatepass"), 1))
        elif kind is int:
            found.append(_CRC[cell] if 0 <= cell < len(_CRC) else crc32(b"%d" % cell, 2))
        elif cell is None:
            found.append(0)
        elif kind is bytes:
            found.append(crc32(cell, 3))
        elif kind is float:
            found.append(crc32(_DOUBLE(cell), 4))
        else:
            raise TypeError(f"a cell of the type {kind.__name__}")
    return struct.pack(f">{len(found)}I", *found)


_DOUBLE = struct.Struct("<d").pack
_CRC = [crc32(b"%d" % number, 2) for number in range(512)]
"""Of small numbers, which most rows have: runs, turns, attempts, settings."""


def broken_cells(table: str, row: Mapping[str, Any] | Any) -> list[str]:
    """Return the columns of a row whose cells do not fit its seal, or ``seal``."""
    columns, there = SEALED[table], row["seal"]
    if not isinstance(there, bytes) or len(there) != _WIDTH * len(columns):
        return ["seal"]
    found = seal([row[column] for column in columns])
    return [
        column
        for at, column in enumerate(columns)
        if found[at * _WIDTH : (at + 1) * _WIDTH] != there[at * _WIDTH : (at + 1) * _WIDTH]
    ]


def mixed(digest: bytes, *seals: bytes) -> bytes:
    """Return a tally's digest with seals put in, or taken out again: the order does not matter."""
    number = int.from_bytes(digest, "big")
    for one in seals:
        number ^= int.from_bytes(hashlib.blake2b(one, digest_size=DIGEST_BYTES).digest(), "big")
    return number.to_bytes(DIGEST_BYTES, "big")


class Ledger:
    """Writes one run's rows, each with its seal, and keeps the run's tally; inside transactions.

    The tally is brought up to date with every whole turn, not with every answer, which would
    double what an answer costs. Until then the calls of the unfinished turn are not counted in it.

    After a transaction that was committed comes ``settle``, after one that failed ``undo``.

    Args:
        run: the run's number on the tape.
    """

    def __init__(self, run: int) -> None:
        self.run = run
        self._place: int | None = None
        self._loose: list[bytes] = []
        """Seals of calls that the tally does not count yet."""
        self._new: list[bytes] = []
        """Those of them that were written in the transaction that is under way."""

    @classmethod
    def begin(cls, connection: sqlite3.Connection, values: Mapping[str, Any]) -> Ledger:
        """Add a run.

        Args:
            connection: in a transaction.
            values: of the columns of ``runs``, without ``id``, ``writer`` and ``seal``.
        """
        count = connection.execute("SELECT value FROM meta WHERE key = 'runs'").fetchone()[0]
        # Numbers are never used again, so that a run that was pruned stays missing.
        ledger = cls(int(count) + 1)
        ledger._place = 0
        row = {"id": ledger.run, "writer": None, **values}
        row["seal"] = seal([row[column] for column in SEALED["runs"]])
        _insert(connection, "runs", [[row[column] for column in COLUMNS["runs"]]])
        _insert(connection, "tallies", [(ledger.run, 0, 0, -1, bytes(DIGEST_BYTES))])
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
        place = (self._place or 0) + len(self._new)
        [first] = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM calls").fetchone()
        rows = []
        for at, cells in enumerate(calls):
            row = (first + at, self.run, place + 1 + at, *cells)
            self._new.append(seal(row))
            rows.append((*row, self._new[-1]))
        _insert(connection, "calls", rows)
        return list(range(first, first + len(rows)))

    def settle(self) -> None:
        """Take what was written for written: the transaction was committed."""
        if self._new:
            self._place = (self._place or 0) + len(self._new)
            self._loose += self._new
            self._new = []

    def undo(self) -> None:
        """Take what was written for not written, and read the tape anew: a transaction failed."""
        self._place, self._loose, self._new = None, [], []

    def _read(self, connection: sqlite3.Connection) -> None:
        """Find out what is on the tape already, also of a turn that broke off."""
        counted, *_ = self._tally(connection)
        rows = connection.execute(
            "SELECT place, seal FROM calls WHERE run = ? AND place > ?", (self.run, counted)
        ).fetchall()
        self._place = counted + len(rows)
        self._loose = [row[1] for row in rows]

    def forget(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        """Mark calls that failed for good and are made anew; brings the tally up to date."""
        self.count(connection)
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
        self.count(connection)
        own = seal((self.run, turn, record, row))
        _insert(connection, "turns", [(self.run, turn, record, row, own)])
        _, first, last, digest = self._tally(connection)
        connection.execute(
            "UPDATE tallies SET first_turn = ?, last_turn = ?, digest = ? WHERE run = ?",
            (first if first <= last else turn, turn, mixed(digest, own), self.run),
        )

    def replace_turn(
        self, connection: sqlite3.Connection, turn: int, record: str, row: str
    ) -> None:
        """Write a turn again, after something was done to it from outside."""
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

    def count(self, connection: sqlite3.Connection) -> None:
        """Bring the tally up to date with the calls."""
        if self._place is None:
            self._read(connection)
        loose = [*self._loose, *self._new]
        if not loose:
            return
        calls, _, _, digest = self._tally(connection)
        connection.execute(
            "UPDATE tallies SET calls = ?, digest = ? WHERE run = ?",
            (calls + len(loose), mixed(digest, *loose), self.run),
        )
        self._place = (self._place or 0) + len(self._new)
        self._loose, self._new = [], []

    def _tally(self, connection: sqlite3.Connection) -> tuple[int, int, int, bytes]:
        row = connection.execute(
            "SELECT calls, first_turn, last_turn, digest FROM tallies WHERE run = ?", (self.run,)
        ).fetchone()
        if row is None:
            raise TapeError(f"run {self.run} on the tape is damaged: it has no tally")
        calls, first, last, digest = row
        return calls, first, last, digest


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    connection.executemany(_INSERT[table], rows)


_INSERT = {
    table: f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for table, columns in COLUMNS.items()
}
