"""How two recorded runs differ: where their trajectories part, in numbers and as a chart."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.errors import TapeError
from llmsim_lab.lab.charts.drawing import Drawing
from llmsim_lab.lab.charts.export import figure_bytes
from llmsim_lab.lab.charts.scene import Choice, compose
from llmsim_lab.lab.charts.tracks import Track, read_runs
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.markup import safe, table
from llmsim_lab.runs._run import series_on
from llmsim_lab.text import number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["chart_html", "differences", "differences_html"]

_MOST_TURNS = 24
_MOST_COLUMNS = 4
_PANELS = 3
_BY_NATURE = ["seconds"]
"""Columns that differ between any two runs."""


def differences(compared: pd.DataFrame) -> pd.DataFrame:
    """Return what differs of two runs: turns from the first difference on, columns that do.

    Args:
        compared: as ``Tape.compare`` gives it.
    """
    change = compared.xs("difference", axis=1, level=1).drop(columns=_BY_NATURE, errors="ignore")
    apart: Any = change.ne(0) & ~(change.isna())
    names = [name for name in change.columns if apart[name].any()]
    if not names:
        return compared.iloc[0:0, 0:0]
    first = apart.index[apart.any(axis=1)][0]
    return compared.loc[first:, names]


def differences_html(tape: Tape, a: RunInfo, b: RunInfo, apart: pd.DataFrame) -> Markup:
    """Return the differences as a sentence and a table of the columns that tell most.

    Args:
        tape: the tape that both are on.
        a: a run.
        b: another.
        apart: their ``differences``.
    """
    if apart.empty:
        return safe(f"Run {a.id} and run {b.id} took the same way in the turns that both have.")
    names = list(dict.fromkeys(map(str, apart.columns.get_level_values(0))))
    labels = {item.column: item.label for item in series_on(tape, a)}
    shown = [name for name in labels if name in names] or names
    shown = shown[:_MOST_COLUMNS]
    rows = [
        (turn, *(_both(row[name, "a"], row[name, "b"]) for name in shown))
        for turn, row in apart.head(_MOST_TURNS).iterrows()
    ]
    header = ("turn", *(labels.get(name, name) for name in shown))
    left = len(apart) - len(rows)
    more = f" The next {left} turns are in .comparison." if left > 0 else ""
    return Markup("<p>They part at turn {}, in: {}.{}</p>{}").format(
        int(apart.index[0]),
        safe(", ".join(name.replace("_", " ") for name in names), limit=500),
        more,
        table(header, rows, caption=f"Run {a.id} → run {b.id}"),
    )


def _both(a: float, b: float) -> str:
    return number(a) if a == b else f"{number(a)} → {number(b)}"


def chart_html(tape: Tape, a: RunInfo, b: RunInfo) -> Markup:
    """Return a chart of both runs as an image that says its latest values to screen readers.

    Raises:
        TapeError: they are of kinds that share nothing to chart.
    """
    names = [f"run {info.id}" for info in (a, b)]
    tracks = read_runs([tape], names=names, numbers=[a.id, b.id])
    ends = [track.rows[-1] for track in tracks if isinstance(track, Track)]
    shared = [item for item in series_on(tape, a) if all(item.column in end for end in ends)]
    if not shared:
        raise TapeError(f"runs {a.id} and {b.id} share no column that their kind charts")
    main = shared[0]
    choice = Choice(
        title=f"{main.label}: run {a.id} and run {b.id}",
        main=main,
        panels=tuple(shared[1 : _PANELS + 1]),
    )
    drawn = figure_bytes(Drawing(compose(tracks, choice)).figure, "png", dpi=96)
    said = "; ".join(
        f"{name} ends at {number(end[main.column])} {main.unit}".rstrip()
        for name, end in zip(names, ends, strict=True)
    )
    data = base64.b64encode(drawn).decode()
    return Markup(
        '<img alt="{}" style="max-width:100%;height:auto" src="data:image/png;base64,{}">'
    ).format(f"Chart of {main.label.lower()}. {said}", data)
