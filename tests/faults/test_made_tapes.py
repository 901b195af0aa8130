"""Tapes that hypothesis makes up, or makes of sound ones: sums are right, all else may be wrong."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults_kit import CPU_S, Attack, Case, Plan, takes_longer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning
from tape_text import sealed
from tapes_kit import (
    GARBAGE,
    HEAD,
    KINDS,
    MANIFEST,
    PARTS,
    SETTINGS,
    line,
    recorded_tapes,
    renamed_texts,
    run,
    text,
    turn,
    written,
)
from verbs_kit import CONTINUE, READ, steps_of

pytestmark = pytest.mark.process

VERBS = steps_of({**READ, **CONTINUE})
EXAMPLES = 10
"""Of a case."""

# --- what a line may hold -------------------------------------------------------------------------

NAMES = st.sampled_from(["turn", "a", "a.b", "__proto__", "", "\u202e", "coins.Ann"]) | st.text(
    max_size=6
)
LEAVES = (
    st.sampled_from(GARBAGE)
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
RUNS = st.integers(0, 6)
TURNS = st.integers(-1, 5)
ROWS = st.dictionaries(NAMES, VALUES, max_size=5) | st.builds(
    lambda count: {f"c{at}": at for at in range(count)}, st.integers(0, 3_000)
)
CHANGES = st.builds(
    lambda kind, changes: {"kind": kind, **changes},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from([*MANIFEST, "seed", "code"]), VALUES, max_size=3),
)
CHAINS = st.sampled_from(
    [
        {},
        {"verb": "fork", "fork_turn": 0},
        {"verb": "fork", "fork_turn": 3},
        {"verb": "rerun"},
        {"verb": "resume"},
    ]
)


SHARED = [text(written(value)) for value in (SETTINGS, [["user", "s", "x"]], {"a": [1] * 50})]
DIGESTS = st.sampled_from([digest for _, digest in SHARED])
IN_TEXTS = st.dictionaries(st.sampled_from([*MANIFEST]), DIGESTS, max_size=2)


def begun(
    number: int,
    parent: int,
    chain: dict[str, Any],
    manifest: dict[str, Any],
    texts: dict[str, str],
) -> bytes:
    linked = {**chain, "parent": parent} if chain else {}
    return run(number, texts, manifest=manifest, **linked)


def played(number: int, at: int, row: dict[str, Any], parts: dict[str, Any]) -> bytes:
    return turn(number, at, row, **parts)


def asked(number: int, at: int, settings: str, parts: Any) -> bytes:
    values = {
        "turn": at,
        "no": at + 2,
        "component": "player",
        "agent": "A",
        "settings": settings,
        "messages": [{"role": "user", "content": "hi"}],
        "reply": {},
    }
    return line("call", number, **{**values, **parts})


FIRST = run(1, manifest={"kind": KINDS[0]})
START = turn(1, 0)
PARTS_OF_A_TURN = st.dictionaries(
    st.sampled_from(PARTS), VALUES | st.lists(DIGESTS, max_size=3), max_size=3
)
PARTS_OF_A_CALL = st.dictionaries(
    st.sampled_from(["reply", "messages", "origin", "seconds", "reason", "agent", "no"]),
    VALUES,
    max_size=3,
)
LINES = st.one_of(
    st.builds(begun, RUNS, RUNS, CHAINS, CHANGES, IN_TEXTS),
    st.builds(played, RUNS, TURNS, ROWS, PARTS_OF_A_TURN),
    st.builds(asked, RUNS, TURNS, DIGESTS, PARTS_OF_A_CALL),
    st.builds(lambda number, value: line("end", number, ended=value, outcome=value), RUNS, VALUES),
    st.builds(
        lambda number, at, calls: line("forget", number, turn=at, calls=calls), RUNS, TURNS, VALUES
    ),
    st.builds(lambda value: text(written(value))[0], VALUES),
    st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b" ") + b"\n"),
)
MADE = st.lists(LINES, min_size=1, max_size=25).map(
    lambda lines: [HEAD, *(raw for raw, _ in SHARED), FIRST, START, *lines]
)


# --- and sound tapes, changed ---------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a value."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


@st.composite
def changed(draw: Any) -> list[bytes]:
    """Draw a sound tape with some parts of its lines exchanged, and lines repeated or removed."""
    lines = list(draw(st.sampled_from(SOUND)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        value = json.loads(lines[at])
        path = draw(st.sampled_from([*places(value)]))
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = draw(VALUES)
        raw = written(value) + b"\n"
        lines[at : at + 1] = draw(st.sampled_from([[raw], [raw] * 2, []]))
        if not lines:
            break
    return lines


# The smaller ones: of a large tape most examples are the same.
SOUND = sorted(recorded_tapes().values(), key=lambda lines: sum(map(len, lines)))[:8]


@st.composite
def spoiled(draw: Any) -> bytes:
    """Draw a tape with right sums; one in five has some of its bytes exchanged after that."""
    content = b"".join(sealed(renamed_texts(draw(MADE | changed()))))
    if draw(st.integers(0, 4)) == 0:
        for _ in range(draw(st.integers(1, 5))):
            at = draw(st.integers(0, len(content)))
            content = content[:at] + draw(st.binary(max_size=4)) + content[at + 1 :]
    return content


def play(number: int, folder: Path) -> None:
    """Do some of all verbs with each of so many tapes."""
    # That a tape which failed is long to print: what failed is told all the same.
    warnings.filterwarnings("ignore", category=HypothesisWarning)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        # A tape that fails is told as it was drawn: to shorten it takes minutes.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(number)
    @given(spoiled(), st.lists(st.sampled_from(sorted(VERBS)), min_size=5, max_size=5, unique=True))
    def done_with_each(content: bytes, verbs: list[str]) -> None:
        (folder / "x.tape").write_bytes(content)
        for verb in ("verify", *verbs):
            begun_s = time.process_time()
            VERBS[verb](folder)
            assert not takes_longer(time.process_time() - begun_s, CPU_S), verb
        for path in folder.iterdir():
            if path.name not in ("x.tape", "mine.txt") and path.is_file():
                path.unlink()

    done_with_each()


def made_tapes(plan: Plan) -> Iterator[Case]:
    for number in range(plan.times(1)):
        begun_at = plan.seed * 1000 + number
        step = partial(play, begun_at)
        yield Case(
            f"from {begun_at}", {"verbs": step}, cpu_s=EXAMPLES * CPU_S, may_raise=False, wall_s=300
        )


def test_a_tape_that_was_made_up_is_read_or_is_an_error_of_ours(attack: Attack) -> None:
    attack("tapes: made up", made_tapes)
