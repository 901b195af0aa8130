"""What a tape does once, however long a run is: work that grew with its calls, agents and turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tape_kit import hash_client, make_recorded, steady_config

from llmsim_lab.llm import Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import load
from llmsim_lab.simulation import Simulation


def readings(statements: list[str]) -> int:
    """How often a run's calls were read to go on with its tally."""
    return sum("SELECT place, seal FROM calls" in statement for statement in statements)


def watched(tape: Tape) -> list[str]:
    statements: list[str] = []
    tape._connection.set_trace_callback(statements.append)
    return statements


def test_a_run_reads_its_tally_once_not_with_every_turn(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "x.tape")
    statements = watched(tape)
    Simulation(steady_config(), llm_client=hash_client(), tape=tape).run(3)
    assert readings(statements) == 1


def test_an_import_reads_no_tally_since_it_has_written_all_that_is_there(tmp_path: Path) -> None:
    simulation = make_recorded(tmp_path / "x.tape")
    assert simulation.tape is not None
    simulation.tape.export(tmp_path / "x.jsonl")
    tape = Tape(tmp_path / "y.tape")
    statements = watched(tape)
    tape.import_jsonl(tmp_path / "x.jsonl")
    assert readings(statements) == 0
    assert tape.calls(1)


def test_loading_parses_a_prompt_that_all_agents_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_recorded(tmp_path / "x.tape", nations=[f"Nation {n}" for n in range(9)])
    load(tmp_path / "x.tape")
    parsed: list[str] = []
    parse = Prompt.parse.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Prompt], text: str, **names: Any) -> Prompt:
        parsed.append(text)
        prompt: Prompt = parse(cls, text, **names)
        return prompt

    monkeypatch.setattr(Prompt, "parse", classmethod(counted))
    loaded = load(tmp_path / "x.tape")
    assert len(loaded.agents) == 9
    assert len(parsed) == len(set(parsed))
