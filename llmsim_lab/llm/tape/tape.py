"""The tape: one file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.rows import COLUMNS, RecordedCall, attempt_of
from llmsim_lab.llm.tape.schema import open_database

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RunInfo",
    "Tape",
    "Verb",
    "now",
]

Verb = Literal["run", "rerun", "fork", "import"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run on a tape.

    Attributes:
        id: its number on the tape, 1 for the first.
        name: its configuration's name.
        parent: the run it was forked from or is a rerun of, if any.
        fork_turn: the turn of its parent that it starts from; None if it is no fork.
        verb: how it came about.
        started, ended: UTC, ISO 8601; ``ended`` is None while it goes on or if it was cut off.
        outcome: ``done``, ``failed: …`` or ``interrupted``; None like ``ended``.
        turns: the last whole turn.
        calls: how many requests were recorded.
        manifest: what defines the run: configuration, prompts, versions, model.
    """

    id: int
    name: str
    parent: int | None
    fork_turn: int | None
    verb: Verb
    started: str
    ended: str | None
    outcome: str | None
    turns: int
    calls: int
    manifest: Mapping[str, Any]


class Tape:
    """A file of recorded runs.

    Several processes may read it while one writes; each run has one writer at a time.

    Args:
        path: the file; made if it is not there, unless ``read_only``.
        read_only: for looking and replaying only; works on a disk that cannot be written to.

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

    # --- reading -----------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        rows = self._query(
            "SELECT runs.*, (SELECT max(turn) FROM turns WHERE run = runs.id) AS last_turn, "
            "(SELECT count(*) FROM calls WHERE run = runs.id) AS call_count FROM runs ORDER BY id"
        )
        return [self._info(row) for row in rows]

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run, the latest if none is named.

        Raises:
            TapeError: there is no such run.
        """
        runs = self.runs()
        if not runs:
            raise TapeError(f"the tape {self.path} holds no run")
        if run is None:
            return runs[-1]
        for info in runs:
            if info.id == run:
                return info
        there = ", ".join(str(info.id) for info in runs)
        raise TapeError(f"the tape {self.path} has no run {run}; it has: {there}")

    def _info(self, row: sqlite3.Row) -> RunInfo:
        last = row["last_turn"]
        return RunInfo(
            id=row["id"],
            name=row["name"],
            parent=row["parent"],
            fork_turn=row["fork_turn"],
            verb=row["verb"],
            started=row["started"],
            ended=row["ended"],
            outcome=row["outcome"],
            turns=last if last is not None else 0,
            calls=row["call_count"],
            manifest=_loads(row["manifest"], f"the manifest of run {row['id']}"),
        )

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run: a fork goes on from a turn of
        its parent's.
        """
        info = self.run(run)
        parts = [(info.id, info.turns)]
        while info.parent is not None and info.fork_turn is not None:
            fork_turn = info.fork_turn
            info = self.run(info.parent)
            parts.append((info.id, fork_turn))
        return parts[::-1]

    def turn_records(self, run: int, *, up_to: int | None = None) -> list[dict[str, Any]]:
        """Return a run's whole turns as they were written, turn 0 first, forks' prefix included."""
        return [
            _loads(row["record"], f"turn {row['turn']} of run {row['run']}")
            for row in self._turn_rows(run, up_to)
        ]

    def _turn_rows(self, run: int, up_to: int | None = None) -> list[sqlite3.Row]:
        # A fork has a first turn of its own, which may have been changed; it hides its parent's.
        rows: dict[int, sqlite3.Row] = {}
        for part, last in self.line(run):
            bound = last if up_to is None else min(last, up_to)
            found = self._query(
                "SELECT * FROM turns WHERE run = ? AND turn <= ? ORDER BY turn", (part, bound)
            )
            rows |= {row["turn"]: row for row in found}
        return [rows[turn] for turn in sorted(rows)]

    def calls(
        self, run: int, *, turn: int | None = None, forgotten: bool = False
    ) -> list[RecordedCall]:
        """Return the requests that a run made itself, in the order in which they were answered.

        Args:
            run: the run.
            turn: one turn's only.
            forgotten: also those of calls that failed for good and were tried anew.
        """
        where, values = "run = ?", [run]
        if turn is not None:
            where, values = f"{where} AND turn = ?", [run, turn]
        if not forgotten:
            where += " AND NOT forgotten"
        return [self._recorded(row) for row in self._call_rows(where, tuple(values))]

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is none.
        """
        rows = self._call_rows("calls.id = ?", (number,))
        if not rows:
            raise TapeError(f"the tape {self.path} has no call {number}")
        return self._recorded(rows[0])

    def _call_rows(self, where: str, values: tuple[Any, ...]) -> list[sqlite3.Row]:
        return self._query(
            f"SELECT {COLUMNS} FROM calls JOIN texts ON texts.id = settings "
            f"WHERE {where} ORDER BY calls.id",
            values,
        )

    @staticmethod
    def _recorded(row: sqlite3.Row) -> RecordedCall:
        return RecordedCall(
            id=row["id"],
            run=row["run"],
            attempt=attempt_of(row),
            forgotten=bool(row["forgotten"]),
        )

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, the one its simulation's ``to_frame`` gives."""
        import pandas as pd

        rows = self._turn_rows(self.run(run).id)
        return pd.DataFrame([_loads(row["row"], f"turn {row['turn']}") for row in rows])

    def calls_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's own requests as a frame, one row each.

        Columns: ``id``, ``turn``, ``component``, ``agent``, ``replicate``, ``attempt``, ``model``,
        ``prompt``, ``reply``, ``fault``, ``done_reason``, ``prompt_tokens``, ``reply_tokens``,
        ``seconds``, ``forgotten``.
        """
        import pandas as pd

        calls = self.calls(self.run(run).id, forgotten=True)
        return pd.DataFrame([_call_row(call) for call in calls], columns=list(_CALL_COLUMNS))

    def __len__(self) -> int:
        """How many runs there are."""
        return int(self._query("SELECT count(*) FROM runs")[0][0])

    def __repr__(self) -> str:
        runs = len(self)
        return f"<Tape {str(self.path)!r}: {runs} run{'' if runs == 1 else 's'}>"

    # --- writing -----------------------------------------------------------------------------

    def add_run(
        self,
        manifest: Mapping[str, Any],
        *,
        name: str,
        first: tuple[int, str, str],
        verb: Verb = "run",
        parent: int | None = None,
        fork_turn: int | None = None,
        started: str | None = None,
    ) -> int:
        """Note the start of a run; returns its number.

        Args:
            manifest: what defines the run.
            name: its configuration's name.
            first: the turn it starts from: number, record and row, as ``commit_turn`` takes them.
            verb: how it comes about.
            parent: the run that it is a fork or a rerun of.
            fork_turn: for a fork, the turn of the parent that it starts from.
            started: UTC, ISO 8601; now if not given.

        Raises:
            TapeError: the tape is read-only, or the parent is not on it.
        """
        if parent is not None:
            self.run(parent)
        text = json.dumps(manifest, ensure_ascii=False)
        with self.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO runs (name, parent, fork_turn, verb, started, manifest) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (name, parent, fork_turn, verb, started or now(), text),
            )
            run = int(cursor.lastrowid or 0)
            connection.execute(
                "INSERT INTO turns (run, turn, record, row) VALUES (?, ?, ?, ?)", (run, *first)
            )
        return run

    def update_manifest(self, run: int, manifest: Mapping[str, Any]) -> None:
        """Write a run's manifest again, with what was not known at its start."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE runs SET manifest = ? WHERE id = ?",
                (json.dumps(manifest, ensure_ascii=False), run),
            )

    def end_run(self, run: int, outcome: str | None) -> None:
        """Note how a run ended; None says that it goes on."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE runs SET ended = ?, outcome = ? WHERE id = ?",
                (now() if outcome else None, outcome, run),
            )

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
                    yield self._connection
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    self._texts.clear()
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._texts.clear()
                raise TapeError(
                    f"cannot write to the tape {self.path}: {error}; what was written before is "
                    "whole: free some space or close the other program, then resume the run"
                ) from error

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

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        with self._lock:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise TapeError(f"cannot read the tape {self.path}: {error}") from error

    def close(self) -> None:
        """Let go of the file; folds the write-ahead log into it if nobody else has it open."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


_CALL_COLUMNS = (
    "id",
    "turn",
    "component",
    "agent",
    "replicate",
    "attempt",
    "model",
    "prompt",
    "reply",
    "fault",
    "done_reason",
    "prompt_tokens",
    "reply_tokens",
    "seconds",
    "forgotten",
)


def _call_row(call: RecordedCall) -> tuple[Any, ...]:
    attempt = call.attempt
    request, reply, site = attempt.request, attempt.reply, attempt.request.site
    return (
        call.id,
        site.turn if site else None,
        site.component if site else None,
        site.agent if site else None,
        site.replicate if site else 0,
        request.attempt,
        request.model,
        request.prompt,
        reply.text if reply else None,
        attempt.detail if attempt.reason else None,
        reply.done_reason if reply else None,
        reply.prompt_tokens if reply else None,
        reply.reply_tokens if reply else None,
        attempt.seconds,
        call.forgotten,
    )


def now() -> str:
    """Return the time, UTC, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _loads(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TapeError(f"{what} on the tape is damaged: {error}") from error
