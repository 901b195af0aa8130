"""The columns of a run's frame that charts and tables of text show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmsim_lab.run.state import COMMON_COLUMNS

MOST_SERIES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A column of numbers in ``to_frame()`` that can be charted.

    Of a state's field it says what stands beside its numbers, and needs no column:
    ``coins: Annotated[dict[str, float], Series(unit="coins")]``.

    Attributes:
        column: its name in the frame; in a class's ``charts`` also a dict's, for all its keys.
        label: for the axis, without the unit; the column's name if not given.
        unit: such as ``% per year``; empty for plain counts.
        short: its heading in tables of text, which have little room; empty leaves it out of them.
        low: the least that it can be; None where nothing bounds it.
        high: the most.
    """

    column: str = ""
    label: str = ""
    unit: str = ""
    short: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def plain_series(names: Iterable[str]) -> Sequence[Series]:
    """Return columns under their own names, each once, the first dozen of them."""
    each_once = list(dict.fromkeys(names))
    return [Series(column=name, label=name) for name in each_once[:MOST_SERIES]]


def own_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the columns of a frame's row that hold numbers and that not every run has."""
    return [
        name
        for name, value in row.items()
        if name not in COMMON_COLUMNS and isinstance(value, int | float)
    ]
