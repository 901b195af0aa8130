"""A sound tape has no findings; whatever is wrong with one is found and named."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from llmsim_lab.tape._file import COLUMNS
from tape_tools_kit import HOSTILE, spoil

from llmsim_lab.llm import Tape
from llmsim_lab.tape import verify


def findings_of(path: Path) -> list[str]:
    with Tape(path, read_only=True) as tape:
        return [str(finding) for finding in verify(tape)]


def test_a_sound_tape_has_no_findings_and_is_left_as_it_is(tape_file: Path) -> None:
    before = tape_file.read_bytes()
    assert findings_of(tape_file) == verify(tape_file) == verify(str(tape_file)) == []
    assert tape_file.read_bytes() == before


def test_an_empty_tape_is_sound(tmp_path: Path) -> None:
    with Tape(tmp_path / "empty.tape") as tape:
        assert verify(tape) == []


TABLES = ("texts", "runs", "calls", "turns", "tallies")
NOT_COVERED = {("runs", "writer")}
"""A run's writer changes whenever somebody opens or closes it."""


def cells_of(path: Path) -> list[tuple[str, str, tuple[Any, ...], Any]]:
    """Every cell of a tape: table, column, the row's key, and what is in it."""
    connection = sqlite3.connect(path)
    cells = []
    for table in TABLES:
        columns = COLUMNS[table]
        keys = 2 if table == "turns" else 1
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall():
            for column, value in zip(columns, row, strict=True):
                if (table, column) not in NOT_COVERED:
                    cells.append((table, column, row[:keys], value))
    connection.close()
    return cells


def another(value: object) -> object:
    """A value of the same type as near as can be, which looks as good."""
    if value is None:
        return "x"
    if isinstance(value, str):
        return value + " "
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    return value + 1_000  # type: ignore[operator]


def test_every_changed_cell_is_named(recorded: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(recorded, tmp_path / "copy.tape"))
    whole = copy.read_bytes()
    cells = cells_of(copy)
    # All kinds of cells of each table, from its first and last rows.
    chosen = {}
    for cell in cells:
        chosen.setdefault(cell[:2], cell)
    last = {cell[:2]: cell for cell in cells}
    for table, column, key, value in (*chosen.values(), *last.values()):
        copy.write_bytes(whole)
        names = COLUMNS[table][: len(key)]
        where = " AND ".join(f"{name} = ?" for name in names)
        spoil(
            copy,
            f"UPDATE {table} SET {column} = ? WHERE {where}",
            values=(another(value), *key),
        )
        found = "\n".join(findings_of(copy))
        if table in ("runs", "calls", "turns") and column not in (*names, "seal"):
            assert f"its {column} was changed after it was written" in found, (table, column)
        else:
            assert found, (table, column)


