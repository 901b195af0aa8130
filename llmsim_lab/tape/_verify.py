"""Checking a whole tape, without changing it: is it complete, and is it what was recorded?"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from llmsim_lab._util.jsontext import loads_strictly
from llmsim_lab._util.text import printable
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._journal import Index, fact_in
from llmsim_lab.tape._tape import Tape
from llmsim_lab.tape.lines import parsed_settings, read_line

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


def digest(path: str | Path) -> str:
    """Return a file's SHA-256, hexadecimal: publish it beside the tape."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(tape: Tape | str | Path) -> list[Finding]:
    """Return what is wrong with a tape, or its file: an empty list if nothing is.

    Every line is compared with its check sum, which covers the line of its run before it, so that a
    changed line, a missing one and one too many are named; and all that lines name must be above
    them. It cannot see

    - that the last lines of a run are missing, as those of a run without an end may be, or
      that a whole run is missing that no other came from;
    - that lines of different runs changed places, as long as calls and what is named stay in order;
    - that a text was moved, as long as it is above the first line that names it, or that a text is
      missing that no line names;
    - what was changed so that the sums, which are CRC-32, stay right, or with all sums computed
      again: publish the file's ``digest`` beside it.

    It does not play anything, nor read where a prompt's values came from: replaying a run is the
    proof that its turns follow from its calls. At most a thousand findings are returned.
    """
    findings: list[Finding] = []
    try:
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        tape.journal.refresh()
        findings.extend(islice(_findings(tape), _MAX_FINDINGS))  # keeps those before an error
    except TapeError as error:
        if not findings:
            findings.append(Finding(what=str(error)))
    return findings


def _findings(tape: Tape) -> Iterator[Finding]:
    # One of its own: since the tape was opened, lines may have been changed in place.
    above = Index()

    @cache  # of what is wrong, not of what they hold: a file may have gigabytes of settings
    def wrong_in(digest: str) -> str:
        try:
            parsed_settings(tape.journal.text(digest))
        except (ValueError, RecursionError) as error:
            return str(error)
        return ""

    for number, raw in islice(tape.journal.lines(), tape.journal.index.lines):
        what, fact = None, fact_in(raw)
        run = fact[0] if fact else None
        try:
            # What follows in a run that is damaged already may only follow from that.
            if run not in above.broken:
                _check(raw, above, wrong_in)
        except (ValueError, RecursionError, TapeError) as error:
            what = str(error)
        found = above.add(raw, fact=fact) or what
        if what is not None and fact is None:  # then what names this text is wrong as well
            above.texts.pop(raw[9:25], None)
        if found is not None:
            yield Finding(what=found, line=number, run=run)
    if rest := tape.journal.rest():
        why = "it is being written now, or was cut off; a resume keeps them in a file of their own"
        what = f"its last {rest:,} bytes are no whole line: {why}"
        yield Finding(what=what, line=above.lines + 1)
    for info in tape.runs():
        for what in info.faults[:3]:
            yield Finding(what=what, run=info.id)


def _check(raw: bytes, above: Index, wrong_in: Callable[[str], str]) -> None:
    """Check what a line says.

    Args:
        raw: the line.
        above: where the lines above it are.
        wrong_in: says what is wrong with settings, by their digest.

    Raises:
        ValueError: it does not say what a line does, or names what is not above it.
        TapeError: a text is missing.
    """
    loads_strictly(raw)  # which sees members that stand there twice
    line = read_line(raw)
    kind = line.get("is")
    texts = [*line.get("texts", {}).values(), *line.get("origin", ())[:1]]
    for digest in [*texts, line["settings"]] if kind == "call" else texts:
        if digest.encode() not in above.texts:
            raise ValueError(f"the text {digest} is not above it")
    if kind == "call" and (what := wrong_in(line["settings"])):
        raise ValueError(what)
    if kind == "turn" and line["record"]["turn"] != line["turn"]:
        raise ValueError(f"its record is that of turn {line['record']['turn']}")
    calls = [n for _, numbers in line["record"]["calls"] for n in numbers] if kind == "turn" else ()
    for number in line.get("calls", calls):
        if number not in above.places:
            raise ValueError(f"it names call {number}, which is not above it")
    if (parent := line.get("parent")) is not None and parent not in above.runs:
        raise ValueError(f"its parent, run {parent}, is not above it")
    last = next(reversed(above.turns.get(parent or 0, {})), -math.inf)
    if (at := line.get("fork_turn")) is not None and at > last:
        raise ValueError(f"its parent, run {parent}, has no turn {at} to fork from")


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
    if Path(target).suffix == ".gz":
        raise TapeError(f"{target} ends in .gz, and a tape that is written to is not packed")
    if Path(target).exists():
        raise TapeError(f"{target} is there already: name a new file")
    damaged, new = Tape(path, read_only=True), Path(target)
    index, runs = damaged.journal.index, {*damaged.journal.index.runs}
    damaged.journal.rewrite(runs, new)
    # What the whole lines of a run name may have stood in a faulty one, and goes with its parent.
    made = Tape(new, read_only=True)
    gone: set[int] = set()
    with suppress(TapeError):  # of a run of which a line is among the findings
        gone.update(finding.run for finding in _findings(made) if finding.run)
    for run, places in sorted(made.journal.index.runs.items()):
        if run not in gone and read_line(*made.journal.read(places[:1])).get("parent") in gone:
            gone.add(run)
    damaged.journal.rewrite(runs - gone, new)
    kept = Tape(target, read_only=True).journal.index.turns
    before = {run: max(turns) for run, turns in index.turns.items()}
    return {run: (last, max(kept.get(run, (-1,)))) for run, last in before.items()}
