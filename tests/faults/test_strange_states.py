"""States that no run reached, on a tape with right sums: a run continues, or says why it cannot."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import recorded
from faults_kit import Attack, Case, Plan
from tape_text import rewrite
from tapes_kit import GARBAGE, Line, places_in
from verbs_kit import CONTINUE, READ, client, steps_of

from llmsim_lab.context import CrisisSimulation
from llmsim_lab.simulation import Simulation
from llmsim_lab.statechart import SocialSimulation

pytestmark = pytest.mark.process

TURNS = 2
WORLDS: dict[str, Callable[..., Any]] = {
    "economy": Simulation,
    "social": partial(SocialSimulation, population=6, seed_posts=4),
    "crisis": partial(CrisisSimulation, scenario="strait"),
}
VERBS = {name: (READ | CONTINUE)[name] for name in ("resume", "replay", "load", "Lab")}
FINITE = [value for value in GARBAGE if value == value]
NUMBERS = (0, -1, 0.5, 1e308, -1e308, 5e-324, 2**64, 10**400, -(10**400))


def changed_state(state: dict[str, Any], source: random.Random) -> None:
    """Change a part of a state: most changes leave it of the right type."""
    places = [*places_in(state)]
    holder, key = source.choice(places)
    value = holder[key]
    other, other_key = source.choice(places)
    changes: list[Any] = [copy.deepcopy(other[other_key]), source.choice(FINITE)]
    if isinstance(value, list | dict):
        changes = [type(value)(), *changes]
    elif isinstance(value, int | float):
        changes = [*NUMBERS, value + 1, *changes]
    match source.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(value))
        case 1:
            holder["x"] = holder.pop(key)
        case 2 if isinstance(value, list):
            source.shuffle(value)
        case _:
            holder[key] = source.choice(changes)


def write_strange(world: str, seed: str, folder: Path) -> None:
    path = folder / "x.tape"
    recorded(WORLDS[world](llm_client=client(), tape=path, players="rule"), TURNS)
    source = random.Random(seed)

    def edit(line: Line) -> Line:
        if line.get("is") == "turn" and line["turn"] == TURNS:
            for _ in range(source.choice([1, 1, 2, 4])):
                changed_state(line["record"]["state"], source)
        return line

    rewrite(path, edit)


def strange_states(plan: Plan) -> Iterator[Case]:
    for world in WORLDS:
        for number in range(plan.times(2)):
            seed = f"{plan.seed} {world} {number}"
            yield Case(f"state {seed}", steps_of(VERBS), partial(write_strange, world, seed))


def test_a_run_continues_from_a_state_or_says_why_it_cannot(attack: Attack) -> None:
    attack("tapes: strange states", strange_states)
