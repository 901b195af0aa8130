"""Runs as a matplotlib figure: one column large, others in small panels below.

It is what a saved notebook keeps of a window, and what goes into a paper. A fork is drawn below its
parent, so that the turns that both have are the parent's; what was done from outside and what
theory predicts are there as thin lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util import drawing
from llmsim_lab._util.html import SERIES_COLOURS, visible
from llmsim_lab._util.text import clip, number, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run._reading import RecordedRun
from llmsim_lab.run._turn import Series, own_numbers, turn_row
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.recorded import run_on_tape
from llmsim_lab.simulation.parameters import SERIES
from llmsim_lab.tape import Tape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 4
_GREY = "#666666"
_LARGEST = 1e300
"""What an axis has room for: the difference of two larger numbers may be infinite."""
_MOST_WORDED = 8
_MOST_NAMED = 20
_TURN = re.compile(r"(^|; )turn \d+: ")
_MOST_TICKS = 12

Points = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A run as a chart needs it.

    Attributes:
        name: in the legend.
        rows: as in its ``to_frame()``, one a turn.
        series: what the run itself says can be charted.
        prediction: what theory says of it, by column.
    """

    name: str
    rows: Sequence[Any]
    series: Sequence[Series] = ()
    prediction: Mapping[str, float] = field(default_factory=dict)

    def points(self, column: str) -> tuple[list[float], list[float]]:
        """Return a column as turns and values."""
        rows = [row for row in self.rows if is_number(row.get(column))]
        return [float(row["turn"]) for row in rows], [float(row[column]) for row in rows]


