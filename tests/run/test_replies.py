"""What a reply's fields take from a model, and what is asked for once more."""

from __future__ import annotations

import datetime as dt
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from builders import make_client, played
from pydantic import BaseModel, Field, PlainValidator
from replies_kit import asked, text
from typing_extensions import TypedDict

from llmsim_lab.errors import ConfigError


class Price(BaseModel):
    """A class of the user's that knows nothing of this package."""

    per_kg: float = 1.0


@dataclass
class Offer:
    pounds: float = 1.0


class Lot(TypedDict, total=False):
    weight: float


class Corner(NamedTuple):
    x: float
    y: float = 0.0


class Level(IntEnum):
    LOW = 0
    HIGH = 1


class Open(BaseModel, extra="allow"):
    pass


Read = Annotated[float, PlainValidator(float)]

NOT_FINITE = ["NaN", "-Infinity", "1e999", '"nan"', '"inf"']
NOT_A_NUMBER = ["true", '"1_0"']
PRICES = ['{"per_kg": 1e999}', '{"per_kg": true}', "{}"]


@pytest.mark.parametrize(
    ("annotation", "wrong", "right", "read"),
    [
        (float, NOT_FINITE + NOT_A_NUMBER, '"0.5"', 0.5),
        (Annotated[float, Field(ge=0)], NOT_FINITE, "2", 2.0),
        (int, [*NOT_A_NUMBER, "1e999"], '"5"', 5),
        (Decimal, NOT_FINITE + NOT_A_NUMBER, "0.1", Decimal("0.1")),
        (complex, NOT_FINITE + NOT_A_NUMBER, '"1+2j"', 1 + 2j),
        (Decimal, ['"1e999"', '"-1E999999999"'], '"1e3"', Decimal("1E+3")),
        (Fraction, ['"1e999"', '"-1E999999999"'], '"1/2"', Fraction(1, 2)),
        (Open, ['{"more": [NaN]}'], '{"more": [1]}', Open.model_validate({"more": [1]})),
        (Read, ['"nan"'], '"1"', 1.0),
        (int | float | None, NOT_FINITE + NOT_A_NUMBER, "2", 2),
        (Any, ["NaN", '[1, {"a": 1e999}]'], '"nan"', "nan"),
        (Level, ["true"], "1", Level.HIGH),
        (Literal[0, 1], ["true"], "1", 1),
        (dt.date, ["0", '"0"'], '"2026-01-31"', dt.date(2026, 1, 31)),
        (dt.datetime, ["0.5", '"1700000000"'], '"2026-01-31"', dt.datetime(2026, 1, 31)),  # noqa: DTZ001
        (dt.time, ["3600"], '"12:00"', dt.time(12)),
        (dt.timedelta, ["5"], '"PT5M"', dt.timedelta(minutes=5)),
        (list[float], ['["nan"]'], "[1]", [1.0]),
        (dict[str, float], ['{"a": Infinity}'], '{"a": 1}', {"a": 1.0}),
        (tuple[float, int], ["[1e999, 1]"], "[1, 2]", (1.0, 2)),
        (Price, PRICES, '{"per_kg": 2}', Price(per_kg=2)),
        (list[Price], ['[{"per_kg": "nan"}]', "[{}]"], '[{"per_kg": 2}]', [Price(per_kg=2)]),
        (Offer, ['{"pounds": NaN}', "{}"], '{"pounds": 2}', Offer(2.0)),
        (Lot, ['{"weight": NaN}', "{}"], '{"weight": 2}', {"weight": 2.0}),
        (Corner, ['{"x": 1, "y": NaN}', '{"x": 1}', "[1]"], "[1, 2]", Corner(1.0, 2.0)),
    ],
)  # fmt: skip
def test_what_is_not_a_value_of_the_field_is_asked_for_again(
    annotation: Any, wrong: list[str], right: str, read: Any
) -> None:
    for first in wrong:
        run = played(asked(annotation)(llm_client=make_client([text(first), text(right)])), 1)
        assert (first, run.state.said, run.calls[0].status) == (first, repr(read), "repaired")
        assert run.calls[0].history[0].detail.startswith(("value", "it lacks value."))


@pytest.mark.parametrize(
    "value", [Price(per_kg=float("inf")), [1.0, float("nan")], float("nan"), deque([float("nan")])]
)
def test_a_rule_whose_answer_holds_a_number_that_is_not_finite_is_an_error(value: Any) -> None:
    world = asked(type(value) if isinstance(value, Price) else list[float])
    with pytest.raises(ConfigError, match=r"the rule of Ann answered value=.*not finite"):
        world(players=lambda question: question.reply.model_construct(value=value)).run(1)
