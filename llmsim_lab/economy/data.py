"""US history by quarter, 1959Q1 to 2009Q3: a table for charts, states to start a run from.

See ``data/README.md`` for columns, sources and caveats. The short rate is the 3-month Treasury
bill, not the federal funds rate; ``output_gap`` is an ex-post gap.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from llmsim_lab._util.files import data_path
from llmsim_lab._util.text import brief
from llmsim_lab.economy.macro import STEADY_STATE, economy_of
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.models import MacroLags, SimulationState

if TYPE_CHECKING:
    import pandas as pd

FIRST_START = "1960Q1"
"""The first quarter that a run can start from: the first with four quarters of inflation."""
LAST_QUARTER = "2009Q3"
START_VALUE = 1000.0

_QUARTER = re.compile(r"(\d{4})-?Q([1-4])")


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
    - ``output_gap``: percent of trend, 100 · log deviation from a two-sided HP trend (λ = 1600);
    - ``output_gap_one_sided``: the same by a trend through this and earlier quarters alone; of the
      the final vintage too.

    Values whose lags are missing are NaN.
    """
    import pandas as pd

    rows = _quarters()
    # A period, not a date, since the figures are those of the whole quarter.
    index = pd.PeriodIndex(
        list(rows),
        freq="Q",
        name="quarter",
    )
    return pd.DataFrame(
        list(rows.values()),
        index=index,
        dtype="float64",
    )


def initial_state(quarter: object) -> SimulationState:
    """Return the economy of a quarter as turn 0 of a run, with its real lags and no agents.

    Output is an index, 1000 in that quarter. Growth is that of the data, so the model's identity
    between growth and the gap holds only from turn 1 on.

    Args:
        quarter: such as ``"1979Q3"``, or a quarterly ``pandas.Period``; 1960Q1 to 2009Q3.
    """
    period = start_quarter(quarter)
    # Names such as 1979Q3 sort by time.
    until = [row for name, row in _quarters().items() if name <= period]
    # Inflation over four quarters needs four; the gap's equation needs two.
    now, before, third, fourth = until[:-5:-1]
    four_quarters = (now, before, third, fourth)
    inflation: Any = tuple(row["inflation_qoq_annualised"] for row in four_quarters)
    rates: Any = tuple(row["interest_rate"] for row in four_quarters)
    gaps = (now["output_gap"], before["output_gap"])
    economy = economy_of(
        MacroLags(inflation, gaps, rates),
        gdp_growth=now["gdp_growth"],
        unemployment=now["unemployment"],
        total_economic_value=START_VALUE,
    )
    return SimulationState(period=period, global_state=economy)


class Quarter(NamedTuple):
    """The statistics of one quarter; percent, rates per year.

    Attributes:
        period: such as ``1979Q3``; None in an undated run.
        inflation: over four quarters; None where the data begin too late for it.
        inflation_in_quarter: on the quarter before, at an annual rate.
        output_gap: of potential output; before a run it is that of the data, which was not known
            at the time.
        unemployment: of the labour force.
        interest_rate: in force in the quarter.
    """

    period: str | None
    inflation: float | None
    inflation_in_quarter: float | None
    output_gap: float
    unemployment: float
    interest_rate: float


def quarters_before(
    quarter: object,
    *,
    mirrored: bool = False,
) -> list[Quarter]:
    """Return the real quarters before one, oldest first.

    Args:
        quarter: such as ``1979Q3``.
        mirrored: whether all deviations from the model's steady state have the opposite sign. Dates
            are then left out, since these quarters never happened.
    """
    first = start_quarter(quarter)
    quarters = []
    for period, row in _quarters().items():
        # Up to the quarter before, since the run starts from the state of the quarter itself.
        if period >= first:
            break
        read = _mirrored_figure if mirrored else dict.__getitem__
        quarters.append(
            Quarter(
                period=None if mirrored else period,
                inflation=read(row, "inflation"),
                inflation_in_quarter=read(row, "inflation_qoq_annualised"),
                output_gap=read(row, "output_gap"),
                unemployment=read(row, "unemployment"),
                interest_rate=read(row, "interest_rate"),
            )
        )
    return quarters


def _mirrored_figure(row: Mapping[str, Any], name: str) -> Any:
    """Return a figure of a quarter, mirrored around the model's steady state."""
    value = row[name]
    if value is None:
        return None
    # In the steady state, inflation in a quarter equals inflation over four.
    level = name.removesuffix("_qoq_annualised")
    return 2 * getattr(STEADY_STATE, level) - value


def next_quarter(
    quarter: object,
    *,
    steps: int = 1,
) -> str:
    """Return the quarter ``steps`` later (earlier if negative): 1980Q1 after 1979Q4."""
    try:
        # Also pandas's Period.
        text = str(quarter).strip().upper()
    except Exception:  # noqa: BLE001 - a value's own code, or a number of over 4,300 digits
        text = ""
    match = _QUARTER.fullmatch(text)
    if match is None:
        raise ConfigError(f"quarter={brief(quarter)} is not of the form 1979Q3")
    year = int(match[1])
    # Counted from 0, for divmod.
    place = int(match[2]) - 1
    # divmod rounds down, also for negative steps.
    years, rest = divmod(place + steps, 4)
    return f"{year + years:04}Q{rest + 1}"


def start_quarter(quarter: object) -> str:
    """Return a quarter that a run can start from, in the form ``1979Q3``."""
    period = next_quarter(quarter, steps=0)
    if not FIRST_START <= period <= LAST_QUARTER:
        raise DataError(
            f"quarter={period} is outside the data; choose {FIRST_START} to {LAST_QUARTER}"
        )
    return period


@cache  # safe, since no caller changes the rows: ``load_us_macro`` makes a new frame
def _quarters() -> dict[str, dict[str, Any]]:
    """Return the file's rows by quarter, read once; values whose lags are missing are None."""
    rows: dict[str, dict[str, Any]] = {}
    path = data_path("us_macro_quarterly.csv")
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            quarter = line.pop("quarter")
            rows[quarter] = {name: _number(text) for name, text in line.items()}
    return rows


def _number(text: str) -> float | None:
    if not text:
        return None
    return float(text)
