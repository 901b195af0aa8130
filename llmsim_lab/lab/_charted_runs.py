"""Runs as charts need them: their rows, their charts, and the predictions of theory.

A run may be a simulation, one on a tape, or a frame as ``to_frame()`` returns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from llmsim_lab._util.tables import columns_of
from llmsim_lab._util.text import listed, log_event
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run.charts import charts_of, lines_of_chart, name_and_unit
from llmsim_lab.run.frames import turn_row
from llmsim_lab.run.reading import RecordedRun
from llmsim_lab.run.recorded import RoomForRuns, run_on_tape
from llmsim_lab.run.series import Series, own_numbers
from llmsim_lab.simulation.parameters import SERIES
from llmsim_lab.tape import RunInfo, Tape

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

MOST_PANELS = 4
_MOST_RUNS = 300
_MOST_NAMES = 200
_LARGEST = 1e300
"""The largest number on an axis: the difference of two larger ones may be infinite."""

Row = Mapping[str, Any]
"""The values of a turn, by column."""
Chartable: TypeAlias = "Run | RecordedRun | pd.DataFrame"
"""A run, or the rows of one."""
RunReader: TypeAlias = Callable[[Tape, RunInfo], Any]
"""Returns a run of a tape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The values of a column, and their turns."""

    turns: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A run as a chart needs it.

    name: the run's name in the legend.
        name: in the legend.
        rows: the rows of its ``to_frame()``, one a turn.
        charts: the run's charts, in order.
        prediction: what theory predicts, by column.
    """

    name: str
    rows: Sequence[Row]
    charts: Sequence[Series] = ()
    prediction: Mapping[str, float] = field(default_factory=dict)

    def points(self, column: str) -> Points:
        """Return the turns and values of a column; a boolean counts as 0 or 1."""
        rows = [row for row in self.rows if is_drawable(row.get(column))]
        turns = [float(row["turn"]) for row in rows]
        return Points(
            turns=turns,
            values=[float(row[column]) for row in rows],
        )

    @cached_property
    def columns(self) -> Mapping[str, None]:
        """The columns of all rows: players may come and go."""
        return columns_of(self.rows)

    def columns_of(self, chart: Series) -> dict[str, str]:
        """Return the numeric columns of a chart, by the names of its lines."""
        columns = lines_of_chart(chart, self.columns)
        return {name: column for name, column in columns.items() if self._has_points(column)}

    def _has_points(self, column: str) -> bool:
        return any(is_drawable(row.get(column)) for row in self.rows)


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a number that an axis has room for, but not for a boolean."""
    return not isinstance(value, bool) and is_drawable(value)


def is_drawable(value: object) -> bool:
    """Return True for a number that an axis has room for, or a boolean."""
    if not isinstance(value, Real):
        return False
    # Compared as it is: an integer of 400 digits cannot become a float.
    size: Any = abs(value)
    return bool(size <= _LARGEST)


def lines_of(*runs: object, read: RunReader = run_on_tape) -> list[Line]:
    """Return the runs to draw.

    Args:
        runs: simulations, tapes or their files, frames as ``to_frame()`` gives them, or mappings
            from names to any of them.
        read: returns a run of a tape.

    Raises:
        ConfigError: there is nothing to draw.
        TapeError: a tape cannot be read.
    """
    lines: list[Line] = []
    for name, run in runs_in(*runs, read=read):
        lines.append(_line(name, run))
    if not lines:
        raise ConfigError("there is no run to chart; pass simulations, tapes or frames of runs")
    return lines


def runs_in(
    *sources: object,
    read: RunReader = run_on_tape,
) -> Iterator[tuple[str, Chartable]]:
    """Yield each run or frame of the arguments of ``lines_of``, with the name it was given."""
    import pandas as pd  # imported here: a window without frames does not need it

    for source in sources:
        if isinstance(source, Mapping):
            yield from _named_runs(source, read)
        elif isinstance(source, str | Path | Tape):
            tape = source
            if not isinstance(tape, Tape):
                tape = Tape(tape, read_only=True)  # read only, since a chart writes nothing
            infos = tape.runs()
            if len(infos) > _MOST_RUNS:
                log_event(
                    logger,
                    logging.WARNING,
                    "CHART_NARROWED",
                    tape=tape.path,
                    drawn=_MOST_RUNS,
                    runs=len(infos),
                    words=f"{tape.path}: the first {_MOST_RUNS} of {len(infos):,} runs are drawn",
                )
            room = RoomForRuns(tape)
            for info in infos[:_MOST_RUNS]:
                yield "", room.read(info, read)
        elif isinstance(source, Run | pd.DataFrame):
            yield "", source
        else:
            raise ConfigError(
                f"{type(source).__name__} is not a run; pass a simulation, a tape, or a frame as "
                "of to_frame()"
            )


def _named_runs(
    by_name: Mapping[object, object],
    read: RunReader,
) -> Iterator[tuple[str, Chartable]]:
    for name, source in by_name.items():
        runs = [run for _, run in runs_in(source, read=read)]
        if len(runs) > 1:
            raise ConfigError(f"{name!r} names {len(runs)} runs; name one: load(tape, 1)")
        for run in runs:
            yield str(name), run


def _line(name: str, run: Chartable) -> Line:
    if not isinstance(run, Run | RecordedRun):
        if "turn" not in run.columns:
            raise ConfigError(f"the run {name!r} has no column turn; give a frame of to_frame()")
        rows: list[Any] = run.to_dict("records")
        return Line(
            name=name or "run",
            rows=rows,
            charts=_charts_of_rows(rows),
        )
    # Forks have the name of their run; their numbers on the tape tell them apart.
    if not name and run.run_id is None:
        name = run.name
    elif not name:
        name = f"{run.run_id} {run.name}"
    return Line(
        name=name,
        rows=[turn_row(turn) for turn in run.turns],
        charts=charts_of(run),
        prediction=run.prediction(),
    )


def _charts_of_rows(rows: Sequence[Row]) -> list[Series]:
    """Return a chart for each column of numbers; well-known columns have labels and units."""
    columns: dict[str, None] = {}
    # The first and the last row together have players who left, and players who joined.
    for row in (*rows[:1], *rows[-1:]):
        for name in own_numbers(row):
            if is_number(row[name]):
                columns[name] = None
    charts: dict[str, Series] = {}
    # The series of economic runs come first, in their order.
    for series in SERIES:
        if series.column in columns:
            charts[series.column] = series
    for name in columns:
        charts.setdefault(name, _plain_chart(name))
    return list(charts.values())


def _plain_chart(column: str) -> Series:
    words, unit = name_and_unit(column)
    return Series(
        column=column,
        label=words,
        unit=unit,
    )


def charted(
    lines: Sequence[Line],
    columns: Sequence[str] | None = None,
) -> list[Series]:
    """Return the named charts; if none is named, the first ones of the runs.

    Args:
        lines: the runs.
        columns: columns of the runs' frames; the name of a dict draws a line for each of its keys.

    Raises:
        ConfigError: no run has such a column, or there are no numbers to draw.
    """
    if columns:
        known = [chart.column for line in lines for chart in line.charts]
        return [_named_chart(lines, name, known) for name in columns]
    charts: dict[str, Series] = {}
    for line in lines:
        for chart in line.charts:
            # To find a chart's columns takes long, and only the first charts are drawn.
            if len(charts) == MOST_PANELS:
                return list(charts.values())
            if chart.column not in charts and line.columns_of(chart):
                charts[chart.column] = chart
    if not charts:
        raise ConfigError("the runs have no column of numbers to chart besides 'turn'")
    return list(charts.values())


def _named_chart(
    lines: Sequence[Line],
    name: str,
    known: Iterable[str],
) -> Series:
    """Return the chart of a column, or of a dict.

    Args:
        lines: the runs.
        name: of the column or dict.
        known: the columns of all charts, for the error.

    Raises:
        ConfigError: no run has such a column, or it has no numbers.
    """
    of_rows = [chart for line in lines for chart in _charts_of_rows(line.rows)]
    of_runs = [
        chart
        for line in lines
        for chart in line.charts
        if chart.column in (name, f"{name}.*") and line.columns_of(chart)
    ]
    for column in (name, f"{name}.*"):
        for chart in (*of_runs, *of_rows):
            if chart.column == column:
                is_plain = chart.label == chart.column
                return _plain_chart(chart.column) if is_plain else chart
    # Not among the charts that a run proposes: yes and no, what a run cost, what came and went.
    if any(line.points(name).values for line in lines):
        return _plain_chart(name)
    names = [*dict.fromkeys([*known, *(chart.column for chart in of_rows)])]
    if any(name in line.columns for line in lines):
        raise ConfigError(
            f"the column {name!r} has no numbers to chart; those that have some are "
            f"{listed(names, _MOST_NAMES) or 'none'}"
        )
    raise ConfigError(
        f"no run has the column {name!r}; there are {listed(names, _MOST_NAMES) or 'none'}"
    )
