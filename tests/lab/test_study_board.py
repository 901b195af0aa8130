"""A study's board: its runs, how far they are, what came of them; played, stopped, opened."""

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


def states(board: StudyBoard) -> list[str]:
    return [cell.description.partition(": ")[2] for cell in board.cells.values()]


async def test_each_run_has_a_button_that_says_arm_seed_and_state() -> None:
    board = StudyBoard(make_study())
    assert [cell.description for cell in board.cells.values()] == [
        f"{arm}, seed {seed}: left" for arm in ("plain", "fancy") for seed in (0, 1, 2)
    ]
    assert all(cell.disabled for cell in board.cells.values())
    assert "0 of 6 runs done" in board.progress.value


async def test_run_plays_what_is_left_and_shows_what_came_of_it(tmp_path: Path) -> None:
    study = make_study(tmp_path / "w")
    board = StudyBoard(study, parallel=2)
    assert "comes with the first run" in board.chart.value
    board.run_button.click()
    assert board.run_button.disabled
    assert not board.stop_button.disabled
    await board.idle()
    assert states(board) == ["done"] * 6
    assert study.counts["done"] == 6
    assert not board.run_button.disabled
    assert board.stop_button.disabled
    assert "Finished: 6 runs are done." in board.status.value
    assert 'aria-valuenow="6"' in board.progress.value
    assert "fancy \u2212 plain" in board.effects.value
    assert board.chart.value.count("<img") == 2
    assert "level by turn, mean over seeds" in board.chart.value
    assert "level by run. plain: mean" in board.chart.value


async def test_it_follows_a_study_that_somebody_else_plays() -> None:
    study = make_study(llm_client=instant_client(pause_s=0.05), turns=4)
    board = StudyBoard(study)
    playing = asyncio.create_task(study.arun(progress=False))
    seen = set()
    while not playing.done():
        seen |= set(states(board))
        await asyncio.sleep(0.01)
        if study.running:
            assert board.worker.busy is False
    await playing
    await asyncio.sleep(0.6)
    assert any(said.startswith("running") for said in seen)
    assert states(board) == ["done"] * 6
    assert not board.run_button.disabled


async def test_stop_stops_what_a_cell_plays_and_run_continues_it(tmp_path: Path) -> None:
    study = make_study(tmp_path / "w", llm_client=instant_client(pause_s=0.02), turns=20)
    board = StudyBoard(study)
    playing = asyncio.create_task(study.arun(progress=False))
    await until_under_way(study)
    board.refresh()
    assert board.run_button.disabled
    board.stop_button.click()
    with pytest.raises(asyncio.CancelledError):
        await playing
    board.refresh()
    assert study.counts["stopped"] == 6
    assert states(board)[0].startswith("stopped at turn ")
    board.run_button.click()
    await board.idle()
    assert study.counts["done"] == 6


async def test_its_own_stop_keeps_what_was_played() -> None:
    study = make_study(llm_client=instant_client(pause_s=0.02), turns=20)
    board = StudyBoard(study)
    board.run_button.click()
    await until_under_way(study)
    board.stop_button.click()
    await board.idle()
    assert study.counts["stopped"] == 6
    assert "Stopped." in board.status.value


async def test_while_runs_are_left_the_effects_say_so(tmp_path: Path) -> None:
    path = tmp_path / "w"
    await make_study(path, seeds=6).arun(progress=False)
    study = make_study(path, seeds=8)
    board = StudyBoard(study)
    assert "12 of 16 runs so far" in board.effects.value
    await study.arun(progress=False)
    board.refresh()
    assert "so far" not in board.effects.value


async def test_a_click_opens_the_run_and_close_takes_it_away(tmp_path: Path) -> None:
    for tape in (tmp_path / "w", None):
        study = await make_study(tape).arun(progress=False)
        board = StudyBoard(study)
        board.cells["fancy", 1].click()
        await asyncio.sleep(0)
        assert board.stepper is not None
        assert board.stepper.runs[1].config.taste == "fancy"
        assert board.stepper.runs[1].config.seed == 1
        assert board.opened.children == (board.stepper,)
        assert "llmsim-open" in board.cells["fancy", 1]._dom_classes
        assert "It is open below" in board.status.value
        board.close_button.click()
        assert board.opened.children == ()
        assert board.stepper is None


