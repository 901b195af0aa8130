"""The tape's file: an SQLite database of one shape, opened with care and never altered by mistake.

Tables: ``meta`` (the format's version), ``texts`` (what many calls share, stored once), ``runs`` (a
manifest each, with parent and fork turn), ``calls`` (every request and what became of it),
``turns`` (a record each, written when the turn is whole).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from llmsim_lab.errors import TapeError

__all__ = ["FORMAT_VERSION", "open_database"]

FORMAT_VERSION = 1
_APPLICATION_ID = 0x4C534C42
"""Marks the file as a tape in SQLite's own header ("LSLB")."""

_BUSY_TIMEOUT_MS = 10_000

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
    writer TEXT
);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    key BLOB NOT NULL,
    turn INTEGER,
    component TEXT,
    agent TEXT,
    replicate INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    messages TEXT NOT NULL,
    settings INTEGER NOT NULL REFERENCES texts (id),
    reply TEXT,
    fault TEXT,
    seconds REAL NOT NULL,
    forgotten INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX calls_by_key ON calls (run, key) WHERE NOT forgotten;
CREATE INDEX calls_by_turn ON calls (run, turn);
CREATE TABLE turns (
    run INTEGER NOT NULL REFERENCES runs (id),
    turn INTEGER NOT NULL,
    record TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (run, turn)
) WITHOUT ROWID;
"""


def open_database(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a tape, or make a new one where there is no file yet.

    Args:
        path: the file.
        read_only: open for reading, also where the disk allows nothing else.

    Raises:
        TapeError: the file is missing (read-only), is no tape, comes from a newer version, or is
            damaged. It is left as it is.
    """
    new = not path.exists() or path.stat().st_size == 0
    if new and read_only:
        raise TapeError(f"there is no tape at {path}")
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
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
            if new:
                _create(connection)
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_version(connection, path)
            if not read_only:
                _check_inert(connection, path)
            connection.execute("PRAGMA foreign_keys = ON")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            else:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeError) as error:
        raise TapeError(f"cannot open the tape {path}: {error}") from error
    return connection


def _check_header(path: Path) -> None:
    """Look at the first bytes before SQLite may touch the file."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise TapeError(f"cannot read the tape {path}: {error}") from error
    if not head.startswith(b"SQLite format 3\0"):
        raise TapeError(f"{path} is not a tape: it is no SQLite file")
    if int.from_bytes(head[68:72], "big") != _APPLICATION_ID:
        raise TapeError(f"{path} is not a tape: it is an SQLite file of another program")
    page_size = int.from_bytes(head[16:18], "big") % 65535 or 65536
    whole = page_size * int.from_bytes(head[28:32], "big")
    if size < whole and not _wal_of(path).exists():
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
        wal = _wal_of(path)
        alive = wal.exists() and wal.stat().st_size > 0
        uri += "?mode=ro" if alive else "?immutable=1"
    # A reader who may write does no more with it than to fold in and take away, when it is the
    # last to leave, the write-ahead log that a reader of its own kind would leave lying about.
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


def _wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables, all or none; somebody else may just have made them."""
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("PRAGMA application_id").fetchone()[0]:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO meta VALUES ('format', ?), ('kind', 'llmsim_lab tape')",
            (str(FORMAT_VERSION),),
        )
    connection.execute("COMMIT")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    version = int(row[0]) if row and str(row[0]).isdecimal() else 0
    if version > FORMAT_VERSION:
        raise TapeError(
            f"the tape {path} has format {version}; this version of llmsim_lab reads up to "
            f"{FORMAT_VERSION}: install a newer one"
        )
    if version < 1:
        raise TapeError(f"the tape {path} names no format; it is damaged")


def _check_inert(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse to write to a file that would do things of its own on being written to."""
    row = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
    ).fetchone()
    if row:
        raise TapeError(
            f"the tape {path} holds a {row[0]}, {row[1]!r}, which no tape has and which would act "
            "when it is written to; 'llmsim-lab tape export' takes its runs out as data"
        )
