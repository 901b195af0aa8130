"""A user's own quarterly series: read with their units checked, then used like the US data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from llmsim_lab.economy import backtest, initial_state, load_macro, load_us_macro
from llmsim_lab.errors import DataError

MEASURED = ("real_gdp", "cpi", "unemployment", "interest_rate")


def write(
    path: Path,
    changes: Mapping[str, Sequence[object]] | None = None,
    *,
    columns: Sequence[str] = MEASURED,
    rows: slice = slice(None, 60),
) -> Path:
    table = load_us_macro()[list(columns)].astype(object).iloc[rows]
    table.index = table.index.astype(str)
    for column, values in (changes or {}).items():
        table[column] = values
    table.to_csv(path, index_label="quarter")
    return path


def test_the_rest_is_computed_as_for_the_us(tmp_path: Path) -> None:
    own = load_macro(write(tmp_path / "own.csv", rows=slice(None)), vintage="2009-12")
    us = load_us_macro()
    assert list(own.columns) == list(us.columns)
    assert (own.index == us.index).all()
    assert (own - us).abs().max().max() < 1e-5
    assert own.attrs["vintage"] == "2009-12"
    assert own.attrs["source"].endswith("own.csv")


def test_a_run_starts_from_it(tmp_path: Path) -> None:
    own = load_macro(write(tmp_path / "own.csv"))
    ours, theirs = initial_state("1970Q1", data=own), initial_state("1970Q1")
    assert ours.period == "1970Q1"
    for name in ("inflation", "interest_rate", "unemployment"):
        ours_now, theirs_now = (getattr(s.global_state, name) for s in (ours, theirs))
        assert ours_now == pytest.approx(theirs_now, abs=1e-5)
    with pytest.raises(DataError, match="1960Q1 to 1973Q4"):
        initial_state("1980Q1", data=own)


def test_a_rule_is_compared_with_it(tmp_path: Path) -> None:
    own = load_macro(write(tmp_path / "own.csv"))
    there = backtest(first="1966Q1", last="1970Q4", data=own)
    here = backtest(first="1966Q1", last="1970Q4")
    assert there.attrs["rmse_rule"] == pytest.approx(here.attrs["rmse_rule"], abs=1e-4)
    assert len(own.columns) == 9  # a column of the comparison's was not left behind


@pytest.mark.parametrize(
    ("column", "factor", "unit"),
    [
        ("interest_rate", 0.01, "percent per year: 4.5, not 0.045"),
        ("unemployment", 0.01, "percent of the labour force: 6.1, not 0.061"),
        ("unemployment", 20, "percent of the labour force"),
        ("cpi", -1, "a price index"),
        ("real_gdp", 0, "the level of real output"),
    ],
)
def test_another_unit_is_noticed(tmp_path: Path, column: str, factor: float, unit: str) -> None:
    values = (load_us_macro()[column].iloc[:60] * factor).tolist()
    path = write(tmp_path / "own.csv", {column: values})
    with pytest.raises(DataError, match=f"{column} runs from .*{unit}"):
        load_macro(path)


def test_growth_is_not_taken_for_a_level(tmp_path: Path) -> None:
    growth = [3.0, 1.0] * 30
    with pytest.raises(DataError, match="real_gdp moves from 3 to 1 in 1959Q2"):
        load_macro(write(tmp_path / "own.csv", {"real_gdp": growth}))


@pytest.mark.parametrize("cell", ["", "n/a", "nan", "inf"])
def test_a_cell_that_is_not_a_number_is_named(tmp_path: Path, cell: str) -> None:
    values = load_us_macro()["cpi"].iloc[:60].astype(object).tolist()
    values[3] = cell
    with pytest.raises(DataError, match="cpi of 1959Q4"):
        load_macro(write(tmp_path / "own.csv", {"cpi": values}))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column cpi; needed are quarter, real_gdp"):
        load_macro(
            write(tmp_path / "own.csv", columns=("real_gdp", "unemployment", "interest_rate"))
        )


def test_a_missing_quarter_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "own.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:5] + lines[6:]))
    with pytest.raises(DataError, match="after 1959Q4 comes 1960Q2"):
        load_macro(path)


def test_too_few_quarters_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 5 quarters; at least 8"):
        load_macro(write(tmp_path / "own.csv", rows=slice(5)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the data .*none\.csv"):
        load_macro(tmp_path / "none.csv")


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot read the data"):
        load_macro(path)
