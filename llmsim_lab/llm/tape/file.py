"""A tape's open file: what is read and written goes through here, whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.schema import open_database

__all__ = ["TapeFile"]


class TapeFile:
    """The database behind a tape.

    Args:
        path: the file; made if it is not there, unless ``read_only``.
        read_only: for looking only; works on a disk that cannot be written to.

    Raises:
        TapeError: the file cannot be opened, is no tape, is damaged, or is newer than this package.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._connection = open_database(self.path, read_only=read_only)
        self._connection.row_factory = sqlite3.Row
        self._lock = threading.RLock()
        self._texts: dict[bytes, int] = {}
        self._later: deque[tuple[str, tuple[Any, ...]]] = deque()
        # Not left to the garbage collector, which at the interpreter's end may never come.
        self._finalizer = weakref.finalize(self, self._connection.close)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all that is written inside, or nothing of it.

        Raises:
            TapeError: the tape is read-only, or the disk is full or fails.
        """
        if self.read_only:
            raise TapeError(f"the tape {self.path} was opened for reading only")
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    late = list(self._later)
                    for statement in late:
                        self._connection.execute(*statement)
                    yield self._connection
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    self._texts.clear()
                    raise
                self._connection.execute("COMMIT")
                for _ in late:
                    self._later.popleft()
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._texts.clear()
                raise TapeError(
                    f"cannot write to the tape {self.path}: {error}; what was written before is "
                    "whole: free some space or close the other program, then resume the run"
                ) from error

    def write_when_possible(self, sql: str, values: tuple[Any, ...]) -> None:
        """Write now, or with whatever is written next; for finalizers.

        They may run at any point, also in the middle of this very tape's transaction.
        """
        self._later.append((sql, values))
        if self._lock.acquire(blocking=False):
            try:
                if not self._connection.in_transaction:
                    with suppress(TapeError), self.transaction():
                        pass
            except sqlite3.ProgrammingError:
                return  # the tape is closed
            finally:
                self._lock.release()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let everything read inside be of one moment, whatever others write meanwhile."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self.query("BEGIN")
            try:
                yield
            finally:
                self.query("ROLLBACK")

    def text_id(self, connection: sqlite3.Connection, text: str, digest: bytes) -> int:
        """Return the number of a shared text, storing it if it is new; inside a transaction."""
        known = self._texts.get(digest)
        if known is None:
            connection.execute(
                "INSERT INTO texts (digest, text) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (digest, text),
            )
            row = connection.execute("SELECT id FROM texts WHERE digest = ?", (digest,)).fetchone()
            known = self._texts[digest] = int(row[0])
        return known

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Return what a question finds; for the modules of this package.

        Raises:
            TapeError: the file is damaged or cannot be read.
        """
        with self._lock:
            try:
                return self._connection.execute(sql, values).fetchall()
            except (sqlite3.Error, UnicodeError) as error:
                raise TapeError(f"cannot read the tape {self.path}: {error}") from error

    def in_batches(
        self, sql: str, values: tuple[Any, ...] = (), *, size: int = 1_000
    ) -> Iterator[sqlite3.Row]:
        """Yield what a question finds, sorted by its column ``id``, a batch in memory at a time.

        Args:
            sql: a question without an order.
            values: of its parameters.
            size: rows a batch.
        """
        last = -(1 << 63)
        while rows := self.query(
            f"SELECT * FROM ({sql}) WHERE id > ? ORDER BY id LIMIT ?", (*values, last, size)
        ):
            yield from rows
            last = rows[-1]["id"]

    def close(self) -> None:
        """Let go of the file; folds the write-ahead log into it if nobody else has it open."""
        with self._lock:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
