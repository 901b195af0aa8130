"""Checking a whole tape, without changing it: is it complete, and is it what was recorded?"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from llmsim_lab._util.files import as_path, is_there
from llmsim_lab._util.jsontext import loads_strictly
from llmsim_lab._util.text import printable
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._journal import Index, digest_in, fact_in
from llmsim_lab.tape._tape import Tape
from llmsim_lab.tape.lines import Line, RunInfo, parsed_settings, read_line
from llmsim_lab.tape.plans import texts_named_in

_MAX_FINDINGS = 1_000


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
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
        places = []
        if self.line:
            places.append(f"line {self.line}")
        if self.run:
            places.append(f"run {self.run}")
        fault = printable(self.what)
        if not places:
            return fault
        return f"{', '.join(places)}: {fault}"


def digest(path: str | Path) -> str:
    """Return a file's SHA-256, hexadecimal: publish it beside the tape.

    Raises:
        ConfigError: it is not a path.
        TapeError: the file cannot be read.
    """
    try:
        with as_path("path", path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TapeError(f"cannot read {path}: {error}") from error


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
    proof that its turns follow from its calls. Nor does it read what depends on a world's class
    and on this version, as ``load`` does: parameters, states and the model's settings. At most a
    thousand findings are returned.
    """
    findings: list[Finding] = []
    try:
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        tape.journal.refresh()
        # Of a damaged file there may be a finding a line.
        findings.extend(islice(_findings(tape), _MAX_FINDINGS))  # keeps those before an error
    except TapeError as error:
        if not findings:
            findings.append(Finding(what=str(error)))
    return findings


def _findings(tape: Tape) -> Iterator[Finding]:
    # One of its own: since the tape was opened, lines may have been changed in place.
    above = Index()
    turn_of: dict[tuple[int, int], int] = {}

    @cache  # of what is wrong, not of what they hold: a file may have gigabytes of settings
    def fault_in_settings(digest: str) -> str:
        try:
            parsed_settings(tape.journal.text(digest, str))
        except (ValueError, RecursionError) as error:
            return str(error)
        return ""

    for number, raw in islice(tape.journal.lines(), tape.journal.index.lines):
        run = None
        wrong = None
        fact = fact_in(raw)
        if fact is not None:
            run, *_ = fact
        # What follows in a run that is damaged already may only follow from that.
        if run not in above.broken:
            try:
                _check(raw, above, turn_of, fault_in_settings)
            except (ValueError, RecursionError, TapeError) as error:
                wrong = str(error)
        fault = above.add(raw, fact=fact) or wrong
        if wrong is not None and fact is None:  # then what names this text is wrong as well
            above.texts.pop(digest_in(raw), None)
        if fault is not None:
            yield Finding(
                what=fault,
                line=number,
                run=run,
            )
    rest = tape.journal.rest()
    if rest:
        yield Finding(
            what=f"its last {rest:,} bytes are no whole line: it is being written now, or was cut "
            "off; a resume keeps them in a file of their own",
            line=above.lines + 1,
        )
    for info in tape.runs():
        for fault in _faults_in_manifest(info):
            yield Finding(what=fault, run=info.id)


def _faults_in_manifest(info: RunInfo) -> list[str]:
    """Return what is wrong with what defines a run, in words."""
    # One of another program may be wrong in each part.
    faults = info.faults[:3]
    # Prompts of other types cannot be read.
    if not faults and info.prompts_fault:
        faults = [info.prompts_fault]
    return faults