@pytest.mark.parametrize("table", TABLES)
def test_every_missing_row_is_named(recorded: Path, tmp_path: Path, table: str) -> None:
    copy = Path(shutil.copy(recorded, tmp_path / "copy.tape"))
    whole = copy.read_bytes()
    keys = COLUMNS[table][: 2 if table == "turns" else 1]
    connection = sqlite3.connect(copy)
    rows = connection.execute(f"SELECT {', '.join(keys)} FROM {table}").fetchall()
    connection.close()
    for row in rows:
        copy.write_bytes(whole)
        where = " AND ".join(f"{key} = ?" for key in keys)
        spoil(copy, f"DELETE FROM {table} WHERE {where}", values=row)
        assert findings_of(copy), (table, row)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("DELETE FROM calls WHERE id = 36", "run 2: its call number "),
        ("DELETE FROM turns WHERE run = 1 AND turn = 3", "run 1: its turn 3 is missing"),
        ("DELETE FROM runs WHERE id = 3", "of calls refers to one of runs that is not there"),
        (
            "DELETE FROM runs WHERE id = 3; DELETE FROM calls WHERE run = 3; DELETE FROM turns "
            "WHERE run = 3; DELETE FROM tallies WHERE run = 3",
            "run 3: the run is missing",
        ),
        ("INSERT INTO texts VALUES (99, x'00', 'x')", "text 99 belongs to no call"),
        (
            "INSERT INTO turns SELECT run, 4, record, row, seal FROM turns WHERE run = 1 "
            "AND turn = 3",
            "run 1: its turn 4 was added after it was written",
        ),
        ("UPDATE tallies SET digest = x'00' WHERE run = 1", "run 1: its tally does not fit"),
        ("UPDATE meta SET value = '2' WHERE key = 'runs'", "run 3: the run was added after"),
        ("UPDATE meta SET value = 'x' WHERE key = 'runs'", "count of runs was changed"),
        ("INSERT INTO meta VALUES ('more', 'x')", "the file's own more is not a part of a tape"),
        ("UPDATE texts SET text = '{}'", "text 1 does not have its digest"),
        ("UPDATE texts SET text = x'ff'", "text 1 does not have its digest"),
        ("UPDATE runs SET name = x'00' WHERE id = 2", "run 2: run 2 on the tape is damaged"),
        ("UPDATE runs SET manifest = '{' WHERE id = 2", "run 2: the manifest of run 2"),
        ("UPDATE runs SET manifest = '[]' WHERE id = 2", "run 2: run 2 on the tape is damaged"),
        ("UPDATE runs SET manifest = '{}' WHERE id = 2", "run 2: the manifest has no package"),
        ("UPDATE runs SET verb = 'exec' WHERE id = 2", "run 2: its verb is 'exec'"),
        ("UPDATE runs SET parent = 3 WHERE id = 2", "its parent, run 3, is not on the tape before"),
        ("UPDATE runs SET fork_turn = 9 WHERE id = 2", "its parent has no turn 9 to fork from"),
        ("UPDATE runs SET fork_turn = 0 WHERE id = 2", "forks at turn 0 but starts at turn 1"),
        (
            "UPDATE runs SET parent = NULL WHERE id = 3",
            "run 3: it is a fork without a run that it came from",
        ),
        ("DELETE FROM turns WHERE run = 1 AND turn = 2", "of the turns 0 to 3 it has only 3"),
        ("DELETE FROM turns WHERE run = 3", "run 3: it has no turn to start from"),
        (
            "UPDATE calls SET messages = replace(messages, 'Inflation', 'Deflation') WHERE id = 1",
            "run 1, turn 1, call 1: its key is not that of its content",
        ),
        ("UPDATE calls SET key = 'text' WHERE id = 1", "key is str where it should be bytes"),
        ("UPDATE calls SET reply = '[' WHERE id = 4", "run 1, turn 1, call 4: call 4 on the tape"),
        ("UPDATE calls SET seconds = 'long' WHERE id = 4", "call 4: call 4 on the tape is damaged"),
        ("UPDATE calls SET spans = '[9999]' WHERE id = 4", "call 4: where its values came from is"),
        ("UPDATE calls SET spans = NULL WHERE id = 4", "one of origin and spans without the other"),
        ("UPDATE calls SET origin = NULL WHERE id = 4", "one of origin and spans without the oth"),
        ("UPDATE calls SET origin = settings WHERE id = 4", "call 4: where its values came from"),
        ("DELETE FROM calls WHERE id = 5", "run 1, turn 1: it names call 5, which is not there"),
        ("UPDATE turns SET record = '{' WHERE run = 1 AND turn = 3", "run 1, turn 3: its record"),
        (
            "UPDATE turns SET record = '{}' WHERE run = 1 AND turn = 3",
            "run 1, turn 3: it is not a record of a turn",
        ),
        (
            "UPDATE turns SET row = '7' WHERE run = 1 AND turn = 3",
            "run 1, turn 3: its row of the frame is not an object",
        ),
    ],
)
def test_what_is_wrong_is_found_and_named(tape_file: Path, statement: str, finding: str) -> None:
    spoil(tape_file, *statement.split(";"))
    assert finding in "\n".join(findings_of(tape_file))


def test_a_prompt_whose_text_was_changed_is_found(tape_file: Path) -> None:
    spoil(tape_file, "UPDATE runs SET manifest = replace(manifest, 'ONE', 'any') WHERE id = 1")
    findings = findings_of(tape_file)
    assert (
        "run 1: the prompt of agent:Aland: its text does not have the digest recorded for it"
        in findings
    )


