"""The tape: one text file that is log, cache, checkpoint and teaching material."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, SupportsIndex

from llmsim_lab._util.checks import as_whole_number, whole_number
from llmsim_lab._util.files import as_path, is_there
from llmsim_lab._util.frozen import SetOnce
from llmsim_lab._util.jsontext import checked
from llmsim_lab._util.tables import columns_of, frame_of, is_reasonable
from llmsim_lab._util.text import brief, counted, listed, log_event, now, printable, whole
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._family import Family, Part
from llmsim_lab.tape._journal import journal_at
from llmsim_lab.tape.changes import (
    Allowance,
    CostsTooMuch,
    RunChanged,
    changes_of,
    indented,
    interventions_alone,
    run_line,
)
from llmsim_lab.tape.lines import (
    Line,
    Record,
    RecordedCall,
    Row,
    RunInfo,
    Verb,
    call_of,
    read_line,
    run_body,
)
from llmsim_lab.tape.prompts_read import Anew, PromptsRead
from llmsim_lab.types import CallSite

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_MOST_TEXTS = 50_000
"""Columns of text in a frame: pandas takes three kilobytes for each, as short as its texts are."""
_MOST_OF_PROMPTS = 2**27
"""Of all prompts in a frame, in bytes as Python holds them, or ..."""
_MOST_A_BYTE = 32
"""... so many times the bytes of the tape. Ten thousand calls that share a system message of 7,000
letters, and differ in little else, have 20 times."""


class Tape(SetOnce, AbstractContextManager["Tape"]):
    """A file of recorded runs: text, with a line of JSON for each fact.

    Several processes may read it while one writes. An answer is used only after its line is in the
    file: if the process ends, no answer that was used is lost. After a power cut the latest lines
    may be missing, unless the run had ended; ``resume`` then asks for those answers again.

    Args:
        path: the file; it is made if it does not exist, unless ``read_only``. A file that ends in
            ``.tape.gz`` is packed, and can only be read.
        read_only: True to only read and replay; this works on a disk that cannot be written to.

    Raises:
        TapeError: the file cannot be read, or is not a tape of this format.
    """

    set_once = ("path", "read_only", "journal")

    def __init__(
        self,
        path: str | Path,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = as_path("path", path)
        self.read_only = read_only or self.path.suffix == ".gz"
        self.journal = journal_at(self.path, make=not self.read_only)
        # Empty: runs are read when they are asked for, since a study opens a thousand tapes.
        self._known = Family(self.journal, self.journal.generation)

    def close(self) -> None:
        """Do nothing: the file is open only while a run plays or something is read."""

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        # Called to pickle a tape, and to copy it.
        raise TapeError(
            f"the tape {self.path} is open, so it cannot be pickled or copied; open it where it is "
            f"needed: Tape({str(self.path)!r})"
        )

    # --- reading -----------------------------------------------------------------------------

    @property
    def _family(self) -> Family:
        """How the runs came from each other; read again if the file was written anew."""
        if self._known.generation != self.journal.generation:
            self._known = Family(self.journal, self.journal.generation)
        return self._known

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        runs = self._begun()
        return self._family.infos(runs)

    @property
    def damaged(self) -> Mapping[int, int]:
        """The first damaged line of each damaged run; the other runs are whole."""
        return self.journal.index.broken

    def _begun(self) -> list[int]:
        """Return the runs that have a turn; a run whose process was killed before has nothing."""
        self.journal.refresh()
        # Only a kill between two lines can leave a run without its first turn.
        index = self.journal.index
        return sorted(index.runs.keys() & index.turns.keys())

    def run(self, run: int | None = None) -> RunInfo:
        """Return one run; the latest if no number is given.

        Raises:
            TapeError: there is no such run.
        """
        self.journal.refresh()
        index = self.journal.index
        number = as_whole_number(run)
        if number in index.runs and number in index.turns:
            return self._family.info(number)  # only this one, since a tape may hold thousands
        numbers = self._begun()
        if not numbers:
            raise TapeError(f"the tape {self.path} holds no run")
        if run is not None:
            names = listed([str(number) for number in numbers], 40)
            raise TapeError(f"the tape {self.path} has no run {brief(run, 80)}; it has: {names}")
        return self._family.info(numbers[-1])

    def line(self, run: int) -> list[tuple[int, int]]:
        """Return the runs that led to this one's latest turn, oldest first.

        Each comes with the last turn that it played for this run.
        """
        last = self.run(run).turns
        players: list[tuple[int, int]] = []
        part: Part | None = self._family.part(run)
        while part is not None:
            players.append((part.run, last))
            if part.before is not None:  # the run before it plays a fork's first turn
                last = min(last, int(part.start))
            part = part.before
        return players[::-1]

    def player(self, run: int, turn: int) -> int:
        """Return the run that made a turn's calls: the run itself, or one that it continues."""
        return self._family.player(run, turn)

    def turn_records(self, run: int) -> list[Record]:
        """Return the records of a run's whole turns; a fork's include those of its parents."""
        return [line["record"] for line in self.turn_lines(run).values()]

    def turn_lines(
        self,
        run: int,
        first: float = -math.inf,
        last: float = math.inf,
    ) -> dict[int, Line]:
        """Return the lines of a run's turns, by turn; a fork's include those of its parents.

        If the run was changed since, these are the present lines, and a WARNING says so.

        Args:
            run: the run.
            first: the first turn.
            last: the last turn.
        """
        return dict(self.each_turn_line(run, first, last))

    def each_turn_line(
        self,
        run: int,
        first: float = -math.inf,
        last: float = math.inf,
    ) -> Iterator[tuple[int, Line]]:
        """Yield what ``turn_lines`` returns, one turn at a time: all may take much memory."""
        latest = min(last, self.run(run).turns)
        for stretch in self._family.stretches(run, first, latest):
            player = stretch.run
            line = self.damaged.get(player)
            if line is not None:
                fault = f"line {line} of run {player} is not as it was written; verify names all"
                log_event(
                    logger,
                    logging.WARNING,
                    "TAPE_DAMAGED",
                    tape=self.path,
                    found=fault,
                )
        places = self._family.places(run, first, latest)
        turns = sorted(places)
        raws = self.journal.read([places[turn] for turn in turns])
        for turn, raw in zip(turns, raws, strict=True):
            with checked(f"turn {turn} of run {run} on the tape {self.path} is damaged"):
                line_of_turn = read_line(raw)
                recorded_turn = line_of_turn["record"]["turn"]
                if recorded_turn != turn:
                    raise ValueError(f"it is a record of turn {recorded_turn}")
            yield turn, line_of_turn

    def calls(
        self,
        run: int,
        *,
        turn: int | None = None,
        forgotten: bool = False,
    ) -> list[RecordedCall]:
        """Return the requests that a run made itself, in the order in which they were answered.

        Args:
            run: the run.
            turn: only the requests of this turn.
            forgotten: True to include calls that failed for good and were made again.
        """
        self.journal.refresh()  # another process may have recorded some
        index = self.journal.index
        run_number = whole_number("run", run)
        by_turn = index.calls.get(run_number, {})
        numbers: Sequence[int]
        if turn is None:
            # Sorted, since the calls of several turns may be mixed.
            numbers = sorted(chain(*by_turn.values()))
        else:
            turn_number = whole_number("turn", turn)
            numbers = by_turn.get(turn_number, ())
        if not forgotten:
            # They were made again, and their results led to no turn.
            numbers = [number for number in numbers if number not in index.forgotten]
        return list(self._calls(numbers))

    def _calls(self, numbers: Sequence[int]) -> Iterator[RecordedCall]:
        index = self.journal.index
        places = []
        for number in numbers:
            _, place = index.places[number]
            places.append(place)
        for number, raw in zip(numbers, self.journal.read(places), strict=True):
            with checked(f"call {number} on the tape {self.path} is damaged"):
                line = read_line(raw)
                # The file may have been changed in place after it was opened.
                if line.get("no") != number:
                    raise ValueError(f"it says that it is call {line.get('no')}")
                call = call_of(
                    line,
                    self.journal,
                    forgotten=number in index.forgotten,
                )
            yield call

    def call(self, number: int) -> RecordedCall:
        """Return one request by its number.

        Raises:
            TapeError: there is no such request.
        """
        wanted = as_whole_number(number)
        if wanted not in self.journal.index.places:
            raise TapeError(f"the tape {self.path} has no call {brief(number, 80)}")
        [call] = self._calls([wanted])
        return call

    def outside(self, run: int, turn: int) -> list[Line]:
        """Return what came from outside in a turn that a run played itself, as lines in order.

        Raises:
            TapeError: a line is damaged.
        """
        self.journal.refresh()
        run_number = whole_number("run", run)
        turn_number = whole_number("turn", turn)
        key = (run_number, turn_number)
        places = self.journal.index.outside.get(key, ())
        with checked(
            f"what came from outside in turn {turn} of run {run} on the tape {self.path} is damaged"
        ):
            return [read_line(raw) for raw in self.journal.read(places)]

    def turns_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's turns as a frame, equal to that of its simulation's ``to_frame``.

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
        texts = _texts_in(rows)
        if len(texts) > _MOST_TEXTS:
            raise TapeError(
                f"the turns of run {number} on {self.path} name {len(texts):,} columns of text, "
                f"and a frame has at most {_MOST_TEXTS:,}: tape.frame_rows({number}) has the rows"
            )
        return frame_of(map(whole, rows))

    def frame_rows(self, run: int) -> dict[int, Row]:
        """Return the recorded rows of a run's frame, by turn."""
        return {turn: line["row"] for turn, line in self.turn_lines(run).items()}

    def calls_frame(self, run: int | None = None) -> pd.DataFrame:
        """Return a run's own requests as a frame, one row each.

        Columns: ``id``, the call's number; ``turn``; ``component`` and ``agent``, who asked and for
        whom; ``replicate``, the sample's number; ``attempt``, 2 if the first reply was not valid;
        ``model``; ``prompt`` and ``reply``, whole; ``fault``, what was wrong with the reply, or why
        there is none; ``done_reason``, why the model stopped; ``prompt_tokens`` and
        ``reply_tokens``, as the server counted; ``tokens_anew``, how many tokens of the prompt it
        read anew; ``anew_by``, ``server`` if the server counted these and ``texts`` if they are
        computed for a server that had the prompt before; ``cut``, the texts of the reply that are
        as long as their limit; ``seconds``, until the reply; ``forgotten``, True if the call failed
        for good and was made again.

        A fork's requests begin after the fork; those before are its parent's.

        Raises:
            TapeError: there is no such run, or its prompts, written out for each call, have very
                many times the letters that the tape has.
        """
        number = self.run(run).id
        calls = self.calls(number, forgotten=True)
        self._check_prompts(number, calls)
        total = PromptsRead()
        rows: list[Row] = []
        for call in calls:
            # In order, since what a server reads anew depends on the prompts before.
            anew = total.add(call.attempt)
            rows.append(_frame_row(call, anew))
        return frame_of(rows)

    def _check_prompts(self, run: int, calls: Sequence[RecordedCall]) -> None:
        """Raise TapeError if a frame would hold far more than the tape, which has each text once.

        A made-up tape may have a system message of megabytes, and a thousand calls that share it.
        """
        size = 0
        for call in calls:
            size += sum(map(sys.getsizeof, [m.content for m in call.attempt.request.messages]))
        most = max(_MOST_OF_PROMPTS, _MOST_A_BYTE * self.journal.index.end)
        if size > most:
            raise TapeError(
                f"the prompts of the {len(calls):,} calls of run {run} on {self.path} take "
                f"{size:,} bytes together, and a frame has room for {most:,}: "
                f"tape.calls({run}, turn=1) has those of one turn"
            )

    def compare(self, run_a: int, run_b: int) -> pd.DataFrame:
        """Return how two runs' trajectories differ, one row for each turn that both have.

        Columns: for each number of ``turns_frame`` three: ``a``, ``b``, and ``difference``, which
        is b minus a: ``compare(1, 2)["inflation", "difference"]``.

        Raises:
            TapeError: there is no such run, or they share no turn or no column of numbers.
        """
        import pandas as pd  # imported here, since it takes long

        frame_a = self._numbers_of(run_a)
        frame_b = self._numbers_of(run_b)
        a, b = frame_a.align(frame_b, join="inner")
        if a.empty and len(a.index):
            raise TapeError(
                f"runs {run_a} and {run_b} cannot be compared: they share no column of numbers; "
                f"run {run_a} has {_extent(frame_a)} and run {run_b} has {_extent(frame_b)}"
            )
        if a.empty:
            raise TapeError(
                f"runs {run_a} and {run_b} cannot be compared: they share no turn; "
                f"run {run_a} has {_extent(frame_a)} and run {run_b} has {_extent(frame_b)}"
            )
        parts = {
            "a": a,
            "b": b,
            "difference": b - a,
        }
        columns = []
        for name in a:
            # By variable and then by run, so that the values to compare stand side by side.
            columns += [(name, part) for part in parts]
        both = pd.concat(
            parts,
            axis=1,
            names=["of", "variable"],
        ).swaplevel(axis=1)
        return both[columns]

    def _numbers_of(self, run: int) -> pd.DataFrame:
        """Return the numbers of a run's frame, by turn."""
        import pandas as pd  # imported here, since it takes long

        rows = self.frame_rows(self.run(run).id)
        # Left out here, since pandas takes long for each.
        texts = _texts_in(rows.values())
        numbers = [
            {name: value for name, value in row.items() if name not in texts}
            for row in rows.values()
        ]
        # The turns are those of the lines: a damaged row may have any.
        frame = pd.DataFrame(
            map(whole, numbers),
            index=pd.Index(rows, name="turn"),
        )
        return frame.select_dtypes("number").drop(columns="turn", errors="ignore")

    def changes(
        self,
        run: int,
        allowance: Allowance | None = None,
    ) -> list[str]:
        """Return what a run changed compared with the run that it came from, in words.

        Args:
            run: the run.
            allowance: a budget for the work, which several runs share; enough for one if not given.
        """
        # Limited, since a tape may come from anywhere.
        return self.changes_in(self.run(run), allowance or self.allowance())

    def changes_in(self, info: RunInfo, allowance: Allowance) -> list[str]:
        """Return what ``changes`` does, of a run that was looked up: a tape may have thousands."""
        try:
            allowance.take_run()
            return self._changes(info, allowance)
        except CostsTooMuch as error:
            return [str(error)]
        except (TapeError, LookupError, RecursionError):
            return ["what it changed cannot be read"]

    def _changes(self, info: RunInfo, allowance: Allowance) -> list[str]:
        family = self._family
        fork_turn = info.fork_turn
        # The turns before a fork are its parent's.
        first = -math.inf if fork_turn is None else fork_turn
        interventions = family.done(
            info.id,
            first,
            info.turns,
            allowance,
        )
        if info.parent is None:
            return interventions_alone(interventions)
        parent = family.info(info.parent)
        before = family.done(
            parent.id,
            first,
            info.turns,
            allowance,
        )
        if fork_turn is None:
            return changes_of(
                RunChanged(info, interventions),
                RunChanged(parent, before),
                allowance,
            )
        start = family.record_of(info.id, fork_turn, allowance)
        parent_start = family.record_of(parent.id, fork_turn, allowance)
        return changes_of(
            RunChanged(info, interventions, start),
            RunChanged(parent, before, parent_start),
            allowance,
        )

    def allowance(self) -> Allowance:
        """Return a budget for comparing the tape's runs with the runs that they came from."""
        return Allowance(self.journal.index.end)

    def tree(self) -> str:
        """Return the runs as text, with their forks and reruns below them.

        Each run comes with what it changed: the prompt's words, interventions, the state, the
        settings, the model.
        """
        allowance = self.allowance()
        lines = []
        for info in self.runs():
            changed = self.changes_in(info, allowance)
            line = run_line(info, changed)
            lines.append((info.id, info.parent, line))
        # A name comes from a file, and may hold characters that control a terminal.
        heading = printable(str(self))
        return "\n".join([heading, *indented(lines)])

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._begun())

    def __repr__(self) -> str:
        return f"<Tape {str(self.path)!r}: {counted(len(self), 'run')}>"

    # --- writing -----------------------------------------------------------------------------

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which this process is the file's only writer.

        Raises:
            TapeError: the tape was opened for reading only. On entering: another process writes, or
                the file cannot be written to.
        """
        # A packed tape would be read-only again if it were opened anew, so it gets other advice.
        if self.read_only and self.journal.is_packed:
            raise TapeError(
                f"the tape {self.path} is open for reading only; gunzip it to record on it"
            )
        if self.read_only:
            raise TapeError(f"the tape {self.path} is open for reading only; open it anew")
        return self.journal.writing()

    def add_run(
        self,
        manifest: Mapping[str, object],
        *,
        name: str,
        first: tuple[int, bytes],
        texts: Iterable[str] = (),
        verb: Verb = "run",
        parent: int | None = None,
        fork_turn: int | None = None,
    ) -> int:
        """Record the start of a run; returns its number.

        Args:
            manifest: what defines the run.
            name: the name in its configuration.
            first: the turn that it starts from: number and body, as ``commit_turn`` takes them.
            texts: what the turn's line names by its digest, as JSON.
            verb: the function that made it.
            parent: the run that it is a fork or a rerun of.
            fork_turn: for a fork, the turn of the parent that it starts from.

        Raises:
            TapeError: the tape is read-only, or the parent is not on it.
        """
        if parent is not None:
            self.run(parent)  # raises if it is not on the tape
        journal = self.journal
        first_turn, first_body = first
        with self.writing(), journal.lock:  # other threads may begin runs too
            # Not the number of runs, since pruned runs leave gaps.
            run = max(journal.index.runs, default=0) + 1
            body = run_body(
                manifest,
                journal.intern,
                name=name,
                parent=parent,
                fork_turn=fork_turn,
                verb=verb,
                started=now(),
            )
            journal.append(run, "run", body)
            for text in texts:
                journal.intern(text)
            # A kill between the two lines leaves a run without a turn, which is not listed.
            journal.append(
                run,
                "turn",
                first_body,
                turn=first_turn,
            )
        return run

    def copy(
        self,
        runs: Iterable[int],
        path: str | Path,
        *,
        up_to: int | None = None,
    ) -> Tape:
        """Return a new tape with some of the runs, and the runs that they came from.

        Args:
            runs: the runs' numbers, which they keep.
            path: the new file.
            up_to: the last turn to copy; all if not given. A fork that begins later is copied up to
                its first turn, with its parents' turns before that.

        Raises:
            TapeError: the file is there already or cannot be written, or a run is damaged.
        """
        wanted = math.inf if up_to is None else whole_number("up_to", up_to)
        path = as_path("path", path)
        if path.suffix == ".gz":
            raise TapeError(f"{path} ends in .gz, and a tape that is written to is not packed")
        if is_there(path):
            raise TapeError(f"{path} is there already: fork its runs, or name a new file")
        last_turns: dict[int, float] = {}
        for number in runs:
            run: int | None = number
            continued_at = 0
            while run is not None:  # with the parents of parents
                info = self.run(run)
                first = info.fork_turn or 0
                last = max(wanted, first, continued_at)
                if last_turns.get(run, -1) >= last:
                    break
                last_turns[run] = last
                continued_at = first
                run = info.parent
        damaged = last_turns.keys() & self.damaged.keys()
        # A copy of a damaged run would look whole, since its sums are computed anew.
        if damaged:
            raise TapeError(f"run {min(damaged)} on {self.path} is damaged; verify says where")
        self.journal.rewrite(last_turns, path)
        return Tape(path)

    def prune(self, runs: Iterable[int]) -> None:
        """Remove runs for good, with their calls and turns; all other lines stay as they are.

        Args:
            runs: the runs' numbers. Their forks and reruns have to be named as well.

        Raises:
            TapeError: a run that stays came from one of these, the tape is being written to, or
                there is no such run; then nothing was changed.
        """
        pruned = {self.run(run).id for run in runs}
        infos = self.runs()
        for info in infos:
            if info.parent in pruned and info.id not in pruned:
                raise TapeError(
                    f"run {info.parent} cannot be removed from {self.path}: run {info.id} came "
                    "from it; name that one as well"
                )
        with self.journal.lock, self.writing():  # else another thread may write a line meanwhile
            left = {info.id for info in infos} - pruned
            self.journal.rewrite(dict.fromkeys(left, math.inf))
        for run in pruned:
            # A simulation in this process may still use the run that was removed.
            recorder = self.journal.recorders.pop(run, None)
            if recorder is not None:
                recorder.close()  # the next run may get its number


def _texts_in(rows: Iterable[Row]) -> set[str]:
    """Return the columns of rows that hold a text."""
    return {name for row in rows for name, value in row.items() if isinstance(value, str)}


def _extent(frame: pd.DataFrame) -> str:
    """Return a frame's turns and columns, in words."""
    names = list(map(str, frame.columns))
    columns = listed(names, 6) or "none"
    turns = frame.index
    return f"turns {turns.min()} to {turns.max()} and the columns {columns}"


