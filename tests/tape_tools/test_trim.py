"""Runs and texts taken off a tape: gone from the file, sound afterwards, whole or not at all."""

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

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import TapeError
from llmsim_lab.lab import PromptViewer, ReasoningInspector, RunTree, TurnStepper
from llmsim_lab.llm import Tape
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify
from llmsim_lab.tape._file import COLUMNS

SECRETS = ("sees turn", "It is economic", "cools demand", "Raise the interest rate")


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
        for take_off in (tape.prune, tape.redact):
            with pytest.raises(TapeError, match="is being recorded by process"):
                take_off([1])
        run.close()
        tape.prune([1])
        assert len(tape) == 0


def test_runs_that_are_not_there_cannot_be_taken_off(tape_file: Path) -> None:
    before = dump(tape_file)
    with Tape(tape_file) as tape:
        for runs in ([9], [], [1, 9]):
            for take_off in (tape.prune, tape.redact):
                with pytest.raises(TapeError, match="no run"):
                    take_off(runs)
    assert dump(tape_file) == before


# --- redact ----------------------------------------------------------------------------------


def test_a_redacted_tape_is_sound_and_holds_no_word_of_prompts_and_answers(tape_file: Path) -> None:
    assert all(secret.encode() in tape_file.read_bytes() for secret in SECRETS)
    with Tape(tape_file) as tape:
        tape.redact()
        assert verify(tape) == []
        assert all(info.manifest["redacted"] for info in tape.runs())
        assert {call.attempt.request.origin for call in tape.calls(1)} == {None}
    held = tape_file.read_bytes()
    assert [secret for secret in SECRETS if secret.encode() in held] == []
    assert b"state.global_state.inflation" not in held


def test_numbers_stay_and_the_runs_can_be_looked_at(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        before = load(tape, 2)
        tape.redact()
        after = load(tape, 2)
        assert after.to_frame().equals(before.to_frame())
        assert tape.turns_frame(2).equals(before.to_frame())
        numbers = ["turn", "player", "is_valid", "new_interest_rate", "confidence", "new_rate"]
        assert after.decisions()[numbers].equals(before.decisions()[numbers])
        assert after.decisions().reasoning.str.fullmatch("redacted:sha256:[0-9a-f]{12}").all()
        for widget in (TurnStepper(after), PromptViewer(after), ReasoningInspector(after)):
            text = widget.static_text()
            assert "Aland" in text
            assert not any(secret in text for secret in SECRETS)
        assert "fork at turn 1" in RunTree(tape).static_text()


def test_a_redacted_run_is_not_replayed_and_says_so(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        tape.redact([3])
        with pytest.raises(TapeError, match=r"run 3 .* was redacted: .* load\(.*, 3\) shows"):
            replay(tape, 3)
        assert replay(tape, 2).turn_number == 4


def test_other_runs_and_other_components_are_what_they_were(tape_file: Path) -> None:
    def but_agents(tape: Tape) -> list[Any]:
        sites = ((call, call.attempt.request.site) for call in tape.calls(2))
        return [call for call, site in sites if site and site.component != "agent"]

    before = {run: rows_of(tape_file, run) for run in (1, 3)}
    with Tape(tape_file) as tape:
        whole = but_agents(tape)
        tape.redact([2], components=["agent"])
        assert verify(tape) == []
        assert but_agents(tape) == whole
        decisions = load(tape, 2).decisions().query("turn > 1").set_index("component")
    assert decisions.reasoning["agent"].str.startswith("redacted:").all()
    assert set(decisions.reasoning["validator"]) == {"It is economic."}
    assert {run: rows_of(tape_file, run) for run in (1, 3)} == before


def test_redacting_twice_changes_no_call_again(tape_file: Path) -> None:
    with Tape(tape_file) as tape:
        tape.redact()
        once = [row for row in rows_of(tape_file, 1) if row[0] != "runs"]
        tape.redact()
        assert [row for row in rows_of(tape_file, 1) if row[0] != "runs"] == once
        assert len(tape.run(1).manifest["redacted"]) == 2
        assert verify(tape) == []


def test_a_component_that_no_call_has_is_an_error(tape_file: Path) -> None:
    with Tape(tape_file) as tape, pytest.raises(TapeError, match="there are: agent, engine"):
        tape.redact(components=["agnt"])


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("name", ["social", "crisis", "first_run"])
def test_every_kind_can_be_redacted_and_looked_at(name: str, states: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    path.write_bytes(data_path(f"tapes/{name}.tape").read_bytes())
    with Tape(path) as tape:
        before = load(tape, 1)
        tape.redact(states=states)
        assert verify(tape) == []
        after = load(tape, 1)
        assert tape.turns_frame(1).equals(after.to_frame())
        assert after.decisions().player.tolist() == before.decisions().player.tolist()
        held = "".join(
            row[0]
            for row in tape.file.query("SELECT record FROM turns UNION ALL SELECT reply FROM calls")
        )
    said = {chain.reasoning for chain in before.chains if " " in chain.reasoning}
    assert [text for text in said if text in held] == []


# --- whole or not at all -----------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("at", [1, 4, 1_000_000])
@pytest.mark.parametrize("call", ["prune([1, 2, 3])", "redact()"])
def test_a_kill_in_the_middle_leaves_the_tape_as_it_was(
    tape_file: Path, call: str, at: int
) -> None:
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
        tape.{call}
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tape_file)]
    assert subprocess.run(words, env=os.environ, check=False).returncode == 9
    with Tape(tape_file) as tape:
        assert verify(tape) == []
    assert dump(tape_file) == before
