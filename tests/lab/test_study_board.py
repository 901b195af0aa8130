"""A study's board: it follows, plays, stops, and opens a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from study_kit import Water, instant_client

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import StudyBoard
from llmsim_lab.study import Study

pytestmark = pytest.mark.usefixtures("undrawn")
HOSTILE = "<img src=x onerror=alert(1)>"


def make_study(tape: Path | None = None, **arguments: Any) -> Study:
    given: dict[str, Any] = {
        "vary": {"taste": ["plain", "fancy"]},
        "seeds": 3,
        "turns": 2,
        "outcome": "level",
        "llm_client": instant_client(pause_s=0.001),
    }
    return Study(Water, tape=tape, **given | arguments)


async def until_under_way(study: Study) -> None:
    while not any(run.turns > 1 for run in study.progress()):  # noqa: ASYNC110 - not an event
        await asyncio.sleep(0.01)


async def test_run_plays_what_is_left_and_shows_what_came_of_it() -> None:
    board = StudyBoard(make_study(), parallel=2)
    assert "0 of 6 runs done" in board.progress.value
    assert "comes with the first run" in board.chart.value
    board.run_button.click()
    assert board.run_button.disabled
    assert not board.stop_button.disabled
    await board.idle()
    assert "6 of 6 runs done" in board.progress.value
    assert "Finished: 6 runs are done." in board.status.value
    assert "fancy \u2212 plain, level: " in board.results.value
    assert not board.run_button.disabled
    assert board.stop_button.disabled


async def test_it_follows_a_study_that_a_cell_plays_and_stops_it() -> None:
    study = make_study(turns=200)
    board = StudyBoard(study)
    task = asyncio.create_task(study.arun(progress=False))
    await until_under_way(study)
    assert board.run_button.disabled
    board.stop_button.click()
    with pytest.raises(asyncio.CancelledError):
        await task
    while "stopped" not in board.progress.value:  # noqa: ASYNC110 - drawn when there is time
        await asyncio.sleep(0.01)
    assert not board.run_button.disabled


async def test_what_failed_is_said_and_run_plays_it_again() -> None:
    def broken(request: Any) -> Any:
        if failing:
            raise ConnectionError(HOSTILE)
        return {"amount": 1, "reasoning": "", "confidence": 1}

    from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend

    failing = [True]
    client = LLMClient(LLMConfig(model="s", retry_wait_s=0), ScriptedBackend(broken))
    board = StudyBoard(make_study(llm_client=client))
    board.run_button.click()
    await board.idle()
    assert "6 failed, and Run plays them again" in board.status.value
    assert "and 3 more failed" in board.progress.value
    assert "<img" not in board.progress.value
    failing.clear()
    board.run_button.click()
    await board.idle()
    assert "6 of 6 runs done" in board.progress.value


async def test_a_run_is_opened_below_and_shown_turn_by_turn() -> None:
    board = StudyBoard(await make_study().arun(progress=False))
    labels = [label for label, _ in board.run_box.options]
    assert labels == ["nothing", *(f"{a}, {k}: done" for a in ("plain", "fancy") for k in range(3))]
    board.run_box.value = dict(board.run_box.options)["fancy, 1: done"]
    assert board.stepper is not None
    assert board.opened.children == (board.stepper,)
    assert "fancy, seed 1" in board.stepper.static_text()
    with pytest.raises(ConfigError, match="no arm 'fanci'"):
        board.open_run("fanci", 1)


async def test_the_static_view_has_the_effects_and_nothing_of_a_models_is_markup() -> None:
    study = make_study(vary={"taste": {"plain": "plain", HOSTILE: "fancy"}})
    board = StudyBoard(await study.arun(progress=False))
    assert "plain, level: " in board.static_text()
    html = str(board.static_html())
    assert "6 of 6 runs done" in html
    assert "<img src=x" not in html


async def test_a_board_takes_a_study_and_a_closed_one_follows_no_more() -> None:
    with pytest.raises(ConfigError, match="Water is not a study"):
        StudyBoard(Water())  # type: ignore[arg-type]
    study = make_study()
    board = StudyBoard(study)
    board.close()
    assert study._listeners == []
    await study.arun(progress=False)
    assert board.comm is None
