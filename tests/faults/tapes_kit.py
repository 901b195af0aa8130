"""The lines of tapes: made by hand, those that real runs wrote, and what is put into them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from faults_kit import TESTS
from tape_text import digest_of

from llmsim_lab._util.jsontext import dumps

__all__ = ["GARBAGE", "HEAD", "KINDS", "MANIFEST", "PARTS", "SETTINGS", "Line", "line"]
__all__ += ["places_in", "recorded_tapes", "renamed_texts", "run", "text", "turn", "written"]

Line = dict[str, Any]
"""As JSON reads it."""

HEAD = b'{"tape":3,"by":"x","id":"0000000000000000","sum":""}\n'
MANIFEST: Line = {
    "kind": "x:World",
    "package": "0",
    "config": {},
    "prompts": {},
    "given": [],
    "llm": None,
    "model": None,
}
SETTINGS: Line = {
    "model": "m",
    "schema": None,
    "tools": [],
    "options": {},
    "think": None,
    "keep_alive": None,
    "timeout_s": 1.0,
}
PARTS = ("state", "calls", "interventions", "planned", "by_code", "noted", "became", "story")
"""Of a turn."""
KINDS = [
    "economic",
    "crisis",
    "social",
    "assistant",
    "exact",
    "os:system",
    "__main__:X",
    "llmsim_lab.run.world:Run",
    "../../evil:X",
    "evil.py:X",
]
"""What a manifest may say of a run's class."""
GARBAGE: list[Any] = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    1e308,
    "",
    "x",
    [],
    [[]],
    [5],
    [{}],
    {},
    {"x": {"y": 1}},
    "\ud83d",
    "\x1b[2J",
    "__proto__",
    "x" * 100_000,
    [0] * 50_000,
    float("nan"),
]
"""What is put in the place of values."""


# --- made by hand ---------------------------------------------------------------------------------


def written(value: object) -> bytes:
    """Return JSON, also of what no run writes: NaN."""
    try:
        return dumps(value).encode()
    except ValueError:
        return json.dumps(value, separators=(",", ":")).encode()


def line(kind: str, run: int, **values: Any) -> bytes:
    return written({"run": run, "is": kind, **values, "sum": ""}) + b"\n"


def run(
    number: int,
    texts: dict[str, str] | None = None,
    *,
    manifest: Line | None = None,
    name: str = "n",
    verb: str = "run",
    **values: Any,
) -> bytes:
    """Return the line that begins a run.

    Args:
        texts: digests of texts, by the part of the manifest that each stands for.
        manifest: what is other than in ``MANIFEST``.
    """
    texts = texts or {}
    whole = {part: value for part, value in MANIFEST.items() if part not in texts}
    whole |= manifest or {}
    return line(
        "run", number, name=name, verb=verb, started="", **values, manifest=whole, texts=texts
    )


def turn(run: int, number: int, row: Line | None = None, **parts: Any) -> bytes:
    """Return the line of a turn; its record's parts are empty but for those that are given."""
    record = {
        "state": {},
        "turn": number,
        "seconds": 0.0,
        "interventions": [],
        "planned": [],
        "by_code": [],
        "noted": {},
        "became": {},
        "story": [],
        "calls": [],
    }
    record |= parts
    return line("turn", run, turn=number, record=record, row=row or {"turn": number})


def text(value: bytes) -> tuple[bytes, str]:
    """Return the line of a text, and the digest that names it."""
    digest = digest_of(value)
    return b'{"text":"%b","value":%b,"sum":""}\n' % (digest.encode(), value), digest


# --- those of runs --------------------------------------------------------------------------------


def recorded_tapes() -> dict[str, list[bytes]]:
    """Return the lines of tapes that real runs wrote."""
    paths = sorted((TESTS.parent / "data").glob("t*/*.tape"))
    # Not by str.splitlines, which also cuts at U+2028.
    return {path.name: path.read_bytes().splitlines(keepends=True) for path in paths}


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list and object in a value with each place in it."""
    keys: Iterable[Any] = range(len(value))
    if isinstance(value, dict):
        keys = list(value)
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])


TEXT = re.compile(rb'\{"text":"(\w+)","value":(.*),"sum":"[0-9a-f]*"\}\n\Z', re.DOTALL)


def renamed_texts(lines: list[bytes]) -> list[bytes]:
    """Return lines in which each text, and what names it, has the name that its value gives."""
    new_names: dict[bytes, bytes] = {}
    renamed: list[bytes] = []
    for raw in lines:
        for old, new in new_names.items():
            raw = raw.replace(b'"%b"' % old, b'"%b"' % new)
        match = TEXT.match(raw)
        if match is not None:
            old, value = match.groups()
            _, digest = text(value)
            new_names[old] = digest.encode()
            raw = raw.replace(old, new_names[old], 1)
        renamed.append(raw)
    return renamed
