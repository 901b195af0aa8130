"""Forks of runs whose tape is open for reading only: they live in memory, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import recorded
from counter_kit import counter_client, make_counter

from llmsim_lab.run import load, replay


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorded(make_counter(tmp_path / "x.tape"), 2)
    return tmp_path / "x.tape"


@pytest.mark.parametrize("operation", [load, replay])
def test_a_fork_of_a_run_from_a_file_to_read_is_live_in_memory_and_says_so(
    operation: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = path.read_bytes()
    new = operation(path).fork(1, llm_client=counter_client())
    why = f"the tape {path} is open for reading only"
    assert repr(new) == f"<CounterSimulation 'counter': turn 1, NOT RECORDED: {why}>"
    assert "NOT RECORDED" in repr(new.fork())
    assert f'FORK_NOT_RECORDED reason="{why}"' in caplog.messages
    new.run(2)
    assert new.turn_number == 3
    assert (new.tape, new.run_id) == (None, None)
    assert path.read_bytes() == before
