"""Runs as a matplotlib figure: one column large, others in small panels below.

It is what a saved notebook keeps of a window, and what goes into a paper. A fork is drawn below its
parent, so that the turns that both have are the parent's; what was done from outside and what
theory predicts are there as thin lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util import drawing
from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab._util.text import clip, number, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run._reading import RecordedRun
from llmsim_lab.run._turn import Series, own_numbers, turn_row
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
    numeric = isinstance(value, Real) and not isinstance(value, bool)
    return numeric and abs(value) <= _LARGEST  # type: ignore[arg-type]


def lines_of(*runs: object) -> list[Line]:
    """Return what is to be drawn.

    Args:
        runs: simulations, tapes or their files, frames as ``to_frame()`` gives them, or mappings
            from names to any of them.

    Raises:
        ConfigError: there is nothing to draw.
        TapeError: a tape cannot be read.
    """
    found = [_line(name, run) for name, run in runs_in(*runs)]
    if not found:
        raise ConfigError("there is no run to chart; pass simulations, tapes or frames of runs")
    return found


def runs_in(*given: object) -> Iterator[tuple[str, Any]]:
    """Yield what ``lines_of`` takes run by run: its name if it was given one, and run or frame."""
    import pandas as pd

    for one in given:
        if isinstance(one, Mapping):
            for name, item in one.items():
                found = [run for _, run in runs_in(item)]
                if len(found) > 1:
                    raise ConfigError(f"{name!r} names {len(found)} runs; name one: load(tape, 1)")
                yield from ((str(name), run) for run in found)
        elif isinstance(one, str | Path | Tape):
            tape = one if isinstance(one, Tape) else Tape(one, read_only=True)
            yield from (("", run_on_tape(tape, info)) for info in tape.runs())
        elif isinstance(one, Run | pd.DataFrame):
            yield "", one
        else:
            what = f"{type(one).__name__} is not a run"
            raise ConfigError(f"{what}; pass a simulation, a tape, or a frame as of to_frame()")


def _line(name: str, run: Any) -> Line:
    if not isinstance(run, Run | RecordedRun):  # a frame: what to_frame() says beside the rows
        return Line(name=name or "run", rows=run.to_dict("records"))
    series, prediction = run.series, run.prediction()
    return Line(
        name=name or " ".join(str(it) for it in (run.run_id, run.name) if it is not None),
        rows=list(map(turn_row, run.turns)),
        # What theory says something of comes before the rest.
        series=sorted(series, key=lambda item: item.column not in prediction),
        prediction=prediction,
    )


def charted(lines: Sequence[Line], columns: Sequence[str] | None = None) -> list[Series]:
    """Return the series to draw: those named, else the first that the runs name or have.

    Raises:
        ConfigError: no run has such a column, or there is no number to draw.
    """
    there = dict.fromkeys(
        name
        for line in lines
        for row in (*line.rows[:1], *line.rows[-1:])
        for name in own_numbers(row)
        if is_number(row[name])
    )
    named = (item for line in lines for item in line.series)
    plain = (Series(column=name, label=name.replace("_", " ")) for name in there)
    known: dict[str, Series] = {}
    for item in (*named, *SERIES, *plain):
        if item.column in there:
            known.setdefault(item.column, item)
    if unknown := [name for name in columns or () if name not in known]:
        raise ConfigError(f"no run has the column {unknown[0]!r}; there are {', '.join(known)}")
    if not known:
        raise ConfigError("the runs have no column of numbers to chart besides 'turn'")
    return [known[name] for name in columns] if columns else list(known.values())[:MOST_PANELS]


def picture(
    lines: Sequence[Line], series: Sequence[Series], title: str, beside: Mapping[str, Points]
) -> Figure:
    """Draw runs.

    Args:
        lines: the runs.
        series: what to draw, the first one large.
        title: above the chart; the runs' names if empty.
        beside: other curves by their names, such as history: of each column turns and values.
    """
    title = title or clip(", ".join(dict.fromkeys(line.name for line in lines)), 80)
    small = len(series) - 1
    figure = drawing.new_figure(8.2, 5.4 if small else 3.6, small=True)
    rows: list[Any] = [["main"] * max(1, small), [f"{at}" for at in range(small)]]
    axes = figure.subplot_mosaic(rows[: 1 + bool(small)], height_ratios=(3, 2)[: 1 + bool(small)])
    panels = dict(zip(series, axes.values(), strict=True))
    for at, (item, panel) in enumerate(panels.items()):
        _panel(panel, item, lines, beside, large=not at)
        drawing.plain_axes(panel, "y")
    main = axes["main"]
    _mark_interventions(main, [*panels.values()], lines)
    _name_turns(main, lines)
    main.set_title(drawing.drawable(title, 90), loc="left")
    if len(main.lines) > 1 or beside:
        look: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": "small"}
        figure.legend(*main.get_legend_handles_labels(), loc="outside lower center", **look)
    return drawing.told(figure, "\n".join(_words(lines, series, title)))


def _panel(
    axes: Axes, item: Series, lines: Sequence[Line], beside: Mapping[str, Points], *, large: bool
) -> None:
    for at, line in enumerate(lines):
        axes.plot(
            *line.points(item.column),
            color=SERIES_COLOURS[at % len(SERIES_COLOURS)],
            linestyle=drawing.STYLES[at // len(SERIES_COLOURS) % len(drawing.STYLES)],
            linewidth=2 if large else 1.5,
            zorder=2 + 0.9 / (1 + at),  # where runs coincide, the first is seen
            label=drawing.drawable(line.name, 60) if at < _MOST_NAMED else "_",
        )
    if len(lines) > _MOST_NAMED:
        axes.plot([], [], " ", label=f"and {len(lines) - _MOST_NAMED} more runs")
    look: dict[str, Any] = {"color": _GREY, "linewidth": 1}
    for place, (name, points) in enumerate(beside.items()):
        if item.column in points:
            look["label"] = drawing.drawable(name, 60)
            axes.plot(*points[item.column], linestyle=drawing.STYLES[1 + place % 3], **look)
    for value in {line.prediction[item.column] for line in lines if item.column in line.prediction}:
        look["label"] = f"prediction {number(value)}"
        axes.axhline(value, linestyle=(0, (5, 2)), **look)
    words = str(item)
    if large:
        axes.set_ylabel(drawing.drawable(words, 60))
    else:
        axes.set_title(drawing.drawable(words, 34), loc="left", fontsize="small")
        axes.tick_params(labelsize="small")
    axes.locator_params(axis="x", integer=True, nbins=9 if large else 4)


def _done(lines: Sequence[Line]) -> dict[int, str]:
    """Return what was done from outside, in words, by turn."""
    found: dict[int, dict[str, None]] = {}
    for line in lines:
        for row in line.rows:
            if isinstance(words := row.get("interventions"), str) and words:
                found.setdefault(int(row["turn"]), {})[_TURN.sub(r"\1", words)] = None
    return {turn: "; ".join(words) for turn, words in sorted(found.items())}


def _mark_interventions(main: Axes, panels: Iterable[Axes], lines: Sequence[Line]) -> None:
    done = _done(lines)
    for axes in panels:
        for turn in done:
            axes.axvline(turn, color=_GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    look: dict[str, Any] = {"fontsize": 7.5, "color": _GREY, "va": "top", "in_layout": False}
    look |= {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    for place, (turn, words) in enumerate(done.items() if len(done) <= _MOST_WORDED else ()):
        offset = (3, -4 - 10 * (place % 3))
        main.annotate(drawing.drawable(words, 34), (turn, 1.0), offset, bbox=drawing.BEHIND, **look)


def _name_turns(main: Axes, lines: Sequence[Line]) -> None:
    """Name the quarters on the axis, if the runs agree on them."""
    names: dict[int, set[str]] = {}
    for line in lines:
        for row in line.rows:
            names.setdefault(int(row["turn"]), set()).add(str(row.get("period") or ""))
    if any(len(its) > 1 or its == {""} for its in names.values()):
        main.set_xlabel("turn")
        return
    turns = sorted(names)[:: -(-len(names) // _MOST_TICKS)]
    main.set_xticks(turns, [drawing.drawable(next(iter(names[turn])), 10) for turn in turns])
    main.tick_params(axis="x", labelsize="small")


def _words(lines: Sequence[Line], series: Sequence[Series], title: str) -> Iterator[str]:
    """Yield what the picture shows, a line each, where there is no picture."""
    yield f"Chart: {clip(printable(title), 100)}"
    for line in lines[:_MOST_NAMED]:
        first, last = line.rows[0], line.rows[-1]
        ends = [(item.label, first.get(item.column), last.get(item.column)) for item in series]
        parts = [f"{label} {_from_to(was, now)}" for label, was, now in ends if is_number(now)]
        turns = f"turns {first['turn']} to {last['turn']}"
        yield f"{clip(printable(line.name), 60)}, {turns}: {', '.join(parts)}"
    if len(lines) > _MOST_NAMED:
        yield f"and {len(lines) - _MOST_NAMED} more runs"
    for turn, words in _done(lines).items():
        yield f"turn {turn}: {clip(printable(words), 120)}"
    predicted = {item for line in lines for item in line.prediction.items()}
    for name, value in sorted(predicted):
        yield f"prediction: {name} {number(value)}"


def _from_to(first: Any, last: Any) -> str:
    changed = is_number(first) and first != last
    return f"{number(first)} → {number(last)}" if changed else number(last)
