"""Tables of turns for any kind of simulation: which columns, under which headings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from llmsim_lab.cli.console import literal
from llmsim_lab.runs._turn import Series

__all__ = ["heading", "rows_table", "shown"]

_STATUSES = ("ok", "repaired", "fallback", "failed")
_MOST_COLUMNS = 4


def shown(series: Iterable[Series]) -> list[Series]:
    """Return those that stand in a table of text: those with a short heading, or the first few."""
    series = list(series)
    return [item for item in series if item.short] or series[:_MOST_COLUMNS]


def heading(series: Series) -> str:
    """Return a column's name in the middle of a line."""
    return series.label[:1].lower() + series.label[1:]


def rows_table(rows: Iterable[Mapping[Any, Any]], series: Iterable[Series]) -> Table:
    """Return a table of a run's frame, a line a turn.

    Args:
        rows: of the frame.
        series: the columns that its kind names.
    """
    rows = list(rows)
    figures = {item.column: item.short or heading(item) for item in shown(series)}
    if any("period" in row for row in rows):
        figures = {"period": "quarter"} | figures
    has_actions = any("accepted" in row for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("turn", *figures.values()):
        table.add_column(literal(name), justify="right", min_width=5)
    for name in (*(["accepted"] if has_actions else []), "model decisions", "from outside"):
        table.add_column(name, overflow="fold")
    for row in rows:
        counts = [f"{row.get(name)} {name}" for name in _STATUSES if row.get(name)]
        cells = [_figure(row.get(name)) for name in ("turn", *figures)]
        if has_actions:
            accepted = f"{row.get('accepted')} of {row.get('actions')}"
            cells.append(accepted if row.get("actions") else "")
        cells += [", ".join(counts), _figure(row.get("interventions"))]
        table.add_row(*map(literal, cells))
    return table


def _figure(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
