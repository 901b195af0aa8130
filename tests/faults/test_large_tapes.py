"""Small tapes that were made to take long: each verb is done, or says in a sentence why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults_kit import Attack, Case, Plan
from tape_text import digest_of, sealed
from verbs_kit import LARGE, steps_of

from llmsim_lab._util.jsontext import dumps

pytestmark = pytest.mark.process

Lines = Iterator[bytes]
HEAD = b'{"tape":3,"by":"x","id":"0000000000000000","sum":""}\n'
MANIFEST = {"kind": "x:World", "package": "0", "config": {}, "prompts": {}}
MANIFEST |= {"given": [], "llm": None, "model": None}


def written(value: object) -> bytes:
    """Return JSON, also of what no run writes: NaN."""
    try:
        return dumps(value).encode()
    except ValueError:
        return json.dumps(value, separators=(",", ":")).encode()


def line(kind: str, run: int, **values: Any) -> bytes:
    return written({"run": run, "is": kind, **values, "sum": ""}) + b"\n"


def run(number: int, texts: dict[str, str] | None = None, **values: Any) -> bytes:
    """Begin a run; parts of its manifest that are texts are not there besides."""
    texts = texts or {}
    manifest = {name: part for name, part in MANIFEST.items() if name not in texts}
    manifest |= values.pop("manifest", {})
    begun = {"name": "n", "verb": "run", "started": "", **values}
    return line("run", number, **begun, manifest=manifest, texts=texts)


def turn(run: int, number: int, row: dict[str, Any] | None = None, **parts: Any) -> bytes:
    record = {"state": {}, "turn": number, "seconds": 0.0, "interventions": [], "planned": []}
    record |= {"by_code": [], "noted": {}, "became": {}, "story": [], "calls": [], **parts}
    return line("turn", run, turn=number, record=record, row=row or {"turn": number})


def text(value: bytes) -> tuple[bytes, str]:
    digest = digest_of(value)
    return b'{"text":"%b","value":%b,"sum":""}\n' % (digest.encode(), value), digest


def forks_of_forks() -> Lines:
    yield run(1)
    yield from (turn(1, number) for number in range(6))
    for number in range(2, 1001):
        yield run(number, verb="fork", parent=number - 1, fork_turn=5)
        yield turn(number, 5)
    for number in range(1001, 2001):
        yield run(number, verb="fork", parent=1000, fork_turn=0)
        yield turn(number, 0)


def forks_one_turn_later_each() -> Lines:
    yield run(1)
    yield turn(1, 0)
    yield turn(1, 1)
    for number in range(2, 801):
        yield run(number, verb="fork", parent=number - 1, fork_turn=number - 1)
        yield turn(number, number - 1)
        yield turn(number, number)
    for number in range(801, 1601):
        yield run(number, verb="fork", parent=800, fork_turn=0)
        yield turn(number, 0)


def long_interventions() -> Lines:
    done = [{"turn": 1, "set": {f"a{at}": at for at in range(1000)}} for _ in range(50)]
    yield run(1)
    yield turn(1, 0, interventions=done, planned=done)
    for number in range(2, 400):
        yield run(number, verb="rerun", parent=1)
        yield turn(number, 0)


def reruns_of_a_changed_run() -> Lines:
    yield run(1)
    for number in range(800):
        yield turn(1, number, interventions=[{"turn": number, "set": {"a": number}}])
    for number in range(2, 1200):
        yield run(number, verb="rerun", parent=1)
        yield turn(number, 799)


def shared_texts() -> Lines:
    texts = [text(b"[%b]" % b",".join([b"[%d]" % at] * 400_000)) for at in range(12)]
    yield from (raw for raw, _ in texts)
    for number in range(1, 30):
        yield run(number, {f"x{at}": digest for at, (_, digest) in enumerate(texts)})
        yield turn(number, 0)


def settings_by_turns() -> Lines:
    lists = text(b'{"a":[%b]}' % b",".join([b"[]"] * 900_000))
    objects = text(b'{"b":[%b]}' % b",".join([b"{}"] * 900_000))
    yield lists[0]
    yield objects[0]
    for number in range(1, 60):
        digests = [lists[1], objects[1]][:: 1 if number % 2 else -1]
        yield run(number, {"config": digests[0], "llm": digests[1]}, verb="rerun", parent=1)
        yield turn(number, 0)


def columns() -> Lines:
    yield run(1)
    for number in range(100):
        yield turn(1, number, {"turn": number} | {f"c{number}.{at}": 1.0 for at in range(3000)})


def a_chart_for_each_column() -> Lines:
    yield run(1)
    yield turn(1, 0)
    yield turn(1, 1, {"turn": 1} | {f"c{number}": 1.0 for number in range(250_000)})


def reruns_of_reruns() -> Lines:
    yield run(1)
    yield turn(1, 0)
    for number in range(2, 20_000):
        yield run(number, verb="rerun", parent=number - 1)
        yield turn(number, 0)


def ends_of_one_run() -> Lines:
    yield run(1)
    yield turn(1, 0)
    yield from [line("end", 1, ended="", outcome="done")] * 200_000


WIDE = r"TapeError: the 100 turns of run 1 on .* name 300,001 columns, nearly all of them empty"
TAPES: dict[str, tuple[Callable[[], Lines], dict[str, str]]] = {
    "a chart for each column": (a_chart_for_each_column, {}),
    "columns": (columns, {"turns_frame": WIDE}),
    "ends of one run": (ends_of_one_run, {}),
    "forks of forks": (forks_of_forks, {}),
    "forks one turn later each": (forks_one_turn_later_each, {}),
    "long interventions": (long_interventions, {}),
    "reruns of a changed run": (reruns_of_a_changed_run, {}),
    "reruns of reruns": (reruns_of_reruns, {}),
    "settings by turns": (settings_by_turns, {}),
    "shared texts": (shared_texts, {}),
}


def write(lines: Callable[[], Lines], folder: Path) -> None:
    (folder / "x.tape").write_bytes(b"".join(sealed([HEAD, *lines()])))


def large_tapes(plan: Plan) -> Iterator[Case]:
    for name, (lines, ends) in plan.chosen(TAPES, 2, 4):
        steps = steps_of(LARGE, dict.fromkeys(LARGE, "done") | ends)
        yield Case(name, steps, partial(write, lines))


def test_a_tape_takes_as_long_as_it_is_large(attack: Attack) -> None:
    attack("large tapes", large_tapes)
