"""What an SQLite file holds, asked before anything is written into it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from llmsim_lab.errors import DataError
from llmsim_lab.text import clip

__all__ = ["check_tables"]


def check_tables(db: sqlite3.Connection, schema: str) -> None:
    """Make sure that a file has no tables but a schema's; it need not have those yet.

    Args:
        db: the file.
        schema: the statements that make the tables.

    Raises:
        DataError: the file holds other things, or tables of these names with other columns.
        sqlite3.Error: it is no SQLite file, or cannot be read.
    """
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        wanted = _columns(empty)
    found = _columns(db)
    if others := sorted(found.keys() - wanted.keys()):
        raise DataError(
            f"it holds other things ({clip(', '.join(others), 100)}); name a file of its own"
        )
    for table, columns in found.items():
        if columns != wanted[table]:
            raise DataError(
                f"its table {table} has the columns {clip(', '.join(columns), 100)} where "
                f"{', '.join(wanted[table])} are needed; name another file"
            )


def _columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of all tables and views but SQLite's own."""
    rows = db.execute(
        "SELECT s.name, c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c "
        "WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite!_%' ESCAPE '!' "
        "ORDER BY s.name, c.cid"
    )
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found
