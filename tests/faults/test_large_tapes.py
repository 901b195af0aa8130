"""Small tapes that were made to take long: each verb is done, or says in a sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import counter_kit  # noqa: F401 - the class of runs that can be loaded
import pytest
from faults_kit import MEMORY_MB, Attack, Case, Plan
from tape_text import sealed
from tapes_kit import HEAD, line, run, text, turn, written
from tapes_kit import SETTINGS as SETTINGS_VALUES
from verbs_kit import LARGE, READ, steps_of

from llmsim_lab.prompts.prompt import digest_of as prompt_digest
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


def plans_that_reruns_share() -> Lines:
    raw, digest = text(b"[%b]" % b",".join([b'{"turn":9}'] * 250_000))
    yield raw
    yield run(1)
    yield turn(1, 0, planned=[digest])
    for number in range(2, 1200):
        yield run(number, verb="rerun", parent=1)
        yield turn(number, 0, planned=[digest])


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


def many_prompts() -> Lines:
    state = {"value": 0, "history": []}
    prompts = {}
    for number in range(40_000):
        user = f"{number} {{{{ x }}}}"
        digest = prompt_digest("", user)
        prompt = {"name": "p", "parent": None, "system": "", "text": f"## User\n\n{user}\n"}
        prompts[f"{number}"] = {**prompt, "digest": digest}
    yield run(1, manifest={"kind": "counter", "prompts": prompts})
    yield from (turn(1, number, state=state) for number in range(2))


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


def wrong_people() -> Lines:
    raw, digest = text(b'{"population":[%b]}' % b",".join([b"1"] * 1_900_000))
    yield raw
    yield from runs(2, {"config": digest}, kind="social")


SETTINGS = (
    b'{"model":"m","tools":[],"options":{},"think":null,"keep_alive":null,"timeout_s":1,'
    b'"schema":null}'
)
# With an emoji, by which each letter takes four bytes in Python.
LONG = b"\xf0\x9f\x98\x80%b" % (b"x" * 8_000_000)
ANSWERED = {"text": "ok"}


def settings(number: object = "", *, schema: bytes = b"null", more: bytes = b"") -> bytes:
    raw = SETTINGS.replace(b'"m"', b'"%b"' % str(number).encode())
    return raw.replace(b"null}", schema + more + b"}")


def call(number: int, settings: str, **values: object) -> bytes:
    return line("call", 1, turn=1, no=number, settings=settings, seconds=1, messages=[], **values)


def calls_that_share(*texts: bytes, count: int = 300, **values: object) -> Lines:
    lines, digests = zip(*map(text, texts), strict=True)
    yield from lines
    for number in range(1, count + 1):
        yield call(number, digests[number % len(digests)], **values)


def calls_of_long_settings() -> Lines:
    for number in range(1, 13):
        raw, digest = text(settings(number, more=b',"system":"%b"' % LONG))
        yield raw
        yield call(number, digest)


def calls_of_a_large_schema() -> Lines:
    raw, digest = text(written(SETTINGS_VALUES | {"schema": {"enum": [*range(200_000)]}}))
    yield from runs(3, {})
    yield raw
    yield from (call(number, digest) for number in range(1, 1_000))
    yield turn(1, 1, calls=[["ok", [number]] for number in range(1, 1_000)])


def calls_of_bad_settings() -> Lines:
    return calls_that_share(settings(more=b',"system":"%b","x":1' % LONG))


def calls_of_one_system_message() -> Lines:
    return calls_that_share(settings(more=b',"system":"%b"' % LONG), reply=ANSWERED)


def long_system_messages_of_short_lines() -> Lines:
    messages = [b"\\n" * count for count in (15_000_000, 4_000_000)]
    return calls_that_share(*(settings(more=b',"system":"%b"' % each) for each in messages))


def settings_by_calls() -> Lines:
    schemas = [b'{"a":[%d%b]}' % (number, b",[]" * 300_000) for number in range(8)]
    return calls_that_share(*(settings(schema=schema) for schema in schemas), reply=ANSWERED)


def places_in_a_system_message() -> Lines:
    places = b",".join([b'[1,1,"name","of {turn}"]'] * 2_000)
    raw, digest = text(b'{"system":[%b],"user":[],"facts":{"turn":0}}' % places)
    yield raw
    system = settings(more=b',"system":"%b"' % (b"x" * 20_000))
    yield from calls_that_share(system, count=9_000, origin=[digest, []], reply=ANSWERED)


def turns_of_the_same_calls() -> Lines:
    yield from calls_that_share(settings(), count=600, reply=ANSWERED)
    for number in range(1, 600):
        yield turn(1, number, calls=[["ok", [named]] for named in range(1, 601)])


def a_turn_of_one_call() -> Lines:
    yield from calls_that_share(settings(), count=1, reply=ANSWERED)
    yield turn(1, 1, calls=[["ok", [1] * 400_000]])


def long_replies() -> Lines:
    raw, digest = text(settings())
    yield raw
    for number in range(1, 4):
        yield call(number, digest, reply={"text": ""}).replace(b'""', b'"%d%b"' % (number, LONG), 1)


def lists_of_wrong_items() -> Lines:
    wrong = b"[%b]" % b",".join([b"1"] * 2_000_000)
    raw, digest = text(settings())
    yield raw
    for raw in (turn(1, 1, calls=""), call(1, digest, cut=""), line("forget", 1, turn=1, calls="")):
        yield raw.replace(b'""', wrong, 1)


def states_of_lists() -> Lines:
    lists = b"[%b]" % b",".join([b"[]"] * 330_000)
    for number in range(1, 13):
        yield turn(1, number, state={"a": ""}).replace(b'""', lists, 1)


WIDE = r"TapeError: the 100 turns of run 1 on .* name 300,001 columns, nearly all of them empty"
TAPES: dict[str, tuple[Callable[[], Lines], dict[str, str]]] = {
    "a chart for each column": (a_chart_for_each_column, {}),
    "columns": (columns, {"turns_frame": WIDE}),
    "ends of one run": (ends_of_one_run, {}),
    "forks of forks": (forks_of_forks, {}),
    "forks one turn later each": (forks_one_turn_later_each, {}),
    "long interventions": (long_interventions, {}),
    "many prompts": (many_prompts, {"load": "done"}),
    "plans that reruns share": (plans_that_reruns_share, {}),
    "reruns of a changed run": (reruns_of_a_changed_run, {}),
    "reruns of reruns": (reruns_of_reruns, {}),
    "settings by turns": (settings_by_turns, {}),
    "shared texts": (shared_texts, {}),
    "runs of a large population": (runs_of_a_large_population, {}),
    "wrong people": (wrong_people, {"load": r"TapeError: .* population\.0"}),
    "calls of a large schema": (calls_of_a_large_schema, {}),
}
FORGET = b'{"run":1,"is":"forget","turn":2,"calls":[%b7],"sum":""}\n'
DAMAGED: dict[str, Callable[[], Iterable[bytes]]] = {
    "empty lines": lambda: [b"\n"] * 100_000,
    "texts that lie": lambda: [b'{"text":"%016x","value":1,"sum":""}\n' % n for n in range(30_000)],
    "runs without a start": lambda: [line("set", number) for number in range(9, 30_000)],
    "forgotten calls": lambda: [FORGET % (b"77," * 10**6)],
    "a long number": lambda: [FORGET % (b"7" * 4 * 10**6)],
    "calls of long settings": calls_of_long_settings,
    "calls of bad settings": calls_of_bad_settings,
    "calls of one system message": calls_of_one_system_message,
    "long system messages of short lines": long_system_messages_of_short_lines,
    "settings by calls": settings_by_calls,
    "places in a system message": places_in_a_system_message,
    "turns of the same calls": turns_of_the_same_calls,
    "a turn of one call": a_turn_of_one_call,
    "long replies": long_replies,
    "states of lists": states_of_lists,
    "lists of wrong items": lists_of_wrong_items,
    "an end of 40 MB": lambda: [b"x" * 40 * 10**6],
}
# What verify finds nothing wrong with.
SOUND = (
    calls_of_long_settings,
    calls_of_one_system_message,
    long_system_messages_of_short_lines,
    settings_by_calls,
    places_in_a_system_message,
    long_replies,
    states_of_lists,
)
ENDS = {
    long_system_messages_of_short_lines: {"frames": "TapeError: the prompts of the 300 calls"},
    calls_of_one_system_message: {"frames": "TapeError: the prompts of the 300 calls of run 1"},
    turns_of_the_same_calls: {"page": "TapeError: run 1 .* turn 2 names call 1, which is one of"},
}
# Beside the program four times what a sound tape of that size takes, which is eight times the file;
# of long texts, of 96 MB here, twice the file, where none has an emoji.
LARGER_MB = {
    states_of_lists: 240 + 4 * 8 * 12,
    calls_of_long_settings: 240 + 4 * 2 * 96 + 96,
}


def write(lines: Callable[[], Iterable[bytes]], folder: Path) -> None:
    (folder / "x.tape").write_bytes(b"".join(sealed([HEAD, *lines()])))


def write_damaged(lines: Callable[[], Iterable[bytes]], folder: Path) -> None:
    write(lambda: [run(1), turn(1, 0), *lines()], folder)


def has_findings(folder: Path) -> None:
    assert verify(folder / "x.tape")


def large_tapes(plan: Plan) -> Iterator[Case]:
    for name, (lines, ends) in plan.chosen(TAPES, 2, 4):
        verbs = {**LARGE, "load": READ["load"]}
        steps = steps_of(verbs, dict.fromkeys(LARGE, "done") | ends)
        yield Case(name, steps, partial(write, lines))
    for name, damage in plan.chosen(DAMAGED, 2, 4):
        steps = steps_of(READ, ENDS.get(damage))
        if damage not in SOUND:
            steps["has findings"] = has_findings
        memory_mb = LARGER_MB.get(damage, MEMORY_MB)
        yield Case(name, steps, partial(write_damaged, damage), memory_mb=memory_mb)


def test_a_tape_takes_as_long_as_it_is_large(attack: Attack) -> None:
    attack("large tapes", large_tapes)
