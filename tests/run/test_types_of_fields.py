"""What states, replies and parameters may hold: exact numbers, classes of one's own, no objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from types import new_class
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import make_client, played, recorded
from pydantic import Field
from replies_kit import Town, asked, text

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import RateChart


@dataclass(frozen=True, slots=True)
class Purse:
    coins: int = 1
    cash: Decimal = Decimal("1.5")


class Market(State):
    price: Decimal = Decimal("10.10")
    share: Fraction = Fraction(1, 4)
    purses: dict[str, Purse] = Field(default={"Ann": Purse()})


class Bid(Reply):
    bid: Decimal


class Trade(Run[Market]):
    async def turn(self, state: Market, ask: Ask) -> Market:
        bids = await ask.each(["Ann", "Bob"], Bid, "Bid?", limits={"bid": (0, state.price)})
        purse = Purse(coins=state.purses["Ann"].coins + 1, cash=bids["Ann"].bid)
        return state.replace(price=state.price + 1, purses={"Ann": purse})


def test_exact_numbers_and_those_in_dataclasses_are_columns_charts_and_can_be_set(
    tmp_path: Path,
) -> None:
    client = make_client('{"reasoning": "", "bid": "0.10", "confidence": 1}')
    run = recorded(Trade(players={"Bob": "random"}, llm_client=client, tape=tmp_path / "t"), 2)
    frame = run.to_frame()
    assert frame["price"].tolist() == [10.1, 11.1, 12.1]
    assert frame["share"].sum() == 0.75
    assert frame["purses.Ann.coins"].tolist() == [1, 2, 3]
    assert frame["purses.Ann.cash"].tolist() == [1.5, 0.1, 0.1]
    RateChart(run).save(tmp_path / "chart.svg")
    assert "cash" in (tmp_path / "chart.svg").read_text()
    assert run.decisions()["bid"].dtype == "float64"
    assert Trade.replay(tmp_path / "t").state == run.state
    other = played(Trade(players="random"), 1)
    other.intervene(1, {"price": 3.3, "purses.Ann.coins": 7})
    assert other.state.price == Decimal("3.3")
    assert other.state.purses["Ann"].coins == 7


def test_a_replay_passes_over_columns_that_the_recording_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = asked(int)
    run = recorded(world(players="random", tape=tmp_path / "t"), 1)
    monkeypatch.setattr(Town, "columns", lambda self: {"said": self.said, "length": len(self.said)})
    assert world.replay(tmp_path / "t").state == run.state


class Graph:
    """A class that is not of values."""


@dataclass(frozen=True)
class Held:
    graph: Graph


@pytest.mark.parametrize("base", [State, Reply, Run[Town]])
@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Graph, "test_types_of_fields.Graph"),
        (dict[str, Graph], "dict"),
        (np.ndarray | None, "numpy.ndarray"),
        (pd.DataFrame, "pandas"),
        (Random, "random.Random"),
        (Held, "test_types_of_fields.Held"),
    ],
)
def test_a_type_that_json_cannot_hold_is_an_error_that_names_what_to_hold_instead(
    base: Any, annotation: Any, words: str
) -> None:
    says = rf"Ties(Config)?\.graph is annotated as .*{words}.*edges, list\[tuple\[str, str\]\]"
    with pytest.raises(ConfigError, match=says) as caught:
        new_class(
            "Ties",
            (base,),
            exec_body=lambda names: names.update(__annotations__={"graph": annotation}),
        )
    assert "arbitrary_types_allowed" not in str(caught.value)


def test_a_function_as_a_reply_is_an_error_that_says_what_a_model_can_answer() -> None:
    run = asked(Callable[[int], int])(llm_client=make_client([text("1")]))
    with pytest.raises(ConfigError, match=r"Said cannot be asked for: .*a model answers in JSON"):
        played(run, 1)
