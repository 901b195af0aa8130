"""What of a world of one's own is charted, in which order, and on which axis."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, computed_field

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import PublishedFigure
from llmsim_lab.run import Series
from llmsim_lab.run.charts import (
    Network,
    axis_of,
    charts_of,
    field_in_words,
    lines_of_chart,
    networks_of,
    series_of,
    tables_in,
)
from llmsim_lab.run.reading import Reading
from llmsim_lab.tape import RunInfo


class Firm(State):
    cash: float = 5.0


class Town(State):
    belief: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field({"Ann": 0.5, "Bob": 0.25})
    price: Annotated[float, Series(unit="coins", label="Price of bread")] = 3.0
    firms: dict[str, Firm] = Field({"Mill": Firm()})
    open: bool = True
    secret: dict[str, int] = Field({"Ann": 7}, repr=False)
    friends: dict[str, list[str]] = Field({"Ann": ["Bob"], "Bob": []})
    said: dict[str, str] = Field({"Ann": "hello"})


class Rumour(Run[Town]):
    async def turn(self, state: Town, ask: Ask) -> Town:
        ask.note(told=2)
        return state.replace(belief={**state.belief, "Cy": 1.0})


class InOrder(Rumour):
    charts = ("told", Series(column="belief", label="Believes it"), "belief.Bob")


class Named(Rumour):
    @property
    def series(self) -> Any:
        return ["price"]


class Published(Rumour):
    def people(self) -> dict[str, PublishedFigure]:
        figure = PublishedFigure(
            study="fair_1999", condition="", source="", place="", n=45, mean=2.5, sd=None
        )
        return {"price": figure, "price@3": figure}


class Mistyped(Rumour):
    charts = ("beleif",)


def columns(charts: list[Series]) -> list[str]:
    return [chart.column for chart in charts]


def shown(run: Run[Any]) -> dict[str, Any]:
    reading = Reading("")
    reading.add(RunInfo(id=1, name="", verb="run", started="", turns=0, calls=0, manifest={}), run)
    return reading.runs[1]


def test_numbers_that_stand_alone_come_first_and_a_dict_is_one_chart_with_a_line_a_key() -> None:
    run = Rumour()
    run.run(1)
    charts = charts_of(run)
    assert columns(charts) == ["price", "open", "told", "belief.*", "firms.*.cash"]
    assert str(charts[0]) == "Price of bread (coins)"
    belief = charts[3]
    assert (belief.label, belief.low, belief.high) == ("belief", 0, 1)
    assert lines_of_chart(belief, run.to_frame()) == {
        "Ann": "belief.Ann",
        "Bob": "belief.Bob",
        "Cy": "belief.Cy",
    }
    assert columns(series_of(run))[:4] == ["price", "open", "told", "belief.Ann"]


def test_a_class_orders_and_limits_its_charts_by_names_of_fields_and_columns() -> None:
    run = InOrder()
    run.run(1)
    charts = charts_of(run)
    assert columns(charts) == ["told", "belief.*", "belief.Bob"]
    assert (charts[1].label, charts[1].high) == ("Believes it", 1)


def test_series_may_name_columns_which_then_come_first() -> None:
    run = Named()
    assert columns(charts_of(run))[0] == "price"
    assert [str(item) for item in series_of(run)] == ["price"]


def test_a_chart_of_a_name_that_no_turn_has_is_told_beside_the_run() -> None:
    run = Mistyped()
    assert shown(run)["notes"] == []
    run.run(1)
    [note] = shown(run)["notes"]
    assert note.startswith(
        "Mistyped.charts names 'beleif', which is no column of numbers here (did"
    )


def test_what_people_did_stands_beside_a_chart_in_all_turns_or_in_one() -> None:
    whole = {"column": "price", "mean": 2.5, "count": 45}
    assert shown(Published())["people"] == [whole, {**whole, "n": 3}]


def test_a_hidden_field_is_in_no_chart_table_or_row() -> None:
    record = shown(Rumour())
    assert not [name for name in record["columns"] if "secret" in name]
    assert tables_in(Town(), frozenset({"friends"})) == {"said": '{"Ann":"hello"}'}


def test_texts_and_ties_of_players_are_shown_a_line_each() -> None:
    assert tables_in(Town(), frozenset()) == {
        "friends": '{"Ann":["Bob"]}\n{"Bob":[]}',
        "said": '{"Ann":"hello"}',
    }
    assert tables_in({"edges": [["a", "b"]], "numbers": [1]}, frozenset()) == {"edges": '["a","b"]'}
    assert tables_in({"log": ["x" * 9999] * 3}, frozenset()) == {}


def test_a_network_is_a_dict_of_lists_of_its_own_keys_or_a_list_of_pairs() -> None:
    run = Rumour()
    [network] = networks_of(run, run.turns[0])
    assert network == Network(label="friends", names=["Ann", "Bob"], pairs=[("Ann", "Bob")])
    assert networks_of(InOrder(), run.turns[0]) == [], "it names its charts, and no network"


class Counted(State):
    belief: dict[str, float] = Field({"Ann": 1.0, "Bob": 0.2})
    talks: int = Field(0, frozen=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def believers_pct(self) -> Annotated[float, Series(label="Who believes it", high=100)]:
        return 100 * sum(share > 0.5 for share in self.belief.values()) / len(self.belief)


class Talk(Run[Counted]):
    charts = ("believers_pct", "talks")

    async def turn(self, state: Counted, ask: Ask) -> Counted:
        return state.replace(belief={"Ann": 1.0, "Bob": 0.8}, talks=state.talks + 1)


def test_a_computed_number_is_a_column_and_a_chart_of_its_own_and_nobody_sets_it() -> None:
    run = Talk()
    assert run.run(1)["believers_pct"].tolist() == [50, 100]
    chart = charts_of(run)[0]
    assert (str(chart), chart.high) == ("Who believes it (%)", 100)
    with pytest.raises(ConfigError, match="the state has nothing called 'believers_pct'"):
        run.fork(1, intervene={"believers_pct": 0})
    message = r"talks cannot be set: Counted.talks is a Field\(frozen=True\)"
    with pytest.raises(ConfigError, match=message):
        run.fork(1, intervene={"talks": 5})
    assert run.fork(1, intervene={"belief.Ann": 0}).state.believers_pct == 50


AXES: list[tuple[list[float], Series, tuple[float, float]]] = [
    ([True, False], Series(), (0, 1)),
    ([0.3, 0.4], Series(), (0, 1)),
    ([0.3, 0.4], Series(low=0, high=1), (0, 1)),
    ([5.0, 15.0], Series(low=0, high=20), (0, 20)),
    ([5.0, 6.0], Series(low=0, high=20), (4.92, 6.08)),
    ([5.2, 5.4], Series(unit="% per year"), (4.3, 6.3)),
    ([1000, 1010], Series(), (954.5, 1055.5)),
    ([0, 3], Series(), (0, 3.24)),
    ([7, 7], Series(), (6.65, 7.35)),
    ([0, 0], Series(), (0, 0.5)),
]


@pytest.mark.parametrize(("values", "chart", "axis"), AXES)
def test_an_axis_shows_shares_whole_and_noise_small(
    values: list[float], chart: Series, axis: tuple[float, float]
) -> None:
    assert axis_of(values, chart) == pytest.approx(axis)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rate_change_bp", 75, "rate change 75 bp"),
        ("price_eur", "unknown", "price eur unknown"),
        ("is_valid", False, "is not valid"),
        ("accepted", True, "accepted"),
    ],
)
def test_a_field_is_told_in_words_with_its_unit_behind_a_number(
    name: str, value: object, words: str
) -> None:
    assert field_in_words(name, value, str(value)) == words
