"""Checking a whole tape, without changing it: is it complete, and is it what was recorded?"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from llmsim_lab._util.jsontext import loads_strictly
from llmsim_lab._util.text import printable
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._journal import Index
from llmsim_lab.tape._lines import call_numbers, call_of, kind_of, read_line
from llmsim_lab.tape._tape import Tape

_MAX_FINDINGS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with a tape.

    Attributes:
        what: what is wrong, in words.
        line: the line's number in the file, from 1, if it concerns one.
        run: likewise the run's.
    """

    what: str
    line: int | None = None
    run: int | None = None

    def __str__(self) -> str:
        places = {"line": self.line, "run": self.run}
        where = ", ".join(f"{name} {number}" for name, number in places.items() if number)
        return f"{where}: {printable(self.what)}" if where else printable(self.what)


def replayable(tape: Tape) -> list[int]:
    """Return the runs that can be replayed, which comparisons are not."""
    return [info.id for info in tape.runs() if info.verb != "experiment"]


def digest(path: str | Path) -> str:
    """Return a file's SHA-256, hexadecimal: publish it beside the tape."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(tape: Tape | str | Path) -> list[Finding]:
    """Return what is wrong with a tape, or its file: an empty list if nothing is.

    Every line is compared with its check sum, which covers the line of its run before it, so that a
    changed line, a missing one and one too many are named; and all that lines name must be above
    them. It cannot see

    - that the last lines of a run are missing, as those of a run without an end may be, that the
      file's last one is not whole, or that a whole run is missing that no other came from;
    - that lines of different runs changed places, as long as calls and what is named stay in order;
    - that a text was moved, as long as it is above the first line that names it, or that a text is
      missing that no line names;
    - what somebody changed who computed the sums again: publish the file's ``digest`` beside it.

    It does not play anything: replaying a run is the proof that its turns follow from its calls. At
    most a thousand findings are returned.
    """
    findings: list[Finding] = []
    try:
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        tape.journal.refresh()
        for finding in islice(_findings(tape), _MAX_FINDINGS):
            findings.append(finding)  # noqa: PERF402 - those before an error are kept
    except TapeError as error:
        if not findings:
            findings.append(Finding(what=str(error)))
    return findings


def _findings(tape: Tape) -> Iterator[Finding]:
    # One of its own: since the tape was opened, lines may have been changed in place.
    index, above = Index(), _Above(tape)
    for number, raw in tape.journal.lines():
        what = None
        index.add(raw)
        try:
            above.check(raw)
        except KeyError as error:
            what = f"run {error} has not begun"
        except (ValueError, RecursionError, TapeError) as error:
            what = str(error)
        if index.faults and index.faults[-1].line == number:
            yield Finding(what=index.faults[-1].what, line=number, run=index.faults[-1].run)
        # What follows in a run that is damaged already may only follow from that.
        elif what is not None and index.broken.get(above.run or 0, number) >= number:
            yield Finding(what=what, line=number, run=above.run)
    for info in tape.runs():
        for what in info.faults[:3]:
            yield Finding(what=what, run=info.id)


@dataclass(slots=True)
class _Above:
    """What the lines above one hold."""

    tape: Tape
    run: int | None = None
    texts: set[str] = field(default_factory=set)
    calls: dict[int, int] = field(default_factory=dict)
    """By number, the run."""
    parents: dict[int, int | None] = field(default_factory=dict)
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of runs, the first and the last."""

    def check(self, raw: bytes) -> None:
        """Take in a line whose check sum is right.

        Raises:
            ValueError: it does not say what a line does, or names what is not above it.
            TapeError: a text is missing.
        """
        named = re.match(rb'\{"run":([1-9][0-9]{0,8}),', raw)
        self.run, kind = int(named[1]) if named else None, kind_of(raw)
        loads_strictly(raw)  # which sees members that stand there twice
        line = read_line(raw)
        if kind == "text":
            self.texts.add(line["text"])
        if kind in ("tape", "text"):
            return
        run = line["run"]
        for digest in [*line.get("texts", {}).values(), *_named(line)]:
            if digest not in self.texts:
                raise ValueError(f"the text {digest} is not above it")
        if kind == "run":
            self._check_begun(line)
        elif kind == "turn":
            self._check_turn(run, line)
        elif kind == "call":
            self._check_call(run, line)
        elif kind == "forget":
            for number in line["calls"]:
                if self.calls.get(number) != run:
                    raise ValueError(f"it names call {number}, which is not one of its run above")

    def _check_call(self, run: int, line: dict[str, Any]) -> None:
        self.calls[line["no"]] = run
        call = call_of(line, self.tape.journal.text, forgotten=False)
        _ = call.attempt.request.provenance  # parsed, and so checked, only when it is read
        if line["turn"] is not None and line["turn"] > self.turns[run][1] + 1:
            raise ValueError(f"it belongs to turn {line['turn']}, which was not begun")

    def _check_begun(self, line: dict[str, Any]) -> None:
        run, parent, at = line["run"], line.get("parent"), line.get("fork_turn")
        if run in self.parents:
            raise ValueError(f"run {run} begins twice")  # which its sum may have said as well
        is_above = parent is None or parent in self.turns
        self.parents[run], self.turns[run] = parent if is_above else None, (0, -(10**9) - 1)
        if parent is None and at is not None:
            raise ValueError("it is a fork without a run that it came from")
        if not is_above:
            raise ValueError(f"its parent, run {parent}, is not above it")
        if parent is not None and at is not None:
            first, last = self._whole(parent)
            if not first <= at <= last:
                raise ValueError(f"its parent, run {parent}, has no turn {at} to fork from")

    def _whole(self, run: int) -> tuple[int, int]:
        """Return the first and the last turn of a run, those of its parents included."""
        last, first = self.turns[run][1], self.turns[run][0]
        while (parent := self.parents[run]) is not None:
            run = parent
            first = min(first, self.turns[run][0])
        return first, last

    def _check_turn(self, run: int, line: dict[str, Any]) -> None:
        turn, (first, last) = line["turn"], self.turns[run]
        begun = last >= first
        if begun and turn not in (last, last + 1):
            raise ValueError(f"turn {turn} follows turn {last}")
        self.turns[run] = (first if begun else turn), turn
        if line["record"].get("turn") != turn:
            raise ValueError(f"its record is that of turn {line['record'].get('turn')!r:.20}")
        for number in call_numbers(line["record"]):
            at: int | None = run
            while at is not None and self.calls.get(number) != at:
                at = self.parents[at]
            if at is None:
                raise ValueError(f"it names call {number}, which no run that it is of has above it")


