"""The tape: one text file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import as_whole_number, whole_number
from llmsim_lab._util.jsontext import checked
from llmsim_lab._util.tables import columns_of, frame_of, is_reasonable
from llmsim_lab._util.text import counted, listed, log_event, now, printable, whole
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._family import Family, Part
from llmsim_lab.tape._journal import journal_at
from llmsim_lab.tape.changes import (
    Allowance,
    CostsTooMuch,
    changes_of,
    indented,
    interventions_alone,
    run_line,
)
from llmsim_lab.tape.lines import (
    RecordedCall,
    RunInfo,
    Verb,
    call_of,
    read_line,
    run_body,
)
from llmsim_lab.tape.prompts_read import Anew, PromptsRead

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


class Tape(AbstractContextManager["Tape"]):
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
        self.journal = journal_at(self.path, make=not self.read_only)
        self._known = Family(self.journal, self.journal.generation)

    def close(self) -> None:
        """Do nothing: the file is open only while a run plays or something is read."""

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- reading -----------------------------------------------------------------------------

    @property
    def _family(self) -> Family:
        """How the runs came from each other; read again where the file was written anew."""
        if self._known.generation != self.journal.generation:
            self._known = Family(self.journal, self.journal.generation)
        return self._known

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        return [self._family.info(run) for run in self._begun()]

    @property
    def damaged(self) -> Mapping[int, int]:
        """The first line that is not as it was written, by run; runs that are whole have none."""
        return self.journal.index.broken

    def _begun(self) -> list[int]:
        """Return the runs that have a turn; one whose process was killed before has nothing."""
        self.journal.refresh()
        return sorted(self.journal.index.runs.keys() & self.journal.index.turns.keys())

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run, the latest if none is named.

        Raises:
            TapeError: there is no such run.
        """
        self.journal.refresh()
        index = self.journal.index
        number = as_whole_number(run)
        if number in index.runs and number in index.turns:
            return self._family.info(number)  # alone, since a tape may hold thousands
        if not (numbers := self._begun()):
            raise TapeError(f"the tape {self.path} holds no run")
        if run is not None:
            known = listed([*map(str, numbers)], 40)
            raise TapeError(f"the tape {self.path} has no run {run!r:.80}; it has: {known}")
        return self._family.info(numbers[-1])

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run.
        """
        last = self.run(run).turns
        found: list[tuple[int, int]] = []
        part: Part | None = self._family.part(run)
        while part is not None:
            found.append((part.run, last))
            if part.before is not None:
                last = min(last, int(part.start))
            part = part.before
        return found[::-1]

    def player(self, run: int, turn: int) -> int:
        """Return the run that made the calls of a turn: the run, or one that it continues."""
        return self._family.player(run, turn)

    def turn_records(self, run: int) -> list[dict[str, Any]]:
        """Return a run's whole turns as they were written, a fork's with those of its parents."""
        return [line["record"] for line in self.turn_lines(run).values()]

    def turn_lines(
        self, run: int, first: float = -math.inf, last: float = math.inf
    ) -> dict[int, dict[str, Any]]:
        """Return the lines of a run's turns, by turn, in order; a fork's with those of its parents.

        Of a run that was changed since, they are what is there now, and a WARNING says so.

        Args:
            run: the run.
            first: the first turn.
            last: the last turn.
        """
        latest = min(last, self.run(run).turns)
        for part, _, _ in self._family.parts(run, first, latest):
            fault = self.damaged.get(part.run)
            if fault is not None:
                what = f"line {fault} of run {part.run} is not as it was written; verify names all"
                log_event(logger, logging.WARNING, "TAPE_DAMAGED", tape=self.path, found=what)
        places = self._family.places(run, first, latest)
        wanted = sorted(places)
        lines: dict[int, dict[str, Any]] = {}
        for turn, raw in zip(wanted, self.journal.read([places[t] for t in wanted]), strict=True):
            with checked(f"turn {turn} of run {run} on the tape {self.path} is damaged"):
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
        run = whole_number("run", run)
        turn = turn if turn is None else whole_number("turn", turn)
        by_turn = index.calls.get(run, {})
        numbers: Sequence[int] = by_turn.get(turn, ())
        if turn is None:
            numbers = sorted(chain(*by_turn.values()))
        return [*self._calls([n for n in numbers if forgotten or n not in index.forgotten])]

    def _calls(self, numbers: Sequence[int]) -> Iterator[RecordedCall]:
        index = self.journal.index
        raws = self.journal.read([index.places[number][1] for number in numbers])
        for number, raw in zip(numbers, raws, strict=True):
            with checked(f"call {number} on the tape {self.path} is damaged"):
                line = read_line(raw)
                if line.get("no") != number:
                    raise ValueError(f"it says that it is call {line.get('no')}")
                call = call_of(line, self.journal.text, forgotten=number in index.forgotten)
            yield call

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is no such request.
        """
        known = as_whole_number(number)
        if known not in self.journal.index.places:
            raise TapeError(f"the tape {self.path} has no call {number!r:.80}")
        return next(self._calls([known]))

    def outside(self, run: int, turn: int) -> list[dict[str, Any]]:
        """Return the lines of what came from outside in a turn that a run played itself, in order.

        Raises:
            TapeError: one is damaged.
        """
        self.journal.refresh()
        where = whole_number("run", run), whole_number("turn", turn)
        places = self.journal.index.outside.get(where, ())
        what = f"what came from outside in turn {turn} of run {run} on the tape {self.path}"
        with checked(f"{what} is damaged"):
            return [read_line(raw) for raw in self.journal.read(places)]

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, the one its simulation's ``to_frame`` gives.

        Raises:
            TapeError: there is no such run, or the frame would be large and nearly empty.
        """
        number = self.run(run).id
        rows = self.frame_rows(number).values()
        columns = columns_of(rows)
        if not is_reasonable(rows, len(columns)):
            raise TapeError(
                f"the {len(rows):,} turns of run {number} on {self.path} name {len(columns):,} "
                f"columns, nearly all of them empty: tape.frame_rows({number}) has the rows"
            )
        return frame_of(map(whole, rows))

    def frame_rows(self, run: int) -> dict[int, Any]:
        """Return the rows of a run's frame as they were written, by turn."""
        return {turn: line["row"] for turn, line in self.turn_lines(run).items()}

    def calls_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's own requests as a frame, one row each.

        Columns: ``id``, the call's number; ``turn``; ``component`` and ``agent``, what asked and
        for whom; ``replicate``, which sample of an answer; ``attempt``, 2 where the first reply was
        not valid; ``model``; ``prompt`` and ``reply``, whole; ``fault``, what was wrong with the
        reply, or why there is none; ``done_reason``, why the model stopped; ``prompt_tokens`` and
        ``reply_tokens``, as the server counted; ``tokens_anew``, those of the prompt that it read
        anew, and ``anew_by``, ``server`` where it counted them and ``texts`` where they are
        computed for a server that held the prompt before; ``cut``, which texts of the reply are as
        long as their limit; ``seconds``, until the reply; ``forgotten``, whether the call failed
        for good and was made again.

        A fork's own begin after the fork; those before are its parent's.
        """
        total = PromptsRead()
        calls = self.calls(self.run(run).id, forgotten=True)
        return frame_of([_frame_row(call, total.add(call.attempt)) for call in calls])

    def compare(self, run_a: int, run_b: int) -> pd.DataFrame:
        """Return how two runs' trajectories differ: one row a turn that both have.

        Columns: for each number of ``turns_frame`` three, ``a``, ``b``, and ``difference``, which
        is b minus a: ``compare(1, 2)["inflation", "difference"]``.

        Raises:
            TapeError: there is no such run, or they share no turn or no column of numbers.
        """
        import pandas as pd  # here, since it takes long to import

        frames = []
        for rows in [self.frame_rows(self.run(run).id) for run in (run_a, run_b)]:
            # By the turns of the lines: what a row says of its own may be anything.
            frame = pd.DataFrame(map(whole, rows.values()), index=pd.Index(rows, name="turn"))
            frames.append(frame.select_dtypes("number").drop(columns="turn", errors="ignore"))
        a, b = frames[0].align(frames[1], join="inner")
        if a.empty:
            what = "they share no column of numbers" if len(a.index) else "they share no turn"
            had = " and ".join(
                f"run {n} has {_extent(it)}" for n, it in zip((run_a, run_b), frames, strict=True)
            )
            raise TapeError(f"runs {run_a} and {run_b} cannot be compared: {what}; {had}")
        parts = {"a": a, "b": b, "difference": b - a}
        both = pd.concat(parts, axis=1, names=["of", "variable"]).swaplevel(axis=1)
        return both[[(name, part) for name in a for part in parts]]

    def changes(self, run: int, allowance: Allowance | None = None) -> list[str]:
        """Return what a run changed, in words: compared with the run that it came from, if any.

        Args:
            run: the run.
            allowance: what this may cost, of several runs together; enough for one if not given.
        """
        allowance = allowance or self.allowance()
        info = self.run(run)
        first = -math.inf if info.fork_turn is None else info.fork_turn
        try:
            done = self._family.done(info.id, first, info.turns, allowance)
            if info.parent is None:
                return interventions_alone(done)
            parent = self._family.info(info.parent)
            before = self._family.done(parent.id, first, info.turns, allowance)
            records = []
            if info.fork_turn is not None:
                for number in (info.id, parent.id):
                    place = self._family.places(number, first, first)[info.fork_turn]
                    allowance.take(place[1])
                    records.append(self._family.record(place))
            return changes_of(info, parent, (done, before), records, allowance)
        except CostsTooMuch as error:
            return [str(error)]
        except (TapeError, LookupError, RecursionError):
            return ["what it changed cannot be read"]

    def allowance(self) -> Allowance:
        """Return what it may cost to say what each of the tape's runs changed."""
        return Allowance(self.journal.index.end)

    def tree(self) -> str:
        """Return the runs as text, with their forks and reruns below them.

        Each says what it changed: the prompt's words, interventions, the state, the settings, the
        model.
        """
        allowance = self.allowance()
        lines = [
            (it.id, it.parent, run_line(it, self.changes(it.id, allowance))) for it in self.runs()
        ]
        return "\n".join([printable(str(self)), *indented(lines)])

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._begun())

    def __repr__(self) -> str:
        return f"<Tape {str(self.path)!r}: {counted(len(self), 'run')}>"

    # --- writing -----------------------------------------------------------------------------

    def writing(self) -> AbstractContextManager[None]:
        """Return what makes this process the file's only writer.

        Raises:
            TapeError: the tape was opened for reading only; when it is entered: another process
                writes, or the file cannot be written to.
        """
        if self.read_only:
            way_out = "gunzip it to record on it" if self.journal.is_packed else "open it anew"
            raise TapeError(f"the tape {self.path} is open for reading only; {way_out}")
        return self.journal.writing()

    def add_run(
        self,
        manifest: Mapping[str, Any],
        *,
        name: str,
        first: tuple[int, bytes],
        verb: Verb = "run",
        parent: int | None = None,
        fork_turn: int | None = None,
    ) -> int:
        """Record the start of a run; returns its number.

        Args:
            manifest: what defines the run.
            name: its configuration's name.
            first: the turn it starts from: number and body, as ``commit_turn`` takes them.
            verb: how it came about.
            parent: the run that it is a fork or a rerun of.
            fork_turn: for a fork, the turn of the parent that it starts from.

        Raises:
            TapeError: the tape is read-only, or the parent is not on it.
        """
        if parent is not None:
            self.run(parent)
        journal, (turn, body) = self.journal, first
        origin = {"name": name, "parent": parent, "fork_turn": fork_turn, "verb": verb}
        with self.writing(), journal.lock:  # other threads may begin runs too
            run = max(journal.index.runs, default=0) + 1
            journal.append(run, "run", run_body(manifest, journal.intern, **origin, started=now()))
            journal.append(run, "turn", body, turn=turn)
        return run

    def copy(self, runs: Iterable[int], path: str | Path, *, up_to: int | None = None) -> Tape:
        """Return a new tape with some of the runs, and those that they came from.

        Args:
            runs: their numbers, which they keep.
            path: the new file.
            up_to: the last turn to copy; all if not given.

        Raises:
            TapeError: the file is there already or cannot be written, or a run is damaged.
        """
        up_to = up_to if up_to is None else whole_number("up_to", up_to)
        if Path(path).suffix == ".gz":
            raise TapeError(f"{path} ends in .gz, and a tape that is written to is not packed")
        if Path(path).exists():
            raise TapeError(f"{path} is there already: fork its runs, or name a new file")
        family: set[int] = set()
        for number in runs:
            run: int | None = number
            while run is not None and run not in family:
                family.add(run)
                run = self.run(run).parent
        if damaged := family & self.damaged.keys():
            raise TapeError(f"run {min(damaged)} on {self.path} is damaged; verify says where")
        self.journal.rewrite(family, Path(path), up_to=up_to)
        return Tape(path)

    def prune(self, runs: Iterable[int]) -> None:
        """Remove runs for good, with their calls and turns; all other lines stay as they are.

        Args:
            runs: their numbers; forks and reruns of one have to be named as well.

        Raises:
            TapeError: a run that stays came from one of these, the tape is being written to, or
                there is no such run; nothing was changed.
        """
        gone, known = {self.run(run).id for run in runs}, self.runs()
        for info in known:
            if info.parent in gone and info.id not in gone:
                what = f"run {info.parent} cannot be removed from {self.path}"
                raise TapeError(f"{what}: run {info.id} came from it; name that one as well")
        with self.journal.lock, self.writing():  # else a thread may write a line meanwhile
            self.journal.rewrite({info.id for info in known} - gone)
        for run in gone:
            if (recorder := self.journal.recorders.pop(run, None)) is not None:
                recorder.close()  # its number may be another run's next


def _extent(frame: pd.DataFrame) -> str:
    """Return which turns and columns a frame has, in words."""
    columns = listed([*map(str, frame.columns)], 6) or "none"
    return f"turns {frame.index.min()} to {frame.index.max()} and the columns {columns}"


def _frame_row(call: RecordedCall, anew: Anew | None) -> Any:
    attempt = call.attempt
    request, reply, site = attempt.request, attempt.reply, attempt.request.site
    counts = ("done_reason", "prompt_tokens", "reply_tokens")
    anew_by = None
    if anew is not None:
        anew_by = "server" if anew.is_counted else "texts"
    row = {
        "id": call.id,
        **{name: getattr(site, name, None) for name in ("turn", "component", "agent")},
        "replicate": site.replicate if site else 0,
        **{name: getattr(request, name) for name in ("attempt", "model", "prompt")},
        "reply": reply and reply.text,
        "fault": attempt.detail if attempt.reason else None,
        **{name: getattr(reply, name, None) for name in counts},
        "tokens_anew": anew.tokens if anew is not None else None,
        "anew_by": anew_by,
        "cut": ", ".join(attempt.cut) or None,
        "seconds": attempt.seconds,
        "forgotten": call.forgotten,
    }
    return whole(row)