def _check(
    raw: bytes,
    above: Index,
    turn_of: dict[tuple[int, int], int],
    fault_in_settings: Callable[[str], str],
) -> None:
    """Check what a line says.

    Args:
        raw: the line.
        above: where the lines above it are.
        turn_of: by run and call, the turn that names it; the line's own are added.
        fault_in_settings: returns what is wrong with settings, by their digest.

    Raises:
        ValueError: it does not say what a line does, or names what is not above it.
        TapeError: a text is missing.
    """
    loads_strictly(raw)  # rule 5: which sees members that stand there twice
    line = read_line(raw)
    kind = line.get("is")
    for digest in _texts_named_in(line):
        if digest.encode() not in above.texts:
            raise ValueError(f"the text {digest} is not above it")
    if kind == "call":
        fault = fault_in_settings(line["settings"])
        if fault:
            raise ValueError(fault)
    # The number stands in the line, for finding it, and in its record, for reading it.
    if kind == "turn" and line["record"]["turn"] != line["turn"]:
        raise ValueError(f"its record is that of turn {line['record']['turn']}")
    for number in _calls_named_in(line):
        if number not in above.places:
            raise ValueError(f"it names call {number}, which is not above it")
        # A turn may stand there again, as after an intervention.
        if (
            kind == "turn"
            and turn_of.setdefault((line["run"], number), line["turn"]) != line["turn"]
        ):
            raise ValueError(f"it names call {number}, which is one of an earlier turn")
    parent = line.get("parent")
    if parent is not None and parent not in above.runs:
        raise ValueError(f"its parent, run {parent}, is not above it")
    fork_turn = line.get("fork_turn")
    # Of the parent's own turns: those that it has from its parents come before them.
    if fork_turn is not None:
        parents_turns = above.turns.get(parent or 0, {})
        if fork_turn > next(reversed(parents_turns), -math.inf):
            raise ValueError(f"its parent, run {parent}, has no turn {fork_turn} to fork from")


def _texts_named_in(line: Line) -> list[str]:
    """Return the digests of the texts that a line names."""
    digests = list(line.get("texts", {}).values())
    if line.get("is") == "call":
        digests.append(line["settings"])
    if line.get("is") == "turn":
        digests += texts_named_in(line["record"]["planned"])
    if "origin" in line:
        form, _ = line["origin"]
        digests.append(form)
    return digests


def _calls_named_in(line: Line) -> list[int]:
    """Return the numbers of the calls that a line names."""
    if line.get("is") != "turn":
        numbers: list[int] = line.get("calls", [])
        return numbers
    numbers = []
    for _, attempts in line["record"]["calls"]:
        numbers += attempts
    return numbers


def repair(
    path: str | Path,
    target: str | Path,
) -> dict[int, tuple[int, int]]:
    """Write a tape of what is whole of another one: of each run the lines before its first fault.

    Args:
        path: the damaged tape, which stays as it is.
        target: the new file.

    Returns:
        By run, its last whole turn there and here; a run that is left out has -1 here.

    Raises:
        TapeError: the target is there already, or cannot be written.
    """
    new = as_path("target", target)
    if new.suffix == ".gz":
        raise TapeError(f"{target} ends in .gz, and a tape that is written to is not packed")
    if is_there(new):
        raise TapeError(f"{target} is there already: name a new file")
    damaged = Tape(path, read_only=True)
    index = damaged.journal.index
    runs = set(index.runs)
    draft = new.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        damaged.journal.rewrite(dict.fromkeys(runs, math.inf), draft)
        left_out = _runs_that_lack_something(Tape(draft, read_only=True))
    finally:
        with suppress(OSError):
            draft.unlink()
    damaged.journal.rewrite(dict.fromkeys(runs - left_out, math.inf), new)
    kept_turns = Tape(new, read_only=True).journal.index.turns
    last_turns = {}
    for run, turns in index.turns.items():
        # -1 for a run of which nothing is kept.
        last_kept = max(kept_turns.get(run, (-1,)))
        last_turns[run] = (max(turns), last_kept)
    return last_turns


def _runs_that_lack_something(draft: Tape) -> set[int]:
    """Return the runs of a tape that name something which is not there, and their forks.

    A whole line may name something that was on a faulty one, which is left out.
    """
    left_out: set[int] = set()
    with suppress(TapeError):  # a line of a run that is among the findings
        for finding in _findings(draft):
            if finding.run:
                left_out.add(finding.run)
    whole_runs = sorted(draft.journal.index.runs.keys() - left_out)
    begun = [draft.journal.index.runs[run][b"run"] for run in whole_runs]
    for run, raw in zip(whole_runs, draft.journal.read(begun), strict=True):
        if read_line(raw).get("parent") in left_out:
            left_out.add(run)
    return left_out
