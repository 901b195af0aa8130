"""The tape: one file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab.calls import Attempt
from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape import frames
from llmsim_lab.llm.tape.changes import Changes
from llmsim_lab.llm.tape.codec import (
    RecordedCall,
    RunInfo,
    Verb,
    call_of,
    dumps,
    info_of,
    loads,
    now,
)
from llmsim_lab.llm.tape.export import export
from llmsim_lab.llm.tape.file import COLUMNS, TapeFile
from llmsim_lab.llm.tape.ledger import Ledger
from llmsim_lab.llm.tape.transfer import import_runs
from llmsim_lab.llm.tape.tree import RunTree
from llmsim_lab.llm.tape.trim import prune, redact

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tape"]

_MOST_AT_HAND = 500
"""Attempts that were read a short time ago and may be asked for again."""
_RUN_COLUMNS = ", ".join(COLUMNS["runs"])
_CALL_COLUMNS = ", ".join(f"calls.{column}" for column in COLUMNS["calls"])


class Tape(TapeFile):
    """A file of recorded runs.

    Several processes may read it while one writes; each run has one writer at a time.

    Every commit (of an answer, of answers that come together, of a turn) is whole or not there, and
    an answer is handed on only after its commit: whatever happens to the process, nothing handed on
    is lost. When the computer itself fails, by a power cut, the latest commits may be missing, all
    after some point in time; never is the file inconsistent (``synchronous = NORMAL`` in a
    write-ahead log). ``resume`` then asks for those answers again.

    Args:
        path: the file; made if it is not there, unless ``read_only``.
        read_only: for looking and replaying only; works on a disk that cannot be written to.

    Raises:
        TapeError: the file cannot be opened, is no tape, is damaged, or is newer than this package.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        super().__init__(path, read_only=read_only)
        self._at_hand: dict[int, Attempt] = {}

    # --- reading -----------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        rows = self.query(
            f"SELECT {_RUN_COLUMNS}, "
            "(SELECT max(turn) FROM turns WHERE run = runs.id) AS last_turn, "
            "(SELECT count(*) FROM calls WHERE run = runs.id) AS call_count FROM runs ORDER BY id"
        )
        return [info_of(row, turns=row["last_turn"], calls=row["call_count"]) for row in rows]

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run, the latest if none is named; experiments on runs have to be named.

        Raises:
            TapeError: there is no such run.
        """
        runs = self.runs()
        if not runs:
            raise TapeError(f"the tape {self.path} holds no run")
        if run is None:
            return next((info for info in reversed(runs) if info.verb != "experiment"), runs[-1])
        for info in runs:
            if info.id == run and not isinstance(run, bool):
                return info
        there = ", ".join(str(info.id) for info in runs)
        whole = isinstance(run, int) and not isinstance(run, bool)
        hint = "" if whole else "; a run's number is a whole number, as in run=1"
        raise TapeError(f"the tape {self.path} has no run {run!r:.80}; it has: {there}{hint}")

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run: a fork goes on from a turn of
        its parent's.
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
            # A fork may go back behind the turn that its own parent was forked at.
            bound = min(bound, info.fork_turn)
            info = self.run(info.parent)
            parts.append((info.id, bound))
        return parts[::-1]

    def turn_records(self, run: int, *, up_to: int | None = None) -> list[dict[str, Any]]:
        """Return a run's whole turns as they were written, turn 0 first, forks' prefix included."""
        return [_record_of(row) for row in self._turn_rows(run, "record", up_to)]

    def _turn_rows(self, run: int, column: str, up_to: int | None = None) -> list[sqlite3.Row]:
        # A fork has a first turn of its own, which may have been changed; it hides its parent's.
        rows: dict[int, sqlite3.Row] = {}
        for part, last in self.line(run):
            bound = last if up_to is None else min(last, up_to)
            found = self.query(
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
            forgotten: also those of calls that failed for good and were tried anew.
        """
        where, values = "run = ?", [run]
        if turn is not None:
            where, values = f"{where} AND turn = ?", [run, turn]
        if not forgotten:
            where += " AND NOT forgotten"
        return [
            call_of(row, row["shared"], row["form"])
            for row in self._call_rows(where, tuple(values))
        ]

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is none.
        """
        rows = self._call_rows("calls.id = ?", (number,))
        if not rows:
            raise TapeError(f"the tape {self.path} has no call {number}")
        return call_of(rows[0], rows[0]["shared"], rows[0]["form"])

    def attempt(self, number: int) -> Attempt:
        """Return what became of a request by its number; also after the tape was closed.

        Raises:
            TapeError: its file is gone, or there is no such request.
        """
        with self._lock:
            if (known := self._at_hand.get(number)) is not None:
                return known
            if len(self._at_hand) >= _MOST_AT_HAND:
                self._at_hand.clear()
            if self.closed:
                self._at_hand |= self._of_the_same_turn(number)
            else:
                self._at_hand[number] = self.call(number).attempt
            return self._at_hand[number]

    def _of_the_same_turn(self, number: int) -> dict[int, Attempt]:
        """Return a turn's attempts from the file, since opening it for each would take long."""
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

    def _call_rows(self, where: str, values: tuple[Any, ...]) -> list[sqlite3.Row]:
        return self.query(
            f"SELECT {_CALL_COLUMNS}, texts.text AS shared, forms.text AS form FROM calls "
            "LEFT JOIN texts ON texts.id = settings LEFT JOIN texts AS forms ON forms.id = origin "
            f"WHERE {where} ORDER BY calls.id",
            values,
        )

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, the one its simulation's ``to_frame`` gives."""
        return frames.turns_frame(self.frame_rows(self.run(run).id).values())

    def frame_rows(self, run: int) -> dict[int, Any]:
        """Return the rows of a run's frame as they were written, by turn."""
        rows = self._turn_rows(run, "row")
        return {row["turn"]: loads(row["row"], f"turn {row['turn']}") for row in rows}

    def calls_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's own requests as a frame, one row each.

        Columns: ``id``, ``turn``, ``component``, ``agent``, ``replicate``, ``attempt``, ``model``,
        ``prompt``, ``reply``, ``fault``, ``done_reason``, ``prompt_tokens``, ``reply_tokens``,
        ``seconds``, ``forgotten``.
        """
        return frames.calls_frame(self.calls(self.run(run).id, forgotten=True))

    def compare(self, run_a: int, run_b: int) -> pd.DataFrame:
        """Return how two runs' trajectories differ: one row a turn that both have.

        Columns: for each number of ``turns_frame`` three, ``a``, ``b``, and ``difference``, which
        is b less a: ``compare(1, 2)["inflation", "difference"]``.

        Raises:
            TapeError: there is no such run, or they share no turn or no column of numbers.
        """
        return frames.compare(self, run_a, run_b)

    def tree(self) -> RunTree:
        """Return the runs with their forks and reruns below them; shows itself in a notebook.

        Each says what it changed: the prompt's words, what was done from outside, the state, the
        settings, the model; a run that came from no other says in what settings it differs from
        those of its name.
        """
        runs = self.runs()
        return RunTree(runs, title=str(self), changes=Changes(self, runs).of)

    def export(self, path: str | Path, *, run: int | None = None) -> list[Path]:
        """Write the runs to files for other programs, by what the path's name ends in.

        ``.jsonl`` is one file of JSON lines that loses nothing: ``import_jsonl`` makes a tape of it
        again. ``.parquet`` is two: ``NAME.calls.parquet`` and ``NAME.turns.parquet`` hold the
        frames, with the run's number as first column; it needs pyarrow.

        Args:
            path: the file; what is there is replaced.
            run: this one only, with those that it came from; all if not given.

        Returns:
            The files written.

        Raises:
            ConfigError: the name ends in something else, or pyarrow is not installed.
            TapeError: the tape is damaged, or the file cannot be written.
        """
        return export(self, Path(path), run=run)

    def __len__(self) -> int:
        """How many runs there are."""
        return int(self.query("SELECT count(*) FROM runs")[0][0])

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
        with self.transaction() as connection:
            ledger = Ledger.begin(
                connection,
                {
                    "name": name,
                    "parent": parent,
                    "fork_turn": fork_turn,
                    "verb": verb,
                    "started": started or now(),
                    "ended": None,
                    "outcome": None,
                    "manifest": dumps(manifest),
                },
            )
            ledger.add_turn(connection, *first)
        return ledger.run

    def update_manifest(self, run: int, manifest: Mapping[str, Any]) -> None:
        """Write a run's manifest again, with what was not known at its start."""
        with self.transaction() as connection:
            Ledger(run).change(connection, manifest=dumps(manifest))

    def release(self, run: int) -> None:
        """Forget who writes to a run; only for when that process is surely gone.

        The entry of a process that ended on this machine is passed over without this.
        """
        with self.transaction() as connection:
            connection.execute("UPDATE runs SET writer = NULL WHERE id = ?", (run,))

    def end_run(self, run: int, outcome: str | None) -> None:
        """Note how a run ended; None says that it goes on."""
        with self.transaction() as connection:
            Ledger(run).change(connection, ended=now() if outcome else None, outcome=outcome)
        if outcome:
            # Fold the write-ahead log in, so that the file alone holds the run; where a reader
            # prevents it, the next one does.
            self.query("PRAGMA wal_checkpoint(TRUNCATE)")

    def import_jsonl(self, source: str | Path) -> list[int]:
        """Take the runs of a JSON lines file onto this tape, all of them or, if one is wrong, none.

        Nothing in the file is executed; runs and calls get new numbers, the next ones here.

        Returns:
            The runs' numbers on this tape.

        Raises:
            TapeError: the file cannot be read or is no whole export; the line is named.
        """
        return import_runs(Path(source), self)

    def prune(self, runs: Iterable[int]) -> None:
        """Take runs off the tape for good, with their calls and turns, and shrink the file.

        The other runs stay as they are, and no run gets a number that one of these had.

        Args:
            runs: their numbers; forks and reruns of one have to be named as well.

        Raises:
            TapeError: a run that stays came from one of these, somebody writes to one of them, or
                there is no such run; nothing was changed.
        """
        prune(self, runs)
        self._at_hand.clear()

    def redact(
        self,
        runs: Iterable[int] | None = None,
        *,
        components: Collection[str] | None = None,
        states: bool = False,
    ) -> None:
        """Put digests, ``redacted:sha256:…``, in the place of texts, for good.

        Gone are the messages, answers (of JSON the texts in it), thoughts, tools' arguments and
        faults of calls; the reasoning and prompts of chains; and what of them stands in the turns'
        states and actions. Names, numbers, the configuration, prompt templates and what was done
        from outside stay. A redacted run can be loaded and looked at, and is not replayed; its
        manifest says how it was redacted. A fork has a copy of its own of the turn that it starts
        from: name it as well.

        Args:
            runs: their numbers; all if not given.
            components: only texts of these, such as ``("agent",)``; all if not given.
            states: whether to take every text with a space in it out of the states, whoever wrote
                it.

        Raises:
            TapeError: there is no such run or component, or somebody writes to one of the runs;
                nothing was changed.
        """
        redact(self, runs, components=components, states=states)
        self._at_hand.clear()


def _record_of(row: sqlite3.Row) -> dict[str, Any]:
    what = f"turn {row['turn']} of run {row['run']}"
    record = loads(row["record"], what)
    if not isinstance(record, dict) or type(turn := record.get("turn")) is not int:
        raise TapeError(f"{what} on the tape is damaged: it is no record of a turn")
    if turn != row["turn"]:
        raise TapeError(f"{what} on the tape is damaged: it is a record of turn {turn}")
    return record