def _frame_row(call: RecordedCall, anew: Anew | None) -> Row:
    """Return a call's row of ``calls_frame``.

    Args:
        call: the call.
        anew: how much of the call's prompt was read anew; None if no server read it.
    """
    attempt = call.attempt
    request = attempt.request
    site = request.site or CallSite(component="")
    reply = attempt.reply
    row: Row = {
        "id": call.id,
        "turn": site.turn,
        "component": site.component if request.site else None,
        "agent": site.agent,
        "replicate": site.replicate,
        "attempt": request.attempt,
        "model": request.model,
        "prompt": request.prompt,
        "reply": None,
        "fault": attempt.detail if attempt.reason else None,
        "done_reason": None,
        "prompt_tokens": None,
        "reply_tokens": None,
        "tokens_anew": None,
        "anew_by": None,
        "cut": ", ".join(attempt.cut) or None,
        "seconds": attempt.seconds,
        "forgotten": call.forgotten,
    }
    if reply is not None:
        row["reply"] = reply.text
        row["done_reason"] = reply.done_reason
        row["prompt_tokens"] = reply.prompt_tokens
        row["reply_tokens"] = reply.reply_tokens
    if anew is not None:
        row["tokens_anew"] = anew.tokens
        row["anew_by"] = "server" if anew.is_counted else "texts"
    whole_row: Row = whole(row)
    return whole_row
