"""Small tapes that were made to take long: each verb is done, or says in a sentence why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from limits_kit import limited
from tape_text import sealed

from llmsim_lab._util.jsontext import dumps
from llmsim_lab.tape._journal import text_digest

pytestmark = pytest.mark.process

Lines = Iterator[bytes]
HEAD = b'{"tape":3,"by":"x","id":"0000000000000000","sum":""}\n'
MANIFEST = {"kind": "x:World", "package": "0", "config": {}, "prompts": {}}
MANIFEST |= {"given": [], "llm": None, "model": None}


def line(**values: Any) -> bytes:
    return f"{dumps({**values, 'sum': ''})}\n".encode()


def run(number: int, texts: dict[str, str] | None = None, **origin: Any) -> bytes:
    """Begin a run; parts of its manifest that are texts are not there besides."""
    texts = texts or {}
    own = {name: part for name, part in MANIFEST.items() if name not in texts}
    of = {"verb": "run", **origin}
    begun = {"name": "n", **of, "started": "", "manifest": own, "texts": texts}
    return line(run=number, **{"is": "run"}, **begun)


def turn(run: int, number: int, row: dict[str, Any] | None = None, **more: Any) -> bytes:
    parts = {"interventions": [], "planned": [], "by_code": [], "noted": {}, "became": {}, **more}
    record = {"state": {}, "turn": number, "seconds": 0.0, **parts, "story": [], "calls": []}
    return line(run=run, **{"is": "turn"}, turn=number, record=record, row=row or {"turn": number})


def text(value: bytes) -> tuple[bytes, str]:
    digest = text_digest(value)
    return b'{"text":"%b","value":%b,"sum":""}\n' % (digest, value), digest.decode()


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


VERBS = """
    import os
    from pathlib import Path
    from typer.testing import CliRunner
    from llmsim_lab.cli._app import app
    from llmsim_lab.lab import Lab
    from llmsim_lab.run.recorded import page
    from llmsim_lab.tape import Tape, verify
    path = Path(sys.argv[1])
    def command(*arguments):
        done = CliRunner().invoke(app, ["tape", *map(str, arguments)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
    for work in (
        lambda: verify(path),
        lambda: command("ls", path),
        lambda: command("show", path),
        lambda: command("diff", path, 1, 2),
        lambda: page(path, path.with_suffix(".html")),
        lambda: Lab(path).static_text(),
        lambda: Tape(path, read_only=True).turns_frame(),
    ):
        print(said(work))
"""
NO_RUN_2 = "TapeError: the tape .* has no run 2"
WIDE = r"TapeError: the 100 turns of run 1 on .* name 300,001 columns, nearly all of them empty"


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        (forks_of_forks, {}),
        (forks_one_turn_later_each, {}),
        (long_interventions, {}),
        (reruns_of_a_changed_run, {}),
        (shared_texts, {}),
        (settings_by_turns, {}),
        (columns, {3: NO_RUN_2, 6: WIDE}),
    ],
)
def test_a_tape_takes_as_long_as_it_is_large(
    lines: Callable[[], Lines], ends: dict[int, str], tmp_path: Path
) -> None:
    path = tmp_path / "x.tape"
    path.write_bytes(b"".join(sealed([HEAD, *lines()])))
    printed = limited(VERBS, path)
    for place, found in enumerate(printed):
        assert re.match(ends.get(place, "done"), found)
    assert len(printed) == 7
