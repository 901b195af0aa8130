"""The decision log: a SQLite file of what was decided about messages and which tools ran.

A decision's row is written as ``PENDING`` before the model is asked, and again when the decision is
made, or the message given up. A row that stays pending belongs to a program that ended in between.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab.assistant.redaction import SECRETS, Redactor
from llmsim_lab.assistant.sqlite_file import check_tables
from llmsim_lab.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OUTCOMES", "DecisionLog"]

OUTCOMES = ("SUCCESS", "ERROR", "REFUSAL", "AMBIGUITY", "PENDING")
"""Categories of outcomes; which kind of each follows after a colon: ``ERROR:TIMEOUT``."""

_VERSION = 1
_WAIT_S = 10.0
"""How long to wait for another process that writes."""
_POLL_S = 0.01
_DTYPES = {
    "duration_ms": "float64",
    "tools": "int64",
    "success": "bool",
    **dict.fromkeys(("parameters", "result", "error_code", "error_message"), "object"),
}
"""Of the frames' columns; the others hold texts."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    decision_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    message TEXT NOT NULL, intent_type TEXT NOT NULL, decision_type TEXT NOT NULL,
    outcome_category TEXT NOT NULL, duration_ms REAL NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tool_invocations (
    id INTEGER PRIMARY KEY, decision_id TEXT NOT NULL REFERENCES decisions, tool_name TEXT NOT NULL,
    parameters TEXT NOT NULL, result TEXT, success INTEGER NOT NULL, error_code TEXT,
    error_message TEXT, duration_ms REAL NOT NULL, created TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS invocations_of ON tool_invocations (decision_id);
"""


class DecisionLog:
    """A file of decisions and tool invocations; several processes may write to one.

    Half a character, which JSON may bring, is written as its escape. What is nested too deeply, or
    contains itself, is written as a remark.

    Args:
        path: the file; made if it is not there.
        redact: names of secrets; what goes under them is written as ``***``.

    Raises:
        DataError: the file cannot be opened, or is something else.

    Example:
        >>> log = DecisionLog("decisions.db")
        >>> engine = LLMAgentEngine(adapter, tools, load_constitution(), decision_log=log)
    """

    def __init__(self, path: str | Path, *, redact: Iterable[str] = SECRETS) -> None:
        self.path = Path(path)
        self._redactor = Redactor(redact)
        self._lock = threading.Lock()
        try:
            self._connection = _opened(self.path)
        except (sqlite3.Error, DataError) as error:
            raise DataError(f"cannot use {self.path} as a decision log: {error}") from error

    async def write_decision_log(
        self,
        *,
        decision_id: str,
        conversation_id: str,
        user_id: str,
        message: str,
        intent_type: str,
        decision_type: str,
        outcome_category: str,
        duration_ms: float,
    ) -> None:
        """Write a decision's row, or, by an id that is there, how it came out.

        Args:
            decision_id: of the row.
            conversation_id: whose turn of talk it belongs to.
            user_id: who wrote the message.
            message: the message.
            intent_type: what it was taken for; ``LLM_PROCESSING`` until that is known.
            decision_type: a ``DecisionType``, or ``PENDING``.
            outcome_category: one of ``OUTCOMES``, with its kind after a colon.
            duration_ms: from the message to the decision, milliseconds.

        Raises:
            ConfigError: there is no such category.
            DataError: the file cannot be written.
        """
        if outcome_category.partition(":")[0] not in OUTCOMES:
            there = ", ".join(OUTCOMES)
            raise ConfigError(f"outcome_category={outcome_category!r} must begin with {there}")
        moment = _now()
        await self._write(
            "INSERT INTO decisions VALUES (?,?,?,?,?,?,?,?,?,?) "
            "ON CONFLICT (decision_id) DO UPDATE SET intent_type = excluded.intent_type, "
            "decision_type = excluded.decision_type, "
            "outcome_category = excluded.outcome_category, duration_ms = excluded.duration_ms, "
            "updated = excluded.updated",
            (
                decision_id,
                conversation_id,
                user_id,
                self._redactor.text(message),
                intent_type,
                decision_type,
                outcome_category,
                duration_ms,
                moment,
                moment,
            ),
        )

    async def write_tool_invocation_log(
        self,
        *,
        decision_id: str,
        tool_name: str,
        parameters: Mapping[str, Any],
        result: Any,
        success: bool,
        error_code: str | None,
        error_message: str | None,
        duration_ms: float,
    ) -> None:
        """Write one tool's execution.

        Args:
            decision_id: the decision it was part of.
            tool_name: the tool.
            parameters: its arguments.
            result: what it returned.
            success: whether it did what it was asked to.
            error_code: what went wrong, in a word.
            error_message: the same in words.
            duration_ms: how long it took, milliseconds.

        Raises:
            DataError: the file cannot be written.
        """
        hide = self._redactor
        await self._write(
            "INSERT INTO tool_invocations (decision_id, tool_name, parameters, result, success, "
            "error_code, error_message, duration_ms, created) VALUES (?,?,?,?,?,?,?,?,?)",
            (
                decision_id,
                tool_name,
                _dumps(hide.value(parameters)),
                None if result is None else _dumps(hide.value(result)),
                int(success),
                error_code,
                None if error_message is None else hide.text(error_message),
                duration_ms,
                _now(),
            ),
        )

    def decisions_frame(self) -> pd.DataFrame:
        """Return the decisions as a frame, oldest first.

        Columns: ``decision_id``, ``conversation_id``, ``user_id``, ``message``, ``intent_type``,
        ``decision_type``, ``outcome``, ``kind``, ``duration_ms``, ``tools`` (how many ran),
        ``created``, ``updated`` (UTC).

        Raises:
            DataError: the file cannot be read, or was closed.
        """
        columns = self._columns(
            "SELECT decision_id, conversation_id, user_id, message, intent_type, decision_type, "
            "outcome_category AS outcome, outcome_category AS kind, duration_ms, "
            "(SELECT count(*) FROM tool_invocations AS t WHERE t.decision_id = "
            "decisions.decision_id) AS tools, created, updated FROM decisions "
            "ORDER BY created, rowid"
        )
        columns["outcome"] = [text.partition(":")[0] for text in columns["outcome"]]
        columns["kind"] = [text.partition(":")[2] for text in columns["kind"]]
        return _frame(columns)

    def invocations_frame(self, decision_id: str | None = None) -> pd.DataFrame:
        """Return the tool invocations as a frame, oldest first.

        Columns: ``decision_id``, ``tool_name``, ``parameters``, ``result``, ``success``,
        ``error_code``, ``error_message``, ``duration_ms``, ``created`` (UTC).

        Args:
            decision_id: those of one decision only.

        Raises:
            DataError: the file cannot be read, or was closed.
        """
        one = decision_id is not None
        columns = self._columns(
            "SELECT decision_id, tool_name, parameters, result, success, error_code, "
            "error_message, duration_ms, created FROM tool_invocations "
            + ("WHERE decision_id = ? ORDER BY id" if one else "ORDER BY id"),
            [str(decision_id)] if one else [],
        )
        for name in ("parameters", "result"):
            columns[name] = [None if text is None else json.loads(text) for text in columns[name]]
        return _frame(columns)

    def close(self) -> None:
        """Close the file; nothing can be written afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DecisionLog({str(self.path)!r})"

    async def _write(self, statement: str, values: Iterable[Any]) -> None:
        """Write at once; while another process holds the file, try again without blocking."""
        deadline = time.monotonic() + _WAIT_S
        stored = [_storable(value) if isinstance(value, str) else value for value in values]
        while True:
            try:
                with self._lock:
                    self._connection.execute(statement, stored)
            except sqlite3.Error as error:
                busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise DataError(
                        f"cannot write to the decision log {self.path}: {error}"
                    ) from error
            else:
                return
            await asyncio.sleep(_POLL_S)

    def _columns(self, query: str, values: Sequence[str] = ()) -> dict[str, list[Any]]:
        """Return what a query finds, by column.

        Raises:
            DataError: the file cannot be read.
        """
        try:
            with self._lock:
                cursor = self._connection.execute(query, values)
                rows, names = cursor.fetchall(), [column[0] for column in cursor.description]
        except sqlite3.Error as error:
            raise DataError(f"cannot read the decision log {self.path}: {error}") from error
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _opened(path: Path) -> sqlite3.Connection:
    """Open a log's file, made if need be; what is no log stays as it is.

    Raises:
        DataError: it is something else, or of another version.
        sqlite3.Error: it is no SQLite file, or cannot be written.
    """
    db = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False, isolation_level=None)
    try:
        [version] = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise DataError(
                f"it was written by another version ({version}) of the log, or by something else; "
                "name another file"
            )
        check_tables(db, _SCHEMA)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(f"{_SCHEMA} PRAGMA user_version = {_VERSION};")
        db.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def _frame(columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    """Return a frame whose columns have their types also where there are no rows."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: pd.Series(values, dtype=_DTYPES.get(name, "str"))
            for name, values in columns.items()
        }
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError as error:
        raise DataError(f"a tool's parameters or result cannot be written: {error}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
