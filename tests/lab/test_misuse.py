"""What widgets say to wrong arguments, and that nothing else is heard of it."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import answer, in_words, make_client, make_simulation

from llmsim_lab._util.files import data_path
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import (
    HumanSeat,
    PromptViewer,
    RateChart,
    RunTree,
    TurnStepper,
    leaderboard,
)
from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation

RECORDED = data_path("tapes/first_run.tape")
COMPARISON = data_path("tapes/prompt_experiment.tape")


def seated_run() -> Simulation:
    """A run of one person and no model."""
    return Simulation(
        in_words(
            start="1979Q3",
            nations=[{"name": "Aland", "kind": "human"}],
            validator={"kind": "always_valid"},
        )
    )


@pytest.fixture(scope="module")
def no_garbage() -> None:
    """Report what other tests have left to them; what of it is in use is not looked at again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unraisable(no_garbage: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python reports that no code can catch, as from ``__del__``."""
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    return heard


# --- what is not built is not heard of ------------------------------------------------------------


@pytest.mark.parametrize("widget", [HumanSeat, PromptViewer, RateChart, RunTree, TurnStepper])
def test_a_widget_of_the_wrong_thing_is_refused_and_leaves_no_second_error(
    widget: type, unraisable: list[Any]
) -> None:
    for source in (None, 5, [], object()):
        with pytest.raises(
            ConfigError, match=r"is not an? |is neither a |an ensemble of at least one"
        ):
            widget(source)
    gc.collect()
    assert unraisable == []


@pytest.mark.parametrize("source", ["x.tape", 5, None])
def test_a_seat_says_that_it_takes_a_simulation(source: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a simulation; pass one, as in HumanSeat"):
        HumanSeat(source)


# --- numbers of runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("widget", [PromptViewer, TurnStepper])
@pytest.mark.parametrize("run", ["1", 1.5, True])
def test_a_run_that_is_no_whole_number_is_told_from_one_that_is_missing(
    widget: type, run: object
) -> None:
    message = f"has no run {run!r}; it has: 1, 2, 3; a run's number is a whole number"
    with pytest.raises(TapeError, match=re.escape(message)):
        widget(RECORDED, run=run)


def test_a_missing_run_is_named_without_a_lesson_on_numbers() -> None:
    with pytest.raises(TapeError, match=r"has no run 99; it has: 1, 2, 3$"):
        TurnStepper(RECORDED, run=99)


def test_a_chart_takes_one_run_of_a_tape_or_several() -> None:
    assert RateChart(RECORDED, run=2).static_text() == RateChart(RECORDED, run=[2]).static_text()
    assert RateChart(RECORDED, run=[1, 3]).frame["run"].nunique() == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"run": "1"}, "run='1' must be a whole number"),
        ({"run": True}, "run=True must be a whole number"),
        ({"run": [1.5]}, "run=1.5 must be a whole number"),
        ({"run": 5.0}, "run=5.0 must be a whole number"),
        ({"title": 5}, "title=5 must be a text"),
        ({"history": 5}, "history=5 must be True, False, or a frame"),
        ({"rule": 5}, "rule=5 must be True, False, a run's name, or a TaylorRule"),
        ({"panels": 5}, "panels=5 must be a list of columns"),
    ],
)
def test_a_chart_of_a_tape_explains_wrong_arguments(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        RateChart(RECORDED, **more)


def test_a_chart_of_a_simulation_has_no_run_to_choose() -> None:
    with pytest.raises(ConfigError, match=r"run=\[1\] goes with a tape"):
        RateChart(make_simulation(), run=1)


def test_a_tree_begins_with_the_run_that_is_named() -> None:
    assert RunTree(RECORDED, run=2).selected == 2
    with pytest.raises(TapeError, match="has no run 9"):
        RunTree(RECORDED, run=9)


@pytest.mark.parametrize(
    ("arguments", "more"),
    [((None,), {}), (("1",), {}), ((1.5,), {}), ((1,), {"compare_with": "2"})],
)
def test_a_tree_selects_whole_numbers_only(arguments: Any, more: dict[str, Any]) -> None:
    tree = RunTree(RECORDED)
    with pytest.raises(ConfigError, match="must be a whole number"):
        tree.select(*arguments, **more)
    assert tree.selected == 1


# --- comparisons are no runs ----------------------------------------------------------------------


def test_a_comparison_is_not_offered_for_comparison() -> None:
    tree = RunTree(COMPARISON)
    assert [number for _, number in tree.run_box.options] == [1, 2]
    assert [number for _, number in tree.other_box.options] == [0, 1]


@pytest.mark.parametrize(("run", "other"), [(1, 2), (2, 1)])
def test_a_comparison_is_not_compared_from_code(run: int, other: int) -> None:
    tree = RunTree(COMPARISON)
    with pytest.raises(
        TapeError, match="run 2 is a comparison of prompts, whose turns are samples"
    ):
        tree.select(run, compare_with=other)
    assert tree.comparison is None


async def test_a_comparison_chosen_in_the_lists_is_not_compared() -> None:
    tree = RunTree(COMPARISON)
    tree.select(2)
    tree.other_box.value = 1
    await tree.idle()
    assert "run 2 is a comparison of prompts" in tree.error.value
    assert tree.comparison is None
    assert tree.static_text().count("part") == 0


# --- arguments of methods -------------------------------------------------------------------------


def _show(turn: Any) -> None:
    TurnStepper(RECORDED, run=1).show(turn)


def _fork(turn: Any) -> object:
    return TurnStepper(RECORDED, run=1).fork(turn)


def _view(**more: Any) -> None:
    PromptViewer(RECORDED, run=1).show(**more)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _show("a"), "turn='a' must be a whole number"),
        (lambda: _show(1.5), "turn=1.5 must be a whole number"),
        (lambda: _show(True), "turn=True must be a whole number"),
        (lambda: _fork("a"), "turn='a' must be a whole number"),
        (lambda: _fork(1.5), "turn=1.5 must be a whole number"),
        (lambda: _view(turn="a"), "turn='a' must be a whole number"),
        (lambda: _view(turn=1.5), "turn=1.5 must be a whole number"),
        (lambda: _view(turn=99), "the run has no turn 99; it has turns 0 to 8"),
        (lambda: _view(attempt="a"), "attempt='a' must be a whole number"),
        (lambda: _view(attempt=0), "attempt=0 must be a whole number from 1 on"),
        (lambda: PromptViewer(RECORDED).find(None), "text=None must be a text"),  # type: ignore[arg-type]
        (lambda: leaderboard(None), "NoneType is not an economic simulation"),  # type: ignore[arg-type]
        (lambda: leaderboard(seated_run(), loss=5), "loss=5 is not a loss"),  # type: ignore[arg-type]
        (lambda: QuadraticLoss(gap_weight="a"), "gap_weight='a' must be a finite number"),  # type: ignore[arg-type]
        (lambda: QuadraticLoss(gap_weight=True), "gap_weight=True must be a finite number"),
        (lambda: QuadraticLoss(inflation_target=None), "inflation_target=None must be"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_named_with_what_it_should_be(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action": 5}, "action=5 must be a text"),
        ({"reasoning": None}, "reasoning=None must be a text"),
        ({"confidence": "a"}, "confidence='a' must be a finite number"),
        ({"rate": "a"}, "rate='a' must be a finite number"),
    ],
)
def test_a_seat_names_the_field_that_is_of_the_wrong_type(
    wrong: dict[str, Any], message: str
) -> None:
    seat = HumanSeat(seated_run())
    said: dict[str, Any] = {"action": "Hold", "reasoning": "Calm.", "confidence": 0.5, "rate": 11.5}
    with pytest.raises(ConfigError, match=re.escape(message)):
        seat.answer(**said | wrong)
    assert seat.forms["Aland"].fields["action"].box.value == ""
    seat.close()


# --- closing, and runs played elsewhere -----------------------------------------------------------


async def played_one(stepper: TurnStepper) -> None:
    """Press Play and wait for the first whole turn."""
    played = asyncio.Event()
    stepper.on_turn(lambda _: played.set())
    stepper.play_button.click()
    await played.wait()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A recorded tape that may be written to."""
    path = tmp_path / "copy.tape"
    path.write_bytes(RECORDED.read_bytes())
    return path


async def test_a_stepper_that_is_closed_at_work_stops_playing() -> None:
    simulation = Simulation(
        in_words(nations=("Aland",)), llm_client=make_client(answer, delay_s=0.05)
    )
    stepper = TurnStepper(simulation)
    stepper.turns_box.value = 50
    await played_one(stepper)
    stepper.close()
    await stepper.idle()
    assert not stepper.worker.busy
    assert simulation.turn_number < 50


async def test_a_seat_that_is_closed_stops_the_turn_that_was_started_there() -> None:
    simulation = seated_run()
    seat = HumanSeat(simulation)
    seat.step_button.click()
    await seat.asked()
    seat.close()
    await asyncio.wait_for(seat.worker.idle(), 10)
    assert not seat.worker.busy
    assert simulation.turn_number == 0


async def open_and_play(path: Path) -> tuple[RunTree, TurnStepper]:
    """Open a recorded run in a tree and let a fork of it play a long way."""
    tree = RunTree(Tape(path), run=1, llm_client=make_client(answer, delay_s=0.05))
    tree.open_button.click()
    await tree.idle()
    stepper = tree.stepper
    assert stepper is not None
    stepper.fork(3)
    stepper.turns_box.value = 50
    await played_one(stepper)
    return tree, stepper


async def test_opening_a_run_again_stops_the_one_that_was_open(copy: Path) -> None:
    tree, before = await open_and_play(copy)
    tree.open_button.click()
    await tree.idle()
    await before.idle()
    assert tree.stepper is not None
    assert tree.stepper is not before
    assert tree.stepper.comm is not None
    assert before.simulation.turn_number < 53
    assert before.comm is None, "closed, so that it follows the run no longer"


@pytest.mark.parametrize("how", ["close", "close_run"])
async def test_an_opened_run_ends_with_its_tree(copy: Path, how: str) -> None:
    tree, stepper = await open_and_play(copy)
    getattr(tree, how)()
    await stepper.idle()
    assert stepper.simulation.turn_number < 53
    assert tree.stepper is None
    assert tree.opened.children == ()


async def test_a_stepper_says_when_its_run_was_played_elsewhere() -> None:
    simulation = make_simulation()
    one, other = TurnStepper(simulation), TurnStepper(simulation)
    await one.step()
    await other.step()
    await asyncio.sleep(0)
    assert "Turn 2 is played." in other.status.value
    assert "The run is at turn 2; it was played elsewhere." in one.status.value


def test_a_single_planned_turn_is_not_many() -> None:
    simulation = Simulation(
        in_words(
            start="1979Q3",
            turns=1,
            nations=[{"name": "Aland", "kind": "human"}],
            validator={"kind": "always_valid"},
        )
    )
    seat = HumanSeat(simulation)
    [person] = seat.agents.values()
    said = {"action": "Hold", "reasoning": "Calm.", "confidence": 0.5, "proposed_rate": 11.5}
    person.person.ask = lambda _: said
    simulation.run(1)
    seat.refresh()
    assert "The one turn is played." in seat.status.value
    seat.close()


def test_the_notebook_of_the_tree_fails_where_its_comparison_does() -> None:
    path = Path(__file__).parents[2] / "notebooks" / "03_stepping_and_charts.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    last = [cell for cell in cells if cell["cell_type"] == "code"][-1]
    assert "assert not tree.error.value" in "".join(last["source"])
