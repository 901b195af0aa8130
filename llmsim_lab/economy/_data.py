"""History by quarter: tables for charts, states to start a run from.

Shipped is that of the US, 1959Q1 to 2009Q3; ``load_macro`` reads a user's own. See
``data/README.md`` for columns, sources and caveats. The US short rate is the 3-month Treasury bill,
not the federal funds rate; ``output_gap`` is an ex-post gap.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf, isfinite, isnan, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.files import data_path
from llmsim_lab.economy._macro import STEADY_STATE
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.models import GlobalState, MacroLags, SimulationState

if TYPE_CHECKING:
    import pandas as pd

FIRST_QUARTER = "1959Q1"
FIRST_START = "1960Q1"
"""The first quarter a run can start from: the first with four quarters of inflation."""
LAST_QUARTER = "2009Q3"
START_VALUE = 1000.0

HP_SMOOTHING = 1600.0
FEWEST_QUARTERS = 20
"""Before that many, a trend's last value says little, and no one-sided gap is given."""

_FEWEST_ROWS = 8
_LARGEST_JUMP = 0.25
"""Of the log of output in a quarter: the pandemic's was 0.22 in the hardest hit countries."""
_UNITS: dict[str, tuple[float, tuple[float, float], str]] = {
    "real_gdp": (1e-9, (1e-9, inf), "the level of real output, above 0"),
    "cpi": (1e-9, (1e-9, inf), "a price index, above 0"),
    "unemployment": (0.0, (0.5, 60.0), "percent of the labour force: 6.1, not 0.061"),
    "interest_rate": (-5.0, (0.5, 100.0), "percent per year: 4.5, not 0.045"),
}
"""The measured columns: the smallest value, the range of the largest, the unit."""

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
    - ``output_gap``: percent of trend, 100 · log deviation from a two-sided HP trend (λ = 1600);
    - ``output_gap_one_sided``: the same by a trend through this and earlier quarters alone, as
      ``one_sided_gap`` has it; of the final vintage too.

    Quarters without the lags they need hold NaN.
    """
    import pandas as pd

    rows = _quarters()
    index = pd.PeriodIndex(list(rows), freq="Q", name="quarter")
    return pd.DataFrame(list(rows.values()), index=index, dtype="float64")


def load_macro(path: str | Path, *, vintage: str | None = None) -> pd.DataFrame:
    """Read a quarterly series of one's own: the columns of ``load_us_macro``, from four of them.

    The file is a table (CSV) with the columns ``quarter`` (``1999Q4``, without gaps),
    ``real_gdp`` (any unit, not annualised growth), ``cpi`` (an index), ``unemployment`` (percent)
    and ``interest_rate`` (percent per year). The rest is computed as for the US data.

    Args:
        path: the file.
        vintage: when the data were published, such as ``"2024-05"``; kept in the frame's ``attrs``
            with the path as ``vintage`` and ``source``.

    Returns:
        A frame for ``initial_state(..., data=frame)`` and ``backtest(..., data=frame)``.

    Raises:
        DataError: the file cannot be read, a column or quarter is missing, or numbers have another
            unit than those above.
    """
    import pandas as pd

    path = Path(path)
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            table = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the data {path}: {error}") from error
    measured = _measured(table, path)
    rows = derive(**measured)
    index = pd.PeriodIndex(measured["names"], freq="Q", name="quarter")
    frame = pd.DataFrame(rows, index=index, dtype="float64")
    frame.attrs |= {"source": str(path), "vintage": vintage}
    return frame


def _measured(table: Sequence[Mapping[str, str | None]], path: Path) -> dict[str, Any]:
    """Return a file's columns, with their units checked."""
    if len(table) < _FEWEST_ROWS:
        raise DataError(f"{path} has {len(table)} quarters; at least {_FEWEST_ROWS} are needed")
    if missing := sorted({"quarter", *_UNITS} - table[0].keys()):
        raise DataError(
            f"{path} has no column {', '.join(missing)}; needed are quarter, {', '.join(_UNITS)}"
        )
    names = [next_quarter(line["quarter"], steps=0) for line in table]
    # All lags count rows, so that a missing quarter would shift every one after it.
    for before, name in pairwise(names):
        if name != next_quarter(before):
            raise DataError(f"{path}: after {before} comes {name}; every quarter is needed, once")
    columns: dict[str, Any] = {"names": names}
    for column, (least, most, unit) in _UNITS.items():
        values = []
        for name, line in zip(names, table, strict=True):
            try:
                value = float(line[column] or "")
            except ValueError:
                value = nan
            if not isfinite(value):
                raise DataError(f"{path}: {column} of {name} is {line[column]!r}, not a number")
            values.append(value)
        largest = max(map(abs, values))
        if min(values) < least or not most[0] <= largest <= most[1]:
            raise DataError(
                f"{path}: {column} runs from {min(values):g} to {max(values):g}; it must be {unit}"
            )
        columns[column] = values
    output = columns["real_gdp"]
    for name, before, now in zip(names[1:], output, output[1:], strict=False):
        if abs(log(now / before)) > _LARGEST_JUMP:
            raise DataError(
                f"{path}: real_gdp moves from {before:g} to {now:g} in {name}; it must be the "
                "level of real output, seasonally adjusted, in one unit"
            )
    return columns


