"""Which run played which turn of a run, and what was done from outside in them.

A fork continues a run, which may be a fork itself, thousands of times over in a file that was made
for it. So each run's turns are gone through once, and the run that played a turn is found in a few
steps: whatever looks at all runs of a tape takes as long as its file is large.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from llmsim_lab._util.jsontext import checked
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._journal import MAX_KEPT, Journal, Place, weight_of
from llmsim_lab.tape.changes import (
    Allowance,
    Done,
    PlannedInTurn,
    done_in,
    planned_in,
    planned_in_words,
)
from llmsim_lab.tape.lines import Line, Manifest, Record, RunInfo, read_line, reading_run

_INFO = ("name", "parent", "fork_turn", "verb", "started", "ended", "outcome", "manifest")
_UNCHANGED = re.compile(rb'"turn":\d+,"seconds":[^,]+,"interventions":\[\],"planned":\[')
"""In the line of a turn in which nothing was done from outside."""


@dataclass(frozen=True, slots=True)
class Part:
    """The turns of a run that one run played: its own, from where it began.

    Attributes:
        run: the run that played them.
        start: its first turn, that it was forked at; infinitely early if it is no fork.
        before: the part with the turns below; a run that begins where its parent does leaves that
            out, since its own copy of the turn counts.
        jump: a part further back. With it any part is found in few steps: E. Myers (1983), "An
            applicative random-access stack", Information Processing Letters 17.
        depth: how many parts are before it.
    """

    run: int
    start: float
    before: Part | None = None
    jump: Part | None = None
    depth: int = 0

    def below(self, turn: float) -> Part | None:
        """Return the latest part that begins before a turn, this one or one before it."""
        part: Part | None = self
        while part is not None and part.start >= turn:
            jump = part.jump
            # As far as it may go without passing the turn: thousands of forks in a few steps.
            is_too_late = jump is not None and jump.start >= turn
            part = jump if is_too_late else part.before
        return part

    def continued_by(self, run: int, start: float) -> Part:
        """Return the part of a run that continues this one."""
        jump = self
        # Myers: where the last two jumps are as far as each other, the next one is both together.
        near = self.jump
        far = near.jump if near is not None else None
        if near is not None and far is not None:
            is_even = self.depth - near.depth == near.depth - far.depth
            jump = far if is_even else self
        return Part(
            run=run,
            start=start,
            before=self,
            jump=jump,
            depth=self.depth + 1,
        )


class Stretch(NamedTuple):
    """Turns of a run that one run played: which run that was, the first turn and the last."""

    run: int
    first: float
    last: float


@dataclass(slots=True)
class _Turns:
    """A run's own turns.

    Attributes:
        state: how many there were when they were read, and where the latest was.
        numbers: their numbers.
        altered: those in which something was done from outside.
    """

    state: tuple[int, Place]
    numbers: list[int]
    altered: list[int]


@dataclass(slots=True)
class Family:
    """The runs of a tape and how they came from each other.

    Args:
        journal: the tape's file.
        generation: of the file: where it is written anew, what is known of places is void.
    """

    journal: Journal
    generation: int
    _facts: dict[int, tuple[Sequence[Place], Line]] = field(default_factory=dict)
    """What lines say of runs, by number, with the places of the lines."""
    _held: int = 0
    """How much the manifests in them take, bytes."""
    _parts: dict[int, Part | TapeError] = field(default_factory=dict)
    _turns: dict[int, _Turns] = field(default_factory=dict)
    _done: dict[Place, Done] = field(default_factory=dict)
    _planned: dict[Place, PlannedInTurn] = field(default_factory=dict)

    def info(self, run: int) -> RunInfo:
        """Return what the tape says of a run.

        Raises:
            TapeError: there is no such run, or it is damaged.
        """
        index = self.journal.index
        if run not in index.runs or run not in index.turns:
            raise TapeError(f"the tape {self.journal.path} has no run {run}")
        [info] = self.infos([run])
        return info

    def infos(self, runs: Sequence[int]) -> list[RunInfo]:
        """Return what the tape says of some of its runs, in their order.

        Raises:
            TapeError: one is damaged.
        """
        unread: dict[int, list[Place]] = {}
        for run in runs:
            places_read, _ = self._facts.get(run, ([], {}))
            # A copy, since another thread may write further lines of the run meanwhile.
            places = sorted(self.journal.index.runs[run].copy().values())
            if places_read != places:  # what was read of the others stays
                unread[run] = places
        # All with one opening of the file, which may have a hundred thousand runs.
        raws = self.journal.read([*chain(*unread.values())])
        for run, places in unread.items():
            with reading_run(self.journal, run):
                facts = self._facts_in(run, places, raws)
            self._facts[run] = (places, facts)
        return list(map(self._known_info, runs))

    def _known_info(self, run: int) -> RunInfo:
        index = self.journal.index
        _, facts = self._facts[run]
        with reading_run(self.journal, run):
            fields = {name: facts[name] for name in _INFO if name in facts}
            return RunInfo(
                id=run,
                turns=max(index.turns[run]),
                calls=index.counts[run],
                **fields,
            )

    def _facts_in(
        self,
        run: int,
        places: Sequence[Place],
        raws: Iterator[bytes],
    ) -> Line:
        """Return what a run's lines, the next ones, say of it; of its manifest, where it is."""
        facts: Line = {}
        for place in places:
            raw = next(raws)
            line = read_line(raw)
            if "process" in line:  # it was begun again, and has not ended
                facts |= {"ended": None, "outcome": None}
            else:
                facts |= line
            if "manifest" in line:
                small = None
                weight = weight_of(raw)
                # Manifests are long: beyond this they are read again when they are asked for.
                if self._held + weight <= MAX_KEPT:
                    self._held += weight
                    small = line["manifest"]
                facts["manifest"] = Manifest(
                    self.journal,
                    run,
                    place,
                    line["texts"],
                    small,
                )
        return facts

    def part(self, run: int) -> Part:
        """Return a run's latest part.

        Raises:
            TapeError: a run that it came from is missing, or came later.
        """
        unread: list[RunInfo] = []
        number = run
        try:
            while number not in self._parts:
                info = self.info(number)
                unread.append(info)
                if info.parent is None or info.fork_turn is None:
                    break
                # Parents come first: a line that says otherwise may lead in a circle.
                if info.parent >= info.id:
                    raise TapeError(
                        f"run {info.id} on the tape {self.journal.path} is damaged: "
                        f"run {info.parent}, which it was forked from, came later"
                    )
                number = info.parent
        except TapeError as error:  # kept, else each run that came from it would look again
            for info in unread:
                self._parts[info.id] = error
            raise
        # Without recursion: a chain of forks may be longer than Python's stack.
        for info in reversed(unread):
            self._parts[info.id] = self._new_part(info)
        part = self._parts[run]
        if isinstance(part, TapeError):
            raise TapeError(str(part))
        return part

    def _new_part(self, info: RunInfo) -> Part | TapeError:
        """Return the part of a run whose parent's is known."""
        if info.parent is None or info.fork_turn is None:
            return Part(info.id, -math.inf)
        parent = self._parts[info.parent]
        if isinstance(parent, TapeError):
            return parent
        before = parent.below(info.fork_turn)
        if before is None:
            return Part(info.id, info.fork_turn)
        return before.continued_by(info.id, info.fork_turn)

    def stretches(
        self,
        run: int,
        first: float,
        last: float,
    ) -> Iterator[Stretch]:
        """Yield which runs played some turns of a run, latest first."""
        part = self.part(run).below(last + 1)
        after = math.inf
        while part is not None:
            yield Stretch(
                part.run,
                max(first, part.start),
                min(last, after - 1),
            )
            if part.start <= first:
                break
            after = part.start
            part = part.before

    def player(self, run: int, turn: float) -> int:
        """Return the run that made the calls of a turn of a run: itself, or one before it."""
        part = self.part(run)
        player = part.below(turn)
        return part.run if player is None else player.run

    def places(
        self,
        run: int,
        first: float,
        last: float,
    ) -> dict[int, Place]:
        """Return where the lines of a run's turns are, by turn."""
        places: dict[int, Place] = {}
        for stretch in self.stretches(run, first, last):
            played = self.journal.index.turns.get(stretch.run, {})
            places |= {
                turn: place
                for turn, place in played.items()
                if stretch.first <= turn <= stretch.last
            }
        return places

    # --- what was done from outside ------------------------------------------------------------

    def done(
        self,
        run: int,
        first: float,
        last: float,
        allowance: Allowance,
    ) -> Counter[str]:
        """Return the interventions of a run's turns, and those that are planned in the end.

        Args:
            run: the run.
            first: the first turn.
            last: the last turn.
            allowance: what this may cost.

        Raises:
            TapeError: a line is damaged, or it costs too much.
        """
        total: Counter[str] = Counter()
        is_latest = True
        for stretch in self.stretches(run, first, last):
            turns = self._turns_of(stretch.run)
            places = self.journal.index.turns[stretch.run]
            latest = _latest_within(turns.numbers, stretch)
            if is_latest and latest is not None:
                total.update(self._planned_at(places[latest], latest, allowance))
                is_latest = False
            begin = bisect_left(turns.altered, stretch.first)
            end = bisect_right(turns.altered, stretch.last)
            for turn in turns.altered[begin:end]:
                interventions = self._done_at(places[turn])
                allowance.take_words(interventions)
                total.update(interventions)
        return total

    def _turns_of(self, run: int) -> _Turns:
        places = self.journal.index.turns.get(run, {})
        # A run that is played grows, and its latest turn may be written again.
        latest = next(reversed(places.values()), (0, 0))
        state = (len(places), latest)
        turns = self._turns.get(run)
        if turns is None or turns.state != state:
            numbers = sorted(places)
            raws = self.journal.read([places[number] for number in numbers])
            altered = []
            for number, raw in zip(numbers, raws, strict=True):
                # By the line's bytes: in most turns nothing is done from outside, and their JSON
                # need not be read.
                if not _UNCHANGED.search(raw):
                    altered.append(number)
            turns = _Turns(state, numbers, altered)
            self._turns[run] = turns
        return turns

    def _planned_at(
        self,
        place: Place,
        turn: int,
        allowance: Allowance,
    ) -> list[str]:
        """Return what the line of a turn says is planned for later ones, in words."""
        if place not in self._planned:
            record = self._record(place)
            with checked(f"turn {turn} on the tape {self.journal.path} is damaged"):
                self._planned[place] = planned_in(record)
        line = self._planned[place]
        allowance.take_words(line.words)
        planned = [*line.words]
        for digest in line.texts:
            with checked(f"turn {turn} on the tape {self.journal.path} is damaged"):
                # First: thousands of runs may name one text, and it may have to be read for each.
                allowance.take(self.journal.weight(digest))
                later = [
                    change.words
                    for change in self.journal.text(digest, planned_in_words)
                    if change.turn > turn
                ]
            allowance.take_words(later)
            planned += later
        return planned

    def _done_at(self, place: Place) -> Done:
        """Return what was done from outside in the line of a turn, in words."""
        if place not in self._done:
            self._done[place] = done_in(self._record(place))
        return self._done[place]

    def record_of(
        self,
        run: int,
        turn: int,
        allowance: Allowance,
    ) -> Record:
        """Return the record of a turn of a run, which one of its parents may have played.

        Raises:
            LookupError: it has no such turn.
            TapeError: the line is damaged, or it costs too much.
        """
        place = self.places(run, turn, turn)[turn]
        _, size = place
        allowance.take(size)
        return self._record(place)

    def _record(self, place: Place) -> Record:
        """Return the record in the line of a turn."""
        [raw] = self.journal.read([place])
        with checked(f"a turn on the tape {self.journal.path} is damaged"):
            record: Record = read_line(raw)["record"]
        return record


def _latest_within(turns: Sequence[int], stretch: Stretch) -> int | None:
    """Return the latest of some sorted turns that is in a stretch."""
    count = bisect_right(turns, stretch.last)
    if count and turns[count - 1] >= stretch.first:
        return turns[count - 1]
    return None
