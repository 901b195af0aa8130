"""What is planned for a turn that the run does not reach: it is kept, with a warning."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import make_config, played
from counter_kit import make_counter
from tape_text import rewrite

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run import Ask, Run, State, StateChange, fork, load, replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import Tape, verify

EVENT = "INTERVENTION_NOT_REACHED"


def economic(**config: Any) -> Simulation:
    return Simulation(make_config(**config))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if EVENT in record.getMessage()]


def test_what_is_planned_for_a_turn_that_was_played_is_an_error() -> None:
    simulation = economic(turns=3)
    simulation.run(2)
    with pytest.raises(ConfigError, match=r"turn 1 has been played .*\(the run is at turn 2\)"):
        simulation.intervene(1, {"inflation": 9})
    planned = [simulation.intervene(3, {"inflation": 4})]
    for turn, name, message in (
        (2, "inflation", r"at turn 2, which has been played .*; plan it for turn 3 or later"),
        (3, "inflatoin", r"'inflatoin' \(did you mean 'inflation'\?"),
    ):
        with pytest.raises(ConfigError, match=message):
            simulation.planned = [*planned, StateChange(turn=turn, set={name: 9})]
    assert list(simulation.planned) == planned


def test_what_is_planned_and_cannot_be_set_when_its_turn_comes_can_be_left_out(path: Path) -> None:
    class Seats(State):
        taken: dict[str, int] = dict.fromkeys(["at 0"], 1)

    class Moving(Run[Seats]):
        async def turn(self, state: Seats, ask: Ask) -> Seats:
            return Seats(taken={f"at {ask.turn}": 1})

    run = Moving(tape=path)
    run.intervene(1, {"taken.at 0": 5})
    with pytest.raises(ConfigError, match=r"turn 1 cannot be set: .*'taken.at 0'.*run\.planned = "):
        run.run(1)
    run.planned = ()
    # On the tape at once: the process may end here.
    assert Moving.load(path).planned == ()
    run.run(1)
    assert Moving.replay(path).turns == run.turns


# --- long plans -----------------------------------------------------------------------------------


class Prices(State):
    price: float = 0.0
    total: float = 0.0


class Market(Run[Prices]):
    async def turn(self, state: Prices, ask: Ask) -> Prices:
        return state.replace(total=state.total + state.price)


def market(path: Path | None, planned: int) -> Market:
    run = Market(tape=path, turns=0)
    # Two series, so that neither the plan nor its halves are in the order of their turns.
    for turn in [*range(2, planned, 2), *range(1, planned, 2)]:
        run.intervene(turn, {"price": turn})
    return run


def states(run: Run[Any]) -> list[Any]:
    return [turn.state for turn in run.turns]


def to_come(run: Run[Any]) -> list[StateChange]:
    return sorted(
        (change for change in run.planned if change.turn > run.turn_number),
        key=lambda change: change.turn,
    )


def test_a_long_plan_is_the_same_on_a_tape_after_each_turn(path: Path) -> None:
    run, kept = market(path, 50), market(None, 50)
    for turn in range(50):
        for each in (run, kept):
            if turn == 10:
                each.planned = [change for change in each.planned if change.turn != 33]
            if turn == 20:
                each.intervene(40, {"price": 0.5}, note="once more")
            played(each, 1)
        assert to_come(load(path)) == to_come(kept)
        if turn % 3 == 0:  # as if the process had ended
            run.close()
            run = resume(path)
    run.close()
    assert states(replay(path)) == states(run) == states(kept)
    for turn in range(0, 50, 9):
        assert states(played(fork(path, 1, turn=turn), 50 - turn)) == states(kept)
    with Tape(path) as tape:
        copy = tape.copy([4], path.with_name("copy.tape"), up_to=20)
    assert to_come(load(copy, 1))[-1].turn == 49
    assert verify(path) == verify(copy) == []


def test_a_plan_that_is_twice_as_long_takes_little_more_than_twice_the_bytes(path: Path) -> None:
    sizes = []
    for planned in (100, 200):
        played(market(path, planned), planned).close()
        sizes.append(path.stat().st_size - sum(sizes))
    assert sizes[1] < 2.5 * sizes[0]


def without_plans(line: Any) -> Any:
    return None if isinstance(line.get("value"), list) else line


def doubled(line: Any) -> Any:
    if line.get("is") == "turn":
        line["record"]["planned"] *= 2
    return line


@pytest.mark.parametrize(
    ("edit", "fault"), [(without_plans, "is not on the tape"), (doubled, "is planned twice")]
)
def test_a_plan_that_no_run_wrote_is_damage(path: Path, edit: Any, fault: str) -> None:
    market(path, 40).close()
    rewrite(path, edit)
    with pytest.raises(TapeError, match=fault):
        load(path)
    assert verify(path)


def test_a_replay_raises_without_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_counter(path, turns=2).run()
    played = replay(path)
    with pytest.raises(Exception, match="a replay cannot be changed"):
        played.intervene(50, {"value": 3})
    assert warned(caplog) == []


@pytest.mark.parametrize(("played", "reached"), [((), 3), ((2,), 5), ((3,), 6), ((3, 1), 7)])
def test_only_what_run_would_not_reach_is_warned_of_wherever_the_run_is(
    played: tuple[int, ...], reached: int, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = economic(turns=3)
    for turns in played:
        simulation.run(turns)
    simulation.intervene(reached - 1, set={"inflation": 9})
    assert warned(caplog) == []
    planned = simulation.intervene(reached + 1, set={"inflation": 8})
    assert simulation.planned[-1] == planned
    (line,) = warned(caplog)
    assert f"ends at turn {reached}; what is set acts on the way to the next" in line
    simulation.run()
    assert simulation.turn_number == reached
    caplog.clear()
    # A run that is stepped by hand has no end.
    economic(turns=0).intervene(50, set={"inflation": 9})
    assert warned(caplog) == []


@pytest.mark.parametrize("turn", [0, 1])
async def test_a_turn_that_is_being_played_cannot_be_changed_from_outside(turn: int) -> None:
    made = make_counter()
    playing = asyncio.create_task(made.step())
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match=r"is being played .*intervene at turn 2 or later"):
        made.intervene(turn, {"value": 3})
    made.intervene(2, {"value": 50})
    await playing
    await made.step()
    assert [state.state.value for state in made.turns] == [0, 8, 50]


@pytest.mark.parametrize("turn", ["1", 1.0, True])
def test_a_fork_and_an_intervention_are_at_a_whole_turn(turn: Any) -> None:
    made = make_counter()
    made.run(1)
    for operation in (made.fork, lambda turn: made.intervene(turn, {"value": 3})):
        with pytest.raises(ConfigError, match=r"turn=.* must be a whole number"):
            operation(turn)


@pytest.mark.parametrize("intervene", [[5], ["turn"], None, 5, iter([5])])
def test_a_forks_interventions_are_a_list_of_dicts(intervene: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make_counter().fork(intervene=intervene)
    assert "must be new values by name, {'coins.Ann': 5}, or a list of" in str(caught.value)


@pytest.mark.parametrize("item", [{"turns": 2}, {"turn": 0, "self": 1}, {1: 2}])
def test_an_interventions_keys_are_named_and_its_values_given_once(item: Any) -> None:
    made = make_counter()
    with pytest.raises(ConfigError, match="must have the keys turn and set, and may have note"):
        made.fork(intervene=[item])
    with pytest.raises(ConfigError, match="has its values twice, the second time as set="):
        made.intervene(1, {"value": 3}, set={"value": 3})
    with pytest.raises(ConfigError, match=r"intervene\(1, 5\) must have new values by name"):
        made.intervene(1, 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"at turn 1 sets nothing; .* or a note that says why"):
        made.intervene(1, {})
    assert made.intervene(1, note="a control").set == {}
    with pytest.raises(ConfigError, match=r"budget=5 is no Budget; write Budget\(calls=5\)"):
        made.run(budget=5)  # type: ignore[arg-type]