def is_number(value: object) -> bool:
    """Return True if a value can be drawn on an axis; a truth value cannot."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return abs(float(value)) <= _LARGEST


def lines_of(*runs: object) -> list[Line]:
    """Return what is to be drawn.

    Args:
        runs: simulations, tapes or their files, frames as ``to_frame()`` gives them, or mappings
            from names to any of them.

    Raises:
        ConfigError: there is nothing to draw.
        TapeError: a tape cannot be read.
    """
    lines = [_line(name, run) for name, run in runs_in(*runs)]
    if not lines:
        raise ConfigError("there is no run to chart; pass simulations, tapes or frames of runs")
    return lines


def runs_in(*sources: object) -> Iterator[tuple[str, Any]]:
    """Yield what ``lines_of`` takes run by run: its name if it was given one, and run or frame."""
    import pandas as pd

    for source in sources:
        if isinstance(source, Mapping):
            yield from _named_runs(source)
        elif isinstance(source, str | Path | Tape):
            tape = source if isinstance(source, Tape) else Tape(source, read_only=True)
            for info in tape.runs():
                yield "", run_on_tape(tape, info)
        elif isinstance(source, Run | pd.DataFrame):
            yield "", source
        else:
            raise ConfigError(
                f"{type(source).__name__} is not a run; pass a simulation, a tape, or a frame as "
                "of to_frame()"
            )


def _named_runs(by_name: Mapping[Any, object]) -> Iterator[tuple[str, Any]]:
    for name, source in by_name.items():
        runs = [run for _, run in runs_in(source)]
        if len(runs) > 1:
            raise ConfigError(f"{name!r} names {len(runs)} runs; name one: load(tape, 1)")
        for run in runs:
            yield str(name), run


def _line(name: str, run: Any) -> Line:
    if not isinstance(run, Run | RecordedRun):  # a frame: what to_frame() says beside the rows
        return Line(name=name or "run", rows=run.to_dict("records"))
    if not name:
        name = run.name if run.run_id is None else f"{run.run_id} {run.name}"
    prediction = run.prediction()
    return Line(
        name=name,
        rows=[turn_row(turn) for turn in run.turns],
        # What theory says something of comes before the rest.
        series=sorted(series_of(run), key=lambda series: series.column not in prediction),
        prediction=prediction,
    )


def charted(lines: Sequence[Line], columns: Sequence[str] | None = None) -> list[Series]:
    """Return the series to draw: those named, else the first that the runs name or have.

    Raises:
        ConfigError: no run has such a column, or there is no number to draw.
    """
    by_column = _series_by_column(lines)
    for name in columns or ():
        if name not in by_column:
            raise ConfigError(f"no run has the column {name!r}; there are {', '.join(by_column)}")
    if not by_column:
        raise ConfigError("the runs have no column of numbers to chart besides 'turn'")
    if columns:
        return [by_column[name] for name in columns]
    return list(by_column.values())[:MOST_PANELS]


def _series_by_column(lines: Sequence[Line]) -> dict[str, Series]:
    """Return what of the runs is a number: first what they name, then what is known by name."""
    columns: dict[str, None] = {}
    for line in lines:
        for row in (*line.rows[:1], *line.rows[-1:]):
            columns |= dict.fromkeys(name for name in own_numbers(row) if is_number(row[name]))
    candidates = [series for line in lines for series in line.series]
    candidates += SERIES
    candidates += [Series(column=name, label=name.replace("_", " ")) for name in columns]
    by_column: dict[str, Series] = {}
    for series in candidates:
        if series.column in columns:
            by_column.setdefault(series.column, series)
    return by_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Runs to be drawn.

    Attributes:
        lines: the runs.
        series: what to draw, the first one large.
        title: above the chart; the runs' names if empty.
        beside: other curves by their names, such as history: of each column turns and values.
    """

    lines: Sequence[Line]
    series: Sequence[Series]
    title: str = ""
    beside: Mapping[str, Points] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """What stands above it."""
        names = dict.fromkeys(line.name for line in self.lines)
        return self.title or clip(", ".join(names), 80)

    def words(self) -> str:
        """Return what it shows, where there is no picture."""
        return visible("\n".join(_words(self.lines, self.series, self.heading)))

    def figure(self) -> Figure:
        """Draw it."""
        figure, panels = _empty_panels(len(self.series))
        main = panels[0]
        for panel, item in zip(panels, self.series, strict=True):
            _draw_panel(
                panel,
                item,
                self.lines,
                self.beside,
                large=panel is main,
            )
            drawing.plain_axes(panel, "y")
        _mark_interventions(panels, self.lines)
        _name_turns(main, self.lines)
        main.set_title(drawing.drawable(self.heading, 90), loc="left")
        if len(main.lines) > 1 or self.beside:
            figure.legend(
                *main.get_legend_handles_labels(),
                loc="outside lower center",
                ncols=3,
                frameon=False,
                fontsize="small",
            )
        return drawing.told(figure, self.words())