async def test_what_cannot_be_opened_is_said_in_place() -> None:
    board = StudyBoard(make_study())
    with pytest.raises(ConfigError, match="was not begun"):
        board.open_run("plain", 0)
    with pytest.raises(ConfigError, match="there is no arm 'pain'"):
        board.open_run("pain", 0)
    board._clicked(("plain", 0))
    await asyncio.sleep(0)
    assert "was not begun" in board.error.value
    with pytest.raises(ConfigError, match="Water is not a study"):
        StudyBoard(Water())  # type: ignore[arg-type]


class Leaky(Water):
    """Breaks with an untrusted text where tastes are fancy."""

    async def turn(self, state: Any, ask: Any) -> Any:
        if self.taste != "plain":
            raise RuntimeError(f"broken {HOSTILE}")
        return await super().turn(state, ask)


@pytest.mark.usefixtures("drawn")
async def test_failed_runs_say_why_and_untrusted_text_stays_text() -> None:
    study = Study(
        Leaky,
        {"taste": ["plain", HOSTILE]},
        seeds=2,
        turns=2,
        outcome="level",
        llm_client=instant_client(),
    )
    board = StudyBoard(await study.arun(progress=False))
    assert states(board) == ["done"] * 2 + [f"failed, {study.runs['error'].iloc[-1]}"] * 2
    shown = "".join(
        [
            *(part.value for part in (board.heading, board.progress, board.errors, board.effects)),
            *(line.children[0].value for line in board.grid.children),
            board.chart.value,
            str(board.static_html()),
        ]
    )
    assert "2 failed: " in shown
    assert "2 done" in shown
    assert "&lt;img src=x" in shown
    assert "<img src=x" not in shown


async def test_hidden_characters_are_written_out_in_the_effects_of_the_static_text() -> None:
    study = make_study(vary={"taste": ["plain", "fa\x00n\x1bcy"]})
    text = StudyBoard(await study.arun(progress=False)).static_text()
    assert "fa␀n␛cy \u2212 plain, level: " in text
    assert "\x00" not in text
    assert "\x1b" not in text


@pytest.mark.usefixtures("drawn")
async def test_a_measure_and_a_function_have_a_chart_by_run_alone() -> None:
    study = make_study(outcome={"end": lambda run: run.state.level, "level": "level"})
    board = StudyBoard(await study.arun(progress=False))
    assert board.chart.value.count("<img") == 1
    board.outcome_box.value = "level"
    assert board.chart.value.count("<img") == 2


def one_breaks(run: Any) -> float:
    if (run.config.taste, run.config.seed) == ("fancy", 1):
        raise ZeroDivisionError(HOSTILE)
    return float(run.state.level)


async def test_an_outcome_that_fails_for_one_run_is_said_in_place_of_the_numbers() -> None:
    study = make_study(outcome={"end": one_breaks, "level": "level"})
    board = StudyBoard(await study.arun(progress=False))
    assert states(board) == ["done"] * 6
    said = "one_breaks&#39; fails for arm &#39;fancy&#39;, seed 1: ZeroDivisionError: &lt;img src"
    for shown in (board.effects.value, board.chart.value):
        assert said in shown
        assert "<img" not in shown
    assert said in str(board.static_html())
    assert "seed 1: ZeroDivisionError" in board.static_text()


async def test_a_large_study_is_shown_by_pages() -> None:
    study = make_study(vary={"factor": [float(n) for n in range(1, 15)]}, seeds=30)
    board = StudyBoard(study)
    assert board.page_box.max == 4
    assert len(board.cells) == 12 * 25
    board.page_box.value = 4
    assert list(board.cells) == [(f"factor={n}", seed) for n in (13, 14) for seed in range(25, 30)]


async def test_of_one_arm_it_says_that_nothing_is_compared() -> None:
    study = make_study(vary={"factor": [1.0]}, seeds=1)
    board = StudyBoard(await study.arun(progress=False))
    assert "nothing is compared" in board.effects.value
    assert board.chart.value.count("<img") == 2


@pytest.mark.usefixtures("drawn")
async def test_the_static_view_has_the_grid_the_effects_and_the_chart(tmp_path: Path) -> None:
    study = await make_study(tmp_path / "w").arun(progress=False)
    text = StudyBoard(study).static_text()
    assert "  plain  ✓✓✓  3 done" in text
    assert "fancy \u2212 plain, level: " in text
    html = str(StudyBoard(study).static_html())
    assert 'aria-label="plain, seed 0: done"' in html
    assert html.count('src="data:image/png') == 2
    assert html == str(StudyBoard(study).static_html())


async def test_a_closed_board_follows_no_more() -> None:
    study = make_study()
    board = StudyBoard(study)
    board.close()
    assert study._listeners == []
    await study.arun(progress=False)
    assert board.comm is None
