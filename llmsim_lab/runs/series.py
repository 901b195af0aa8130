"""Which columns of a run's frame can be charted, and how they are labelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Series", "plain_series"]

_MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A column of numbers in ``to_frame()``.

    Attributes:
        column: its name in the frame.
        label: for the axis, without the unit.
        unit: such as ``% per year``; empty for plain counts.
        short: its heading in tables of text, which have little room; empty leaves it out of them.
    """

    column: str
    label: str
    unit: str = ""
    short: str = ""

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def plain_series(names: Iterable[str]) -> Sequence[Series]:
    """Return columns under their own names, each once, the first dozen of them."""
    return [Series(column=name, label=name) for name in list(dict.fromkeys(names))[:_MOST]]
