"""Checking a whole tape, without changing it: is it complete, and is it what was recorded?"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from llmsim_lab._util.text import printable
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._codec import (
    RunInfo,
    SettingsCache,
    Verb,
    call_numbers,
    call_of,
    encode_request,
    info_of,
    key_fits,
    loads,
    manifest_faults,
)
from llmsim_lab.tape._file import COLUMNS, SHARED
from llmsim_lab.tape._ledger import DIGEST_BYTES, broken_cells, mixed
from llmsim_lab.tape._tape import Tape

_MAX_FINDINGS = 1_000
_MAX_NAMED = 5
_META = {"format", "kind", "runs", "pruned"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with a tape.

    Attributes:
        what: what is wrong, in words.
        run: the run's number, if it concerns one run.
        turn: likewise the turn's.
        call: likewise the call's.
    """

    what: str
    run: int | None = None
    turn: int | None = None
    call: int | None = None

    def __str__(self) -> str:
        places = {"run": self.run, "turn": self.turn, "call": self.call}
        where = ", ".join(
            f"{name} {number}" for name, number in places.items() if number is not None
        )
        return f"{where}: {printable(self.what)}" if where else printable(self.what)


def replayable(tape: Tape) -> list[int]:
    """Return the runs that can be replayed, which comparisons are not."""
    return [info.id for info in tape.runs() if info.verb != "experiment"]


def verify(tape: Tape | str | Path) -> list[Finding]:
    """Return what is wrong with a tape, or its file: an empty list if nothing is.

    Every cell is compared with its row's seal and every run's rows with its tally, so that a
    changed cell, a missing row and an added one are named. Texts and prompts are compared with
    their digests, and every call's key is computed again from its content. This finds damage and
    edits, but not those of somebody who computes the seals again. It does not play anything:
    replaying a run is the proof that its turns follow from its calls. At most a thousand findings
    are returned.
    """
    if not isinstance(tape, Tape):
        with Tape(tape, read_only=True) as opened:
            return verify(opened)
    with tape.file.snapshot():
        return list(islice(_findings(tape), _MAX_FINDINGS))


def _findings(tape: Tape) -> Iterator[Finding]:
    broken = False
    for check in (_file, _references, _texts, _meta, _runs, _calls, _turns, _tallies):
        try:
            for finding in check(tape):
                yield finding
                broken = broken or check is _file
        except (TapeError, sqlite3.Error) as error:
            broken = True
            yield Finding(what=str(error))
        # Later checks read what the earlier ones could not.
        if broken:
            return


