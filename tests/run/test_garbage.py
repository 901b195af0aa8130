"""Garbage collection during a turn: rarer, and afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from builders import make_simulation

from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.run._session import rare_collections
from llmsim_lab.simulation import Simulation, SimulationConfig


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_collections_are_rare_inside_and_as_they_were_afterwards() -> None:
    with rare_collections():
        rarely = gc.get_threshold()
    assert gc.get_threshold() == (700, 10, 10)
    assert rarely[0] > 700
    assert rarely[1] > 10


def test_an_exception_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), rare_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


def test_a_turn_inside_another_one_changes_nothing() -> None:
    with rare_collections():
        rarely = gc.get_threshold()
        gc.set_threshold(600, 5, 5)
        with rare_collections():
            assert gc.get_threshold() == (600, 5, 5)
        gc.set_threshold(*rarely)
        with rare_collections():
            pass
        assert gc.get_threshold() == rarely
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_a_collector_that_is_off_or_rarer_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rare_collections():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_a_collector_that_is_switched_off_stays_so_and_idle() -> None:
    gc.disable()
    try:
        made = gc.get_stats()[0]["collections"]
        with rare_collections():
            assert gc.get_threshold() == (700, 10, 10)
        assert gc.get_stats()[0]["collections"] == made
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_turn_made_does_not_call_for_a_collection_after_it() -> None:
    with rare_collections():
        kept = [[number] for number in range(2_000)]
        assert gc.get_count()[0] > 700
    assert gc.get_count()[0] < 700
    assert len(kept) == 2_000


def test_what_is_set_inside_stays() -> None:
    with rare_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_a_turn_is_played_so() -> None:
    seen: list[int] = []

    class Looking(TaylorRuleAgent):
        async def decide_action(self, state: SimulationState) -> Action:
            seen.append(gc.get_threshold()[0])
            return await super().decide_action(state)

    config = SimulationConfig.model_validate({"validator": {"kind": "always_valid"}})
    Simulation(config, agents=[Looking("Aland")]).run(2)
    assert min(seen) > 700
    assert gc.get_threshold() == (700, 10, 10)


async def test_a_run_keeps_few_objects_for_each_call() -> None:
    # Each is one more for the collector to walk over whenever it passes over everything.
    run = make_simulation(names=tuple(f"Nation {number}" for number in range(10)))
    for _ in range(3):
        await run.step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10):
        await run.step()
    gc.collect()
    calls = sum(len(turn.calls) for turn in run.turns[-10:])
    assert (len(gc.get_objects()) - before) / calls < 13