def _empty_panels(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with a large panel and, below it, the others beside each other."""
    small_count = count - 1
    if not small_count:
        figure = drawing.new_figure(8.2, 3.6, small=True)
        return figure, [figure.subplots()]
    figure = drawing.new_figure(8.2, 5.4, small=True)
    below = [str(place) for place in range(small_count)]
    mosaic: list[Any] = [["main"] * small_count, below]
    axes = figure.subplot_mosaic(mosaic, height_ratios=(3, 2))
    return figure, [axes["main"], *(axes[name] for name in below)]


def _draw_panel(
    axes: Axes,
    item: Series,
    lines: Sequence[Line],
    beside: Mapping[str, Points],
    *,
    large: bool,
) -> None:
    for place, line in enumerate(lines):
        axes.plot(
            *line.points(item.column),
            color=SERIES_COLOURS[place % len(SERIES_COLOURS)],
            linestyle=drawing.STYLES[place // len(SERIES_COLOURS) % len(drawing.STYLES)],
            linewidth=2 if large else 1.5,
            zorder=2 + 0.9 / (1 + place),  # where runs coincide, the first is seen
            label=drawing.drawable(line.name, 60) if place < _MOST_NAMED else "_",
        )
    if len(lines) > _MOST_NAMED:
        axes.plot(
            [],
            [],
            " ",
            label=f"and {len(lines) - _MOST_NAMED} more runs",
        )
    for place, (name, points) in enumerate(beside.items()):
        if item.column not in points:
            continue
        axes.plot(
            *points[item.column],
            color=_GREY,
            linewidth=1,
            linestyle=drawing.STYLES[1 + place % 3],
            label=drawing.drawable(name, 60),
        )
    predicting = [line.prediction for line in lines if item.column in line.prediction]
    for value in {prediction[item.column] for prediction in predicting}:
        axes.axhline(
            value,
            color=_GREY,
            linewidth=1,
            linestyle=(0, (5, 2)),
            label=f"prediction {number(value)}",
        )
    words = str(item)
    if large:
        axes.set_ylabel(drawing.drawable(words, 60))
        axes.locator_params(axis="x", integer=True, nbins=9)
    else:
        axes.set_title(drawing.drawable(words, 34), loc="left", fontsize="small")
        axes.tick_params(labelsize="small")
        axes.locator_params(axis="x", integer=True, nbins=4)


def _interventions(lines: Sequence[Line]) -> dict[int, str]:
    """Return what was done from outside, in words, by turn."""
    by_turn: dict[int, dict[str, None]] = {}
    for line in lines:
        for row in line.rows:
            words = row.get("interventions")
            if isinstance(words, str) and words:
                of_turn = by_turn.setdefault(int(row["turn"]), {})
                of_turn[_TURN.sub(r"\1", words)] = None
    return {turn: "; ".join(words) for turn, words in sorted(by_turn.items())}


def _mark_interventions(panels: Sequence[Axes], lines: Sequence[Line]) -> None:
    """Draw a line at each intervention, and say in the large panel what it was."""
    interventions = _interventions(lines)
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
    for place, (turn, words) in enumerate(interventions.items()):
        panels[0].annotate(
            drawing.drawable(words, 34),
            (turn, 1.0),
            (3, -4 - 10 * (place % 3)),  # three lines in turn, so that words stay apart
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=_GREY,
            bbox=drawing.BEHIND,
            in_layout=False,
        )


def _name_turns(main: Axes, lines: Sequence[Line]) -> None:
    """Name the quarters on the axis, if the runs agree on them."""
    names: dict[int, str] = {}
    for line in lines:
        for row in line.rows:
            turn = int(row["turn"])
            name = str(row.get("period") or "")
            if not name or names.setdefault(turn, name) != name:
                main.set_xlabel("turn")
                return
    apart = math.ceil(len(names) / _MOST_TICKS)
    turns = sorted(names)[::apart]
    main.set_xticks(turns, [drawing.drawable(names[turn], 10) for turn in turns])
    main.tick_params(axis="x", labelsize="small")


def _words(lines: Sequence[Line], series: Sequence[Series], title: str) -> Iterator[str]:
    """Yield what the picture shows, a line each, where there is no picture."""
    yield f"Chart: {clip(printable(title), 100)}"
    for line in lines[:_MOST_NAMED]:
        first = line.rows[0]
        last = line.rows[-1]
        parts = [
            f"{item.label} {_from_to(first.get(item.column), last[item.column])}"
            for item in series
            if is_number(last.get(item.column))
        ]
        turns = f"turns {first['turn']} to {last['turn']}"
        yield f"{clip(printable(line.name), 60)}, {turns}: {', '.join(parts)}"
    if len(lines) > _MOST_NAMED:
        yield f"and {len(lines) - _MOST_NAMED} more runs"
    for turn, words in _interventions(lines).items():
        yield f"turn {turn}: {clip(printable(words), 120)}"
    predicted = {item for line in lines for item in line.prediction.items()}
    for name, value in sorted(predicted):
        yield f"prediction: {name} {number(value)}"


def _from_to(first: Any, last: Any) -> str:
    if not is_number(first) or first == last:
        return number(last)
    return f"{number(first)} → {number(last)}"
