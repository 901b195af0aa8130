"""Make the two US data files here from the ``macrodata`` folder that statsmodels ships.

    pip install statsmodels xlrd
    python data/make_us_macro.py [path/to/statsmodels/datasets/macrodata]

The package itself, which this script imports, needs neither. ``us_macro_monthly.csv`` is a plain
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
from pathlib import Path

from llmsim_lab.economy._data import derive

__all__ = ["COLUMNS", "check_dating", "quarter_means", "write"]

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
