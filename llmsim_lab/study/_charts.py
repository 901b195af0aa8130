"""Figures of studies: runs by arm, arms by turn, a difference by turn, a specification curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmsim_lab._util.drawing import STYLES, drawable, new_figure, plain_axes, told
from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab._util.text import number
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ARMS = 12
"""In one chart."""
_MOST_LINES = 60
"""Of units, between their arms."""


def numbers_of(results: pd.DataFrame, outcome: str) -> pd.DataFrame:
    """Return the rows of an outcome that have a number."""
    from pandas import to_numeric

    rows = results[results["outcome"] == outcome]
    rows = rows.assign(value=to_numeric(rows["value"], errors="coerce"))
    return rows.dropna(subset=["value"])


def arms_figure(results: pd.DataFrame, outcome: str, *, arms: Sequence[str]) -> Figure:
    """Draw an outcome: its mean by arm and turn where it has turns, and each unit by arm.

    A point is a unit, as a line between the points of its arms, and a bar an arm's mean.

    Args:
        results: of a study.
        outcome: one of them.
        arms: all names, in the order of the design, so that each has its colour.

    Raises:
        ConfigError: there is nothing to draw, or there are too many arms.
    """
    rows = numbers_of(results, outcome)
    there = [arm for arm in arms if (rows["arm"] == arm).any()]
    if not 0 < len(there) <= MOST_ARMS:
        takes = f"has numbers of {len(there)} arms, and a chart has 1 to {MOST_ARMS}"
        raise ConfigError(f"{outcome!r} {takes}; study.results has all of them")
    by_turn = rows["turn"].nunique() > 1
    figure = new_figure(10 if by_turn else 6, 4)
    *turns, units = figure.subplots(1, 2 if by_turn else 1, squeeze=False)[0]
    wide = rows.pivot_table(index="unit", columns="arm", values="value")[there]
    means = rows.groupby(["turn", "arm"])["value"].mean().unstack("arm")
    if len(wide) <= _MOST_LINES:
        units.plot(wide.to_numpy().T, color="#bbbbbb", linewidth=0.8, zorder=1)
    words = []
    for place, arm in enumerate(there):
        own, colour = wide[arm].dropna(), SERIES_COLOURS[arms.index(arm) % len(SERIES_COLOURS)]
        units.scatter([place] * len(own), own, s=26, alpha=0.75, zorder=2, color=colour)
        units.hlines(own.mean(), place - 0.22, place + 0.22, linewidth=4, zorder=3, color=colour)
        words.append(f"{arm}: mean {number(float(own.mean()))} of {len(own)}")
        for axes in turns:
            line, look = means[arm].dropna(), STYLES[place % len(STYLES)]
            axes.plot(line.index, line, look, color=colour, linewidth=2, label=drawable(arm, 24))
    plain_axes(units)
    rotation = 30 if len(there) > 4 else 0
    units.set_xticks(range(len(there)), [drawable(arm, 24) for arm in there], rotation=rotation)
    units.set_xlim(-0.5, len(there) - 0.5)
    units.set_title("a point and a line are a unit · a bar is the mean", loc="left", size="small")
    for axes in turns:
        _turns(axes)
        axes.legend(frameon=False, fontsize="small")
        axes.set_title("mean over units", loc="left", size="small")
    figure.axes[0].set_ylabel(drawable(outcome.replace("_", " ")))
    return told(figure, f"{outcome} by arm. {'; '.join(words)}.")


def _turns(axes: Axes) -> None:
    plain_axes(axes)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("turn")


def difference_figure(band: pd.DataFrame, *, outcome: str, contrast: str) -> Figure:
    """Draw a paired difference by turn, and the band that holds for all turns at once.

    Args:
        band: as ``Study.by_turn`` returns it.
        outcome: what differs.
        contrast: the arms, as effects name them.
    """
    figure = new_figure(7, 3.2)
    axes: Axes = figure.subplots()
    axes.axhline(0, color="#999999", linewidth=1)
    turns, mean, pairs = band["turn"], band["estimate"], int(band["n"].max())
    colour = SERIES_COLOURS[0]
    axes.fill_between(turns, band["low"], band["high"], color=colour, alpha=0.2, linewidth=0)
    axes.plot(turns, mean, color=colour, linewidth=2)
    _turns(axes)
    axes.set_ylabel(f"{drawable(outcome.replace('_', ' '))}, difference")
    title = f"{drawable(contrast, 80)} · mean of {pairs} pairs, band for all turns at once"
    axes.set_title(title, loc="left", size="small")
    peak = band.iloc[int(mean.abs().to_numpy().argmax())]
    largest = f"{contrast}, {outcome} by turn: largest at turn {int(peak['turn'])}, "
    largest += f"{peak['estimate']:+.2f}, band {peak['low']:.2f} to {peak['high']:.2f}."
    return told(figure, largest)


def curve_figure(curve: pd.DataFrame, *, title: str) -> Figure:
    """Draw a specification curve: estimates in order, and below what each was made with.

    Args:
        curve: a row for each specification, by its estimate: ``estimate``, ``low``, ``high``, and
            the choices made.
        title: above it.
    """
    choices = curve.drop(columns=["estimate", "low", "high"])
    lines = [(name, level) for name in choices for level in dict.fromkeys(choices[name])]
    figure = new_figure(8, 3 + 0.22 * len(lines))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.25 * len(lines) + 0.5])
    reach = [curve["estimate"] - curve["low"], curve["high"] - curve["estimate"]]
    colour = SERIES_COLOURS[0]
    above.errorbar(curve.index, curve["estimate"], reach, fmt="o", color=colour, markersize=4)
    above.axhline(0, color="#999999", linewidth=1)
    above.set_ylabel("estimate")
    above.set_title(drawable(title, 90), loc="left", size="small")
    for place, (name, level) in enumerate(reversed(lines)):
        its = curve.index[choices[name] == level]
        below.plot(its, [place] * len(its), "|", color="black", markersize=8)
    names = [drawable(f"{name}: {level}", 40) for name, level in reversed(lines)]
    below.set_yticks(range(len(lines)), names, size="small")
    below.set_xticks([])
    below.set_xlabel(f"{len(curve)} specifications, by their estimates")
    for axes in (above, below):
        plain_axes(axes)
    least, most = curve["estimate"].min(), curve["estimate"].max()
    return told(figure, f"{title}: {len(curve)} specifications, {least:+.2f} to {most:+.2f}.")
