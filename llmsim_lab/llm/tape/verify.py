"""Is a tape whole, and is what it holds what was recorded: look at all of it, alter nothing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.checks import call_numbers, manifest_faults, run_faults
from llmsim_lab.llm.tape.info import info_of, loads
from llmsim_lab.llm.tape.keys import SettingsCache, call_key, key_fits
from llmsim_lab.llm.tape.rows import COLUMNS, attempt_of
from llmsim_lab.text import printable

if TYPE_CHECKING:
    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["Finding", "verify"]

_MAX_FINDINGS = 1_000
_OURS = {
    *((kind, name) for kind, name in (("index", "calls_by_key"), ("index", "calls_by_turn"))),
    *(("table", name) for name in ("meta", "texts", "runs", "calls", "turns")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with a tape.

    Attributes:
        what: in words.
        run: where, as far as it has a place.
        turn: likewise.
        call: likewise, the call's number.
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


def verify(tape: Tape) -> list[Finding]:
    """Return what is wrong with a tape; nothing if it is sound.

    Looked at are the file itself, its references, the digests of texts and prompts, every call's
    key, which is computed again from its content, and every turn's record with the calls it names.
    It does not play anything: replaying a run is the proof that its turns follow from its calls.
    A thousand findings are enough; there may be more.
    """
    findings: list[Finding] = []
    with tape.snapshot():
        for finding in _findings(tape):
            findings.append(finding)
            if len(findings) >= _MAX_FINDINGS:
                break
    return findings


def _findings(tape: Tape) -> Iterator[Finding]:
    broken = False
    for check in (_file, _texts, _runs, _calls, _turns):
        try:
            for finding in check(tape):
                yield finding
                broken = broken or check is _file
        except (TapeError, sqlite3.Error) as error:
            broken = True
            yield Finding(what=str(error))
        if broken:
            return


def _file(tape: Tape) -> Iterator[Finding]:
    for row in tape.query("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            yield Finding(what=f"the file is damaged: {row[0]}")
    for row in tape.query("PRAGMA foreign_key_check"):
        yield Finding(what=f"row {row[1]} of {row[0]} refers to one of {row[2]} that is not there")
    there = {
        (row["type"], row["name"])
        for row in tape.query("SELECT type, name FROM sqlite_master")
        if not row["name"].startswith("sqlite_")
    }
    for kind, name in sorted(there - _OURS):
        yield Finding(what=f"the file has a {kind} {name!r:.50}, which is no part of a tape")
    for kind, name in sorted(_OURS - there):
        yield Finding(what=f"the file lacks the {kind} {name}")


def _texts(tape: Tape) -> Iterator[Finding]:
    for row in tape.in_batches("SELECT id, digest, text FROM texts"):
        text = row["text"]
        if not isinstance(text, str) or hashlib.sha256(text.encode()).digest() != row["digest"]:
            yield Finding(what=f"text {row['id']} does not have its digest")


def _runs(tape: Tape) -> Iterator[Finding]:
    spans: dict[int, range] = {}
    rows = tape.query(
        "SELECT runs.*, (SELECT min(turn) FROM turns WHERE run = runs.id) AS first_turn, "
        "(SELECT max(turn) FROM turns WHERE run = runs.id) AS last_turn, "
        "(SELECT count(*) FROM turns WHERE run = runs.id) AS turn_count, "
        "0 AS call_count FROM runs ORDER BY id"
    )
    for row in rows:
        try:
            info = info_of(row)
        except TapeError as error:
            yield Finding(what=str(error), run=row["id"])
            continue
        faults = manifest_faults(info.manifest)
        faults += run_faults(
            info.id,
            verb=info.verb,
            parent=info.parent,
            fork_turn=info.fork_turn,
            parent_turns=spans.get(info.parent) if info.parent is not None else None,
        )
        first, last = row["first_turn"], row["last_turn"]
        if not isinstance(first, int) or not isinstance(last, int):
            faults.append("it has no turn to start from")
        else:
            if row["turn_count"] != last - first + 1:
                faults.append(f"of the turns {first} to {last} it has only {row['turn_count']}")
            if info.fork_turn is not None and first != info.fork_turn:
                faults.append(f"it forks at turn {info.fork_turn} but starts at turn {first}")
            before = spans.get(info.parent) if info.fork_turn is not None and info.parent else None
            spans[info.id] = range(before.start if before else first, last + 1)
        yield from (Finding(what=fault, run=info.id) for fault in faults)


def _calls(tape: Tape) -> Iterator[Finding]:
    """Compute every key again; the n-th of equal requests of a turn has a suffix that says so."""
    cache = SettingsCache()
    seen: dict[int, set[bytes]] = {}
    last = {info.id: info.turns for info in tape.runs()}
    sql = f"SELECT {COLUMNS}, calls.key AS found FROM calls JOIN texts ON texts.id = settings"
    for row in tape.in_batches(sql):
        turn = row["turn"] if isinstance(row["turn"], int) else None
        what = None
        try:
            request = attempt_of(row).request
            fits = key_fits(row["found"], call_key(request, cache.of(request)))
        except (TapeError, ValueError, TypeError) as error:
            what, fits = str(error), False
        keys = seen.setdefault(row["run"], set())
        if what is None and not fits:
            what = "its key is not that of its content"
        elif fits and turn is not None and turn > last.get(row["run"], -1) + 1:
            what = "it belongs to a turn that was never begun"
        elif fits and not row["forgotten"]:
            if row["found"] in keys:
                what = "it has the key of another call"
            keys.add(row["found"])
        if what is not None:
            yield Finding(what=what, run=row["run"], turn=turn, call=row["id"])


def _turns(tape: Tape) -> Iterator[Finding]:
    parents = {info.id: info.parent for info in tape.runs()}
    for run in parents:
        family = {run}
        ancestor = parents[run]
        while ancestor is not None and ancestor not in family and ancestor in parents:
            family.add(ancestor)
            ancestor = parents[ancestor]
        for row in tape.query("SELECT turn FROM turns WHERE run = ? ORDER BY turn", (run,)):
            yield from _turn(tape, run, row["turn"], family)


def _turn(tape: Tape, run: int, turn: Any, family: set[int]) -> Iterator[Finding]:
    place = {"run": run, "turn": turn if isinstance(turn, int) else None}
    [row] = tape.query("SELECT record, row FROM turns WHERE run = ? AND turn = ?", (run, turn))
    try:
        record = loads(row["record"], "its record")
        numbers = call_numbers(record)
        if not isinstance(loads(row["row"], "its row of the frame"), dict):
            raise ValueError("its row of the frame is no object")
        if record["turn"] != turn:
            raise ValueError(f"its record is that of turn {record['turn']}")
    except (TapeError, ValueError) as error:
        yield Finding(what=str(error), **place)
        return
    for number in numbers:
        found = tape.query("SELECT run FROM calls WHERE id = ?", (number,))
        if not found:
            yield Finding(what=f"it names call {number}, which is not there", **place)
        elif found[0]["run"] not in family:
            yield Finding(what=f"it names call {number}, which is run {found[0]['run']}'s", **place)
