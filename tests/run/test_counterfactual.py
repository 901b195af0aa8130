"""The same start and the same shocks, with another decider: ``Run.counterfactual``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, make_config, played
from worlds import PublicGoods

from llmsim_lab import Person, Run, Simulation, replay
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import load
from llmsim_lab.run.people import people_of

FIVE = {"reasoning": "So.", "amount": 5, "confidence": 0.5}
SHOCKS = {"economy": {"shock_scale": 1}, "seed": 5, "start_at": "1979Q3"}


def pot() -> Run:
    return PublicGoods(players={"*": "random", "Ann": lambda _: 3}, seed=4)


def economy() -> Run:
    planned = [{"turn": 1, "set": {"shock.supply": 3}}]
    return Simulation(make_config(nations=["Ann", "Bob"], interventions=planned, **SHOCKS))


SET: list[tuple[Callable[[], Run], dict[str, Any]]] = [
    (pot, {"coins.Ann": 99}),
    (economy, {"inflation": 7, "shock.demand": -1}),
]
WORLDS = pytest.mark.parametrize(("begun", "values"), SET, ids=["own", "economy"])


def set_twice(run: Run, values: dict[str, Any]) -> Run:
    """A run with something set by hand in its first state, and in a later one."""
    run.intervene(0, values)
    run.run(2)
    run.intervene(2, values)
    run.run(2)
    return run


def same(run: Run) -> list[Any]:
    """The turns, as far as they do not say how long they took."""
    return [(it.state, it.answers, it.interventions, it.noted, it.became) for it in run.turns]


@WORLDS
def test_the_same_players_do_the_same_to_the_last_bit(
    begun: Callable[[], Run], values: dict[str, Any]
) -> None:
    run = set_twice(begun(), values)
    again = run.counterfactual({})
    assert (again.turn_number, again.state) == (0, run.turns[0].state)
    again.run(4)
    assert same(again) == same(run)


@WORLDS
def test_with_another_decider_what_was_set_is_set_again(
    begun: Callable[[], Run], values: dict[str, Any], path: Path
) -> None:
    run = set_twice(begun(), values)
    other = played(run.counterfactual("random", tape=path), 4)
    assert [it.interventions for it in other.turns] == [it.interventions for it in run.turns]
    assert other.turns[4].state != run.turns[4].state
    assert dict(other.players) == {"*": "random"}
    other.close()
    assert replay(path).turns == other.turns


def test_some_seats_change_and_the_others_stay() -> None:
    run = played(pot().counterfactual({"Bob": lambda _: 0, "Cy": "random"}), 1)
    assert (run.state.given["Ann"], run.state.given["Bob"]) == (3, 0)
    assert run.config.players == {"*": "random", "Cy": "random"}


def test_a_person_keeps_the_seat_and_a_model_its_seat() -> None:
    client, person = make_client(lambda _: FIVE), Person()
    run = PublicGoods(players={"Ann": person, "Bob": "random"}, llm_client=client)
    other = played(run.counterfactual({"Ann": "model"}), 1)
    assert (people_of(other), people_of(run)) == ([], [person])
    assert [other.state.given[name] for name in ("Ann", "Cy", "Di")] == [5, 5, 5]
    kept = run.counterfactual({"Bob": "model"})
    assert (people_of(kept), kept.config.players["Ann"]) == ([person], "person")


def test_a_recorded_run_brings_its_prompts_and_no_model(path: Path) -> None:
    seen: list[str] = []
    client = make_client(lambda request: seen.append(request.prompt) or FIVE)
    run = played(PublicGoods(llm_client=client, tape=path), 1)
    [prompt] = run.prompts.values()
    played(run.fork(0, prompt=prompt.edit("{{ name }}: how much?")), 1)
    run.close()
    recorded = load(path, 2)
    seen.clear()
    recorded.counterfactual({}, llm_client=client).run(1)
    assert seen == [f"{name}: how much?" for name in ("Ann", "Bob", "Cy", "Di")]
    with pytest.raises(ConfigError, match="no one answers for Ann: give the run a model"):
        recorded.counterfactual({}).run(1)
    recorded.counterfactual("random").run(1)
