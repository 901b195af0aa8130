"""Tapes that no run wrote, with right sums: all verbs end in an error of ours, or show it."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client, recorded
from faults_kit import Attack, Case, Plan
from tape_text import rewrite, sealed
from tapes_kit import (
    GARBAGE,
    HEAD,
    KINDS,
    MANIFEST,
    PARTS,
    SETTINGS,
    Line,
    line,
    places_in,
    recorded_tapes,
    renamed_texts,
    run,
    text,
    turn,
)
from verbs_kit import CONTINUE, READ, steps_of

from llmsim_lab._util.jsontext import dumps
from llmsim_lab.lab import Lab
from llmsim_lab.prompts.prompt import digest_of
from llmsim_lab.simulation import Simulation

pytestmark = pytest.mark.process

VERBS = {**READ, **CONTINUE}

# --- made by hand ---------------------------------------------------------------------------------

WORDS = "\u2028\u2029\x85\x0b\x0c\x1c\u202e\x1b]0;pwn\x07\x1b[2J\x00\r=1+1{{ x }}[bold]<b>"
WRONG: list[Any] = [1, "x", None, [], [1], {"a": 1}, True, 1e308]


def call(number: int, settings: str, words: str = "hi", **more: Any) -> bytes:
    values = {"no": number, "component": "player", "agent": "A", "settings": settings, **more}
    messages = [{"role": "user", "content": words}]
    return line("call", 1, turn=1, messages=messages, reply={"text": "ok"}, seconds=1.0, **values)


def begun(*manifests: dict[str, Any]) -> list[bytes]:
    """Return a run and its first turn for each manifest."""
    lines = []
    for number, changes in enumerate(manifests, start=1):
        lines += [run(number, manifest=changes), turn(number, 0)]
    return lines


def with_number(written: bytes) -> list[bytes]:
    """Return a run whose second turn has some bytes in the place of a number."""
    lines = [turn(1, 1, {"turn": 1, "a": 7777777}), turn(1, 2, state={"a": 7777777})]
    return [run(1), turn(1, 0), *(raw.replace(b"7777777", written) for raw in lines)]


def hand_made() -> dict[str, list[bytes]]:
    """Return lines by what is odd about them."""
    settings, digest = text(dumps(SETTINGS).encode())
    origin, sources = text(dumps([["user", "s", "source"]] * 1000).encode())
    numbers = [*range(1, 101)]
    calls = [settings, run(1), turn(1, 0)]
    calls += [call(number, digest) for number in numbers]
    bomb = "{% for a in state.x %}" * 30 + "{{ a }}" + "{% endfor %}" * 30
    prompt = {"name": "p", "text": f"## User\n\n{bomb}\n", "parent": None}
    prompt["digest"] = digest_of("", bomb)
    forked = {"verb": "fork", "fork_turn": 0}
    wide = {f"k{at}": at for at in range(2000)}
    return {
        "a circle": [
            run(1, parent=2, **forked),
            turn(1, 0),
            run(2, parent=1, **forked),
            turn(2, 0),
        ],
        "its own parent": [run(1, parent=1, **forked), turn(1, 0)],
        "no parents": [run(1, parent=99, **forked), turn(1, 0), run(2, verb="rerun", parent=77)],
        "a turn again and again": [run(1), *[turn(1, 0)] * 3_000],
        "400 digits": with_number(b"-" + b"9" * 400),
        "5,000 digits": with_number(b"9" * 5000),
        "NaN": with_number(b"NaN"),
        "1e308": with_number(b"1e308"),
        "1e999": with_number(b"1e999"),
        "deep": with_number(b"[" * 190 + b"]" * 190),
        "too deep": with_number(b'{"a":' * 900 + b"1" + b"}" * 900),
        "half a character": with_number(b'"\\ud800"'),
        "half a name": with_number(b'1,"\\udfff":1'),
        "names twice": with_number(b'1,"a":2'),
        "words of terminals": [
            settings,
            run(1, name=WORDS),
            turn(1, 0, {"turn": 0, WORDS: 1.0}, state={WORDS: WORDS}),
            call(1, digest, WORDS, agent=WORDS),
            turn(1, 1, calls=[["ok", [1]]], noted={WORDS: 1}),
            line("end", 1, ended=WORDS, outcome=WORDS),
        ],
        "turns below nought": [run(1), turn(1, -5), turn(1, 0), run(2, parent=1, **forked)],
        "turns of a thousand million": [run(1), turn(1, 0), turn(1, 10**9 - 1), turn(1, 1 - 10**9)],
        "records of wrong types": [
            run(1),
            *(turn(1, 0, **{part: value}) for part in PARTS for value in WRONG),
        ],
        "manifests of wrong types": begun(*({part: value} for part in MANIFEST for value in WRONG)),
        "kinds": begun(*({"kind": kind} for kind in KINDS)),
        "calls named often": [*calls, turn(1, 1, calls=[["ok", numbers]] * 1000)],
        "calls forgotten often": calls + [line("forget", 1, turn=1, calls=numbers)] * 300,
        "a million sources": [
            settings,
            origin,
            run(1),
            turn(1, 0),
            call(1, digest, origin=[sources, [1] * 600_000]),
            turn(1, 1, calls=[["ok", [1]]]),
        ],
        "an endless prompt": begun({"prompts": {"p": prompt}}, {"prompts": {"p": prompt}}),
        "many manifests": calls
        + [line("set", 1, manifest=MANIFEST | {"config": wide}, texts={})] * 300,
    }


# --- edits of what was recorded -------------------------------------------------------------------


def without_state(line: Line) -> Line:
    if line.get("is") == "turn":
        line["record"]["state"] = {}
    return line


def with_odd_column(line: Line) -> Line:
    if line.get("is") == "turn":
        line["row"]["\ud800"] = 1.0
    return line


def with_odd_schema(line: Line) -> Line:
    settings = line.get("value") or {}
    if "schema" in settings:
        settings["schema"] = {"properties": [None], "$defs": 3}
    return line


def with_odd_gap(line: Line) -> Line:
    if line.get("is") == "turn":
        line["record"]["state"]["gap_error"] = 1e308
    return line


EDITS = [without_state, with_odd_column, with_odd_schema, with_odd_gap]


def record_economy(path: Path) -> None:
    recorded(Simulation(in_words(), llm_client=make_client(), tape=path), 2)


def write_edited(edit: Callable[[Line], Line], folder: Path) -> None:
    record_economy(folder / "x.tape")
    rewrite(folder / "x.tape", edit)


def write_lines(lines: list[bytes], folder: Path) -> None:
    (folder / "x.tape").write_bytes(b"".join(sealed([HEAD, *lines])))


def odd_tapes(plan: Plan) -> Iterator[Case]:
    for name, lines in plan.chosen(hand_made(), 6):
        yield Case(name, steps_of(VERBS), partial(write_lines, lines))
    for edit in EDITS:
        yield Case(edit.__name__, steps_of(VERBS), partial(write_edited, edit))


def test_what_reads_an_odd_tape_shows_it_or_says_why_not(attack: Attack) -> None:
    attack("tapes: odd", odd_tapes)


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_its_class_cannot_read_is_shown_as_recorded_and_says_why(path: Path) -> None:
    record_economy(path)
    rewrite(path, without_state)
    lab = Lab(path)
    [note] = lab.reading.runs[1]["notes"]
    assert note.startswith("Run 1 is shown as it was recorded, since its class, economic, cannot ")
    assert note.endswith("the start that Simulation(...).state has")


# --- changed by chance ----------------------------------------------------------------------------


def changed_values(lines: list[bytes], source: random.Random) -> list[bytes]:
    """Put something else in random places of random lines, or remove what is there."""
    lines = list(lines)
    for _ in range(source.choice([1, 1, 2, 5])):
        place = source.randrange(len(lines))
        value = json.loads(lines[place])
        holder, key = source.choice([*places_in(value)])
        if source.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(source.choice(GARBAGE))
        lines[place] = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return lines


def changed_lines(lines: list[bytes], source: random.Random) -> list[bytes]:
    """Repeat, remove, move or exchange whole lines."""
    lines = list(lines)
    for _ in range(source.choice([1, 2, 9])):
        place = source.randrange(1, len(lines))
        other = source.randrange(1, len(lines))
        line = lines.pop(place)
        lines[other:other] = [line] * source.choice([0, 1, 3])
    return lines


def changed_bytes(lines: list[bytes], source: random.Random) -> list[bytes]:
    """Change, remove or repeat some bytes, anywhere."""
    content = bytearray(b"".join(lines))
    for _ in range(source.choice([1, 3, 20, 200])):
        place = source.randrange(80, len(content))
        length = source.choice([0, 1, 1, 50])
        random_byte = bytes([source.randrange(256)])
        other_bytes = bytes(content[80 : 80 + length])
        content[place : place + length] = source.choice([b"", random_byte, other_bytes])
    return bytes(content).splitlines(keepends=True)


CHANGES = [changed_values, changed_values, changed_lines, changed_bytes]


def write_changed(seed: str, folder: Path) -> None:
    source = random.Random(seed)
    [lines] = source.sample(list(recorded_tapes().values()), 1)
    lines = source.choice(CHANGES)(lines, source)
    # Three in four by somebody who computes the sums again, and the names of texts.
    if source.random() < 0.75:
        lines = sealed(renamed_texts(lines))
    (folder / "x.tape").write_bytes(b"".join(lines))


def changed_tapes(plan: Plan) -> Iterator[Case]:
    for number in range(plan.times(3)):
        seed = f"{plan.seed} {number}"
        yield Case(f"change {seed}", steps_of(VERBS), partial(write_changed, seed))


def test_a_changed_tape_ends_in_an_error_of_ours_or_is_read(attack: Attack) -> None:
    attack("tapes: changed", changed_tapes)
