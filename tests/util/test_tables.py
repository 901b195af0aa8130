"""Frames of plain columns, and CSV files that no spreadsheet runs and no terminal obeys."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from llmsim_lab._util.tables import csv_text, plain_frame


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("-2", "'-2"),
        ("\t=1", "'\t=1"),
        ("  =1", "'  =1"),
        ("\uff1d1", "'\uff1d1"),
        ("\x1b[2J=1", "[2J=1"),
        ("up\u202e", "up"),
        ("half \ud83d", "half \ufffd"),
        ("caf\u00e9", "caf\u00e9"),
    ],
)
def test_a_text_cannot_become_a_formula_nor_carry_control_codes(cell: str, written: str) -> None:
    frame = pd.DataFrame({"x": [cell]}, dtype=object)
    assert csv_text(frame) == f"x\n{written}\n"


def test_numbers_stay_numbers_and_what_is_missing_stays_empty() -> None:
    frame = pd.DataFrame({"a": [-1.5, None], "b": pd.array([-2, None], dtype="Int64")})
    mixed = pd.DataFrame({"c": [-3, "=3"], "d": [None, True]}, dtype=object)
    assert csv_text(frame) == "a,b\n-1.5,-2\n,\n"
    assert csv_text(mixed) == "c,d\n-3,\n'=3,True\n"


@pytest.mark.parametrize(
    ("values", "dtype", "held"),
    [
        ([True, False], "bool", [True, False]),
        ([1, 2.5], "float64", [1.0, 2.5]),
        ([1, "a"], "object", ["1", "a"]),
        ([{"a": [1]}, "b"], "object", ['{"a": [1]}', "b"]),
        ([2**64, 1], "object", ["18446744073709551616", "1"]),
        ([10**400, 1.5], "object", ["1" + "0" * 400, "1.5"]),
    ],
)
def test_a_column_holds_one_type(values: list[Any], dtype: str, held: list[Any]) -> None:
    frame = plain_frame([{"x": value} for value in values], ["x"])
    assert str(frame.x.dtype) == dtype
    assert frame.x.tolist() == held


def test_columns_with_gaps_keep_their_type() -> None:
    frame = plain_frame([{"a": 1, "b": True, "c": 0.5, "d": "x"}, {}], ["a", "b", "c", "d"])
    assert list(map(str, frame.dtypes)) == ["Int64", "boolean", "float64", "object"]
    assert frame.isna().sum().tolist() == [1, 1, 1, 1]
