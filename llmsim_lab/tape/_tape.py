"""The tape: one text file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab._util.jsontext import dumps, loads
from llmsim_lab._util.text import log_event, whole
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._changes import Changes, TextTree
from llmsim_lab.tape._journal import Journal, Place, journal_at
from llmsim_lab.tape._lines import (
    RecordedCall,
    RunInfo,
    Verb,
    call_of,
    manifest_body,
    members,
    now,
    read_line,
)
from llmsim_lab.types import Attempt

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_MAX_CACHED = 500


class Tape:
    """A file of recorded runs: text, a line of JSON for each fact.

    Several processes may read it while one writes. An answer is handed on only after its line is
    in the file: if the process ends, nothing handed on is lost. After a power cut the latest lines
    may be missing, unless the run had ended. ``resume`` then asks for those answers again.

    Args:
        path: the file; created if it does not exist, unless ``read_only``. One that ends in
            ``.tape.gz`` is packed, and only to be read.
        read_only: for reading and replaying only; works on a disk that cannot be written to.

    Raises:
        TapeError: the file cannot be read, or is not a tape of this format.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only or self.path.suffix == ".gz"
        self.closed = False
        self.journal: Journal = journal_at(self.path, make=not self.read_only)
        self._attempts: dict[int, Attempt] = {}
        """Those read lately, by number: whoever reads one of a turn's often reads its others."""
        self._infos: dict[int, tuple[int, dict[str, Any]]] = {}
        """What lines say of runs, by number, with how many lines that were."""
        self._warned: set[int] = set()

    def close(self) -> None:
        """Write nothing more by this object; what it has can still be read."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- reading -----------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        return [self._info(run) for run in self._begun()]

    def _begun(self) -> list[int]:
        """Return the runs that have a turn; one whose process was killed before has nothing."""
        self.journal.refresh()
        index = self.journal.index
        return [run for run in sorted(index.runs) if run in index.turns]

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run, the latest if none is named.

        Raises:
            TapeError: there is no such run.
        """
        self.journal.refresh()
        index = self.journal.index
        if type(run) is int and run in index.runs and run in index.turns:
            return self._info(run)  # alone, since a tape may hold thousands
        runs = self.runs()
        if not runs:
            raise TapeError(f"the tape {self.path} holds no run")
        if run is None:
            return runs[-1]
        known = ", ".join(str(info.id) for info in runs)
        hint = "" if type(run) is int else "; a run's number is a whole number, as in run=1"
        raise TapeError(f"the tape {self.path} has no run {run!r:.80}; it has: {known}{hint}")

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Raise TapeError where something that is read does not hold what it should."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise TapeError(f"{what} on the tape {self.path} is damaged: {error}") from error

    def _info(self, run: int) -> RunInfo:
        index = self.journal.index
        places = index.runs[run]
        lines, facts = self._infos.get(run, (0, {}))
        with self._reading(f"run {run}"):
            if lines != len(places):
                facts = {"parent": None, "fork_turn": None, "ended": None, "outcome": None}
                for raw in self.journal.read(places):
                    facts |= _facts(read_line(raw))
                manifest = dict(facts.pop("manifest"))
                for name, digest in facts.pop("texts").items():
                    manifest[name] = loads(self.journal.text(digest))
                facts["manifest"] = manifest
                self._infos[run] = len(places), facts
            turns = max(index.turns.get(run, (0,)))
            return RunInfo(id=run, turns=turns, calls=index.counts[run], **facts)

    def last_turn(self, run: int) -> int:
        """Return a run's last whole turn.

        Raises:
            TapeError: it has none, not even the one that it starts from; the tape is damaged.
        """
        if not (turns := self.journal.index.turns.get(run)):
            raise TapeError(f"run {run} on the tape {self.path} is damaged: it has no turn")
        return max(turns)

    def _back(self, run: int) -> Iterator[tuple[RunInfo, int]]:
        """Yield a run and those that it continues, latest first, each with the last turn to use."""
        info = self.run(run)
        last = info.turns
        yield info, last
        while info.parent is not None and info.fork_turn is not None:
            if info.parent >= info.id:
                raise TapeError(
                    f"run {info.id} on the tape {self.path} is damaged: run {info.parent}, which "
                    "it was forked from, came later"
                )
            # A fork may start before the turn that its own parent was forked at.
            last = min(last, info.fork_turn)
            info = self.run(info.parent)
            yield info, last

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run.
        """
        return [(info.id, last) for info, last in self._back(run)][::-1]

    def first_fault(self, run: int) -> int | None:
        """Return the first line of a run, or one that it was forked from, that was changed."""
        broken = self.journal.index.broken
        return min((broken[part] for part, _ in self.line(run) if part in broken), default=None)

    def turn_records(self, run: int) -> list[dict[str, Any]]:
        """Return a run's whole turns as they were written, a fork's with those of its parents."""
        return [line["record"] for line in self.turn_lines(run).values()]

    def turn_lines(
        self, run: int, *, first: float = -math.inf, last: float = math.inf, unless: bytes = b""
    ) -> dict[int, dict[str, Any]]:
        """Return the lines of a run's turns, by turn, in order; a fork's with those of its parents.

        Of a run that was changed since, they are what is there now, and a WARNING says so, once.

        Args:
            run: the run.
            first: the first turn.
            last: the last turn.
            unless: of turns before the last, a line that holds these bytes is passed over.
        """
        places: dict[int, tuple[int, Place]] = {}
        faults: list[int] = []
        for info, bound in self._back(run):
            own = list(self.journal.index.turns.get(info.id, {}).items())
            # A fork's copy of the turn that it starts from, which may have been changed, counts.
            places = {t: (info.id, at) for t, at in own if first <= t <= min(bound, last)} | places
            faults += [self.journal.index.broken.get(info.id, 0)]
            if info.fork_turn is not None and info.fork_turn <= first:
                break
        if any(faults) and run not in self._warned:
            self._warned.add(run)
            log_event(
                logger,
                logging.WARNING,
                "TAPE_DAMAGED",
                tape=self.path,
                run=run,
                found=f"line {min(filter(None, faults))} is not as it was written",
                remedy="`llmsim-lab tape verify` names all that was changed",
            )
        wanted = sorted(places)
        raws = self.journal.read([places[turn][1] for turn in wanted])
        lines: dict[int, dict[str, Any]] = {}
        for turn, raw in zip(wanted, raws, strict=True):
            if unless and turn != wanted[-1] and unless in raw:
                continue
            with self._reading(f"turn {turn} of run {places[turn][0]}"):
                lines[turn] = read_line(raw)
                if (its := lines[turn]["record"]["turn"]) != turn:
                    raise ValueError(f"it is a record of turn {its}")
        return lines

    def calls(
        self, run: int, *, turn: int | None = None, forgotten: bool = False
    ) -> list[RecordedCall]:
        """Return the requests that a run made itself, in the order in which they were answered.

        Args:
            run: the run.
            turn: one turn's only.
            forgotten: also those of calls that failed for good and were made again.
        """
        self.journal.refresh()
        index = self.journal.index
        if turn is not None:
            numbers: Sequence[int] = index.calls.get((run, turn), ())
        else:
            numbers = sorted(
                n for (of, _), ns in list(index.calls.items()) if of == run for n in ns
            )
        wanted = [n for n in numbers if forgotten or n not in index.forgotten]
        return list(self._calls(wanted))

    def _calls(self, numbers: Sequence[int]) -> Iterator[RecordedCall]:
        index, places = self.journal.index, []
        for number in numbers:
            if number not in index.places:
                raise TapeError(f"the tape {self.path} has no call {number!r:.80}")
            places.append(index.places[number][1])
        for number, raw in zip(numbers, self.journal.read(places), strict=True):
            with self._reading(f"call {number}"):
                line = read_line(raw)
                if line.get("no") != number:
                    raise ValueError(f"it says that it is call {line.get('no')}")
                call = call_of(line, self.journal.text, forgotten=number in index.forgotten)
            yield call

    def outside(self, run: int, turn: int) -> list[dict[str, Any]]:
        """Return the lines of what came from outside in a turn that a run played itself, in order.

        Raises:
            TapeError: one is damaged.
        """
        self.journal.refresh()
        places = self.journal.index.outside.get((run, turn), ())
        with self._reading(f"what came from outside in turn {turn} of run {run}"):
            return [read_line(raw) for raw in self.journal.read(places)]

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is no such request.
        """
        [call] = self._calls([number])
        return call

    def attempt(self, number: int) -> Attempt:
        """Return what became of a request by its number; also after the tape was closed.

        Raises:
            TapeError: the file is gone or another one, or there is no such request.
        """
        with self.journal.lock:
            if (known := self._attempts.get(number)) is not None:
                return known
            if len(self._attempts) >= _MAX_CACHED:
                self._attempts.clear()
            call = self.call(number)
            site = call.attempt.request.site
            turn = self.calls(call.run, turn=site.turn, forgotten=True) if site else []
            self._attempts |= {one.id: one.attempt for one in (call, *turn)}
            return self._attempts[number]

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, the one its simulation's ``to_frame`` gives."""
        import pandas as pd  # here and below, since it takes long to import

        rows = self.frame_rows(self.run(run).id).values()
        return pd.DataFrame(map(whole, rows))

    def frame_rows(self, run: int) -> dict[int, Any]:
        """Return the rows of a run's frame as they were written, by turn."""
        return {turn: line["row"] for turn, line in self.turn_lines(run).items()}

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
        return pd.DataFrame([whole(_frame_row(call)) for call in calls])

    def compare(self, run_a: int, run_b: int) -> pd.DataFrame:
        """Return how two runs' trajectories differ: one row a turn that both have.

        Columns: for each number of ``turns_frame`` three, ``a``, ``b``, and ``difference``, which
        is b minus a: ``compare(1, 2)["inflation", "difference"]``.

        Raises:
            TapeError: there is no such run, or they share no turn or no column of numbers.
        """
        import pandas as pd

        a, b = (_numbers(self.turns_frame(run)) for run in (run_a, run_b))
        shared, turns = [name for name in a if name in b], a.index.intersection(b.index)
        if not shared or turns.empty:
            raise TapeError(
                f"runs {run_a} and {run_b} cannot be compared: they share no turn or no column of "
                "numbers"
            )
        a, b = a.loc[turns, shared], b.loc[turns, shared]
        parts = {"a": a, "b": b, "difference": b - a}
        columns = [(name, part) for name in shared for part in parts]
        joined = pd.concat(parts, axis=1).swaplevel(axis=1)
        return joined[columns].rename_axis(columns=["variable", "of"])

    def changes(self) -> Changes:
        """Return what each run changed, in words: ``tape.changes().of(2)``."""
        return Changes(self.runs(), self.turn_lines)

    def tree(self) -> TextTree:
        """Return the runs with their forks and reruns below them; it has a view in a notebook.

        Each says what it changed: the prompt's words, interventions, the state, the settings, the
        model.
        """
        runs, changes = self.runs(), self.changes()
        changed = {info.id: changes.of(info.id) for info in runs}
        return TextTree(runs, title=str(self), changed=changed)

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._begun())

    def __repr__(self) -> str:
        runs = len(self)
        return f"<Tape {str(self.path)!r}: {runs} run{'' if runs == 1 else 's'}>"

    def _repr_html_(self) -> str:
        return self.tree()._repr_html_()

    # --- writing -----------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the file's writer, alone among processes.

        Raises:
            TapeError: another process is, the tape was closed or opened for reading only, or its
                file cannot be written to.
        """
        if self.read_only or self.closed:
            how = "was closed" if self.closed else "is open for reading only"
            way_out = f"open it with Tape({str(self.path)!r})"
            if self.journal.is_packed:
                way_out = "it is packed; gunzip it to record on it"
            raise TapeError(f"the tape {self.path} {how}; {way_out}")
        writer = object()
        try:
            self._claim(writer)
            yield
        finally:
            self.journal.release(writer)

    def _claim(self, writer: object) -> None:
        try:
            self.journal.claim(writer)
        except TapeError as error:
            busy = [info for info in self.runs() if info.process not in (None, os.getpid())]
            if "another process" not in str(error) or not busy:
                raise
            runs = self.journal.index.runs
            latest = max(busy, key=lambda info: runs[info.id][-1].start)
            who = f"; run {latest.id} is recorded there by process {latest.process}"
            raise TapeError(f"{error}{who}") from None

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
        journal, (turn, record, row) = self.journal, first
        origin = {"parent": parent, "fork_turn": fork_turn, "verb": verb}
        with self.writing(), journal.lock:  # other threads may begin runs too
            run = max(journal.index.runs, default=0) + 1
            shared = manifest_body(manifest, journal.intern)
            head = members(name=name, **origin, started=now())
            journal.append(run, "run", b"," + head + shared)
            journal.append(run, "turn", f',"record":{record},"row":{row}'.encode(), turn=turn)
        return run

    def update_manifest(self, run: int, manifest: Mapping[str, Any]) -> None:
        """Write a run's manifest again, with what was not known at its start."""
        with self.writing():
            body = manifest_body(manifest, self.journal.intern)
            self.journal.append(run, "set", body)

    def end_run(self, run: int, outcome: str | None) -> None:
        """Record how a run ended; None if it continues, by this process."""
        with self.writing():
            if outcome is None:
                self.journal.append(run, "set", b',"process":%d' % os.getpid())
                return
            self.journal.append(run, "end", b"," + members(ended=now(), outcome=outcome))
            self.journal.sync()

    def take(
        self, source: Tape, runs: Iterable[int], *, up_to: int | None = None
    ) -> dict[int, int]:
        """Copy runs of another tape, with those that they came from.

        Args:
            source: the other tape.
            runs: their numbers there.
            up_to: the last turn to copy; all if not given.

        Returns:
            The number here of each that was copied, by its number there.

        Raises:
            TapeError: a run is damaged there, or this tape cannot be written to.
        """
        family: set[int] = set()
        for number in runs:
            run: int | None = number
            while run is not None and run not in family:
                family.add(run)
                run = source.run(run).parent
        if damaged := family & source.journal.index.broken.keys():
            raise TapeError(f"run {min(damaged)} on {source.path} is damaged; verify says where")
        own: dict[int, int] = {}
        calls: dict[int, int] = {}
        with self.writing(), self.journal.lock, source._reading("a run"):
            for _, raw in source.journal.lines():
                line = loads(raw)
                there, kind, turn = line.get("run"), line.get("is"), line.get("turn")
                is_late = up_to is not None and (kind == "end" or (turn or 0) > up_to)
                if there not in family or is_late:
                    continue
                for digest in re.findall(rb'"([0-9a-f]{16})"', raw):
                    if digest in source.journal.index.texts:
                        self.journal.intern(source.journal.text(digest.decode()).decode())
                if kind == "run":
                    own[there] = max(self.journal.index.runs, default=0) + 1
                number = line.get("no")
                for name in ("run", "is", "turn", "no", "sum"):
                    line.pop(name, None)
                body = f",{dumps(_renumbered(line, own, calls))[1:-1]}".encode()
                here = self.journal.append(own[there], kind, body, turn=turn)
                calls |= {} if number is None else {number: here}
        return own

    def prune(self, runs: Iterable[int]) -> None:
        """Remove runs for good, with their calls and turns; all other lines stay as they are.

        Args:
            runs: their numbers; forks and reruns of one have to be named as well.

        Raises:
            TapeError: a run that stays came from one of these, somebody writes to the tape, or
                there is no such run; nothing was changed.
        """
        gone = {self.run(run).id for run in runs}
        if not gone:
            raise TapeError(f"no run of the tape {self.path} was named")
        known = self.runs()
        for info in known:
            if info.parent in gone and info.id not in gone:
                both = sorted({info.parent or 0, info.id})
                options = " ".join(f"--run {run}" for run in both)
                raise TapeError(
                    f"run {info.parent} cannot be taken off {self.path}: run {info.id}, a "
                    f"{info.verb} of it, would lose what it came from; name both: {options} (in "
                    f"Python, runs={both})"
                )
        with self.writing():
            self.journal.rewrite({info.id for info in known} - gone)
        for run in gone:
            if (recorder := self.journal.recorders.pop(run, None)) is not None:
                recorder.close()  # its number may be another run's next
        self._attempts.clear()
        self._infos.clear()


