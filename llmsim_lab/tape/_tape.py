"""The tape: one file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.tape._changes import Changes, TextTree
from llmsim_lab.tape._codec import RecordedCall, RunInfo, Verb, call_of, dumps, info_of, loads, now
from llmsim_lab.tape._file import COLUMNS, TapeFile
from llmsim_lab.tape._ledger import Ledger
from llmsim_lab.tape._transfer import export_jsonl, export_parquet, import_jsonl
from llmsim_lab.tape._trim import prune
from llmsim_lab.types import Attempt

if TYPE_CHECKING:
    import pandas as pd

_MAX_CACHED = 500
_RUN_COLUMNS = ", ".join(COLUMNS["runs"])
_CALL_COLUMNS = ", ".join(f"calls.{column}" for column in COLUMNS["calls"])
_FRAME_COLUMNS = (
    *("id", "turn", "component", "agent", "replicate", "attempt", "model", "prompt", "reply"),
    *("fault", "done_reason", "prompt_tokens", "reply_tokens", "seconds", "forgotten"),
)


class Tape:
    """A file of recorded runs.

    Several processes may read it while one writes; each run has one writer at a time.

    Every commit (of an answer, of answers that come together, of a turn) is whole or not there, and
    an answer is handed on only after its commit: if the process ends, nothing handed on is lost.
    After a power cut the latest commits may be missing, all after some point in time, but the file
    is never inconsistent (``synchronous = NORMAL`` in a write-ahead log). ``resume`` then asks for
    those answers again.

    Args:
        path: the file; created if it does not exist, unless ``read_only``.
        read_only: for reading and replaying only; works on a disk that cannot be written to.

    Attributes:
        file: the SQLite database; for this package's own modules.

    Raises:
        TapeError: the file cannot be opened, is not a tape, is damaged, or is newer than this
            package.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.file = TapeFile(path, read_only=read_only)
        self._attempts: dict[int, Attempt] = {}
        """Those read lately, by number: whoever reads one of a turn's often reads its others."""

    @property
    def path(self) -> Path:
        """The file's path."""
        return self.file.path

    @property
    def read_only(self) -> bool:
        """True if nothing can be written."""
        return self.file.read_only

    @property
    def closed(self) -> bool:
        """True once the file is closed."""
        return self.file.closed

    def close(self) -> None:
        """Close the file; folds the write-ahead log into it if nobody else has it open."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- reading -----------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        return self._infos("ORDER BY id")

    def _infos(self, which: str, *values: int) -> list[RunInfo]:
        rows = self.file.query(
            f"SELECT {_RUN_COLUMNS}, "
            "(SELECT max(turn) FROM turns WHERE run = runs.id) AS last_turn, "
            f"(SELECT count(*) FROM calls WHERE run = runs.id) AS call_count FROM runs {which}",
            values,
        )
        return [info_of(row, turns=row["last_turn"], calls=row["call_count"]) for row in rows]

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run, the latest if none is named; comparisons on runs have to be named.

        Raises:
            TapeError: there is no such run.
        """
        is_number = isinstance(run, int) and not isinstance(run, bool)
        if isinstance(run, int) and is_number and 0 < run < 2**63:
            # Alone, since a study's tape holds thousands.
            for info in self._infos("WHERE id = ?", run):
                return info
        runs = self.runs()
        if not runs:
            raise TapeError(f"the tape {self.path} holds no run")
        if run is None:
            return next((info for info in reversed(runs) if info.verb != "experiment"), runs[-1])
        for info in runs:
            if info.id == run and not isinstance(run, bool):
                return info
        known = ", ".join(str(info.id) for info in runs)
        hint = "" if is_number else "; a run's number is a whole number, as in run=1"
        raise TapeError(f"the tape {self.path} has no run {run!r:.80}; it has: {known}{hint}")

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run: a fork continues after a turn of
        its parent.
        """
        info = self.run(run)
        parts = [(info.id, info.turns)]
        bound = info.turns
        while info.parent is not None and info.fork_turn is not None:
            if info.parent >= info.id:
                raise TapeError(
                    f"run {info.id} on the tape {self.path} is damaged: run {info.parent}, which "
                    "it was forked from, came later"
                )
            # A fork may start before the turn that its own parent was forked at.
            bound = min(bound, info.fork_turn)
            info = self.run(info.parent)
            parts.append((info.id, bound))
        return parts[::-1]

    def turn_records(self, run: int, *, up_to: int | None = None) -> list[dict[str, Any]]:
        """Return a run's whole turns as they were written, a fork's with those of its parents."""
        return [_record_of(row) for row in self._turn_rows(run, "record", up_to)]

    def _turn_rows(self, run: int, column: str, up_to: int | None = None) -> list[sqlite3.Row]:
        # A fork has a copy of the turn that it starts from, which may have been changed: it counts.
        rows: dict[int, sqlite3.Row] = {}
        for part, last in self.line(run):
            bound = last if up_to is None else min(last, up_to)
            found = self.file.query(
                f"SELECT run, turn, {column} FROM turns WHERE run = ? AND turn <= ? ORDER BY turn",
                (part, bound),
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
            forgotten: also those of calls that failed for good and were made again.
        """
        conditions = {"run = ?": run} | ({} if turn is None else {"turn = ?": turn})
        where = " AND ".join([*conditions, *(() if forgotten else ("NOT forgotten",))])
        return self._found_calls(where, *conditions.values())

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is no such request.
        """
        for call in self._found_calls("calls.id = ?", number):
            return call
        raise TapeError(f"the tape {self.path} has no call {number}")

    def attempt(self, number: int) -> Attempt:
        """Return what became of a request by its number; also after the tape was closed.

        Raises:
            TapeError: the file is gone, or there is no such request.
        """
        with self.file.lock:
            if (known := self._attempts.get(number)) is not None:
                return known
            if len(self._attempts) >= _MAX_CACHED:
                self._attempts.clear()
            # Opened again for each: a file kept open could not be moved or deleted on Windows.
            if self.closed:
                self._attempts |= self._read_again(number)
            else:
                self._attempts[number] = self.call(number).attempt
            return self._attempts[number]

    def _read_again(self, number: int) -> dict[int, Attempt]:
        """Open the closed file and return an attempt with the others of its turn."""
        try:
            with Tape(self.path, read_only=True) as tape:
                call = tape.call(number)
                site = call.attempt.request.site
                calls = tape.calls(call.run, turn=site.turn, forgotten=True) if site else []
        except TapeError as error:
            raise TapeError(
                f"call {number} was left on the tape {self.path}, which is closed, and cannot be "
                f"read from there any more: {error}"
            ) from error
        return {one.id: one.attempt for one in (call, *calls)}

    def _found_calls(self, where: str, *values: int) -> list[RecordedCall]:
        rows = self.file.query(
            f"SELECT {_CALL_COLUMNS}, texts.text AS shared, forms.text AS form FROM calls "
            "LEFT JOIN texts ON texts.id = settings LEFT JOIN texts AS forms ON forms.id = origin "
            f"WHERE {where} ORDER BY calls.id",
            values,
        )
        return [call_of(row, row["shared"], row["form"]) for row in rows]

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, the one its simulation's ``to_frame`` gives."""
        import pandas as pd  # here and below, since it takes long to import

        rows = list(self.frame_rows(self.run(run).id).values())
        for place, row in enumerate(rows):
            if not isinstance(row, dict):
                what = f"the row of turn {place} on the tape is damaged: it is not an object"
                raise TapeError(what)
        return pd.DataFrame(rows)

    def frame_rows(self, run: int, turns: Container[int] | None = None) -> dict[int, Any]:
        """Return the rows of a run's frame as they were written, by turn.

        Args:
            run: the run.
            turns: which turns' rows to read; all if not given.
        """
        rows = self._turn_rows(run, "row")
        return {
            row["turn"]: loads(row["row"], f"turn {row['turn']}")
            for row in rows
            if turns is None or row["turn"] in turns
        }

    def calls_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's own requests as a frame, one row each.

        Columns: ``id``, the call's number; ``turn``; ``component`` and ``agent``, what asked and
        for whom; ``replicate``, which sample of an answer; ``attempt``, 2 where the first reply was
        not valid; ``model``; ``prompt`` and ``reply``, whole; ``fault``, what was wrong with the
        reply, or why there is none; ``done_reason``, why the model stopped; ``prompt_tokens`` and
        ``reply_tokens``, as the server counted; ``seconds``, until the reply; ``forgotten``,
        whether the call failed for good and was made again.

        A fork's own begin after the fork; those before are its parent's.
        """
        import pandas as pd

        calls = self.calls(self.run(run).id, forgotten=True)
        return pd.DataFrame([_frame_row(call) for call in calls], columns=list(_FRAME_COLUMNS))

    def compare(self, run_a: int, run_b: int) -> pd.DataFrame:
        """Return how two runs' trajectories differ: one row a turn that both have.

        Columns: for each number of ``turns_frame`` three, ``a``, ``b``, and ``difference``, which
        is b minus a: ``compare(1, 2)["inflation", "difference"]``.

        Raises:
            TapeError: there is no such run, or they share no turn or no column of numbers.
        """
        import pandas as pd

        frames = [self.turns_frame(run) for run in (run_a, run_b)]
        numeric = [_numeric(frame) for frame in frames]
        shared = [name for name in numeric[0] if name in numeric[1]]
        if not shared:
            had = " and ".join(
                f"run {run} has {', '.join(map(str, names)) or 'none'}"
                for run, names in zip((run_a, run_b), numeric, strict=True)
            )
            raise TapeError(
                f"runs {run_a} and {run_b} cannot be compared: they share no column of numbers "
                f"({had})"
            )
        a, b = (frame.set_index("turn")[shared] for frame in frames)
        turns = a.index.intersection(b.index)
        if turns.empty:
            raise TapeError(f"runs {run_a} and {run_b} cannot be compared: they share no turn")
        a, b = a.loc[turns], b.loc[turns]
        parts = {"a": a, "b": b, "difference": b - a}
        columns = [(name, part) for name in shared for part in parts]
        joined = pd.concat(parts, axis=1).swaplevel(axis=1)
        return joined[columns].rename_axis(columns=["variable", "of"])

    def changes(self) -> Changes:
        """Return what each run changed, in words: ``tape.changes().of(2)``."""
        return Changes(self.file, self.runs())

    def tree(self) -> TextTree:
        """Return the runs with their forks and reruns below them; it has a view in a notebook.

        Each says what it changed: the prompt's words, interventions, the state, the settings, the
        model. A run that came from no other says in what settings it differs from those of its
        name.
        """
        runs = self.runs()
        return TextTree(runs, title=str(self), changes=Changes(self.file, runs).of)

    def export(self, path: str | Path, *, run: int | None = None) -> list[Path]:
        """Write the runs to files for other programs, by what the path's name ends in.

        ``.jsonl`` is one file of JSON lines that loses nothing: ``import_jsonl`` makes a tape of it
        again. ``.parquet`` is two: ``NAME.calls.parquet`` and ``NAME.turns.parquet`` hold the
        frames, with the run's number as first column; it needs pyarrow.

        Args:
            path: the file; an existing one is replaced.
            run: this one only, with those that it came from; all if not given.

        Returns:
            The files written.

        Raises:
            ConfigError: the name ends in something else, or pyarrow is not installed.
            TapeError: the tape is damaged, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix == ".jsonl":
            with self.file.snapshot():
                export_jsonl(self.file, path, self._family(run))
            return [path]
        if path.suffix == ".parquet":
            frames = {"calls": self.calls_frame, "turns": self.turns_frame}
            return export_parquet(path, self._family(run), frames)
        raise ConfigError(
            f"cannot export to {path}: the name must end in .jsonl or .parquet; for CSV, "
            "tape.calls_frame(run).to_csv(path), and turns_frame"
        )

    def _family(self, run: int | None) -> list[RunInfo]:
        """Return a run with all that it came from, oldest first; all runs if none is named."""
        infos = {info.id: info for info in self.runs()}
        if run is None:
            return list(infos.values())
        family = [self.run(run)]
        while (parent := family[-1].parent) is not None:
            if parent >= family[-1].id or parent not in infos:
                damaged = f"run {family[-1].id} on the tape {self.path} is damaged"
                raise TapeError(f"{damaged}: wrong parent")
            family.append(infos[parent])
        return family[::-1]

    def __len__(self) -> int:
        """How many runs there are."""
        return int(self.file.query("SELECT count(*) FROM runs")[0][0])

    def __repr__(self) -> str:
        runs = len(self)
        return f"<Tape {str(self.path)!r}: {runs} run{'' if runs == 1 else 's'}>"

    def _repr_html_(self) -> str:
        return self.tree()._repr_html_()

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
    ) -> int:
        """Record the start of a run; returns its number.

        Args:
            manifest: what defines the run.
            name: its configuration's name.
            first: the turn it starts from: number, record and row, as ``commit_turn`` takes them.
            verb: how it came about.
            parent: the run that it is a fork or a rerun of.
            fork_turn: for a fork, the turn of the parent that it starts from.

        Raises:
            TapeError: the tape is read-only, or the parent is not on it.
        """
        if parent is not None:
            self.run(parent)
        with self.file.transaction() as connection:
            ledger = Ledger.begin(
                connection,
                {
                    "name": name,
                    "parent": parent,
                    "fork_turn": fork_turn,
                    "verb": verb,
                    "started": now(),
                    "ended": None,
                    "outcome": None,
                    "manifest": dumps(manifest),
                },
            )
            ledger.add_turn(connection, *first)
        return ledger.run

    def update_manifest(self, run: int, manifest: Mapping[str, Any]) -> None:
        """Write a run's manifest again, with what was not known at its start."""
        with self.file.transaction() as connection:
            Ledger(run).change(connection, manifest=dumps(manifest))

    def release(self, run: int) -> None:
        """Remove the entry of which process writes to a run; only if it is surely gone.

        For a process that ended on this machine this is not needed.
        """
        with self.file.transaction() as connection:
            connection.execute("UPDATE runs SET writer = NULL WHERE id = ?", (run,))

    def end_run(self, run: int, outcome: str | None) -> None:
        """Record how a run ended; None if it continues."""
        with self.file.transaction() as connection:
            Ledger(run).change(connection, ended=now() if outcome else None, outcome=outcome)
        if outcome:
            # Fold the write-ahead log in, so that the file alone holds the run and can be copied.
            # If a reader prevents it, the next one to close the file does it.
            self.file.query("PRAGMA wal_checkpoint(TRUNCATE)")

    def import_jsonl(self, source: str | Path) -> list[int]:
        """Copy the runs of a JSON lines file to this tape, all of them or, if one is wrong, none.

        Nothing in the file is executed; runs and calls get new numbers, the next ones here.

        Returns:
            The runs' numbers on this tape.

        Raises:
            TapeError: the file cannot be read or is not a whole export; the line is named.
        """
        return import_jsonl(Path(source), self.file)

    def prune(self, runs: Iterable[int]) -> None:
        """Remove runs for good, with their calls and turns, and shrink the file.

        The other runs stay as they are, and no new run gets a number that one of these had.

        Args:
            runs: their numbers; forks and reruns of one have to be named as well.

        Raises:
            TapeError: a run that stays came from one of these, somebody writes to one of them, or
                there is no such run; nothing was changed.
        """
        prune(self.file, self._numbers(runs), self.runs())
        self._attempts.clear()

    def compact(self) -> None:
        """Rewrite the file without what was deleted, so that none of its bytes are left there.

        Raises:
            TapeError: another program has the tape open.
        """
        self.file.compact()

    def _numbers(self, runs: Iterable[int]) -> set[int]:
        numbers = {self.run(run).id for run in runs}
        if not numbers:
            raise TapeError(f"no run of the tape {self.path} was named")
        return numbers


