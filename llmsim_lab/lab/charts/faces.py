"""A chart in words: its latest values, its data page by page, and what its marks mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from llmsim_lab.lab.charts.scene import Scene
from llmsim_lab.lab.charts.tracks import Ensemble, Track
from llmsim_lab.markup import join, safe, table, visible
from llmsim_lab.runs._turn import Series
from llmsim_lab.text import clip, number

__all__ = ["alt_text", "data_table", "last_turn", "notes_html", "summary_html", "summary_text"]

_MOST_RUNS = 20
_BARS = "▁▂▃▄▅▆▇█"
_BARS_WIDE = 20

Item = Track | Ensemble


def last_turn(items: Sequence[Item]) -> int:
    """Return the latest turn that any run has."""
    return max(_turns(item)[1] for item in items)


def _turns(item: Item) -> tuple[int, int]:
    if isinstance(item, Track):
        return item.turns
    turns, _ = item.spread("turn", [0.5])
    return int(turns[0]), int(turns[-1])


def _values(item: Item, column: str) -> list[float]:
    """Return a run's values, or an ensemble's medians."""
    if isinstance(item, Track):
        return [float(value) for value in item.numbers(column)]
    return [float(value) for value in item.spread(column, [0.5])[1][0]]


def _name(item: Item) -> str:
    if isinstance(item, Track):
        return item.name
    return f"{item.name} (median of {len(item.members)})"


def _shown(value: float) -> str:
    return number(value) if math.isfinite(value) else "none"


def _bars(values: Sequence[float]) -> str:
    """Return values as bars of text, so that their course can be seen where no picture is."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    every = max(1, math.ceil(len(values) / _BARS_WIDE))
    chosen = list(values[::every])
    low, high = min(known), max(known)
    step = (high - low) / (len(_BARS) - 1) or 1.0
    return "".join(
        _BARS[round((value - low) / step)] if math.isfinite(value) else " " for value in chosen
    )


def _summary(items: Sequence[Item], scene: Scene) -> tuple[list[str], list[list[str]]]:
    header = ["run", "turns", *(str(series) for series in scene.shown)]
    header.append(f"course of: {scene.main.label}")
    rows = []
    for item in items[:_MOST_RUNS]:
        columns = [_values(item, series.column) for series in scene.shown]
        ends = [
            _shown(values[0]) if len(values) == 1 else f"{_shown(values[0])} → {_shown(values[-1])}"
            for values in columns
        ]
        first, last = _turns(item)
        rows.append([_name(item), f"{first} to {last}", *ends, _bars(columns[0])])
    return header, rows


def _more(items: Sequence[Item]) -> list[str]:
    rest = len(items) - _MOST_RUNS
    return [f"and {rest} more runs, which the CSV file has"] if rest > 0 else []


def _remarks(scene: Scene) -> Iterator[str]:
    for mark in scene.marks:
        yield f"{mark.number}: turn {mark.turn}, {mark.text} ({', '.join(mark.runs)})"
    yield from scene.notes


def summary_text(items: Sequence[Item], scene: Scene) -> str:
    """Return first and latest values as plain text; the same for the same runs."""
    header, rows = _summary(items, scene)
    cells = [[clip(visible(cell), 48) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    remarks = [clip(visible(remark), 200) for remark in _remarks(scene)]
    return "\n".join([f"Chart: {clip(visible(scene.title), 100)}", *lines, *_more(items), *remarks])


def summary_html(items: Sequence[Item], scene: Scene) -> Markup:
    """Return first and latest values as a table; the same for the same runs."""
    header, rows = _summary(items, scene)
    return join(
        [
            table(header, rows, caption=f"{scene.title}: first → latest value"),
            *(Markup("<p>{}</p>").format(line) for line in _more(items)),
            notes_html(scene),
        ]
    )


def notes_html(scene: Scene) -> Markup:
    """Return what the marks on the chart mean, and what there is to know besides."""
    lines = [Markup("<li>{}</li>").format(safe(remark, limit=500)) for remark in _remarks(scene)]
    if not lines:
        return Markup()
    return Markup('<ul style="margin:4px 0;padding-left:1.4em;list-style:none">{}</ul>').format(
        join(lines)
    )


def alt_text(items: Sequence[Item], scene: Scene) -> str:
    """Return what the picture shows, with every run's latest values, for who cannot see it."""
    first = min(_turns(item)[0] for item in items)
    parts = [f"Chart of {scene.title}, turns {first} to {last_turn(items)}. Latest values."]
    for item in items[:_MOST_RUNS]:
        values = ", ".join(
            f"{series.label} {_shown(_values(item, series.column)[-1])}" for series in scene.shown
        )
        parts.append(f"{_name(item)}: {values}.")
    return visible(" ".join([*parts, *_more(items)]))


def data_table(items: Sequence[Item], shown: Sequence[Series], *, last: int, turns: int) -> Markup:
    """Return the values of some turns as a table, the latest first.

    Args:
        items: the runs.
        shown: the columns.
        last: the latest turn.
        turns: how many.
    """
    dated = any(_period(item, _turns(item)[0]) for item in items)
    rows: list[list[str]] = []
    for turn in range(last, last - turns, -1):
        for item in items[:_MOST_RUNS]:
            begin, end = _turns(item)
            if begin <= turn <= end:
                values = [_shown(_values(item, series.column)[turn - begin]) for series in shown]
                when = [_period(item, turn)] if dated else []
                rows.append([str(turn), *when, _name(item), *values])
    heading = ["turn", *(["quarter"] if dated else []), "run"]
    return table([*heading, *(str(series) for series in shown)], rows)


def _period(item: Item, turn: int) -> str:
    track = item if isinstance(item, Track) else item.members[0]
    period = track.rows[turn - track.turns[0]].get("period")
    return period if isinstance(period, str) else ""