def derive(
    names: Sequence[str],
    *,
    real_gdp: Sequence[float],
    cpi: Sequence[float],
    unemployment: Sequence[float],
    interest_rate: Sequence[float],
) -> list[Row]:
    """Return a table's rows from its four measured columns; ``load_us_macro`` has the units."""
    log_gdp, log_cpi = ([log(value) for value in column] for column in (real_gdp, cpi))
    trend = hp_trend(log_gdp)
    known_then = one_sided_gap(real_gdp)
    return [
        {
            "real_gdp": real_gdp[t],
            "gdp_growth": 400 * (log_gdp[t] - log_gdp[t - 1]) if t >= 1 else None,
            "cpi": cpi[t],
            "inflation_qoq_annualised": 400 * (log_cpi[t] - log_cpi[t - 1]) if t >= 1 else None,
            "inflation": 100 * (log_cpi[t] - log_cpi[t - 4]) if t >= 4 else None,
            "unemployment": unemployment[t],
            "interest_rate": interest_rate[t],
            "output_gap": 100 * (log_gdp[t] - trend[t]),
            "output_gap_one_sided": known_then[t],
        }
        for t in range(len(names))
    ]


def hp_trend(series: Sequence[float]) -> list[float]:
    """Return the Hodrick-Prescott trend, λ = 1600: it minimises squared deviations + λ · bends².

    Source: Hodrick and Prescott (1997), "Postwar U.S. business cycles", Journal of Money, Credit
    and Banking 29(1); λ = 1600 is theirs for quarterly data. Two-sided: each value uses the whole
    sample.
    """
    import numpy as np
    from scipy.linalg import solveh_banded

    # (I + λ K'K) trend = series, K taking second differences: a matrix of five diagonals.
    size = len(series)
    bands = np.zeros((3, size))
    bands[2] = 1 + HP_SMOOTHING * np.convolve(np.ones(size - 2), [1, 4, 1])
    bands[1, 1:] = -2 * HP_SMOOTHING * np.convolve(np.ones(size - 2), [1, 1])
    bands[0, 2:] = HP_SMOOTHING
    return [float(value) for value in solveh_banded(bands, np.asarray(series))]


def one_sided_gap(real_output: Sequence[float]) -> list[float | None]:
    """Return the output gap of each quarter, as its own and earlier quarters alone show it.

    Percent of trend: 100 times the log deviation of the last value from the Hodrick-Prescott trend
    through all values so far; None for the first 19 quarters. What an ex-post gap owes to later
    quarters is not in it, so it is what could be known at the time, but for revisions of the data
    themselves. Source: Orphanides and van Norden (2002), "The unreliability of output-gap estimates
    in real time", Review of Economics and Statistics 84(4).

    Args:
        real_output: real output by quarter, above 0, in any unit.
    """
    return [latest_gap(real_output[:count]) for count in range(1, len(real_output) + 1)]


