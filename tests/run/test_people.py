"""People in runs: known before they are asked, kept in forks, not asked again after a stop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import until
from worlds import Gift, PublicGoods

from llmsim_lab import Ask, Person, Run, Simulation, State
from llmsim_lab.run import resume
from llmsim_lab.run.people import foreseen, people_of
from llmsim_lab.tape import Tape

FIVE = {"reasoning": "So.", "amount": 5, "confidence": 0.5}


def economy(person: Person) -> Run:
    return Simulation(nations=["Ann", "Bob"], players={"Ann": person, "*": "rule"}, masked=False)


def pot(person: Person) -> Run:
    return PublicGoods(players={"Ann": person, "*": "random"})


def without_reasons(person: Person) -> Run:
    return PublicGoods(players={"Ann": person, "*": "random"}, rationale=False)


@pytest.mark.parametrize("world", [economy, pot, without_reasons])
async def test_what_a_turn_begins_with_is_known_before(world: Callable[[Person], Run]) -> None:
    person = Person()
    run = world(person)
    before = dict(run.prompts)
    [(who, question)] = foreseen(run)
    expected = question.request
    assert (who, dict(run.prompts), person.questions) == (person, before, ())
    task = asyncio.create_task(run.step())
    asked = (await person.asked()).request
    assert (expected.messages, expected.schema) == (asked.messages, asked.schema)
    assert (expected.site, expected.timeout_s) == (asked.site, asked.timeout_s)
    task.cancel()


class Talk(State):
    said: int = 0


class Begins(Run[Talk]):
    """A world whose turn begins as it is told."""

    how: str = "at once"

    async def turn(self, state: Talk, ask: Ask) -> Talk:
        if self.how == "by others":
            await ask("Cy", Gift, "Well?")
        if self.how == "outside":
            await ask.outside("weather", "Rome", lambda: pytest.fail("it was done"))
        if self.how == "wrong":
            raise ValueError("no")
        async with asyncio.TaskGroup() as group:
            for name in ("Ann", "Bob"):
                group.create_task(ask(name, Gift, "Well, {{ name }}?"))
        return state


@pytest.mark.parametrize("on_error", ["raise", "fallback"])
@pytest.mark.parametrize(
    ("how", "known"), [("at once", 2), ("by others", 0), ("outside", 0), ("wrong", 0)]
)
def test_no_more_is_known_than_the_first_questions(how: str, known: int, on_error: str) -> None:
    run = Begins(
        how=how,
        on_error=on_error,
        players={"*": "person", "Cy": lambda _: pytest.fail("it was asked")},
    )
    assert len(foreseen(run)) == known


async def test_what_was_answered_before_a_stop_is_not_asked_again(path: Path) -> None:
    people = {name: Person() for name in ("Ann", "Bob")}
    run = PublicGoods(players={**people, "*": "random"}, tape=path)
    task = asyncio.create_task(run.step())
    for name in people:
        await people[name].asked()
    people["Ann"].answer(people["Ann"].questions[0], FIVE)
    await until(lambda: any(one.attempt.reply for one in Tape(path, read_only=True).calls(1)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run.close()
    again = resume(path)
    ann, bob = people_of(again)
    task = asyncio.create_task(again.step())
    bob.answer(await bob.asked(), FIVE | {"amount": 2})
    assert ann.questions == ()
    await task
    assert (again.state.given["Ann"], again.state.given["Bob"]) == (5, 2)
    again.close()


SCRIPT = """
import asyncio
from worlds import PublicGoods
from llmsim_lab.errors import LabError
from llmsim_lab.study import Study

PEOPLE = {"players": {"Ann": "person", "*": "random"}}
DOORS = [
    lambda: PublicGoods(**PEOPLE).run(1),
    lambda: asyncio.run(PublicGoods(**PEOPLE).arun(1)),
    lambda: asyncio.run(PublicGoods(**PEOPLE).step()),
    lambda: Study(PublicGoods, **PEOPLE, vary={"factor": [1, 2]}, seeds=1, turns=1,
                  outcome="coins.Ann").run(),
]
for door in DOORS:
    try:
        door()
    except LabError as error:
        print(error)
"""


@pytest.mark.process
def test_a_plain_script_without_a_terminal_does_not_wait_for_a_person_for_ever() -> None:
    script = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    fault = "players['Ann'] of PublicGoods is a person, and no one can answer here: play on a termi"
    assert script.stdout.count(fault) == 4
