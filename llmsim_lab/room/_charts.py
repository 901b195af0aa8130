"""Charts of a class over the turns: of all groups, of each arm, and of a model to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab.people.figures import charted_people
from llmsim_lab.room._seats import RoomGroup
from llmsim_lab.run import Run
from llmsim_lab.run.series import Series
from llmsim_lab.run.state import Columns

_MOST_CHARTS = 4


class _Line(NamedTuple):
    """A line of a chart.

    Attributes:
        label: its name; empty for a prediction that is the same for all.
        kind: ``class``, ``arm``, ``beside``, ``theory`` or ``people``; decides how it is drawn.
        values: turns, each with its value.
        groups: the number of groups whose mean it is; 0 if it is not a mean.
    """

    label: str
    kind: str
    values: list[JSON]
    groups: int = 0

    def as_json(self) -> JSONObject:
        """Return the line in the form of a page."""
        return {
            "label": self.label,
            "kind": self.kind,
            "values": self.values,
            "groups": self.groups,
        }


def class_charts(
    groups: Iterable[RoomGroup],
    beside: Run | None,
    *,
    with_arms: bool,
) -> list[JSON]:
    """Return charts of the means over groups, turn by turn.

    Args:
        groups: all groups of a round; those that have not begun are left out.
        beside: a run to compare with, such as a model's.
        with_arms: True to add lines of arms, of ``beside`` and of theory.
    """
    begun = [group for group in groups if group.run is not None]
    if not begun:
        return []
    charts: list[JSON] = []
    for series in _charted(begun[0]):
        lines = _mean(
            "class",
            "class",
            series.column,
            [group.rows() for group in begun],
        )
        # On a projector, these lines would tell people who still play what the others do.
        if with_arms:
            lines += _lines_to_compare(series.column, begun, beside)
        charts.append(
            {
                "name": series.label,
                "unit": series.unit,
                "lines": [line.as_json() for line in lines],
            }
        )
    return charts


def _charted(group: RoomGroup) -> Sequence[Series]:
    """Return the columns to chart: those with a prediction first, then the most telling ones."""
    run = group.run
    if run is None:
        return []
    # As in windows and pages, the columns with a prediction come first.
    predicted = run.prediction()
    series = [item for item in run.series if item.column in predicted]
    if not series:
        series = list(run.series)
    # With more charts, people in the last row could not read them.
    return series[:_MOST_CHARTS]


def _lines_to_compare(
    column: str,
    begun: Sequence[RoomGroup],
    beside: Run | None,
) -> list[_Line]:
    """Return the lines of arms, of the run to compare with, of theory and of published people."""
    lines: list[_Line] = []
    by_arm: dict[str, list[RoomGroup]] = {}
    for group in begun:
        of_arm = by_arm.setdefault(group.plan.arm, [])
        of_arm.append(group)
    # If there is only one arm, the class's own line says the same.
    if len(by_arm) > 1:
        for arm, of_arm in by_arm.items():
            lines += _mean(
                arm,
                "arm",
                column,
                [group.rows() for group in of_arm],
            )
    if beside is not None:
        rows = [{"turn": turn.number, **turn.columns()} for turn in beside.turns]
        lines += _mean(
            beside.name,
            "beside",
            column,
            [rows],
        )
    lines += _theory(column, by_arm)
    lines += _published(column, by_arm)
    return lines


def _mean(
    label: str,
    kind: str,
    column: str,
    groups: Sequence[Sequence[Columns]],
) -> list[_Line]:
    """Return the line of a column's means by turn; an empty list if no group has the column."""
    values: dict[int, list[float]] = {}
    for rows in groups:
        for row in rows:
            # A state may have a text in a column at first, and numbers later.
            value = row.get(column)
            if isinstance(value, int | float):
                values.setdefault(row["turn"], []).append(value)
    if not values:
        return []
    most = max(map(len, values.values()))
    points: list[JSON] = []
    for turn, of_turn in sorted(values.items()):
        # A mean over only the fast groups would change when the others arrive.
        if len(of_turn) == most:
            points.append([turn, fmean(of_turn)])
    return [_Line(label, kind, points, groups=most)]


def _theory(
    column: str,
    by_arm: Mapping[str, Sequence[RoomGroup]],
) -> list[_Line]:
    """Return the predictions of theory: one line, or one for each arm if the arms' differ."""
    lines: list[_Line] = []
    for arm, groups in by_arm.items():
        run = groups[0].run
        if run is None:
            continue
        value = run.prediction().get(column)
        if value is not None:
            # The prediction is one number for all turns: a level line.
            last_turn = run.config.turns
            level = float(value)
            points: list[JSON] = [[1, level], [last_turn, level]]
            lines.append(_Line(arm, "theory", points))
    is_same_for_all = all(line.values == lines[0].values for line in lines)
    if lines and is_same_for_all:
        return [_Line("", "theory", lines[0].values)]
    return lines


def _published(
    column: str,
    by_arm: Mapping[str, Sequence[RoomGroup]],
) -> list[_Line]:
    """Return the published figures of people in a study with this design; see ``Run.people``.

    There is one line; or one for each arm, if people played the design of some arms only.
    """
    lines: list[_Line] = []
    for arm, groups in by_arm.items():
        run = groups[0].run
        line = None if run is None else _people_of_run(column, run)
        if line is not None:
            lines.append(line._replace(label=f"{arm}: {line.label}"))
    is_for_all = len(lines) == len(by_arm)
    if is_for_all and all(line.values == lines[0].values for line in lines):
        # One line without the name of an arm.
        first_arm = next(iter(by_arm))
        label = lines[0].label.removeprefix(f"{first_arm}: ")
        return [lines[0]._replace(label=label)]
    return lines


def _people_of_run(column: str, run: Run) -> _Line | None:
    points: list[JSON] = []
    label = ""
    for measured in charted_people(run):
        if measured.column != column:
            continue
        figure = measured.figure
        # A figure without a turn is for all turns.
        of_turns: Sequence[int] = range(1, run.config.turns + 1)
        if measured.turn is not None:
            of_turns = [measured.turn]
        points += [[number, figure.mean] for number in of_turns]
        label = f"{figure.n} people, {figure.study}"
    if not points:
        return None
    return _Line(label, "people", points)
