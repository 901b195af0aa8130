"""Runs as a matplotlib figure: one large chart, and others in small panels below.

A saved notebook keeps such a figure of a window, and papers can use it. A fork is drawn below its
parent, so that the turns of both are drawn as the parent's. Interventions and the predictions of
theory are thin lines. A dict of numbers, such as each player's coins, is one chart with a line for
each key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab._util import drawing
from llmsim_lab._util.html import SERIES_COLOURS, visible
from llmsim_lab._util.text import clip, counted, few, number, printable
from llmsim_lab.lab._charted_runs import MOST_PANELS, Line, Points, is_drawable, is_number
from llmsim_lab.run.charts import Network, axis_of
from llmsim_lab.run.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#666666"
_PALE = "#bbbbbb"
# The most interventions whose words are in the chart: more would cover its lines.
_MOST_WORDED = 8
# The most runs in the legend, and players in a network, that are named.
_MOST_NAMED = 20
_MOST_COLOURED = 6
"""The most lines of a dict that have colours; of more, only the highest and the lowest have."""
_MOST_KEYS = 600
"""The most lines of a dict that are drawn, each of which takes a millisecond."""
_MOST_MARKED = 100
"""The most turns that are marked, or told, as those of an intervention."""
_NAME_HEIGHT = 11
"""The height of the name at the end of a line, in points."""
# The beginning of an intervention's words. Its place on the axis says the same.
_TURN = re.compile(r"(^|; )turn \d+: ")
# The most quarters named on the axis: more would overlap.
_MOST_TICKS = 12
# How many letters of names fit side by side below a picture.
_LEGEND_LETTERS = 120
_SWATCH_LETTERS = 7
"""How many letters take as much room as the sample of a line in the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The runs to draw, and how.

    Attributes:
        lines: the runs.
        charts: the charts to draw, the first one large.
        title: the title above the picture; the runs' names if empty.
        network: the ties between players, drawn last.
        network_turn: the turn of the network.
        beside: further curves by their names, such as history; each by column.
    """

    lines: Sequence[Line]
    charts: Sequence[Series]
    title: str = ""
    network: Network | None = None
    network_turn: int = 0
    beside: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title above the picture."""
        if self.title:
            return self.title
        names = dict.fromkeys(line.name for line in self.lines)
        return clip(", ".join(names), 80)

    def words(self) -> str:
        """Return the picture in words, for where it cannot be shown."""
        return visible("\n".join(_words(self)))

    def figure(self) -> Figure:
        """Draw it."""
        # A network replaces the last of four charts.
        charts = self.charts
        if self.network is not None:
            charts = charts[: MOST_PANELS - 1]
        count = len(charts) + (self.network is not None)
        figure, panels = _empty_panels(count)
        if self.network is not None:
            _draw_network(panels.pop(), self.network, self.network_turn)
        main = panels[0]
        for panel, chart in zip(panels, charts, strict=True):
            is_main = panel is main
            if "*" in chart.column:
                _draw_dict(panel, chart, self, large=is_main)
            else:
                _draw_column(panel, chart, self, large=is_main)
            _name_panel(panel, chart, large=is_main)
            is_wide = is_main or len(panels) == 2
            panel.locator_params(
                axis="x",
                integer=True,
                nbins=9 if is_wide else 4,
            )
        _mark_interventions(panels, self.lines)
        _name_turns(main, self.lines)
        title = drawing.drawable(self.heading, 90)
        main.set_title(title, loc="left")
        _add_legend(figure, panels)
        return drawing.told(figure, self.words())