def latest_gap(real_output: Sequence[float]) -> float | None:
    """Return the last value of ``one_sided_gap``, without computing the earlier ones."""
    if len(real_output) < FEWEST_QUARTERS:
        return None
    logs = [100 * log(value) for value in real_output]
    return logs[-1] - hp_trend(logs)[-1]


def history(start: object, quarters: int) -> pd.DataFrame:
    """Return the US table from ``start`` on, ``start`` included.

    It is shorter than ``quarters`` where the data end before (with 2009Q3).

    Args:
        start: such as ``"1979Q3"``, or a quarterly ``pandas.Period``; 1959Q1 to 2009Q3.
        quarters: how many rows, at least 1.
    """
    whole_number("quarters", quarters, least=1)
    first = list(_quarters()).index(_known_quarter(start, FIRST_QUARTER))
    return load_us_macro().iloc[first : first + quarters]


def initial_state(quarter: object, *, data: pd.DataFrame | None = None) -> SimulationState:
    """Return the economy of a quarter as turn 0 of a run, with its real lags and no agents.

    Output is an index, 1000 in that quarter. Growth is that of the data, so the model's identity
    between growth and the gap holds only from turn 1 on.

    Args:
        quarter: such as ``"1979Q3"``, or a quarterly ``pandas.Period``; in the US data 1960Q1 to
            2009Q3, in others from their fifth quarter on.
        data: a frame of ``load_macro``; the US data if not given.
    """
    rows = _quarters() if data is None else _rows_of(data)
    names = list(rows)
    # From the fifth quarter on, since four of inflation take five of prices.
    period = _known_quarter(quarter, FIRST_START if data is None else names[4], last=names[-1])
    here = names.index(period)

    def latest(column: str, count: int) -> list[float]:
        values = [rows[names[here - back]][column] for back in range(count)]
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


@dataclass(frozen=True, slots=True)
class Quarter:
    """What the statistics say of one quarter; percent, rates per year.

    Attributes:
        period: such as ``1979Q3``; None in an undated run.
        inflation: over four quarters; None where the data begin too late for it.
        inflation_in_quarter: on the quarter before, at an annual rate.
        output_gap: of potential output; before a run that of the data, which is history: it was
            not known at the time.
        unemployment: of the labour force.
        interest_rate: in force in the quarter.
    """

    period: str | None
    inflation: float | None
    inflation_in_quarter: float | None
    output_gap: float
    unemployment: float
    interest_rate: float


def quarters_before(quarter: object) -> list[Quarter]:
    """Return the real quarters before one, oldest first."""
    rows = _quarters()
    period = _known_quarter(quarter, FIRST_START)
    return [
        Quarter(
            period=name,
            inflation=row["inflation"],
            inflation_in_quarter=row["inflation_qoq_annualised"],
            output_gap=cast(float, row["output_gap"]),
            unemployment=cast(float, row["unemployment"]),
            interest_rate=cast(float, row["interest_rate"]),
        )
        for name, row in rows.items()
        if name < period
    ]


def mirrored_quarters(quarters: Sequence[Quarter]) -> list[Quarter]:
    """Return quarters with all deviations from the model's steady state turned round.

    Dates are left out, since none of it happened.
    """
    rest = STEADY_STATE

    def turned(value: float | None, around: float) -> float | None:
        return None if value is None else 2 * around - value

    return [
        Quarter(
            period=None,
            inflation=turned(quarter.inflation, rest.inflation),
            inflation_in_quarter=turned(quarter.inflation_in_quarter, rest.inflation),
            output_gap=-quarter.output_gap,
            unemployment=2 * rest.unemployment - quarter.unemployment,
            interest_rate=2 * rest.interest_rate - quarter.interest_rate,
        )
        for quarter in quarters
    ]


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


def _known_quarter(quarter: object, first: str, *, last: str = LAST_QUARTER) -> str:
    period = next_quarter(quarter, steps=0)
    if not first <= period <= last:
        raise DataError(f"quarter={period} is outside the data; choose {first} to {last}")
    return period


def _rows_of(data: pd.DataFrame) -> dict[str, Row]:
    return {
        str(period): {str(name): None if isnan(value) else value for name, value in row.items()}
        for period, row in zip(data.index, data.to_dict("records"), strict=True)
    }


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
