"""Charts as files, as links to them, and in words: the same for the same chart."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes, small_png
from llmsim_lab._util.html import join, safe, styled, table, visible
from llmsim_lab._util.text import clip, number, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.charts._scene import Scene
from llmsim_lab.lab.charts._tracks import Ensemble, Item
from llmsim_lab.run._turn import Series

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


FileKind = Literal["csv", "pdf", "png", "svg"]

_TYPES: dict[FileKind, str] = {
    "csv": "text/csv;charset=utf-8",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
}
_MOST_BYTES = 4_000_000
"""A link holds the file in the page; browsers and notebooks become slow with more."""


def file_kind(name: str) -> FileKind:
    """Return what a file is by its name's ending.

    Raises:
        ConfigError: it ends in something else.
    """
    ending = name.rpartition(".")[2].lower()
    if ending not in _TYPES:
        raise ConfigError(f"{name!r} must end in .png, .svg, .pdf or .csv")
    return ending


def image_html(content: bytes, alt: str, kind: Literal["png", "svg"] = "png") -> Markup:
    """Return a file as an image, with its content in words for screen readers."""
    look = 'style="max-width:100%"'
    if kind == "png":
        # White below and around, so that it reads on a dark page, where a widget's style makes
        # figures dark; a graph brings its own colours.
        more = ";background:#fff;padding:6px;box-sizing:border-box"
        look = f'style="max-width:100%{more}" class="llmsim-figure"'
    return Markup('<img alt="{}" src="{}" {}>').format(alt, _url(content, kind), Markup(look))


def _url(content: bytes, kind: FileKind) -> str:
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(content).decode('ascii')}"


def figure_html(figure: Figure, *, dpi: float = 80) -> Markup:
    """Return a figure of ``llmsim_lab.lab.figures`` as a small image with its ``alt`` text."""
    png = small_png(figure_bytes(figure, "png", dpi=dpi))
    return image_html(png, getattr(figure, "alt", ""))


def data_frame(items: Sequence[Item], columns: Sequence[Series]) -> pd.DataFrame:
    """Return the runs' values below each other.

    Columns: ``run``, its name; ``member``, from 1 in an ensemble, else 0; ``turn``; ``period``,
    where the runs are dated; the series; ``interventions``.
    """
    import pandas as pd

    names = ["turn", "period", *(series.column for series in columns), "interventions"]
    return pd.DataFrame(
        {"run": whole_text(item.name), "member": place}
        | {name: row[name] for name in names if name in row}
        for item in items
        for place, track in enumerate(item.members, isinstance(item, Ensemble))
        for row in track.rows
    )


def download_link(content: bytes, kind: FileKind) -> Markup:
    """Return a link that gives the file to whoever clicks on it; nothing is written here.

    Args:
        content: the file.
        kind: what it is; it is saved as ``chart.svg``, for example.

    Raises:
        ConfigError: it is too large to lie in a page.
    """
    name = f"chart.{kind}"
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{name} has {len(content) / 1e6:.1f} MB, too much for a link (limit "
            f"{_MOST_BYTES / 1e6:.0f} MB); write it with chart.save({name!r})"
        )
    size = max(1, round(len(content) / 1000))
    shown = Markup('<a download="{0}" href="{1}">Download {0} ({2:,} kB)</a>')
    return shown.format(name, _url(content, kind), size)


_MOST_RUNS = 20
_BARS = "▁▂▃▄▅▆▇█"
_BARS_WIDE = 20


def _number_text(value: float) -> str:
    return number(value) if math.isfinite(value) else "none"


def _bars(values: Sequence[float]) -> str:
    """Return values as bars of text, so that their course can be seen where no picture is."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    every = max(1, math.ceil(len(values) / _BARS_WIDE))
    low, high = min(known), max(known)
    # 1 where all values are the same, which would divide by 0.
    step = (high - low) / (len(_BARS) - 1) or 1.0
    return "".join(
        _BARS[round((value - low) / step)] if math.isfinite(value) else " "
        for value in values[::every]
    )


