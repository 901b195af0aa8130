"""The committed data: recomputed from their raw columns, and read by the package."""

from __future__ import annotations

import csv
import math
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from builders import loaded

from llmsim_lab import data_path
from llmsim_lab.economy import RudebuschSvensson, initial_state, load_us_macro
from llmsim_lab.economy.data import FIRST_START, LAST_QUARTER, next_quarter
from llmsim_lab.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded(data_path("make_us_macro.py"))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return load_us_macro()


def months() -> list[tuple[str, float, float]]:
    with data_path("us_macro_monthly.csv").open(encoding="utf-8", newline="") as lines:
        return [
            (row["month"], float(row["cpi"]), float(row["tbill_3m"]))
            for row in csv.DictReader(lines)
        ]


# --- the file ---------------------------------------------------------------------------------


def test_the_table_has_203_quarters_from_1959q1_to_2009q3() -> None:
    table = load_us_macro()
    assert table.shape == (203, 9)
    assert table.index.equals(pd.period_range("1959Q1", "2009Q3", freq="Q", name="quarter"))
    blanks = {"inflation": 4, "output_gap_one_sided": 19}
    blanks |= dict.fromkeys(("gdp_growth", "inflation_qoq_annualised"), 1)
    assert table.isna().sum()[[*blanks]].to_dict() == blanks
    assert table.isna().sum().sum() == 25
    table.loc["1979Q3", "cpi"] = 0
    assert load_us_macro().cpi["1979Q3"] > 70  # a changed table does not change the next one


def test_rates_of_change_and_quarterly_means_follow_from_the_raw_columns(
    table: pd.DataFrame,
) -> None:
    for rate, level in (("gdp_growth", "real_gdp"), ("inflation_qoq_annualised", "cpi")):
        change = 400 * np.log(table[level]).diff()
        assert (table[rate] - change).abs().max() < 1e-4
    mean = table.inflation_qoq_annualised.rolling(4).mean()
    assert (table.inflation - mean).abs().max() < 1e-5
    by_month = {month: values for month, *values in months()}
    for quarter in table.index:
        own = [by_month[f"{quarter.year}-{3 * quarter.quarter - back:02}"] for back in range(3)]
        assert table.cpi[quarter] == pytest.approx(sum(m[0] for m in own) / 3, abs=1e-6)
        assert table.interest_rate[quarter] == pytest.approx(sum(m[1] for m in own) / 3, abs=1e-6)


def test_the_committed_table_is_what_the_script_makes(
    script: ModuleType, table: pd.DataFrame
) -> None:
    means = script.quarter_means(months())[: len(table)]
    rows = script.derive(
        [str(quarter) for quarter in table.index],
        real_gdp=table.real_gdp.tolist(),
        cpi=[mean[0] for mean in means],
        unemployment=table.unemployment.tolist(),
        interest_rate=[mean[1] for mean in means],
    )
    made = pd.DataFrame(rows)
    assert ("quarter", *rows[0]) == script.COLUMNS
    differences = made.to_numpy(dtype=float) - table.to_numpy()
    assert differences[19:] == pytest.approx(0, abs=1e-5)
    assert differences[4:19, :-1] == pytest.approx(0, abs=1e-5)


def test_the_trend_solves_the_filters_first_order_condition(script: ModuleType) -> None:
    series = [math.sin(t) + 0.1 * t for t in range(12)]
    bends = np.diff(np.eye(12), 2, axis=0)
    solved = np.linalg.solve(np.eye(12) + 1600 * bends.T @ bends, series)
    assert script.hp_trend(series) == pytest.approx(solved)


# --- plausible history ------------------------------------------------------------------------


def test_1979q3_has_the_published_figures(table: pd.DataFrame) -> None:
    # CPI July to September 1979: 73.0, 73.7, 74.4; bill rate 9.24, 9.52, 10.26.
    row = table.loc["1979Q3"]
    assert row.output_gap == pytest.approx(2.61, abs=0.005)
    assert row.output_gap_one_sided == pytest.approx(-0.12, abs=0.005)
    assert row.cpi == pytest.approx(73.7)
    assert row.interest_rate == pytest.approx(9.6733, abs=1e-3)
    assert (row.unemployment, row.real_gdp) == (5.9, 5873.335)
    # Where historians see slumps and booms, and the extremes.
    assert (table.output_gap[["1975Q1", "1982Q4", "2009Q2"]] < -2).all()
    assert (table.output_gap[["1973Q2", "1978Q4", "2000Q2"]] > 1).all()
    highest = table[["inflation", "unemployment", "interest_rate"]].idxmax()
    assert [*map(str, highest)] == ["1980Q2", "1982Q4", "1981Q3"]


# --- reading it -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1979Q3", "1979q3", " 1979-Q3 ", pd.Period("1979Q3", freq="Q")])
def test_a_quarter_may_be_written_in_several_ways(text: object) -> None:
    assert initial_state(text).period == "1979Q3"


def test_the_initial_state_holds_the_data_and_their_real_lags(table: pd.DataFrame) -> None:
    state = initial_state("1979Q3")
    assert (state.turn, state.agents, state.global_state.total_economic_value) == (0, {}, 1000)
    now = state.global_state
    row = table.loc["1979Q3"]
    assert now.interest_rate == row.interest_rate
    assert now.inflation == pytest.approx(row.inflation, abs=1e-5)
    assert (now.unemployment, now.gdp_growth) == (row.unemployment, row.gdp_growth)
    back = table.loc["1978Q4":"1979Q3"].iloc[::-1]
    assert now.lags.inflation == tuple(back.inflation_qoq_annualised)
    assert now.lags.interest_rate == tuple(back.interest_rate)
    assert now.lags.output_gap == tuple(back.output_gap.iloc[:2])


def test_every_quarter_from_1960_on_can_start_a_run(table: pd.DataFrame) -> None:
    model = RudebuschSvensson()
    for quarter in table.index[4:]:
        state = initial_state(quarter).global_state
        assert model.advance(state, interest_rate=state.interest_rate).unemployment > 0


@pytest.mark.parametrize("quarter", ["1959Q4", "2009Q4", "1850Q1"])
def test_a_start_outside_the_data_names_the_first_and_last_quarter(quarter: str) -> None:
    with pytest.raises(DataError, match=f"{quarter} is outside .* {FIRST_START} to {LAST_QUARTER}"):
        initial_state(quarter)


@pytest.mark.parametrize("text", ["1979", "1979Q5", "Q3 1979", "", None, 1979.5])
def test_text_that_is_not_a_quarter_shows_the_right_form(text: object) -> None:
    with pytest.raises(ConfigError, match="1979Q3"):
        initial_state(text)


@pytest.mark.parametrize(
    ("quarter", "steps", "expected"),
    [("1979Q4", 1, "1980Q1"), ("1980Q1", -1, "1979Q4"), ("1979Q3", 8, "1981Q3")],
)
def test_quarters_count_on_across_years(quarter: str, steps: int, expected: str) -> None:
    assert next_quarter(quarter, steps=steps) == expected
