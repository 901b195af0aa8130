"""What widgets say to wrong arguments, and that nothing else is heard of it."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from llmsim_lab._util.files import data_path
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import HumanSeat, PromptViewer, RateChart, RunTree, TurnStepper, leaderboard
from llmsim_lab.simulation import Simulation

RECORDED = data_path("tapes/first_run.tape")


def seated_run() -> Simulation:
    """A run of one person and no model."""
    return Simulation(start_at="1979Q3", nations=["Aland"], players={"Aland": "person"}, turns=1)


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
        with pytest.raises(ConfigError, match=r"is not an? |is neither a |there is no run to"):
            widget(source)
    gc.collect()
    assert unraisable == []


# --- numbers of runs ------------------------------------------------------------------------------


# --- arguments of methods -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TurnStepper(RECORDED, run=True), "has no run True; it has: 1, 2, 3"),
        (lambda: TurnStepper(RECORDED).show(True), "turn=True must be a whole number"),
        (lambda: TurnStepper(RECORDED).fork("a"), "turn='a' must be a whole number"),  # type: ignore[arg-type]
        (lambda: leaderboard(None), "NoneType is not an economic simulation"),  # type: ignore[arg-type]
        (lambda: QuadraticLoss(gap_weight="a"), "gap_weight: Input should be a valid number"),  # type: ignore[arg-type]
        (lambda: QuadraticLoss(inflation_target=None), "inflation_target: Input should be"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_named_with_what_it_should_be(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises((ConfigError, TapeError), match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action": 5}, "action is 5; it must be a text"),
        ({"confidence": "a"}, "confidence is 'a'; it must be one of 0, 0.05"),
        ({"rate": "a"}, "rate is 'a'; it must be one of"),
        ({"amout": 3}, "amout there is no such field"),
    ],
)
async def test_a_seat_names_the_field_that_is_of_the_wrong_type(
    wrong: dict[str, Any], message: str
) -> None:
    seat = HumanSeat(seated_run())
    with pytest.raises(ConfigError, match=re.escape(message)):
        await seat.take_turn(**{"action": "Hold", "rate": 9.67} | wrong)
    seat.close()
    await asyncio.sleep(0.1)


# --- closing, and runs played elsewhere -----------------------------------------------------------


async def test_a_seat_that_is_closed_stops_the_turn_that_was_started_there() -> None:
    simulation = seated_run()
    seat = HumanSeat(simulation)
    playing = asyncio.ensure_future(seat.play())
    await seat.asked()
    seat.close()
    await asyncio.wait_for(playing, 10)
    assert simulation.turn_number == 0
