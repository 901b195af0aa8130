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

    As an annotation of a state's field it describes the field's numbers, and needs no column:
    ``coins: Annotated[dict[str, float], Series(unit="coins")]``.

    Attributes:
        column: the column's name in the frame. In a class's ``charts`` also the name of a dict,
            which stands for all its keys.
        label: the name on the axis, without the unit; the column's name if not given.
        unit: such as ``% per year``; empty for plain counts.
        short: the heading in tables of text, which have little room; empty leaves the column out of
            them.
        low: the lowest possible value; None if there is no bound.
        high: the highest possible value.
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
    """Return the first dozen of some columns, each once and under its own name."""
    each_once = list(dict.fromkeys(names))
    return [Series(column=name, label=name) for name in each_once[:MOST_SERIES]]


def own_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the numeric columns of a frame's row that are not in every run's frame."""
    return [
        name
        for name, value in row.items()
        if name not in COMMON_COLUMNS and isinstance(value, int | float)
    ]
