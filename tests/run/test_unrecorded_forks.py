"""Forks of runs whose tape is open for reading only: they live in memory, and say so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from counter_kit import counter_client, make_counter

from llmsim_lab.run import load, replay


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = make_counter(tmp_path / "x.tape")
    made.run(2)
    made.close()
    return tmp_path / "x.tape"


@pytest.mark.parametrize("operation", [load, replay])
def test_a_fork_of_a_run_from_a_file_to_read_is_live_in_memory(operation, path: Path) -> None:  # type: ignore[no-untyped-def]
    before = path.read_bytes()
    new = operation(path).fork(1, llm_client=counter_client())
    new.run(2)
    assert new.turn_number == 3
    assert (new.tape, new.run_id) == (None, None)
    assert path.read_bytes() == before


def test_it_is_said_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(path).fork(1, llm_client=counter_client())
    [record] = [item for item in caplog.records if item.levelno == logging.WARNING]
    assert record.getMessage() == (
        f'FORK_NOT_RECORDED reason="the tape {path} is open for reading only"'
    )


def test_its_repr_says_so_and_so_does_that_of_a_fork_of_it(path: Path) -> None:
    new = load(path).fork(1, llm_client=counter_client())
    assert repr(new) == (
        "<CounterSimulation 'counter': turn 1, NOT RECORDED: "
        f"the tape {path} is open for reading only>"
    )
    assert "NOT RECORDED" in repr(new.fork())


@pytest.mark.parametrize("taped", [True, False])
def test_other_forks_have_nothing_to_say(
    taped: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_counter(tmp_path / "y.tape" if taped else None)
    made.run(1)
    assert "NOT RECORDED" not in repr(made.fork())
    assert [item for item in caplog.records if item.levelno == logging.WARNING] == []
