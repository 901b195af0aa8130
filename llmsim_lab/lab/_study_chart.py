"""The charts of a study: a column by turn, each arm's mean over seeds with a band; and run by run.

``Study.chart`` loads this module by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import clip, closest, number
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.charts._drawing import chart_class, drawable
from llmsim_lab.lab.charts._scene import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.study import Study

_STYLES = ("-", "--", "-.", ":")
_MOST_ARMS = 8
"""More curves than that nobody tells apart."""
_MOST_LINES = 60
"""Of seeds, between their runs."""


def study_chart(study: Study, column: str) -> Figure:
    """Draw a column of a study's runs by turn: each arm's mean over seeds, with a 95 % band.

    The band is pointwise, Student's for each turn alone: of twenty turns one may well be outside.

    Args:
        study: with complete runs.
        column: of the frame, of numbers.

    Raises:
        ConfigError: there is no such column, no run is complete, or there are too many arms.
    """
    from matplotlib.ticker import MaxNLocator
    from scipy.stats import t as student

    frame = study.to_frame()
    if frame.empty:
        raise ConfigError(f"no run of {study!r} is complete; run() first")
    numbers = [str(name) for name in frame.select_dtypes("number").columns]
    if column not in numbers:
        raise ConfigError(
            f"{column!r} is not a column of numbers of these runs{closest(column, numbers)}; there "
            f"are {', '.join(numbers)}"
        )
    names = list(dict.fromkeys(frame["arm"]))
    if len(names) > _MOST_ARMS:
        raise ConfigError(
            f"{len(names)} arms are too many for one chart, which takes {_MOST_ARMS}; draw your "
            "own from study.to_frame()"
        )
    figure = chart_class()(figsize=(8, 4.5), layout="constrained", facecolor="white")
    axes: Axes = figure.subplots()
    ends, said = [], []
    for arm in names:
        values = frame[frame["arm"] == arm].groupby("turn")[column]
        count = values.count()
        count = count[count > 0]  # what a turn leads to has no value at the start
        mean = values.mean()[count.index]
        place = list(study.arms).index(arm)  # the same colour, whichever arm has runs first
        colour = COLOURS[place % len(COLOURS)]
        style = _STYLES[place % len(_STYLES)]
        axes.plot(mean.index, mean, color=colour, linestyle=style, linewidth=2)
        if (count > 1).all():
            half = student.ppf(0.975, count - 1) * values.std()[count.index] / count**0.5
            axes.fill_between(
                mean.index, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0
            )
        ends.append((float(mean.iloc[-1]), drawable(arm, 32), colour))
        said.append(f"{arm}: {mean.iloc[0]:.2f} at first, {mean.iloc[-1]:.2f} at last")
    for height, (_, name, colour) in zip(_apart([end[0] for end in ends], axes), ends, strict=True):
        axes.annotate(
            name,
            (1, height),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=colour,
            va="center",
        )
    seeds = int(frame.groupby("arm")["seed"].nunique().max())
    axes.set_xlabel("turn")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(drawable(column.replace("_", " ")))
    axes.set_title(
        f"mean of {seeds} seeds · band: 95 %, each turn alone", loc="left", fontsize="small"
    )
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    figure.alt = visible(f"{column} by turn, mean over seeds. {'; '.join(said)}.")  # type: ignore[attr-defined]
    return figure


def runs_chart(study: Study, label: str) -> Figure:
    """Draw an outcome of each run by arm: a point a run, a bar at the mean, a line a seed.

    Args:
        study: with complete runs.
        label: of the outcome.
    """
    values = study.outcomes()
    values = values[(values["outcome"] == label)].dropna(subset=["value"])
    arms = [arm for arm in study.arms if arm in set(values["arm"])]
    wide = values.pivot_table(index="seed", columns="arm", values="value").reindex(columns=arms)
    figure = chart_class()(figsize=(8, 4.5), layout="constrained", facecolor="white")
    axes: Axes = figure.subplots()
    if len(wide) <= _MOST_LINES:
        for line in wide.to_numpy():
            axes.plot(range(len(arms)), line, color="#bbbbbb", linewidth=0.8, zorder=1)
    said = []
    for place, arm in enumerate(arms):
        own = wide[arm].dropna()
        colour = COLOURS[list(study.arms).index(arm) % len(COLOURS)]
        axes.scatter([place] * len(own), own, color=colour, s=26, alpha=0.75, zorder=2)
        axes.hlines(own.mean(), place - 0.22, place + 0.22, color=colour, linewidth=4, zorder=3)
        said.append(f"{arm}: mean {number(float(own.mean()))} of {len(own)}")
    axes.set_xticks(range(len(arms)), [drawable(clip(arm, 24)) for arm in arms])
    if len(arms) > 4:
        axes.tick_params(axis="x", rotation=30)
    axes.set_xlim(-0.5, len(arms) - 0.5)
    axes.set_ylabel(drawable(label.replace("_", " ")))
    axes.set_title(
        "a point is a run · a bar is the mean · a line is a seed", loc="left", fontsize="small"
    )
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    figure.alt = visible(f"{label} by run. {'; '.join(said)}.")  # type: ignore[attr-defined]
    return figure


def _apart(heights: Sequence[float], axes: Axes) -> list[float]:
    """Return heights for labels, in the same order, so that none stands on another."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    found = dict.fromkeys(range(len(heights)), 0.0)
    last = -float("inf")
    for place in sorted(found, key=lambda it: heights[it]):
        last = found[place] = max(heights[place], last + gap)
    return [found[place] for place in range(len(heights))]
