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
from typing import Any

from llmsim_lab._util.jsontext import checked
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._journal import MAX_KEPT, Journal, Place, weight_of
from llmsim_lab.tape.changes import Allowance, Done, done_in
from llmsim_lab.tape.lines import Manifest, RunInfo, read_line, reading_run

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
            part = jump if jump is not None and jump.start >= turn else part.before
        return part

    def continued_by(self, run: int, start: float) -> Part:
        """Return the part of a run that continues this one."""
        jump = self
        near = self.jump
        far = near.jump if near is not None else None
        if near is not None and far is not None:
            is_even = self.depth - near.depth == near.depth - far.depth
            jump = far if is_even else self
        return Part(run, start, self, jump, self.depth + 1)


@dataclass(slots=True)
class _Turns:
    """A run's own turns: their numbers, and those in which something was done from outside."""

    known: tuple[int, Place]
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
    _facts: dict[int, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    """What lines say of runs, by number, with how many lines that were."""
    _held: int = 0
    """How much the manifests in them take, bytes."""
    _parts: dict[int, Part | TapeError] = field(default_factory=dict)
    _turns: dict[int, _Turns] = field(default_factory=dict)
    _done: dict[Place, tuple[Done, Done]] = field(default_factory=dict)

    def info(self, run: int) -> RunInfo:
        """Return what the tape says of a run.

        Raises:
            TapeError: there is no such run, or it is damaged.
        """
        index = self.journal.index
        if run not in index.runs or run not in index.turns:
            raise TapeError(f"the tape {self.journal.path} has no run {run}")
        places = index.runs[run]
        lines, facts = self._facts.get(run, (0, {}))
        with reading_run(self.journal, run):
            if lines != len(places):
                facts = self._read(run, places)
                self._facts[run] = len(places), facts
            own = {name: facts[name] for name in _INFO if name in facts}
            return RunInfo(id=run, turns=max(index.turns[run]), calls=index.counts[run], **own)

    def _read(self, run: int, places: Sequence[Place]) -> dict[str, Any]:
        """Return what the lines of a run say of it; of its manifest, where it is."""
        facts: dict[str, Any] = {}
        for place, raw in zip(places, self.journal.read(places), strict=True):
            line = read_line(raw)
            facts |= {"ended": None, "outcome": None} if "process" in line else line
            if "manifest" in line:
                weight = weight_of(raw)
                is_kept = self._held + weight <= MAX_KEPT
                self._held += weight if is_kept else 0
                own = line["manifest"] if is_kept else None
                facts["manifest"] = Manifest(self.journal, run, place, line["texts"], own)
        return facts

    def part(self, run: int) -> Part:
        """Return a run's latest part.

        Raises:
            TapeError: a run that it came from is missing, or came later.
        """
        todo: list[RunInfo] = []
        number = run
        try:
            while number not in self._parts:
                info = self.info(number)
                todo.append(info)
                if info.parent is None or info.fork_turn is None:
                    break
                if info.parent >= info.id:
                    what = f"run {info.parent}, which it was forked from, came later"
                    raise TapeError(
                        f"run {info.id} on the tape {self.journal.path} is damaged: {what}"
                    )
                number = info.parent
        except TapeError as error:  # kept, else each run that came from it would look again
            self._parts |= {info.id: error for info in todo}
            raise
        for info in reversed(todo):
            self._parts[info.id] = self._made(info)
        known = self._parts[run]
        if isinstance(known, TapeError):
            raise TapeError(str(known))
        return known

    def _made(self, info: RunInfo) -> Part | TapeError:
        if info.parent is None or info.fork_turn is None:
            return Part(info.id, -math.inf)
        parent = self._parts[info.parent]
        if isinstance(parent, TapeError):
            return parent
        before = parent.below(info.fork_turn)
        if before is None:
            return Part(info.id, info.fork_turn)
        return before.continued_by(info.id, info.fork_turn)

    def parts(self, run: int, first: float, last: float) -> Iterator[tuple[Part, float, float]]:
        """Yield the parts with some turns of a run, latest first, each with its first and last."""
        part = self.part(run).below(last + 1)
        after = math.inf
        while part is not None:
            yield part, max(first, part.start), min(last, after - 1)
            if part.start <= first:
                break
            after = part.start
            part = part.before

    def player(self, run: int, turn: float) -> int:
        """Return the run that made the calls of a turn of a run: itself, or one before it."""
        part = self.part(run)
        player = part.below(turn)
        return part.run if player is None else player.run

    def places(self, run: int, first: float, last: float) -> dict[int, Place]:
        """Return where the lines of a run's turns are, by turn."""
        found: dict[int, Place] = {}
        for part, begin, end in self.parts(run, first, last):
            own = self.journal.index.turns.get(part.run, {})
            found |= {turn: place for turn, place in own.items() if begin <= turn <= end}
        return found

    # --- what was done from outside ------------------------------------------------------------

    def done(self, run: int, first: float, last: float, allowance: Allowance) -> Counter[str]:
        """Return the interventions of a run's turns, and those that are planned in the end.

        Args:
            run: the run.
            first: the first turn.
            last: the last turn.
            allowance: what this may cost.

        Raises:
            TapeError: a line is damaged, or it costs too much.
        """
        done = Counter[str]()
        is_latest = True
        for part, begin, end in self.parts(run, first, last):
            turns = self._turns_of(part.run)
            own = self.journal.index.turns[part.run]
            until = bisect_right(turns.numbers, end)
            if is_latest and until and turns.numbers[until - 1] >= begin:
                planned = self._done_at(own[turns.numbers[until - 1]])[1]
                allowance.take_words(planned)
                done.update(planned)
                is_latest = False
            altered = turns.altered
            for turn in altered[bisect_left(altered, begin) : bisect_right(altered, end)]:
                interventions = self._done_at(own[turn])[0]
                allowance.take_words(interventions)
                done.update(interventions)
        return done

    def _turns_of(self, run: int) -> _Turns:
        own = self.journal.index.turns.get(run, {})
        # A run that is played grows, and its latest turn may be written again.
        now = len(own), next(reversed(own.values()), (0, 0))
        turns = self._turns.get(run)
        if turns is None or turns.known != now:
            numbers = sorted(own)
            lines = zip(numbers, self.journal.read([own[turn] for turn in numbers]), strict=True)
            altered = [number for number, raw in lines if not _UNCHANGED.search(raw)]
            turns = self._turns[run] = _Turns(now, numbers, altered)
        return turns

    def _done_at(self, place: Place) -> tuple[Done, Done]:
        """Return what was done and what was planned in the line of a turn, in words."""
        known = self._done.get(place)
        if known is None:
            known = self._done[place] = done_in(self.record(place))
        return known

    def record(self, place: Place) -> dict[str, Any]:
        """Return the record in the line of a turn.

        Raises:
            TapeError: the line is damaged.
        """
        [raw] = self.journal.read([place])
        with checked(f"a turn on the tape {self.journal.path} is damaged"):
            record: dict[str, Any] = read_line(raw)["record"]
        return record
