"""A tape's file: an SQLite database of one exact schema, read and written whole or not at all.

Tables: ``meta`` (format, and which runs there have been), ``texts`` (what many calls share, stored
once: their settings, and the form of prompts as ``Origin`` has it), ``runs`` (a manifest each, with
parent and fork turn), ``calls`` (every request, where its prompt's values came from, and what
became of it), ``turns`` (a record each, written when the turn is whole), ``tallies`` (how many
calls and which turns a run has written, with a digest of all of them). Rows of the middle three
have a ``seal``, from which ``verify`` tells which cell was changed; see ``_ledger.py``.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from llmsim_lab._util.text import printable
from llmsim_lab.errors import TapeError

FORMAT_VERSION = 2
_APPLICATION_ID = 0x4C534C42
"""Marks the file as a tape in SQLite's own header ("LSLB")."""

_BUSY_TIMEOUT_MS = 10_000
_BATCH_ROWS = 1_000
_PATIENCE_S = 5.0
"""How long the end of the interpreter waits for another thread's query."""
_SIGNAL_CHECK_STEPS = 100_000
"""Steps of SQLite's virtual machine between two checks whether Ctrl-C was pressed."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 256 * 1024 * 1024,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""The most that an untrusted file can make SQLite do; no value is larger than 256 MiB."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE texts (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    parent INTEGER REFERENCES runs (id),
    fork_turn INTEGER,
    verb TEXT NOT NULL,
    started TEXT NOT NULL,
    ended TEXT,
    outcome TEXT,
    manifest TEXT NOT NULL,
    writer TEXT,
    seal BLOB NOT NULL
);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    place INTEGER NOT NULL,
    key BLOB NOT NULL,
    turn INTEGER,
    component TEXT,
    agent TEXT,
    replicate INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    messages TEXT NOT NULL,
    settings INTEGER NOT NULL REFERENCES texts (id),
    origin INTEGER REFERENCES texts (id),
    spans TEXT,
    reply TEXT,
    fault TEXT,
    seconds REAL NOT NULL,
    forgotten INTEGER NOT NULL,
    seal BLOB NOT NULL
);
CREATE INDEX calls_by_turn ON calls (run, turn);
CREATE TABLE turns (
    run INTEGER NOT NULL REFERENCES runs (id),
    turn INTEGER NOT NULL,
    record TEXT NOT NULL,
    row TEXT NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, turn)
) WITHOUT ROWID;
CREATE TABLE tallies (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    calls INTEGER NOT NULL,
    first_turn INTEGER NOT NULL,
    last_turn INTEGER NOT NULL,
    digest BLOB NOT NULL
);
"""

COLUMNS = {
    "texts": ("id", "digest", "text"),
    "runs": (
        *("id", "name", "parent", "fork_turn", "verb", "started", "ended", "outcome"),
        *("manifest", "writer", "seal"),
    ),
    "calls": (
        *("id", "run", "place", "key", "turn", "component", "agent", "replicate", "attempt"),
        *("messages", "settings", "origin", "spans", "reply", "fault", "seconds", "forgotten"),
        "seal",
    ),
    "turns": ("run", "turn", "record", "row", "seal"),
    "tallies": ("run", "calls", "first_turn", "last_turn", "digest"),
}
"""Of every table but ``meta``, in the order of the file."""

SHARED = "SELECT settings FROM calls UNION SELECT origin FROM calls WHERE origin IS NOT NULL"
"""The texts that calls share."""