@pytest.mark.parametrize(
    ("entry", "finding"),
    [
        (7, "it lacks its name, text, digest or parent"),
        ({"text": "x", "name": "n", "digest": "d", "parent": None}, "it cannot be read"),
        (
            {"text": "## User\n\nx", "name": "n", "digest": "d", "parent": 7},
            "its parent is not a digest",
        ),
        (
            {"text": "## User\n\n{{ x", "name": "n", "digest": "d", "parent": None},
            "it cannot be read",
        ),
        (
            {"text": "## User\n\n\ud800", "name": "n", "digest": "d", "parent": None},
            "it cannot be read",
        ),
    ],
)
def test_a_manifests_entry_that_is_no_prompt_is_found(
    tape_file: Path, entry: object, finding: str
) -> None:
    with Tape(tape_file) as tape:
        manifest = dict(tape.run(1).manifest)
    manifest["prompts"] = {"engine": entry}
    spoil(tape_file, "UPDATE runs SET manifest = ? WHERE id = 1", values=(json.dumps(manifest),))
    assert f"run 1: the prompt of engine: {finding}" in "\n".join(findings_of(tape_file))


def test_a_turn_that_names_a_strange_runs_call_is_found(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        record = tape.turn_records(1)[1]
        record["calls"][0] = ["ok", [tape.calls(3)[0].id]]
    text = json.dumps(record)
    spoil(tape_file, "UPDATE turns SET record = ? WHERE run = 1 AND turn = 1", values=(text,))
    assert "run 1, turn 1: it names call 37, which is run 3's" in findings_of(tape_file)


def test_a_record_under_another_turns_number_is_found(tape_file: Path) -> None:
    spoil(
        tape_file,
        "UPDATE turns SET record = (SELECT record FROM turns WHERE run = 1 AND turn = 2) "
        "WHERE run = 1 AND turn = 3",
    )
    assert "run 1, turn 3: its record is that of turn 2" in findings_of(tape_file)


def test_calls_of_a_turn_never_begun_are_found(tape_file: Path) -> None:
    spoil(tape_file, "DELETE FROM turns WHERE run = 1 AND turn >= 2", "DELETE FROM runs WHERE id=0")
    assert "run 1, turn 3, call 13: it belongs to a turn that was never begun" in "\n".join(
        findings_of(tape_file)
    )


def test_two_calls_with_one_key_are_found(tape_file: Path) -> None:
    others = ", ".join(COLUMNS["calls"][1:])
    spoil(tape_file, f"INSERT INTO calls SELECT 999, {others} FROM calls WHERE id = 1")
    found = findings_of(tape_file)
    assert "run 1, turn 1, call 999: its id was changed after it was written" in found
    assert "run 1, turn 1, call 999: it has the key of another call" in found
    assert "run 1: its call number 1 was added after it was written" in found


def test_a_page_overwritten_with_noise_is_found(tape_file: Path) -> None:
    content = bytearray(tape_file.read_bytes())
    content[-4096:] = b"\x5a" * 4096
    tape_file.write_bytes(content)
    assert findings_of(tape_file)


def test_json_nested_without_end_is_a_finding_and_no_crash(tape_file: Path) -> None:
    deep = "[" * 100_000
    spoil(tape_file, "UPDATE calls SET reply = ? WHERE id = 1", values=(deep,))
    spoil(tape_file, "UPDATE turns SET record = ? WHERE run = 1 AND turn = 3", values=(deep,))
    findings = "\n".join(findings_of(tape_file))
    assert "run 1, turn 1, call 1: " in findings
    assert "run 1, turn 3: " in findings


def test_findings_hold_no_terminal_codes(tape_file: Path) -> None:
    spoil(tape_file, "UPDATE runs SET verb = ? WHERE id = 1", values=(HOSTILE,))
    findings = findings_of(tape_file)
    assert findings
    assert all(finding.isprintable() for finding in findings)


def test_findings_come_to_an_end(tape_file: Path) -> None:
    rows = ", ".join(f"({number}, x'{number:08x}', '')" for number in range(100, 2_000))
    spoil(tape_file, f"INSERT INTO texts (id, digest, text) VALUES {rows}")
    assert len(findings_of(tape_file)) == 1_000


def test_a_tape_being_recorded_can_be_verified(tape_file: Path) -> None:
    writer = sqlite3.connect(tape_file)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE runs SET verb = 'exec'")
    try:
        assert findings_of(tape_file) == []
    finally:
        writer.close()
