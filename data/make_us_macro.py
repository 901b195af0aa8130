"""Make the two US data files here from the ``macrodata`` folder that statsmodels ships.

    pip install statsmodels xlrd
    python data/make_us_macro.py [path/to/statsmodels/datasets/macrodata]

The package itself needs neither. ``us_macro_monthly.csv`` is a plain
extract; what ``us_macro_quarterly.csv`` holds, in which units and computed how, stands in
``README.md``.

The quarterly CPI and bill rate are averaged from the months here, since those in statsmodels'
``macrodata.csv`` are dated one month late; ``check_dating`` shows it.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path

import numpy as np
from scipy.linalg import solveh_banded

__all__ = ["COLUMNS", "check_dating", "derive", "hp_trend", "quarter_means", "write"]

FIRST_YEAR = 1959
QUARTERS = 203
COLUMNS = (
    "quarter",
    "real_gdp",
    "gdp_growth",
    "cpi",
    "inflation_qoq_annualised",
    "inflation",
    "unemployment",
    "interest_rate",
    "output_gap",
    "output_gap_one_sided",
)
MONTHLY_COLUMNS = ("month", "cpi", "tbill_3m")
SMOOTHING = 1600.0
FEWEST = 20
"""Quarters: before, a trend's last value says little, and no one-sided gap is given."""

Cell = str | float | None
Row = dict[str, Cell]
Month = tuple[str, float, float]


def read_months(workbook: Path) -> list[Month]:
    """Return month (``1979-07``), CPI and 3-month bill rate from 1959 on."""
    xlrd = importlib.import_module("xlrd")
    book = xlrd.open_workbook(str(workbook))
    sheet = book.sheet_by_name("Monthly")
    header = sheet.row_values(0)
    cpi, bill = header.index("CPIAUCSL"), header.index("TB3MS")
    months: list[Month] = []
    for number in range(1, sheet.nrows):
        values = sheet.row_values(number)
        date = xlrd.xldate_as_datetime(values[0], book.datemode)
        if date.year >= FIRST_YEAR and values[cpi] != "" and values[bill] != "":
            months.append((f"{date.year}-{date.month:02}", float(values[cpi]), float(values[bill])))
    return months


def read_quarters(table: Path) -> list[dict[str, str]]:
    """Return the lines of statsmodels' ``macrodata.csv``."""
    with table.open(encoding="utf-8", newline="") as lines:
        quarters = list(csv.DictReader(lines))
    if len(quarters) != QUARTERS:
        raise SystemExit(f"{table} has {len(quarters)} quarters, not {QUARTERS} (1959Q1 to 2009Q3)")
    return quarters


def quarter_means(months: Sequence[Month]) -> list[tuple[float, float]]:
    """Return each whole quarter's mean CPI and bill rate; the first month is a January."""
    whole = range(0, len(months) - 2, 3)
    return [
        (
            sum(month[1] for month in months[start : start + 3]) / 3,
            sum(month[2] for month in months[start : start + 3]) / 3,
        )
        for start in whole
    ]


def check_dating(months: Sequence[Month], quarters: Sequence[Mapping[str, str]]) -> None:
    """Fail unless ``macrodata.csv`` is one month late in every quarter, as README.md says."""
    for number, line in enumerate(quarters):
        late = months[3 * number + 1 : 3 * number + 4]
        name = f"{line['year']}Q{line['quarter']}"
        if abs(late[2][1] - float(line["cpi"])) > 0.006:
            raise SystemExit(f"{name}: cpi {line['cpi']} is not that of {late[2][0]}, {late[2][1]}")
        mean = sum(month[2] for month in late) / 3
        if abs(mean - float(line["tbilrate"])) > 0.006:
            raise SystemExit(f"{name}: tbilrate {line['tbilrate']} is not {late[0][0]} ff., {mean}")


def derive(
    names: Sequence[str],
    *,
    real_gdp: Sequence[float],
    cpi: Sequence[float],
    unemployment: Sequence[float],
    interest_rate: Sequence[float],
) -> list[dict[str, float | None]]:
    """Return a table's rows from its four measured columns; ``README.md`` has the units."""
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
    # (I + λ K'K) trend = series, K taking second differences: a matrix of five diagonals.
    size = len(series)
    bands = np.zeros((3, size))
    bands[2] = 1 + SMOOTHING * np.convolve(np.ones(size - 2), [1, 4, 1])
    bands[1, 1:] = -2 * SMOOTHING * np.convolve(np.ones(size - 2), [1, 1])
    bands[0, 2:] = SMOOTHING
    return [float(value) for value in solveh_banded(bands, np.asarray(series))]


def one_sided_gap(real_output: Sequence[float]) -> list[float | None]:
    """Return the output gap of each quarter, as its own and earlier quarters alone show it.

    Percent of trend: 100 times the log deviation of the last value from the Hodrick-Prescott trend
    through all values so far; None for the first 19 quarters. What an ex-post gap owes to later
    quarters is not in it, so it is what could be known at the time, but for revisions of the data
    themselves. Source: Orphanides and van Norden (2002), "The unreliability of output-gap estimates
    in real time", Review of Economics and Statistics 84(4).
    """
    logs = [100 * log(value) for value in real_output]
    known = range(FEWEST, len(logs) + 1)
    return [None] * (FEWEST - 1) + [logs[n - 1] - hp_trend(logs[:n])[-1] for n in known]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Write a table: six decimals, blank where a quarter lacks the lags it needs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        for row in rows:
            table.writerow([round(cell, 6) if isinstance(cell, float) else cell for cell in row])


def _source() -> Path:
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    found = importlib.util.find_spec("statsmodels")
    if found is None or found.origin is None:
        raise SystemExit("statsmodels is not installed: give the path of its datasets/macrodata")
    return Path(found.origin).parent / "datasets" / "macrodata"


def main() -> None:
    """Write both tables beside this script."""
    source = _source()
    workbook = source / "src" / "macrodata.xls"
    if workbook.is_dir():  # wheels of statsmodels 0.15 hold it one folder deeper
        workbook /= "macrodata.xls"
    months = read_months(workbook)
    quarters = read_quarters(source / "macrodata.csv")
    check_dating(months, quarters)
    means = quarter_means(months)[:QUARTERS]
    names = [f"{line['year']}Q{line['quarter']}" for line in quarters]
    rows = derive(
        names,
        real_gdp=[float(line["realgdp"]) for line in quarters],
        cpi=[mean[0] for mean in means],
        unemployment=[float(line["unemp"]) for line in quarters],
        interest_rate=[mean[1] for mean in means],
    )
    here = Path(__file__).parent
    write(here / "us_macro_monthly.csv", MONTHLY_COLUMNS, months)
    table = [
        [name, *(row[column] for column in COLUMNS[1:])]
        for name, row in zip(names, rows, strict=True)
    ]
    write(here / "us_macro_quarterly.csv", COLUMNS, table)
    sys.stdout.write(f"{len(months)} months, {len(rows)} quarters from {source.name}\n")


if __name__ == "__main__":
    main()
