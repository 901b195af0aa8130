"""Runs taken off a tape: gone from the file, sound afterwards, whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from builders import make_simulation
from llmsim_lab.tape._file import COLUMNS

from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify


def rows_of(path: Path, run: int) -> list[tuple[Any, ...]]:
    """Return all that a tape holds of a run, shared texts in the place of their numbers."""
    connection = sqlite3.connect(path)
    texts = dict(connection.execute("SELECT id, text FROM texts"))
    found: list[tuple[Any, ...]] = []
    for table in ("runs", "calls", "turns", "tallies"):
        columns, key = COLUMNS[table], "id" if table == "runs" else "run"
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {key} = ? ORDER BY 1, 2"
        for row in connection.execute(sql, (run,)):
            values = dict(zip(columns, row, strict=True))
            if "settings" in values:
                values["settings"] = texts[values["settings"]]
            found.append((table, *values.values()))
    connection.close()
    return found


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


# --- prune -----------------------------------------------------------------------------------


def test_a_pruned_run_is_gone_and_the_others_are_what_they_were(tape_file: Path) -> None:
    before = {run: rows_of(tape_file, run) for run in (1, 2)}
    assert b'"note":"oil"' in tape_file.read_bytes()
    with Tape(tape_file) as tape:
        tape.prune([3])
        assert verify(tape) == []
        assert [info.id for info in tape.runs()] == [1, 2]
        assert replay(tape, 2).turn_number == 4
    assert {run: rows_of(tape_file, run) for run in (1, 2)} == before
    assert b'"note":"oil"' not in tape_file.read_bytes()


def test_the_numbers_of_pruned_runs_are_not_used_again(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        tape.prune([3])
        tape.prune([2])
        made = make_simulation()
        Simulation(made.config, llm_client=made.llm_client, tape=tape).run(1)
        assert [info.id for info in tape.runs()] == [1, 4]
        assert verify(tape) == []


def test_a_run_that_others_came_from_stays_unless_they_go_too(tape_file: Path) -> None:
    before = dump(tape_file)
    with Tape(tape_file) as tape:
        with pytest.raises(TapeError, match=r"run 3, a fork of it, .* name both: .*runs=\[2, 3\]"):
            tape.prune([2])
        assert dump(tape_file) == before
        tape.prune([2, 3])
        assert [info.id for info in tape.runs()] == [1]
        assert verify(tape) == []


def test_a_tape_without_runs_is_sound_and_holds_no_text(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        tape.prune([1, 2, 3])
        assert (len(tape), verify(tape)) == (0, [])
        assert tape.file.query("SELECT count(*) FROM texts")[0][0] == 0


def test_a_run_that_is_being_recorded_is_not_touched(tmp_path: Path) -> None:
    made = make_simulation()
    with Tape(tmp_path / "x.tape") as tape:
        run = Simulation(made.config, llm_client=made.llm_client, tape=tape)
        run.run(1)
        with pytest.raises(TapeError, match="is being recorded by process"):
            tape.prune([1])
        run.close()
        tape.prune([1])
        assert len(tape) == 0


def test_runs_that_are_not_there_cannot_be_taken_off(tape_file: Path) -> None:
    before = dump(tape_file)
    with Tape(tape_file) as tape:
        for runs in ([9], [], [1, 9]):
            with pytest.raises(TapeError, match="no run"):
                tape.prune(runs)
    assert dump(tape_file) == before


# --- whole or not at all -----------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("at", [1, 4, 1_000_000])
def test_a_kill_in_the_middle_leaves_the_tape_as_it_was(tape_file: Path, at: int) -> None:
    before = dump(tape_file)
    script = f"""
        import os, sys
        from llmsim_lab.llm import Tape
        tape = Tape(sys.argv[1])
        writes = 0
        def count(sql):
            global writes
            writes += sql.startswith(("UPDATE", "DELETE", "INSERT"))
            if writes == {at} or sql.startswith("COMMIT"):
                os._exit(9)
        tape.file._connection.set_trace_callback(count)
        tape.prune([1, 2, 3])
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tape_file)]
    assert subprocess.run(words, env=os.environ, check=False).returncode == 9
    with Tape(tape_file) as tape:
        assert verify(tape) == []
    assert dump(tape_file) == before