class TapeFile:
    """The database behind a tape.

    Args:
        path: the file; created if it does not exist, unless ``read_only``.
        read_only: for reading only; works on a disk that cannot be written to.

    Attributes:
        lock: held while the connection is in use; all threads share one connection.
        next_call: the number that the next call probably gets, since another process may have
            taken it; None if not known.

    Raises:
        TapeError: the file cannot be opened, is not a tape, is damaged, or has another format.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._connection = _open(self.path, read_only=read_only)
        # Python runs signal handlers only between its own steps, and a query is a single one.
        self._connection.set_progress_handler(lambda: 0, _SIGNAL_CHECK_STEPS)
        self._connection.row_factory = sqlite3.Row
        # Reentrant, since a finalizer may run in the middle of this thread's own transaction.
        self.lock = threading.RLock()
        self.next_call: int | None = None
        self._deferred: deque[tuple[str, tuple[Any, ...]]] = deque()
        # Not left to the garbage collector, which may never run at the interpreter's end.
        self._finalizer = weakref.finalize(self, _close, self._connection, self.lock)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all that is written inside, or nothing of it.

        Raises:
            TapeError: the tape is read-only, or the disk is full or fails.
        """
        if self.read_only:
            raise TapeError(f"the tape {self.path} was opened for reading only")
        with self.lock:
            try:
                try:
                    # At once: one that has read first fails, without waiting, if another program
                    # wrote meanwhile. Inside, since Ctrl-C is noticed when it has begun.
                    self._connection.execute("BEGIN IMMEDIATE")
                    deferred = list(self._deferred)
                    for statement in deferred:
                        self._connection.execute(*statement)
                    yield self._connection
                    # A full disk may show only here.
                    self._connection.execute("COMMIT")
                except BaseException:
                    # SQLite itself rolls back after some errors, such as a full disk.
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    self.next_call = None
                    raise
                # Only those written here: a finalizer may have added more meanwhile.
                for _ in deferred:
                    self._deferred.popleft()
            except sqlite3.Error as error:
                raise self._cannot_write(error) from error

    def insert(self, sql: str, values: tuple[Any, ...]) -> bool:
        """Write one row in a transaction of its own.

        Returns:
            False if nothing was written, since its number is taken or something else has to be
            written first: ``transaction`` is needed.

        Raises:
            TapeError: the disk is full or fails.
        """
        with self.lock:
            if self._deferred or self._connection.in_transaction:
                return False
            try:
                self._connection.execute(sql, values)
            except sqlite3.IntegrityError:
                return False
            except sqlite3.Error as error:
                raise self._cannot_write(error) from error
            return True

    def _cannot_write(self, error: sqlite3.Error) -> TapeError:
        return TapeError(
            f"cannot write to the tape {self.path}: {error}; what was written before is whole: "
            "free some space or close the other program, then resume the run"
        )

    def write_when_possible(self, sql: str, values: tuple[Any, ...]) -> None:
        """Write now, or with whatever is written next; for finalizers.

        They may run at any point, also in the middle of a transaction of this very tape.
        """
        self._deferred.append((sql, values))
        if self.lock.acquire(blocking=False):
            try:
                if not self._connection.in_transaction:
                    with suppress(TapeError), self.transaction():
                        pass
            except sqlite3.ProgrammingError:
                return  # the tape is closed
            finally:
                self.lock.release()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything inside as it is at one moment, whatever others write meanwhile."""
        with self.lock:
            if self._connection.in_transaction:
                yield
                return
            # In a write-ahead log, whoever reads in a transaction sees the file as it was when it
            # began, and keeps nobody from writing.
            try:
                self.query("BEGIN")
                yield
            finally:
                if self._connection.in_transaction:
                    self.query("ROLLBACK")

    def text_id(self, text: str, digest: bytes, connection: sqlite3.Connection) -> int:
        """Return the id of a shared text, storing it if it is new; inside a transaction."""
        connection.execute(
            "INSERT INTO texts (digest, text) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (digest, text),
        )
        # Asked for, since an INSERT that meets an equal text adds no row and so has no number.
        row = connection.execute("SELECT id FROM texts WHERE digest = ?", (digest,)).fetchone()
        return int(row[0])

    def shared_by(self, row: sqlite3.Row) -> tuple[Any, Any]:
        """Return the texts of a call's settings and of its origin, each None if missing."""
        ids = row["settings"], row["origin"]
        found = self.query("SELECT id, text FROM texts WHERE id IN (?, ?)", ids)
        texts = {text["id"]: text["text"] for text in found}
        return texts.get(ids[0]), texts.get(ids[1])

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Return the rows that a query finds.

        Raises:
            TapeError: the file is damaged or cannot be read.
        """
        with self.lock:
            try:
                return self._connection.execute(sql, values).fetchall()
            except (sqlite3.Error, UnicodeError) as error:
                if str(error) == "interrupted":  # by a signal handler that raised: Ctrl-C
                    raise KeyboardInterrupt from error
                raise TapeError(f"cannot read the tape {self.path}: {error}") from error

    def in_batches(
        self, table: str, where: str = "TRUE", values: tuple[Any, ...] = ()
    ) -> Iterator[sqlite3.Row]:
        """Yield a table's rows, sorted by ``id``, a batch in memory at a time.

        Args:
            table: one that has an ``id``.
            where: a condition on its rows.
            values: of the condition's parameters.
        """
        columns = ", ".join(COLUMNS[table])
        last = -(1 << 63)  # below every id of an SQLite table
        while rows := self.query(
            f"SELECT {columns} FROM {table} WHERE ({where}) AND id > ? ORDER BY id LIMIT ?",
            (*values, last, _BATCH_ROWS),
        ):
            yield from rows
            last = rows[-1]["id"]

    def compact(self) -> None:
        """Rewrite the file without what was deleted, so that none of its bytes are left there.

        Raises:
            TapeError: another program has the tape open.
        """
        with self.lock:
            # SQLite builds the new file as a database attached to this one.
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)
            try:
                self._connection.execute("VACUUM")
                [row] = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                raise TapeError(self._not_compact(error)) from error
            finally:
                self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            # 1 if somebody reads: the old pages are still in the log then.
            if row[0]:
                raise TapeError(self._not_compact("it is open elsewhere"))

    def _not_compact(self, why: object) -> str:
        return (
            f"what was taken off the tape {self.path} is gone from it, but the file may still hold "
            f"its bytes ({why}); close what has it open, then Tape({str(self.path)!r}).compact()"
        )

    @property
    def closed(self) -> bool:
        """True once the file is closed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Close the file; folds the write-ahead log into it if nobody else has it open."""
        with self.lock:
            self._finalizer()


def _close(connection: sqlite3.Connection, lock: threading.RLock) -> None:
    # Closed in the middle of another thread's query, as at the interpreter's end, SQLite crashes
    # the process. A query that does not end is left to the system: the file is whole all the same.
    if lock.acquire(timeout=_PATIENCE_S):
        try:
            connection.close()
        finally:
            lock.release()


def _open(path: Path, *, read_only: bool) -> sqlite3.Connection:
    new = not path.exists() or path.stat().st_size == 0
    if new and read_only:
        raise TapeError(f"there is no tape at {path.absolute()}")
    if not new:
        _check_header(path)
        if not read_only and not os.access(path, os.W_OK):
            raise TapeError(
                f"cannot open the tape {path} for writing, since the file or its disk is "
                "read-only; copy it, or open it with Tape(..., read_only=True)"
            )
    try:
        connection = _connect(path, read_only=read_only)
        try:
            for category, limit in _LIMITS.items():
                connection.setlimit(category, limit)
            # Before anything is read, since the file is untrusted: its schema may call no function
            # with side effects, and pages that contradict themselves are errors.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
            # Not by ``new``: whoever made the file may have been killed in the middle of it, and
            # SQLite has only now taken back the pages that were written.
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                if read_only:
                    raise TapeError(f"there is no tape at {path.absolute()}")
                _create(connection)
            _check_schema(connection, path)
            connection.execute("PRAGMA foreign_keys = ON")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            else:
                # Readers do not wait for a writer then, and a commit waits for the disk only when
                # the log is folded in.
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeError) as error:
        raise TapeError(f"cannot open the tape {path}: {error}") from error
    return connection


def _check_header(path: Path) -> None:
    """Check the first bytes before SQLite may touch the file.

    Raises:
        TapeError: it is not a tape, or was cut off.
    """
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise TapeError(f"cannot read the tape {path}: {error}") from error
    if not head.startswith(b"SQLite format 3\0"):
        raise TapeError(f"{path} is not a tape: it is not an SQLite file")
    if int.from_bytes(head[68:72], "big") != _APPLICATION_ID:
        raise TapeError(f"{path} is not a tape: it is an SQLite file of another program")
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size  # which does not fit into two bytes
    whole = page_size * int.from_bytes(head[28:32], "big")
    # While a log is there, SQLite completes the file or takes back what was being written when its
    # writer was killed. A writer may also have finished since the size was read.
    logs = (_beside(path, suffix) for suffix in ("-wal", "-journal"))
    if size < whole and not any(log.exists() for log in logs) and path.stat().st_size < whole:
        raise TapeError(
            f"cannot open the tape {path}: it was cut off, {size:,} of {whole:,} bytes are left; "
            "get it again from where it came"
        )


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    path = path.resolve()
    uri = path.as_uri()
    if read_only and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        # A tape at rest has no write-ahead log. Without permission to write beside the file,
        # SQLite can read it only if told that nobody changes it.
        wal = _beside(path, "-wal")
        alive = wal.exists() and wal.stat().st_size > 0
        uri += "?mode=ro" if alive else "?immutable=1"
    # Otherwise even a reader opens the file for writing: as the last to close it, it then folds in
    # and removes the write-ahead log, which a mode=ro connection would leave behind.
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables, all or none, unless another process has made them in the meantime."""
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("PRAGMA application_id").fetchone()[0]:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for statement in _statements():
            connection.execute(statement)
        connection.execute(
            "INSERT INTO meta VALUES ('format', ?), ('kind', 'llmsim_lab tape'), ('runs', '0'), "
            "('pruned', '')",
            (str(FORMAT_VERSION),),
        )
    connection.execute("COMMIT")