def _frame_row(call: RecordedCall) -> tuple[Any, ...]:
    attempt = call.attempt
    request, reply, site = attempt.request, attempt.reply, attempt.request.site
    no_site = (None, None, None, 0)
    return (
        call.id,
        *((site.turn, site.component, site.agent, site.replicate) if site else no_site),
        request.attempt,
        request.model,
        _encodable(request.prompt),
        _encodable(reply.text) if reply else None,
        _encodable(attempt.detail) if attempt.reason else None,
        *((reply.done_reason, reply.prompt_tokens, reply.reply_tokens) if reply else [None] * 3),
        attempt.seconds,
        call.forgotten,
    )


def _encodable(text: str) -> str:
    """Return a text with question marks for surrogates, which no Arrow column can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def parting(compared: pd.DataFrame) -> pd.DataFrame:
    """Return what differs of two runs: turns from the first difference on, columns that do.

    Args:
        compared: as ``Tape.compare`` gives it. Seconds, which differ between any two runs, are no
            difference.
    """
    change = compared.xs("difference", axis=1, level=1).drop(columns="seconds", errors="ignore")
    # NaN, where a run lacks a number, equals nothing; it is not a difference.
    apart: Any = change.ne(0) & change.notna()
    columns = list(apart.columns[apart.any()])
    found: pd.DataFrame = compared.loc[apart.any(axis=1).cummax(), columns]
    return found


def _numeric(frame: pd.DataFrame) -> list[str]:
    """Return the columns of numbers, if there are turns to compare them by."""
    if "turn" not in frame or not frame["turn"].is_unique:
        return []
    return [str(name) for name in frame.select_dtypes("number").columns if name != "turn"]


def _record_of(row: sqlite3.Row) -> dict[str, Any]:
    what = f"turn {row['turn']} of run {row['run']}"
    record = loads(row["record"], what)
    if not isinstance(record, dict) or type(turn := record.get("turn")) is not int:
        raise TapeError(f"{what} on the tape is damaged: it is not a record of a turn")
    if turn != row["turn"]:
        raise TapeError(f"{what} on the tape is damaged: it is a record of turn {turn}")
    return record
