"""Templates on a tape that would take hours or gigabytes are named as soon as it is opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import make_client
from llmsim_lab.tape._codec import dumps
from llmsim_lab.tape._ledger import Ledger

from llmsim_lab.errors import LabError
from llmsim_lab.llm import Tape
from llmsim_lab.prompts._prompt import digest_of
from llmsim_lab.run import fork, load, replay
from llmsim_lab.tape import verify

HOSTILE = {
    "power": "{{ 9**(9**9) }}",
    "text": "{{ 'x'*3*10**9 }}",
    "brackets": "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest, tape_file: Path) -> Path:
    """Return a tape whose prompt of Aland is replaced, with digests and seals that fit."""
    template = HOSTILE[request.param]
    with Tape(tape_file) as tape:
        manifest = dict(tape.run(1).manifest)
    entry = {"name": "x", "text": f"## User\n\n{template}\n", "parent": None}
    entry["digest"] = digest_of("", template)
    manifest["prompts"] = manifest["prompts"] | {"agent:Aland": entry}
    connection = sqlite3.connect(tape_file)
    Ledger(1).change(connection, manifest=dumps(manifest))
    connection.commit()
    connection.close()
    return tape_file


@contextmanager
def named() -> Iterator[None]:
    with pytest.raises(LabError, match=r"line 1: (arithmetic .* not allowed|.*nested more than)"):
        yield


def test_verify_finds_it(hostile: Path) -> None:
    with Tape(hostile, read_only=True) as tape:
        findings = "\n".join(str(finding) for finding in verify(tape))
    assert "run 1: the prompt of agent:Aland: it cannot be read: prompt 'x'" in findings


def test_load_replay_and_fork_name_it(hostile: Path) -> None:
    for verb in (load, replay):
        with named():
            verb(hostile, 1)
    with named():
        fork(hostile, 1, llm_client=make_client())


def test_an_import_is_refused(hostile: Path, tmp_path: Path) -> None:
    with Tape(hostile, read_only=True) as tape:
        tape.export(tmp_path / "x.jsonl", run=1)
    with Tape(tmp_path / "new.tape") as tape, named():
        tape.import_jsonl(tmp_path / "x.jsonl")
