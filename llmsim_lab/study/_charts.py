"""Figures of studies: means with their bands, by turn; and outcomes, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import STYLES, drawable, new_figure, plain_axes, spread_out, told
from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab._util.text import among, number
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ARMS = 8
"""More curves than that nobody tells apart."""
_MOST_LINES = 60
"""Of seeds, between their runs."""
_BAND: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}


def arms_chart(frame: pd.DataFrame, column: str, *, arms: Sequence[str]) -> Figure:
    """Draw a column of a study's runs by turn: each arm's mean over seeds, with a 95 % band.

    The band is pointwise, Student's for each turn alone: of twenty turns one may well be outside.

    Args:
        frame: as ``Study.to_frame`` returns it, with a row at least.
        column: of the frame, of numbers.
        arms: all names, in the order of the design: an arm has its colour also if others have no
            runs yet.

    Raises:
        ConfigError: there is no such column, or there are too many arms.
    """
    from matplotlib.ticker import MaxNLocator
    from scipy.stats import t as student

    numbers = [str(name) for name in frame.select_dtypes("number").columns]
    if column not in numbers:
        raise ConfigError(
            f"{column!r} is not a column of numbers of these runs{among(column, numbers)}"
        )
    there = [arm for arm in arms if (frame["arm"] == arm).any()]
    if len(there) > _MOST_ARMS:
        raise ConfigError(
            f"{len(there)} arms are too many for one chart, which takes {_MOST_ARMS}; draw your "
            "own from study.to_frame()"
        )
    figure, axes = _figure((8, 4.5))
    ends, words = [], []
    for arm in there:
        values = frame[frame["arm"] == arm].dropna(subset=[column]).groupby("turn")[column]
        mean, count = values.mean(), values.count()
        if mean.empty:  # as where no run of the arm has the column
            continue
        place = arms.index(arm)
        colour = SERIES_COLOURS[place % len(SERIES_COLOURS)]
        half = student.ppf(0.975, count - 1) * values.std() / count**0.5
        # One run alone at a turn has no spread, and a band with a hole would look like certainty.
        if (count > 1).all():
            axes.fill_between(mean.index, mean - half, mean + half, color=colour, **_BAND)
        axes.plot(mean.index, mean, STYLES[place % len(STYLES)], color=colour, linewidth=2)
        ends.append((float(mean.iloc[-1]), drawable(arm, 32), colour))
        words.append(f"{arm}: {mean.iloc[0]:.2f} at first, {mean.iloc[-1]:.2f} at last")
    _name_ends(axes, ends)
    seeds = int(frame.groupby("arm")["seed"].nunique().max())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="turn", ylabel=drawable(column.replace("_", " ")))
    axes.set_title(
        f"mean of {seeds} seeds · band: 95 %, each turn alone", loc="left", fontsize="small"
    )
    return told(figure, f"{column} by turn, mean over seeds. {'; '.join(words)}.")


def runs_chart(values: pd.DataFrame, label: str, *, arms: Sequence[str]) -> Figure:
    """Draw an outcome of each run by arm: a point a run, a bar at the mean, a line a seed.

    Args:
        values: as ``Study.outcomes`` returns them.
        label: of the outcome.
        arms: all names, in the order of the design.
    """
    values = values[values["outcome"] == label].dropna(subset=["value"])
    there = [arm for arm in arms if (values["arm"] == arm).any()]
    wide = values.pivot_table(index="seed", columns="arm", values="value").reindex(columns=there)
    figure, axes = _figure((8, 4.5))
    if len(wide) <= _MOST_LINES:
        for line in wide.to_numpy():
            axes.plot(range(len(there)), line, color="#bbbbbb", linewidth=0.8, zorder=1)
    words = []
    for place, arm in enumerate(there):
        own = wide[arm].dropna()
        colour = SERIES_COLOURS[arms.index(arm) % len(SERIES_COLOURS)]
        axes.scatter([place] * len(own), own, color=colour, s=26, alpha=0.75, zorder=2)
        axes.hlines(own.mean(), place - 0.22, place + 0.22, color=colour, linewidth=4, zorder=3)
        words.append(f"{arm}: mean {number(float(own.mean()))} of {len(own)}")
    axes.set_xticks(range(len(there)), [drawable(arm, 24) for arm in there])
    if len(there) > 4:
        axes.tick_params(axis="x", rotation=30)
    axes.set_xlim(-0.5, max(1, len(there)) - 0.5)  # no run may have a value
    axes.set_ylabel(drawable(label.replace("_", " ")))
    axes.set_title(
        "a point is a run · a bar is the mean · a line is a seed", loc="left", fontsize="small"
    )
    return told(figure, f"{label} by run. {'; '.join(words)}.")


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = new_figure(*size)
    axes: Axes = figure.subplots()
    plain_axes(axes)
    return figure, axes


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names where lines end, each in its colour, so that none stands on another."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    heights = spread_out([height for height, _, _ in ends], gap=gap, most=float("inf"))
    at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    for height, (_, name, colour) in zip(heights, ends, strict=True):
        axes.annotate(name, (1, height or 0), (6, 0), color=colour, va="center", **at)