def _summary(scene: Scene) -> tuple[list[str], list[list[str]]]:
    header = ["run", "turns", *(str(series) for series in scene.series)]
    header.append(f"course of: {scene.main.label}")
    rows = []
    for item in scene.items[:_MOST_RUNS]:
        columns = [item.numbers(series.column).tolist() for series in scene.series]
        # A run of one turn has one value, which is its first and its latest.
        ends = [" → ".join(map(_number_text, (*it[:1], *it[1:][-1:]))) for it in columns]
        first, last = item.turns
        rows.append([item.label, f"{first} to {last}", *ends, _bars(columns[0])])
    return header, rows


def _more(scene: Scene) -> list[str]:
    rest = len(scene.items) - _MOST_RUNS
    return [f"and {rest} more runs, which the CSV file has"] if rest > 0 else []


def _remarks(scene: Scene) -> Iterator[str]:
    yield from scene.caption
    for mark in scene.marks:
        yield f"{mark.number}: turn {mark.turn}, {mark.text} ({', '.join(mark.runs)})"
    yield from scene.notes
    yield from _bounds(scene)


def _bounds(scene: Scene) -> Iterator[str]:
    for series in scene.series:
        ends = " and ".join(str(one) for one in scene.bounds if one.column == series.column)
        if ends:
            unit = f" {series.unit}" if series.unit else ""
            yield f"{series.label} can be {ends}{unit}."


def summary_text(scene: Scene) -> str:
    """Return first and latest values as plain text; the same for the same runs."""
    header, rows = _summary(scene)
    cells = [[clip(visible(cell), 48) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    remarks = [clip(visible(remark), 200) for remark in _remarks(scene)]
    return "\n".join([f"Chart: {clip(visible(scene.title), 100)}", *lines, *_more(scene), *remarks])


def summary_html(scene: Scene) -> Markup:
    """Return first and latest values as a table; the same for the same runs."""
    header, rows = _summary(scene)
    shown = table(header, rows, caption=f"{scene.title}: first → latest value")
    return join([shown, *(styled(line, tag="p") for line in _more(scene)), notes_html(scene)])


def notes_html(scene: Scene) -> Markup:
    """Return what the marks on the chart mean, and the chart's other notes."""
    lines = join(styled(safe(remark, limit=500), tag="li") for remark in _remarks(scene))
    css = "margin:4px 0;padding-left:1.4em;list-style:none"
    return styled(lines, css, tag="ul") if lines else lines


def alt_text(scene: Scene) -> str:
    """Return what the picture shows, with every run's latest values, for screen readers."""
    first, last = scene.turns
    parts = [f"Chart of {scene.title}, turns {first} to {last}. Latest values."]
    for item in scene.items[:_MOST_RUNS]:
        values = ", ".join(
            f"{series.label} {_number_text(item.numbers(series.column)[-1])}"
            for series in scene.series
        )
        parts.append(f"{item.label}: {values}.")
    rest = [f"Planned up to turn {scene.rest[1]:g}."] if scene.rest else []
    return visible(" ".join([*parts, *_more(scene), *rest, *_bounds(scene), *scene.caption]))


def data_table(scene: Scene, *, last: int, turns: int) -> Markup:
    """Return the values of some turns as a table, the latest first.

    Args:
        scene: whose runs and columns.
        last: the latest turn.
        turns: how many.
    """
    dated = any(item.members[0].first_period for item in scene.items)
    rows: list[list[str]] = []
    for turn in range(last, last - turns, -1):
        for item in scene.items[:_MOST_RUNS]:
            begin, end = item.turns
            if begin <= turn <= end:
                values = (
                    _number_text(item.numbers(it.column)[turn - begin]) for it in scene.series
                )
                when = [item.members[0].period(turn)] if dated else []
                rows.append([str(turn), *when, item.label, *values])
    heading = ["turn", *(["quarter"] if dated else []), "run"]
    return table([*heading, *(str(series) for series in scene.series)], rows)
