"""Values of every kind and size, in the place of arguments: an error that names them, soon."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from faults_kit import Attack, Case, Plan
from worlds import PublicGoods

from llmsim_lab import LLMConfig
from llmsim_lab.people import Population, PublishedFigure, published
from llmsim_lab.statechart import AgentState, SocialSimulation, Statechart, Transition
from llmsim_lab.study import Study, multiverse

pytestmark = pytest.mark.process

Call = Callable[[Any], object]
HERE = AgentState.IDLE
TABLE = pd.DataFrame({"region": ["n", "s", "s"], "age": [30, 40, 50]})
GAMES: Any = partial(Study, PublicGoods, turns=1, seeds=1, players="random", outcome="coins.Ann")
FIGURE: Any = partial(PublishedFigure, study="a", condition="b", source="c", place="d", mean=0.5)


class Unshown:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "whole": lambda: 3,
    "negative": lambda: -1,
    "nan": lambda: float("nan"),
    "many digits": lambda: 10**5000,
    "beyond floats": lambda: -(10**400),
    "text": lambda: "x",
    "half a character": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "megabytes": lambda: "x" * 3_000_000,
    "bytes": lambda: b"x",
    "object": object,
    "class": lambda: int,
    "unshown": Unshown,
    "endless": lambda: itertools.repeat("Ann"),
    "generator": lambda: (number for number in itertools.count()),
    "range": lambda: range(10**12),
    "range beyond": lambda: range(10**100),
    "deep": lambda: nested(100_000),
    "array": lambda: np.array([1, 2]),
    "array of one": lambda: np.array(3),
    "huge array": lambda: np.broadcast_to(np.int8(1), (10**12,)),
    "NA": lambda: pd.NA,
    "frame": lambda: TABLE,
    "decimal": lambda: Decimal("1e999999"),
    "set": lambda: {1, "x"},
}
SHAPES: dict[str, Call] = {
    "itself": lambda value: value,
    "in a list": lambda value: [value],
    "in a dict": lambda value: {"x": value},
    "as a key": lambda value: {value: 1},
}


@cache
def played() -> Study:
    study: Study = GAMES(vary={"factor": [1.2, 1.6]})
    return study.run(progress=False)


def cells(value: Any) -> object:
    return Population.from_table(pd.DataFrame({"a": pd.Series([value, value], dtype=object)}))


CALLS: dict[str, Call] = {
    "rows": lambda value: Population(rows=value).model_dump_json(),
    "a row": lambda value: Population(rows={"Ann": {"age": value}}).to_frame(),
    "a cell": cells,
    "weights": lambda value: Population.from_table(TABLE, weights=value),
    "names": lambda value: Population.from_table(TABLE, names=value),
    "margins": lambda value: Population.from_table(TABLE).raked({"region": value}),
    "a player's name": lambda value: Population.from_table(TABLE).row(value),
    "people": lambda value: FIGURE(n=value),
    "a period": lambda value: published("nagel_1995", period=value),
    "states": lambda value: Statechart(value, [], HERE).to_mermaid(),
    "transitions": lambda value: Statechart(AgentState, value, HERE),
    "timeouts": lambda value: Statechart(AgentState, [], HERE, timeouts=value),
    "a trigger": lambda value: str(Transition(value, HERE, HERE)),
    "a chart": lambda value: Statechart.load(value, guards={}),
    "users": lambda value: SocialSimulation(population=value, players="rule"),
    "options": lambda value: LLMConfig(options=value),
    "seeds": lambda value: GAMES(seeds=value),
    "vary": lambda value: GAMES(vary=value),
    "levels": lambda value: GAMES(vary={"factor": value}),
    "a prompt": lambda value: GAMES(vary={"prompt": {"a": None, "b": value}}),
    "interventions": lambda value: GAMES(vary={"interventions": {"a": value}}),
    "an outcome": lambda value: GAMES(outcome=value),
    "a folder": lambda value: GAMES(tape=value),
    "only": lambda value: played().run(only=value, progress=False),
    "an arm": lambda value: played().tape_of(value, 0),
    "a unit": lambda value: played().tape_of("factor=1.2", value),
    "contrasts": lambda value: played().effects(contrasts=value),
    "a formula": lambda value: played().effects(value),
    "a column": lambda value: played().by_turn(value),
    "a study": lambda value: multiverse(value, "factor"),
}


def handed(call: Call, make: Callable[[], Any], shape: Call, _folder: Path) -> None:
    try:
        value = shape(make())
    except TypeError:  # not every value can be a key
        return
    call(value)


def odd_values(plan: Plan) -> Iterator[Case]:
    for name, call in CALLS.items():
        values = plan.chosen(VALUES, 5, 12)
        steps = {
            f"{kind}, {place}": partial(handed, call, make, shape)
            for kind, make in values
            for place, shape in plan.chosen(SHAPES, 2, 4)
        }
        yield Case(name, steps)


def test_each_value_is_used_or_is_an_error(attack: Attack) -> None:
    attack("values: odd ones", odd_values)