def _empty_panels(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with a large panel and, below it, the other panels side by side."""
    small_count = count - 1
    if not small_count:
        figure = drawing.new_figure(
            8.2,
            3.6,
            small=True,
        )
        return figure, [figure.subplots()]
    figure = drawing.new_figure(
        8.2,
        5.4,
        small=True,
    )
    below = [str(index) for index in range(small_count)]
    # The large panel is as wide as all the small ones.
    mosaic: list[Any] = [["main"] * small_count, below]
    axes = figure.subplot_mosaic(mosaic, height_ratios=(3, 2))
    panels = [axes[name] for name in ("main", *below)]
    return figure, panels


def _name_panel(
    axes: Axes,
    chart: Series,
    *,
    large: bool,
) -> None:
    drawing.plain_axes(axes, "y")
    words = str(chart)
    if large:
        axes.set_ylabel(drawing.drawable(words, 60))
        return
    axes.set_title(
        drawing.drawable(words, 34),
        loc="left",
        fontsize="small",
    )
    axes.tick_params(labelsize="small")


def _add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Name the runs below the charts; the legend of the first chart may name players instead."""
    for panel in panels:
        handles, names = panel.get_legend_handles_labels()
        if len(handles) > 1:
            figure.legend(
                handles,
                names,
                loc="outside lower center",
                ncols=_columns_of(names),
                frameon=False,
                fontsize="small",
            )
            return


def _columns_of(names: Sequence[str]) -> int:
    """Return the number of columns of a legend that fits below a picture."""
    widest = max(map(len, names)) + _SWATCH_LETTERS
    return max(1, min(3, _LEGEND_LETTERS // widest))


# --- a column of each run ------------------------------------------------------------------------


def _draw_column(
    axes: Axes,
    chart: Series,
    picture: Picture,
    *,
    large: bool,
) -> None:
    """Draw a line for each run, the curves beside them, and the predictions."""
    values: list[float] = []
    lines = picture.lines
    for index, line in enumerate(lines):
        points = line.points(chart.column)
        values += points.values
        # When the colours are used up, they come again with another style of line.
        rounds, colour = divmod(index, len(SERIES_COLOURS))
        axes.plot(
            points.turns,
            points.values,
            color=SERIES_COLOURS[colour],
            linestyle=drawing.STYLES[rounds % len(drawing.STYLES)],
            linewidth=2 if large else 1.5,
            zorder=2 + 0.9 / (1 + index),  # where runs coincide, the first is on top
            label=_legend_name(line, index),
        )
    if len(lines) > _MOST_NAMED:
        axes.plot(
            [],
            [],
            " ",
            label=f"and {len(lines) - _MOST_NAMED} more runs",
        )
    for index, (name, curves) in enumerate(picture.beside.items()):
        beside = curves.get(chart.column)
        if beside is None:
            continue
        values += beside.values
        axes.plot(
            beside.turns,
            beside.values,
            color=_GREY,
            linewidth=1,
            linestyle=drawing.STYLES[1 + index % 3],
            label=drawing.drawable(name, 60),
        )
    values += _draw_predictions(axes, chart, lines)
    _set_axis(axes, chart, picture, values)


def _draw_predictions(
    axes: Axes,
    chart: Series,
    lines: Sequence[Line],
) -> list[float]:
    """Draw the predictions for a chart's columns; return them, each value once."""
    predictions: dict[float, None] = {}  # in order, each once
    for line in lines:
        for column in line.columns_of(chart).values():
            if column in line.prediction:
                predictions[line.prediction[column]] = None
    for prediction in predictions:
        axes.axhline(
            prediction,
            color=_GREY,
            linewidth=1,
            linestyle=(0, (5, 2)),
            label=f"prediction {number(prediction)}",
        )
    return [*predictions]


def _legend_name(line: Line, index: int) -> str:
    if index >= _MOST_NAMED:
        return "_"  # matplotlib leaves such names out of the legend
    return drawing.drawable(line.name, 60)


def _set_axis(
    axes: Axes,
    chart: Series,
    picture: Picture,
    values: Sequence[float],
) -> None:
    """Give a panel the same axis as in the window; booleans have yes and no on it."""
    if _is_of_truth_values(chart, picture):
        axes.set_ylim(-0.05, 1.05)
        axes.set_yticks([0, 1], ["no", "yes"])
        return
    numbers = [value for value in values if not math.isnan(value)]
    if numbers:
        axes.set_ylim(*axis_of(numbers, chart))


def _is_of_truth_values(chart: Series, picture: Picture) -> bool:
    for line in picture.lines:
        # All columns of a chart are of one type, so the first one decides.
        for column in line.columns_of(chart).values():
            first = line.rows[0].get(column)
            last = line.rows[-1].get(column, first)
            return isinstance(last, bool)
    return False


# --- a dict of numbers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """The line of one key in a chart of a dict."""

    name: str
    points: Points

    @property
    def end(self) -> float:
        return self.points.values[-1]


def _keys_of(line: Line, chart: Series) -> Iterator[_Key]:
    """Yield a run's lines in a chart of a dict, which may have a hundred thousand."""
    for name, column in line.columns_of(chart).items():
        points = line.points(column)
        yield _Key(name=name, points=points)


def _draw_dict(
    axes: Axes,
    chart: Series,
    picture: Picture,
    *,
    large: bool,
) -> None:
    """Draw a line for each key, named at its end; for several runs, each run's mean."""
    values: list[float] = []
    lines = picture.lines
    for index, line in enumerate(lines):
        keys = list(_keys_of(line, chart))
        for key in keys:
            values += key.points.values
        if len(lines) == 1:
            _draw_keys(axes, keys, large=large)
            continue
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        # As many of each run as there is room for; the mean is of all.
        drawn = keys[: max(1, _MOST_KEYS // len(lines))]
        if len(keys) > len(drawn):
            _note(axes, f"some of {len(keys):,} lines")
        for key in drawn:
            axes.plot(
                key.points.turns,
                key.points.values,
                color=colour,
                linewidth=0.7,
                alpha=0.4,
            )
        # The lines of two runs' keys would cross, but their means can be compared by eye.
        mean = _mean_of(keys)
        axes.plot(
            mean.turns,
            mean.values,
            color=colour,
            linewidth=2,
            label=_legend_name(line, index),
        )
    # After the lines, since predictions may be far from them and need room on the axis.
    values += _draw_predictions(axes, chart, lines)
    _set_axis(axes, chart, picture, values)


def _note(axes: Axes, words: str) -> None:
    """Write into a chart what it leaves out."""
    axes.text(
        0.01,
        0.02,
        words,
        transform=axes.transAxes,
        fontsize="x-small",
        color=_GREY,
    )


def _draw_keys(
    axes: Axes,
    keys: Sequence[_Key],
    *,
    large: bool,
) -> None:
    """Draw the lines of one run: a few in colours, of many only the highest and the lowest."""
    # Nobody can match names to forty colours, and people ask about the extremes.
    coloured = keys
    drawn = keys
    if len(keys) > _MOST_COLOURED:
        by_end = sorted(keys, key=lambda key: key.end)
        coloured = [by_end[-1], by_end[0]]
    if len(keys) > _MOST_KEYS:
        drawn = [*keys[:_MOST_KEYS], *coloured]
        _note(axes, f"some of {len(keys):,} lines")
    colours: dict[str, str] = {}
    for key, colour in zip(coloured, SERIES_COLOURS, strict=False):
        colours[key.name] = colour
    for key in drawn:
        is_coloured = key.name in colours
        axes.plot(
            key.points.turns,
            key.points.values,
            color=colours.get(key.name, _PALE),
            linewidth=1.6 if is_coloured else 0.8,
            zorder=3 if is_coloured else 2,
        )
    _name_ends(axes, coloured, colours, large=large)


def _name_ends(
    axes: Axes,
    keys: Sequence[_Key],
    colours: Mapping[str, str],
    *,
    large: bool,
) -> None:
    """Write names at the ends of lines; names that would overlap move down."""
    turns: list[float] = []
    values: list[float] = []
    for key in keys:
        turns += key.points.turns
        values += key.points.values
    if not turns:
        return
    lowest = min(values)
    span = (max(values) - lowest) or 1.0
    # The height of the large panel, and of a small one, in points.
    panel_height = 150 if large else 80
    apart = span * _NAME_HEIGHT / panel_height
    ends = sorted(keys, key=lambda key: -key.end)
    heights = [key.end for key in ends]
    # Downwards, each name moves below the one above it.
    for upper, lower in pairwise(range(len(heights))):
        highest_place = heights[upper] - apart
        heights[lower] = min(heights[lower], highest_place)
    # Names below the lowest value would overlap the numbers of the axis. So the last name moves up
    # again, and pushes the others.
    heights[-1] = max(heights[-1], lowest)
    for lower, upper in pairwise(reversed(range(len(heights)))):
        lowest_place = heights[lower] + apart
        heights[upper] = max(heights[upper], lowest_place)
    last_turn = max(turns)
    for key, height in zip(ends, heights, strict=True):
        axes.annotate(
            drawing.drawable(key.name, 14),
            (last_turn, height),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8 if large else 7,
            color=colours[key.name],
            annotation_clip=False,
        )


def _mean_of(keys: Iterable[_Key]) -> Points:
    """Return the mean over the keys that have a value, turn by turn."""
    by_turn: dict[float, list[float]] = {}
    for key in keys:
        points = key.points
        for turn, value in zip(points.turns, points.values, strict=True):
            of_turn = by_turn.setdefault(turn, [])
            of_turn.append(value)
    turns = sorted(by_turn)
    return Points(
        turns=turns,
        values=[fmean(by_turn[turn]) for turn in turns],
    )


# --- a network -----------------------------------------------------------------------------------


def _draw_network(
    axes: Axes,
    network: Network,
    turn: int,
) -> None:
    """Draw players on a circle, which needs no layout, and a line for each tie."""
    places: dict[str, tuple[float, float]] = {}
    for index, name in enumerate(network.names):
        share_of_circle = index / len(network.names)
        angle = 2 * math.pi * share_of_circle
        # From the top, clockwise.
        places[name] = (math.sin(angle), math.cos(angle))
    for one, other in _ties(network):
        across, down = zip(
            places[one],
            places[other],
            strict=True,
        )
        axes.plot(
            across,
            down,
            color=_PALE,
            linewidth=0.8,
            zorder=1,
        )
    across, down = zip(*places.values(), strict=True)
    axes.scatter(
        across,
        down,
        s=14,
        color=SERIES_COLOURS[0],
        zorder=2,
    )
    if len(places) <= _MOST_NAMED:
        for name, (right, up) in places.items():
            axes.annotate(
                drawing.drawable(name, 10),
                (1.12 * right, 1.12 * up),
                ha=_ALIGNED[round(right)],
                va="center",
                fontsize=6.5,
                color=_GREY,
                annotation_clip=False,
            )
    title = f"{network.label}, turn {turn}"
    axes.set_title(
        drawing.drawable(title, 34),
        loc="left",
        fontsize="small",
    )
    axes.set_aspect("equal")
    axes.margins(0.25)
    axes.axis("off")


_ALIGNED: Mapping[int, Literal["left", "center", "right"]] = {
    -1: "right",
    0: "center",
    1: "left",
}
"""The alignment of a name: away from the middle of the circle."""


def _ties(network: Network) -> set[tuple[str, ...]]:
    """Return the ties between players; a tie in both directions is one."""
    return {tuple(sorted(pair)) for pair in network.pairs}


# --- what was done from outside, turns, words ----------------------------------------------------


def _interventions(lines: Sequence[Line]) -> dict[int, str]:
    """Return the interventions of all runs in words, by turn."""
    by_turn: dict[int, dict[str, None]] = {}
    for line in lines:
        for row in line.rows:
            words = row.get("interventions")
            if isinstance(words, str) and words:
                turn = int(row["turn"])
                # Several runs may have the same intervention, which is named once.
                of_turn = by_turn.setdefault(turn, {})
                without_turn = _TURN.sub(r"\1", words)
                of_turn[without_turn] = None
    return {turn: "; ".join(by_turn[turn]) for turn in sorted(by_turn)}


def _mark_interventions(
    panels: Sequence[Axes],
    lines: Sequence[Line],
) -> None:
    """Draw a line at each intervention, and write its words into the large panel."""
    interventions = _interventions(lines)
    if len(interventions) > _MOST_MARKED:  # they would cover the lines
        _note(panels[0], f"interventions in {len(interventions):,} turns, not marked")
        return
    for axes in panels:
        for turn in interventions:
            axes.axvline(
                turn,
                color=_GREY,
                linewidth=0.8,
                linestyle=(0, (1, 2)),
            )
    if len(interventions) > _MOST_WORDED:
        return
    for index, (turn, words) in enumerate(interventions.items()):
        panels[0].annotate(
            drawing.drawable(words, 34),
            (turn, 1.0),
            (3, -4 - 10 * (index % 3)),  # three heights in turn, so that words do not overlap
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=_GREY,
            bbox=drawing.BEHIND,
            in_layout=False,
        )


def _name_turns(main: Axes, lines: Sequence[Line]) -> None:
    """Name the quarters on the axis, if all runs agree on them."""
    names: dict[int, str] = {}
    for line in lines:
        for row in line.rows:
            turn = int(row["turn"])
            name = row.get("period")
            if not isinstance(name, str):  # a frame has NaN if there is none
                name = ""
            # Runs that begin in different quarters cannot share an axis of quarters.
            if not name or names.setdefault(turn, name) != name:
                main.set_xlabel("turn")
                return
    apart = math.ceil(len(names) / _MOST_TICKS)
    turns = sorted(names)[::apart]
    labels = [drawing.drawable(names[turn], 10) for turn in turns]
    main.set_xticks(turns, labels)
    main.tick_params(axis="x", labelsize="small")


def _words(picture: Picture) -> Iterator[str]:
    """Yield the picture in words, one line after another."""
    lines = picture.lines
    yield f"Chart: {clip(printable(picture.heading), 100)}"
    for line in lines[:_MOST_NAMED]:
        parts: list[str] = []
        for chart in picture.charts:
            parts += _chart_words(chart, line)
        turns = f"turns {line.rows[0]['turn']} to {line.rows[-1]['turn']}"
        values = ", ".join(parts) or "no values"
        yield f"{clip(printable(line.name), 60)}, {turns}: {values}"
    if len(lines) > _MOST_NAMED:
        yield f"and {len(lines) - _MOST_NAMED} more runs"
    interventions = [
        f"turn {turn}: {clip(printable(words), 120)}"
        for turn, words in _interventions(lines).items()
    ]
    yield from few(interventions, _MOST_MARKED)
    network = picture.network
    if network is not None:
        players = counted(len(network.names), "player")
        ties = counted(len(_ties(network)), "tie")
        yield f"{network.label}, turn {picture.network_turn}: {players}, {ties}"
    predictions: set[tuple[str, float]] = set()
    for line in lines:
        predictions.update(line.prediction.items())
    for name, value in sorted(predictions):
        yield f"prediction: {name} {number(value)}"


def _chart_words(chart: Series, line: Line) -> list[str]:
    """Return a run's first and last value in a chart, in words; of many keys, their means."""
    columns = line.columns_of(chart)
    if len(columns) > _MOST_COLOURED:
        mean = _mean_of(_keys_of(line, chart)).values
        return [f"{chart.label}, mean of {len(columns)}: {_from_to(mean[0], mean[-1])}"]
    words = []
    for column in columns.values():
        rows = [row for row in line.rows if is_drawable(row.get(column))]
        last = rows[-1][column]
        label = column if "*" in chart.column else chart.label
        if isinstance(last, bool):
            text = f"{label} {'yes' if last else 'no'}"
        else:
            text = f"{label} {_from_to(line.rows[0].get(column), last)}"
        # A player may have left, and a value may be missing.
        if rows[-1] is not line.rows[-1]:
            text += f" in turn {rows[-1]['turn']}"
        words.append(text)
    return words


def _from_to(first: object, last: float) -> str:
    if not is_number(first) or first == last:
        return number(last)
    return f"{number(first)} → {number(last)}"
