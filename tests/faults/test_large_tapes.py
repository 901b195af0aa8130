"""Small tapes that were made to take long: each verb is done, or says in a sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from faults_kit import Attack, Case, Plan
from tape_text import sealed
from tapes_kit import HEAD, line, run, text, turn, written
from tapes_kit import SETTINGS as SETTINGS_VALUES
from verbs_kit import LARGE, READ, steps_of

from llmsim_lab.tape import verify

pytestmark = pytest.mark.process

Lines = Iterator[bytes]


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


def runs(count: int, texts: dict[str, str], **manifest: str) -> Lines:
    for number in range(1, count):
        yield run(number, texts, manifest=manifest)
        yield turn(number, 0)


def shared_texts() -> Lines:
    digests = {}
    for at in range(12):
        raw, digest = text(b"[%b]" % b",".join([b"[%d]" % at] * 400_000))
        yield raw
        digests[f"x{at}"] = digest
    yield from runs(30, digests)


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


def runs_of_a_large_population() -> Lines:
    people = [
        {"name": f"P{number}", "interests": ["x"], "personality": "x"} for number in range(5_000)
    ]
    raw, digest = text(written({"population": people}))
    yield raw
    yield from runs(400, {"config": digest}, kind="social")


SETTINGS = (
    b'{"model":"%d\xf0\x9f\x98\x80%b","schema":null,"tools":[],"options":{},"think":null,'
    b'"keep_alive":null,"timeout_s":%b}'
)


def call(number: int, settings: str) -> bytes:
    return line("call", 1, turn=1, no=number, messages=[], settings=settings, seconds=1)


def settings_of_4_mb() -> Lines:
    for number in range(3):
        raw, digest = text(SETTINGS % (number, b"x" * 4_000_000, b"1"))
        yield raw
        yield call(number, digest)


def calls_of_a_large_schema() -> Lines:
    raw, digest = text(written(SETTINGS_VALUES | {"schema": {"enum": [*range(200_000)]}}))
    yield from runs(3, {})
    yield raw
    yield from (call(number, digest) for number in range(1, 1_000))
    yield turn(1, 1, calls=[["ok", [number]] for number in range(1, 1_000)])


def calls_of_bad_settings() -> Lines:
    raw, digest = text(SETTINGS % (0, b"x" * 8_000_000, b'"x"'))
    yield raw
    yield from (call(number, digest) for number in range(200))


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
    "runs of a large population": (runs_of_a_large_population, {}),
    "calls of a large schema": (calls_of_a_large_schema, {}),
}
FORGET = b'{"run":1,"is":"forget","turn":2,"calls":[%b7],"sum":""}\n'
DAMAGED: dict[str, Callable[[], Iterable[bytes]]] = {
    "empty lines": lambda: [b"\n"] * 100_000,
    "texts that lie": lambda: [b'{"text":"%016x","value":1,"sum":""}\n' % n for n in range(30_000)],
    "runs without a start": lambda: [line("set", number) for number in range(9, 30_000)],
    "forgotten calls": lambda: [FORGET % (b"77," * 10**6)],
    "a long number": lambda: [FORGET % (b"7" * 4 * 10**6)],
    "settings of 4 MB": settings_of_4_mb,
    "calls of bad settings": calls_of_bad_settings,
    "an end of 40 MB": lambda: [b"x" * 40 * 10**6],
}


def write(lines: Callable[[], Iterable[bytes]], folder: Path) -> None:
    (folder / "x.tape").write_bytes(b"".join(sealed([HEAD, *lines()])))


def write_damaged(lines: Callable[[], Iterable[bytes]], folder: Path) -> None:
    write(lambda: [run(1), turn(1, 0), *lines()], folder)


def has_findings(folder: Path) -> None:
    assert verify(folder / "x.tape")


def large_tapes(plan: Plan) -> Iterator[Case]:
    for name, (lines, ends) in plan.chosen(TAPES, 2, 4):
        steps = steps_of(LARGE, dict.fromkeys(LARGE, "done") | ends)
        yield Case(name, steps, partial(write, lines))
    for name, damage in plan.chosen(DAMAGED, 2, 4):
        steps = {"has findings": has_findings, **steps_of(READ)}
        yield Case(name, steps, partial(write_damaged, damage))


def test_a_tape_takes_as_long_as_it_is_large(attack: Attack) -> None:
    attack("large tapes", large_tapes)