def _renumbered(
    line: dict[str, Any], runs: Mapping[int, int], calls: Mapping[int, int]
) -> dict[str, Any]:
    """Return members of a line with the numbers that runs and calls have on another tape."""
    if "parent" in line:
        line["parent"] = runs[line["parent"]]
    if "calls" in line:
        line["calls"] = [calls[number] for number in line["calls"]]
    for call in line.get("record", {}).get("calls", ()):
        call[1] = [calls[number] for number in call[1]]
    return line


def _facts(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a line says of its run."""
    facts = {key: value for key, value in line.items() if key not in ("run", "is", "sum")}
    if line["is"] == "end":
        return {**facts, "process": None}
    return {**facts, "ended": None, "outcome": None} if "process" in facts else facts


def _frame_row(call: RecordedCall) -> dict[str, Any]:
    attempt = call.attempt
    request, reply, site = attempt.request, attempt.reply, attempt.request.site
    return {
        "id": call.id,
        "turn": site and site.turn,
        "component": site and site.component,
        "agent": site and site.agent,
        "replicate": site.replicate if site else 0,
        "attempt": request.attempt,
        "model": request.model,
        "prompt": request.prompt,
        "reply": reply and reply.text,
        "fault": attempt.detail if attempt.reason else None,
        "done_reason": reply and reply.done_reason,
        "prompt_tokens": reply and reply.prompt_tokens,
        "reply_tokens": reply and reply.reply_tokens,
        "seconds": attempt.seconds,
        "forgotten": call.forgotten,
    }


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


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of numbers by turn; none if there are no turns to compare them by."""
    if "turn" not in frame or not frame["turn"].is_unique:
        return frame[[]]
    return frame.set_index("turn").select_dtypes("number")