def _file(tape: Tape) -> Iterator[Finding]:
    for row in tape.file.query("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            yield Finding(what=f"the file is damaged: {row[0]}")


def _references(tape: Tape) -> Iterator[Finding]:
    for row in tape.file.query("PRAGMA foreign_key_check"):
        yield Finding(what=f"row {row[1]} of {row[0]} refers to one of {row[2]} that is not there")


def _texts(tape: Tape) -> Iterator[Finding]:
    for row in tape.file.in_batches("texts"):
        text = row["text"]
        if not isinstance(text, str) or hashlib.sha256(text.encode()).digest() != row["digest"]:
            yield Finding(what=f"text {row['id']} does not have its digest")
    for row in tape.file.query(f"SELECT id FROM texts WHERE id NOT IN ({SHARED})"):
        yield Finding(what=f"text {row['id']} belongs to no call")


def _meta(tape: Tape) -> Iterator[Finding]:
    meta = {row["key"]: row["value"] for row in tape.file.query("SELECT key, value FROM meta")}
    for key in sorted({*meta} ^ _META, key=str):
        fault = "is not a part of a tape" if key in meta else "is missing"
        yield Finding(what=f"the file's own {key!s:.40} {fault}")
    if _META - meta.keys():
        return
    if meta["kind"] != "llmsim_lab tape":
        yield Finding(what="the file's own kind was changed after it was written")
    numbers = [str(meta["runs"]), *str(meta["pruned"]).split()]
    if not all(number.isdecimal() for number in numbers):
        yield Finding(what="the file's own count of runs was changed after it was written")
        return
    found = {row["id"] for row in tape.file.query("SELECT id FROM runs")}
    count, *pruned = map(int, numbers)
    # The count may be anything; no more numbers are made of it than there can be findings.
    expected = set(range(1, min(count, max(found, default=0) + _MAX_FINDINGS) + 1)) - set(pruned)
    for run in sorted(expected - found):
        yield Finding(what="the run is missing", run=run)
    for run in sorted(found - expected):
        yield Finding(what="the run was added after the tape was written", run=run)


def _changed(table: str, row: Any) -> Iterator[str]:
    for column in broken_cells(table, row):
        yield f"its {column} was changed after it was written"


def _runs(tape: Tape) -> Iterator[Finding]:
    spans: dict[int, range] = {}
    rows = tape.file.query(
        f"SELECT {', '.join(COLUMNS['runs'])}, "
        "(SELECT min(turn) FROM turns WHERE run = runs.id) AS first_turn, "
        "(SELECT max(turn) FROM turns WHERE run = runs.id) AS last_turn, "
        "(SELECT count(*) FROM turns WHERE run = runs.id) AS turn_count FROM runs ORDER BY id"
    )
    for row in rows:
        for what in _changed("runs", row):
            yield Finding(what=what, run=row["id"])
        try:
            info = info_of(row, turns=row["last_turn"], calls=0)
        except TapeError as error:
            yield Finding(what=str(error), run=row["id"])
            continue
        found = manifest_faults(info.manifest)
        found += _descent_faults(info, spans)
        first, last = row["first_turn"], row["last_turn"]
        if not isinstance(first, int) or not isinstance(last, int):
            found.append("it has no turn to start from")
        else:
            if row["turn_count"] != last - first + 1:
                found.append(f"of the turns {first} to {last} it has only {row['turn_count']}")
            if info.fork_turn is not None and first != info.fork_turn:
                found.append(f"it forks at turn {info.fork_turn} but starts at turn {first}")
            before = spans.get(info.parent) if info.fork_turn is not None and info.parent else None
            spans[info.id] = range(before.start if before else first, last + 1)
        yield from (Finding(what=fault, run=info.id) for fault in found)


def _descent_faults(info: RunInfo, turns_of: Mapping[int, range]) -> Iterator[str]:
    """Yield what is wrong with a run's place among the others.

    Args:
        info: the run, whose values are of the right types but may be anything.
        turns_of: the turns of the runs before it.
    """
    if info.verb not in get_args(Verb):
        yield f"its verb is {info.verb!r:.50}"
    if info.parent is None:
        if info.fork_turn is not None:
            yield "it is a fork without a run that it came from"
    elif info.parent >= info.id or info.parent not in turns_of:
        yield f"its parent, run {info.parent!s:.20}, is not on the tape before it"
    elif info.fork_turn is not None and info.fork_turn not in turns_of[info.parent]:
        yield f"its parent has no turn {info.fork_turn!s:.20} to fork from"


def _calls(tape: Tape) -> Iterator[Finding]:
    """Compute every key again; the n-th of equal requests of a turn has a suffix that says so."""
    cache = SettingsCache()
    seen: dict[int, set[bytes]] = {}
    last = {info.id: info.turns for info in tape.runs()}
    for row in tape.file.in_batches("calls"):
        turn = row["turn"] if isinstance(row["turn"], int) else None
        place = {"run": row["run"], "turn": turn, "call": row["id"]}
        for what in _changed("calls", row):
            yield Finding(what=what, **place)
        keys = seen.setdefault(row["run"], set())
        try:
            call = call_of(row, *tape.file.shared_by(row))
            # Parsed, and so checked, only when it is read.
            _ = call.attempt.request.provenance
            fits = key_fits(call.key, encode_request(call.attempt.request, cache).key)
        except (TapeError, ValueError, TypeError) as error:
            yield Finding(what=str(error), **place)
            continue
        if not fits:
            yield Finding(what="its key is not that of its content", **place)
        elif turn is not None and turn > last.get(row["run"], -1) + 1:
            yield Finding(what="it belongs to a turn that was never begun", **place)
        elif not call.forgotten:
            if call.key in keys:
                yield Finding(what="it has the key of another call", **place)
            keys.add(call.key)


def _turns(tape: Tape) -> Iterator[Finding]:
    parents = {info.id: info.parent for info in tape.runs()}
    for run in parents:
        family = {run}
        ancestor = parents[run]
        # On a damaged tape parents may lead in a circle.
        while ancestor is not None and ancestor not in family and ancestor in parents:
            family.add(ancestor)
            ancestor = parents[ancestor]
        for row in tape.file.query("SELECT turn FROM turns WHERE run = ? ORDER BY turn", (run,)):
            yield from _turn(tape, run, row["turn"], family)


def _turn(tape: Tape, run: int, turn: Any, family: set[int]) -> Iterator[Finding]:
    place = {"run": run, "turn": turn if isinstance(turn, int) else None}
    columns = ", ".join(COLUMNS["turns"])
    [row] = tape.file.query(f"SELECT {columns} FROM turns WHERE run = ? AND turn = ?", (run, turn))
    for what in _changed("turns", row):
        yield Finding(what=what, **place)
    try:
        record = loads(row["record"], "its record")
        numbers = call_numbers(record)
        if not isinstance(loads(row["row"], "its row of the frame"), dict):
            raise ValueError("its row of the frame is not an object")
        if record["turn"] != turn:
            raise ValueError(f"its record is that of turn {record['turn']}")
    except (TapeError, ValueError) as error:
        yield Finding(what=str(error), **place)
        return
    for number in numbers:
        found = tape.file.query("SELECT run FROM calls WHERE id = ?", (number,))
        if not found:
            yield Finding(what=f"it names call {number}, which is not there", **place)
        elif found[0]["run"] not in family:
            yield Finding(what=f"it names call {number}, which is run {found[0]['run']}'s", **place)


def _tallies(tape: Tape) -> Iterator[Finding]:
    """Compare each run's tally with its rows: how many there are, and all their seals."""
    tallies = {
        row["run"]: row
        for row in tape.file.query(f"SELECT {', '.join(COLUMNS['tallies'])} FROM tallies")
    }
    for info in tape.runs():
        if (tally := tallies.get(info.id)) is None:
            yield Finding(what="its tally is missing", run=info.id)
            continue
        yield from _tally(tape, info.id, tally)


def _tally(tape: Tape, run: int, tally: Mapping[str, Any] | Any) -> Iterator[Finding]:
    rows = tape.file.query("SELECT place, turn, seal FROM calls WHERE run = ?", (run,))
    turns = tape.file.query("SELECT turn, seal FROM turns WHERE run = ?", (run,))
    count, first, last = tally["calls"], tally["first_turn"], tally["last_turn"]
    if not all(isinstance(number, int) for number in (count, first, last)):
        yield Finding(what="its tally was changed after it was written", run=run)
        return
    # A turn that is not whole is not counted yet; its calls come after those that are.
    calls = [row for row in rows if not _is_uncounted(row, count, last)]
    all_expected = True
    for what, found, expected in (
        (
            "call number",
            [row["place"] for row in rows],
            range(1, count + len(rows) - len(calls) + 1),
        ),
        ("turn", [row["turn"] for row in turns], range(first, last + 1)),
    ):
        missing, added = _compared(found, expected)
        all_expected = all_expected and not missing and not added
        for number in missing:
            yield Finding(what=f"its {what} {number!s:.20} is missing", run=run)
        for number in added:
            change = f"its {what} {number!s:.20} was added after it was written"
            yield Finding(what=change, run=run)
    seals = [row["seal"] for row in (*calls, *turns)]
    whole = mixed(bytes(DIGEST_BYTES), *(seal for seal in seals if isinstance(seal, bytes)))
    if all_expected and whole != tally["digest"]:
        yield Finding(
            what="its tally does not fit its rows: a row was exchanged, or the tally was changed",
            run=run,
        )


def _is_uncounted(row: Any, count: int, last: int) -> bool:
    place, turn = row["place"], row["turn"]
    known = isinstance(place, int) and isinstance(turn, int | None)
    return known and place > count and (turn is None or turn > last)


def _compared(found: Iterable[Any], expected: range) -> tuple[list[int], list[Any]]:
    """Return which numbers are missing and which are too many, a few of each."""
    counts = Counter(found)
    added = [n for n, count in counts.items() if count > 1 or n not in expected]
    # The tally's numbers may be anything, so no more are looked at than can be named.
    missing = [n for n in expected[: len(counts) + _MAX_NAMED] if n not in counts]
    return missing[:_MAX_NAMED], added[:_MAX_NAMED]
