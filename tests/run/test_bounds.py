"""What limits leave of a reply's fields: checked when a question is asked, told in one form."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pytest
from builders import make_client, played, requests_of
from pydantic import (
    UUID7,
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    Json,
    model_validator,
)
from replies_kit import asked, text

from llmsim_lab import Person
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.embedded.wire import grammar_of
from llmsim_lab.run.people import People
from llmsim_lab.run.seating import put

Coins = Annotated[int, Field(ge=0, le=20)]
Fives = Annotated[int, Field(multiple_of=5)]


class Level(IntEnum):
    LOW = 0
    HIGH = 1


@pytest.mark.parametrize(
    ("annotation", "limits", "says"),
    [
        (Coins, (0, None), r"are \(0, None\); .* None is not a number: .*\{'value': \(0, 20\)\}"),
        (float, (None, 5), r"None is not a number: write limits=\{'value': \(0, 5\)\}"),
        (int | None, (0, None), "None is not a number"),
        (int, ("0", "5"), "'0' is not a number"),
        (int, (True, 5), "True is not a number"),
        (Decimal, ("0", Decimal(5)), "'0' is not a number"),
        (float, (np.array(0.0), np.array(5.0)), r"array\(0.\) is not a number"),
        (float, (float("nan"), 1), "nan is not a number"),
        (int, (0, 10**400), "have an end at 10000000000000000000…, which is beyond all floats"),
        (float | Literal["all"], [float("inf")], "allow inf, .* it is not finite"),
        (Literal[1, 2, 5], ("1", "2"), "'1' is not a number"),
        (str, (0, 5), "only a field of numbers has a range, and Said.value holds something else"),
        (int | str, (0, 5), "only a field of numbers has a range"),
        (dt.date, (dt.date(2026, 1, 1), dt.date(2026, 2, 1)), "only a field of numbers has a"),
        (Coins, [0, 25], "allow 25, which Said.value does not take: .*less than or equal to 20"),
        (Coins, (25, 30), "leave Ann nothing: from 25 to 20"),
        (Fives, (1, 4), "leave Ann nothing: from 1 to 4 in whole numbers in steps of 5"),
        (Annotated[Decimal, Field(decimal_places=0)], (0.25, 0.45), "leave Ann nothing: .* of 1;"),
        (Literal[1, 5], (2, 4), "leave Ann nothing: Said.value is one of 1, 5"),
        (int, [0.5], "allow 0.5, which Said.value does not take: .*fractional part"),
        (int, [True], "allow True, .* a truth value is not a number"),
        (int, ["1", "2"], "allow '1', .* a text is not a number"),
        (str, [1, 2], "allow 1, .* valid string"),
        (int, [None], "allow None, .* valid integer"),
        (bool, [0, 1], "allow 0, .* a number is not a truth value"),
        (dt.date, [0], "allow 0, .* a number is not a date"),
        (Level, [0, 7], "allow 7, .* 0 or 1"),
        (Literal["a", "b"], ["a", "z"], "allow 'z', .* 'a' or 'b'"),
        (float, np.array([[0.0, 1.0]]), r"allow \[0.0, 1.0\]"),
        (list[int], [1, 2], "give .* a list of values for a field that holds one"),
    ],
)
@pytest.mark.parametrize("player", ["random", "model"])
def test_limits_that_the_field_cannot_meet_are_errors_before_anybody_is_asked(
    annotation: Any, limits: Any, says: str, player: Any
) -> None:
    client = make_client([text("1")])
    run = asked(annotation, limits={"value": limits})(players=player, llm_client=client)
    with pytest.raises(ConfigError, match=rf"limits of value.*{says}"):
        run.run(1)
    assert requests_of(client) == []


@pytest.mark.parametrize(
    ("annotation", "limits", "schema", "wrong", "right"),
    [
        (int, (Decimal(0), Decimal(3)), {"type": "integer", "minimum": 0, "maximum": 3}, "4", "3"),
        (float, (Decimal("0.1"), 1), {"type": "number", "minimum": 0.1, "maximum": 1}, "0", "0.1"),
        (
            Decimal,
            (0, Decimal("0.3")),
            {"type": "number", "minimum": 0, "maximum": 0.3},
            "1",
            "0.3",
        ),
        (
            Annotated[int, Field(ge=1)] | None,
            (0, 3),
            {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 3}, {"type": "null"}]},
            "0",
            "null",
        ),
        (
            int | float,
            (0.5, 3),
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 3},
                    {"type": "number", "minimum": 0.5, "maximum": 3},
                ]
            },
            "0",
            "0.5",
        ),
        (Literal[1, 2, 5], (1, 3), {"enum": [1, 2]}, "5", "2"),
        (dt.date, ["2026-01-31"], {"enum": ["2026-01-31"]}, '"2026-02-01"', '"2026-01-31"'),
        (Decimal, [Decimal("0.5")], {"enum": [0.5]}, "1", '"0.5"'),
        (float, np.array([0.0, 0.5]), {"enum": [0.0, 0.5]}, "0.25", "0.5"),
        (bool, [np.True_], {"enum": [True]}, "false", "true"),
    ],
)
def test_a_pair_of_numbers_is_a_range_for_every_field_of_numbers(
    annotation: Any, limits: Any, schema: Any, wrong: str, right: str
) -> None:
    world = asked(annotation, limits={"value": limits})
    client = make_client([text(wrong), text(right)])
    run = played(world(llm_client=client), 1)
    assert requests_of(client)[0].schema["properties"]["value"] == schema
    assert [call.status for call in run.calls] == ["repaired"]
    for seed in range(20):  # chance draws what the class and the limits take
        played(world(players="random", seed=seed), 1)


@pytest.mark.parametrize("player", ["model", "random", lambda _: 5, lambda _: {"value": 5}])
def test_a_field_with_an_alias_is_limited_and_answered_by_its_name(player: Any) -> None:
    world = asked(Annotated[int, Field(alias="worth")], limits={"value": (5, 6)})
    said = [{"reasoning": "", "worth": worth, "confidence": 1} for worth in (7, 5)]
    client = make_client(said)
    run = played(world(players=player, llm_client=client), 1)
    assert run.state.said in ("5", "6")
    bounds = [request.schema["properties"]["worth"]["maximum"] for request in requests_of(client)]
    assert bounds == ([6, 6] if player == "model" else [])
    with pytest.raises(ConfigError, match="limits name 7, which Said lacks"):
        asked(int, limits={7: (0, 1)})(players="random").run(1)


DESCRIBED: dict[str, Any] = {"title": "Whom", "description": "whom you tell", "examples": ["Bo"]}


@pytest.mark.parametrize(
    ("annotation", "limits"),
    [
        (Annotated[str, Field(**DESCRIBED)], ["Bo", "Cy"]),
        (Annotated[int, Field(**DESCRIBED)], (0, 5)),
        (Annotated[int | None, Field(**DESCRIBED)], (0, 5)),
        (Annotated[Level, Field(**DESCRIBED)], [1]),
        (Annotated[str, Field(examples=["Bo"], description="whom you tell")] | None, ["Bo", None]),
        (Annotated[Decimal, Field(**DESCRIBED)], (0, 5)),
    ],
)
def test_what_describes_a_field_survives_its_limits(annotation: Any, limits: Any) -> None:
    person = Person()
    run = asked(annotation, limits={"value": limits})(players={"Ann": person})
    [(_, question)] = People(run).next().values()
    assert question.request.schema is not None
    field = question.request.schema["properties"]["value"]
    assert field["description"] == DESCRIBED["description"]
    assert field["examples"] == DESCRIBED["examples"]
    assert field.get("title", "Whom") == "Whom"
    assert "whom you tell" in grammar_of(question.request.schema)
    shown = question.fields["value"]
    assert (shown["description"], shown["examples"]) == ("whom you tell", ["Bo"])
    assert "whom you tell" in str(put(run, question).fields)


class Car(BaseModel):
    kind: Literal["car"] = "car"
    doors: int = Field(ge=2, le=5)


class Bus(BaseModel):
    kind: Literal["bus"] = "bus"
    seats: float = Field(ge=10)


class Corner(NamedTuple):
    x: int
    y: float


class Sum(BaseModel):
    one: int = Field(ge=0, le=10)
    other: int = Field(ge=0, le=10)

    @model_validator(mode="after")
    def adds_up(self) -> Sum:
        if self.one + self.other > 10:
            raise ValueError("more than 10")
        return self


class Tree(BaseModel):
    fruit: int
    left: Tree | None
    branches: list[Tree]


SPRING = Field(ge=dt.date(2026, 3, 1), le=dt.date(2026, 5, 31))


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[Car | Bus, Field(discriminator="kind")],
        list[Annotated[Car | Bus, Field(discriminator="kind")]],
        tuple[int, str, float],
        Corner,
        Annotated[str, Field(pattern=r"^[A-Z]{2}-(\d+|none)[^a]\w*(?:x|y)?$")],
        Annotated[dt.date, SPRING],
        dt.datetime,
        AwareDatetime,
        dt.time,
        Annotated[dt.timedelta, Field(ge=dt.timedelta(hours=1), le=dt.timedelta(hours=2))],
        uuid.UUID,
        UUID7,
        Json[list[Car]],
        Annotated[str, Field(pattern=r"^[ab]+$", min_length=7, max_length=12)],
        tuple[Annotated[int, Field(gt=0, multiple_of=1000)], float],
        Annotated[dict[Literal["a", "b", "c"], Coins], Field(min_length=2)],
        Annotated[dict[int, Coins], Field(min_length=2)],
        tuple[int, Annotated[dict[str, Any], Field(min_length=2)]],
        complex,
        Annotated[Decimal, Field(ge=0, le=20, decimal_places=2)],
        Annotated[set[int], Field(min_length=2)],
        Annotated[dict[str, int], Field(min_length=1)],
        None,
        Sum,
        Tree,
    ],
)
def test_chance_draws_every_kind_of_value(annotation: Any) -> None:
    world = asked(annotation)
    seeds = (*range(8), 0)
    drawn = [played(world(players="random", seed=seed), 1).state.said for seed in seeds]
    assert len(set(drawn)) > (annotation is not None)
    assert drawn[0] == drawn[-1]


def test_what_cannot_be_drawn_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no random text .* the pattern '..pL': .*'\*': 'rule'"):
        asked(Annotated[str, Field(pattern=r"\pL")])(players="random").run(1)
    never = Annotated[Coins, AfterValidator(lambda number: [number].index(21))]
    with pytest.raises(ConfigError, match=r"no random Said for Ann .*'\*': 'rule'"):
        asked(never)(players="random").run(1)
