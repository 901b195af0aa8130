"""Tables for other programs: frames of plain columns, and CSV that no spreadsheet runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from llmsim_lab._util.text import printable, whole_text

if TYPE_CHECKING:
    import pandas as pd

# The full-width signs too, which Excel takes for = + - @ where it is Japanese or Chinese.
_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r", "\n", *"\uff1d\uff0b\uff0d\uff20")

_FEW_CELLS = 1_000_000
"""Of a table that may be as empty as it likes."""
_MOST_CELLS_A_VALUE = 16
"""Of a larger one."""
_KEPT = "\n\t\u00a0\u202f"
"""Characters that Python does not count as printable, and that are harmless."""


def frame_of(
    rows: Any,
    columns: list[str] | None = None,
) -> pd.DataFrame:
    """Return rows, or columns by their names, as a frame; pandas is imported only then."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def columns_of(rows: Iterable[Mapping[str, object]]) -> dict[str, None]:
    """Return the columns that rows name, in the order in which they come first."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row))
    return columns


def is_reasonable(
    rows: Sized,
    columns: int,
    *,
    values: int | None = None,
) -> bool:
    """Return True unless a table of rows would be large and nearly empty.

    A file of megabytes may name thousands of other columns in each row.

    Args:
        rows: the rows.
        columns: how many they name together.
        values: how many there are in all rows; counted if not given.
    """
    cells = len(rows) * columns
    if cells <= _FEW_CELLS:
        return True
    if values is None:
        values = sum(map(len, cast("Iterable[Sized]", rows)))
    return cells <= _MOST_CELLS_A_VALUE * values


def plain_frame(
    rows: Sequence[Mapping[str, object]],
    columns: Iterable[str],
) -> pd.DataFrame:
    """Return a frame whose columns hold one type each, so that ``to_parquet`` takes it.

    A column is of truth values, whole numbers, numbers or texts, with missing values where a row
    has none. Where it would be mixed, or hold lists and objects, it is of texts: those, as JSON.

    Args:
        rows: by column.
        columns: their names, in order.
    """
    import pandas as pd

    values: dict[str, pd.Series[Any]] = {}
    for name in columns:
        of_rows = [row.get(name) for row in rows]
        values[_text(name)] = _column(of_rows)
    # With an index, so that a table without columns has its rows all the same.
    return pd.DataFrame(values, index=pd.RangeIndex(len(rows)))


def _column(values: list[Any]) -> pd.Series[Any]:
    import pandas as pd

    present = [value for value in values if value is not None]
    has_gaps = len(present) < len(values)
    types = set(map(_column_type, present))
    # pandas' own types have missing values; numpy's are kept where nothing is missing.
    if types == {bool}:
        return pd.Series(values, dtype="boolean" if has_gaps else "bool")
    if types == {int}:
        # Beyond 64 bits there is no column of whole numbers; such are texts, which keep all digits.
        fits = min(present) >= -(2**63) and max(present) < 2**63
        if fits:
            return pd.Series(values, dtype="Int64" if has_gaps else "int64")
    if types in ({float}, {int, float}):
        with suppress(OverflowError):  # a whole number that no float can hold
            numbers = [value if value is None else float(value) for value in values]
            return pd.Series(numbers, dtype="float64")
    texts = [value if value is None else _text(value) for value in values]
    return pd.Series(texts, dtype="object")


def _column_type(value: object) -> type:
    """Return what a column would be of that holds values like this one."""
    for number_type in (bool, int, float):  # bool first, since True is an int too
        if isinstance(value, number_type):
            return number_type
    return str


def _text(value: object) -> str:
    if isinstance(value, str):
        return whole_text(value)
    return whole_text(
        json.dumps(
            value,
            ensure_ascii=False,
            default=str,
        )
    )


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV, without its index, as every CSV file of this package is written.

    Texts in it may be a model's or come from a file of unknown origin. One that a spreadsheet
    would take for a formula gets an apostrophe in front, and control codes are taken out; numbers
    stay numbers.
    """
    of_texts = frame.select_dtypes(exclude=["number", "bool"])
    texts = of_texts.map(csv_cell, na_action="ignore")
    # A column's name may come from a model too.
    safe = frame.assign(**texts).rename(columns=csv_cell)
    # The same line ends on Windows: files are compared by their bytes.
    return safe.to_csv(index=False, lineterminator="\n")


def csv_cell(value: object) -> object:
    """Return a value as a cell that no spreadsheet takes for a formula, without control codes."""
    if isinstance(value, bool | int | float):
        return value
    text = printable(_text(str(value)), keep=_KEPT)
    # A spreadsheet leaves out leading spaces before it looks for a formula.
    if text.lstrip(" ").startswith(_RUN_BY_SPREADSHEETS):
        return f"'{text}"
    return text
