"""US history by quarter, 1959Q1 to 2009Q3: tables for charts, states to start a run from.

See ``data/README.md`` for columns, sources and caveats. The short rate is the 3-month Treasury
bill, not the federal funds rate; the output gap is an ex-post one.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from typing import TYPE_CHECKING

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.models import GlobalState, MacroLags, SimulationState

if TYPE_CHECKING:
    import pandas as pd

FIRST_QUARTER = "1959Q1"
FIRST_START = "1960Q1"
"""The first quarter a run can start from: the first with four quarters of inflation."""
LAST_QUARTER = "2009Q3"
START_VALUE = 1000.0

_QUARTER = re.compile(r"(\d{4})-?Q([1-4])")

Row = dict[str, float | None]


def load_us_macro() -> pd.DataFrame:
    """Return the whole table, one row a quarter, as a fresh copy.

    The index is a quarterly ``PeriodIndex`` named ``quarter``. Columns:

    - ``real_gdp``: billions of chained 2005 dollars, seasonally adjusted annual rate;
    - ``gdp_growth``: on the quarter before, percent at an annual rate, 400 · log change;
    - ``cpi``: consumer prices, mean of the quarter's months, 1982-84 = 100;
    - ``inflation_qoq_annualised``: on the quarter before, percent at an annual rate, 400 · log
      change;
    - ``inflation``: over four quarters, percent, 100 · log change: the mean of four of the former;
    - ``unemployment``: percent of the labour force;
    - ``interest_rate``: 3-month Treasury bill, percent per year, mean of the quarter's months;
    - ``output_gap``: percent of trend, 100 · log deviation from a two-sided HP trend (λ = 1600).

    Quarters without the lags they need hold NaN.
    """
    import pandas as pd

    rows = _quarters()
    index = pd.PeriodIndex(list(rows), freq="Q", name="quarter")
    return pd.DataFrame(list(rows.values()), index=index, dtype="float64")


def history(start: object, quarters: int) -> pd.DataFrame:
    """Return the table from ``start`` on, ``start`` included.

    It is shorter than ``quarters`` where the data end before (with 2009Q3).

    Args:
        start: such as ``"1979Q3"``, or a quarterly ``pandas.Period``; 1959Q1 to 2009Q3.
        quarters: how many rows, at least 1.
    """
    whole_number("quarters", quarters, least=1)
    first = list(_quarters()).index(_known_quarter(start, FIRST_QUARTER))
    return load_us_macro().iloc[first : first + quarters]


def initial_state(quarter: object) -> SimulationState:
    """Return the US economy of a quarter as turn 0 of a run, with its real lags and no agents.

    Output is an index, 1000 in that quarter. Growth is that of the data, so the model's identity
    between growth and the gap holds only from turn 1 on.

    Args:
        quarter: such as ``"1979Q3"``, or a quarterly ``pandas.Period``; 1960Q1 to 2009Q3.
    """
    period = _known_quarter(quarter, FIRST_START)
    names = list(_quarters())
    here = names.index(period)

    def latest(column: str, count: int) -> list[float]:
        values = [_quarters()[names[here - back]][column] for back in range(count)]
        return [value for value in values if value is not None]

    p0, p1, p2, p3 = latest("inflation_qoq_annualised", 4)
    i0, i1, i2, i3 = latest("interest_rate", 4)
    gap, gap_before = latest("output_gap", 2)
    return SimulationState(
        period=period,
        global_state=GlobalState(
            interest_rate=i0,
            total_economic_value=START_VALUE,
            gdp_growth=latest("gdp_growth", 1)[0],
            inflation=((p0 + p1) + (p2 + p3)) / 4,
            unemployment=latest("unemployment", 1)[0],
            output_gap=gap,
            lags=MacroLags((p0, p1, p2, p3), (gap, gap_before), (i0, i1, i2, i3)),
        ),
    )


def next_quarter(quarter: object, *, steps: int = 1) -> str:
    """Return the quarter ``steps`` later (earlier if negative): 1980Q1 after 1979Q4."""
    year, number = _parse(quarter)
    years, rest = divmod(number - 1 + steps, 4)
    return f"{year + years:04}Q{rest + 1}"


def _parse(quarter: object) -> tuple[int, int]:
    found = _QUARTER.fullmatch(str(quarter).strip().upper())
    if found is None:
        raise ConfigError(f"quarter={quarter!r} is not of the form 1979Q3")
    return int(found[1]), int(found[2])


def _known_quarter(quarter: object, first: str) -> str:
    year, number = _parse(quarter)
    period = f"{year:04}Q{number}"
    if not first <= period <= LAST_QUARTER:
        raise DataError(f"quarter={period} is outside the data; choose {first} to {LAST_QUARTER}")
    return period


@cache  # the rows are not changed; ``load_us_macro`` makes a new frame each time
def _quarters() -> dict[str, Row]:
    """Return the file's rows by quarter, read once."""
    with data_path("us_macro_quarterly.csv").open(encoding="utf-8", newline="") as lines:
        return {
            line.pop("quarter"): {
                name: float(text) if text else None for name, text in line.items()
            }
            for line in csv.DictReader(lines)
        }
