"""What a central bank is told: figures with unit and horizon, the state's own."""

from __future__ import annotations

import pytest

from llmsim_lab.agents.briefing import NationProfile, briefing, known_quarters, view_of
from llmsim_lab.economy import initial_state, load_us_macro
from llmsim_lab.models import GlobalState, SimulationState


def values(*states: SimulationState, masked: bool = True, target: float = 2.0) -> dict[str, str]:
    view = view_of(NationProfile(inflation_target=target), states[-1].global_state.inflation)
    return {**briefing(known_quarters(states, us_from=states[0].period), masked=masked), **view}


def rows(history: str) -> list[list[str]]:
    return [line.split(" | ") for line in history.splitlines()]


def test_the_table_holds_the_last_eight_quarters_of_the_data() -> None:
    title, *quarters = rows(values(initial_state("1979Q3"), masked=False)["history"])
    data = load_us_macro().loc["1977Q4":"1979Q3"]
    assert title[0] == "quarter"
    assert all("%" in name for name in title[1:])
    assert [row[0] for row in quarters] == [str(period) for period in data.index]
    columns = ("inflation", "inflation_qoq_annualised", "output_gap", "unemployment")
    for number, column in enumerate((*columns, "interest_rate"), start=1):
        known = [float(row[number]) for row in quarters]
        assert known == pytest.approx(data[column].tolist(), abs=0.0051), column
    assert float(quarters[-1][6]) == pytest.approx(9.673333 - 11.085324, abs=0.0051)


def test_masked_quarters_are_counted_back_from_now() -> None:
    found = values(initial_state("1979Q3"))
    assert [row[0] for row in rows(found["history"])[1:]] == [*map(str, range(-7, 0)), "now"]
    assert not any("19" in value and "Q" in value for value in found.values())


def test_an_undated_run_follows_steady_growth_without_a_gap() -> None:
    slump = SimulationState(global_state=GlobalState(output_gap=-5.0))
    _, *before, now = rows(values(slump)["history"])
    assert {tuple(row[1:]) for row in before} == {("2.00", "2.00", "0.00", "5.00", "4.00", "2.00")}
    assert now[3] == "-5.00"


def test_the_distance_from_target_and_neutral_is_said_in_words() -> None:
    found = values(initial_state("1979Q3"))
    assert found["distance"] == "9.09 percentage points above"
    assert found["stance"] == "3.41 percentage points below"
    steady = values(SimulationState())
    assert (steady["distance"], steady["stance"]) == ("at", "at")
    near = values(SimulationState(), target=1.0)
    assert near["distance"] == "1 percentage point above"


def test_what_the_data_cannot_say_is_not_known() -> None:
    found = values(initial_state("1960Q1"))
    _, *quarters = rows(found["history"])
    assert len(quarters) == 5
    assert quarters[0][1] == quarters[0][6] == "not known"
    assert quarters[-1][1] != "not known"