def _statements() -> list[str]:
    # One by one: ``executescript`` would commit the transaction that is open.
    return [statement.strip() for statement in _TABLES.split(";") if statement.strip()]


_Schema = frozenset[tuple[object, ...]]


def _schema_of(connection: sqlite3.Connection) -> _Schema:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset(tuple(row) for row in rows)


@cache
def _schema() -> _Schema:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in _statements():
            connection.execute(statement)
        return _schema_of(connection)
    finally:
        connection.close()


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise TapeError unless the schema is exactly that of a tape; before anything else is read.

    A view, a trigger, a generated column or a default would run code by reading or by writing.
    """
    found = _schema_of(connection)
    version = _claimed_format(connection, found)
    if version == FORMAT_VERSION and found == _schema():
        return
    if version > FORMAT_VERSION:
        raise TapeError(
            f"the tape {path} has format {version}; this version of llmsim_lab reads format "
            f"{FORMAT_VERSION}: install a newer one"
        )
    if version == 1:
        raise TapeError(
            f"the tape {path} has format 1, which is not read any more; this version of llmsim_lab "
            f"reads format {FORMAT_VERSION}: record the run again"
        )
    if found == _schema():
        raise TapeError(f"the tape {path} names no format; it is damaged")
    for kind, name, _, sql in sorted(found - _schema(), key=repr):
        known = [row for row in _schema() if row[:2] == (kind, name)]
        what = "is not a tape's" if known else "no tape has"
        raise TapeError(
            f"cannot open the tape {path}: its {printable(str(kind))} {printable(str(name))!r:.60} "
            f"{what}: {printable(str(sql))!r:.120}. Opening it could run what somebody put there; "
            "get the tape from where it was recorded"
        )
    [(kind, name), *_] = sorted(row[:2] for row in _schema() - found)
    raise TapeError(f"cannot open the tape {path}: it is damaged, it lacks the {kind} {name}")


def _claimed_format(connection: sqlite3.Connection, schema: _Schema) -> int:
    """Return the format that a file of another schema names; 0 where it cannot be read safely."""
    meta = next((row for row in _schema() if row[:2] == ("table", "meta")), None)
    if meta not in schema:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    return int(row[0]) if row and str(row[0]).isdecimal() and len(str(row[0])) < 9 else 0
