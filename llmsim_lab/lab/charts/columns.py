"""Which columns of runs' frames can be charted, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from llmsim_lab.runs._turn import Series
from llmsim_lab.simulation._config import SERIES

__all__ = ["chartable", "plain_number"]

_COUNTS = (
    Series(column="tokens", label="Tokens of a turn"),
    Series(column="seconds", label="Time of a turn", unit="s"),
    Series(column="calls", label="Model calls of a turn"),
    Series(column="repaired", label="Repaired decisions"),
    Series(column="fallback", label="Fallback decisions"),
    Series(column="failed", label="Failed decisions"),
)
_NOT_CHARTED = {"turn", "ok", "actions", "accepted"}


def plain_number(value: object) -> bool:
    """Say whether a value can stand on an axis; a yes or no cannot."""
    return isinstance(value, Real) and not isinstance(value, bool)


def chartable(
    rows: Iterable[Mapping[str, Any]], declared: Iterable[Series] = ()
) -> Sequence[Series]:
    """Return what can be charted: first what simulations name, then other columns of numbers.

    Args:
        rows: one row of each run, or more.
        declared: the simulations' own series.
    """
    numeric: dict[str, None] = {}
    for row in rows:
        numeric |= {str(name): None for name, value in row.items() if plain_number(value)}
    known = {item.column: item for item in (*_COUNTS, *SERIES)}
    found: dict[str, Series] = {}
    for item in (*declared, *SERIES):
        if item.column in numeric:
            found.setdefault(item.column, item)
    counts = {item.column for item in _COUNTS}
    for name in sorted(numeric, key=lambda name: name in counts):
        if name not in _NOT_CHARTED:
            fallback = Series(column=name, label=name.replace("_", " "))
            found.setdefault(name, known.get(name, fallback))
    return tuple(found.values())