def _named(line: dict[str, Any]) -> list[str]:
    """Return the texts that a call names."""
    if line["is"] != "call":
        return []
    return [line["settings"], *line.get("origin", ())[:1]]


def repair(path: str | Path, target: str | Path) -> dict[int, tuple[int, int]]:
    """Write a tape of what is whole of another one: of each run the lines before its first fault.

    Args:
        path: the damaged tape, which stays as it is.
        target: the new file.

    Returns:
        By run, its last whole turn there and here; a run that is left out has -1 here.

    Raises:
        TapeError: the target is there already, or cannot be written.
    """
    if Path(target).exists():
        raise TapeError(f"{target} is there already; name a file that is not")
    damaged, new = Tape(path, read_only=True), Path(target)
    index = damaged.journal.index
    upto: dict[int, float] = dict.fromkeys(index.runs, float("inf"))
    parents: dict[int, int | None] = {}
    for run, places in index.runs.items():
        [raw] = damaged.journal.read(places[:1])
        with suppress(ValueError):
            parents[run] = read_line(raw).get("parent")
    damaged.journal.rewrite(upto, new)
    # What the whole lines of a run name may have stood in a faulty one.
    while gone := {finding.run for finding in verify(new) if finding.run in upto}:
        for run in sorted(upto):
            if run in gone or parents.get(run) in gone:
                gone.add(run)
                del upto[run]
        damaged.journal.rewrite(upto, new)
    kept = Tape(target, read_only=True).journal.index.turns
    before = {run: max(turns) for run, turns in index.turns.items()}
    return {run: (last, max(kept.get(run, (-1,)))) for run, last in before.items()}
