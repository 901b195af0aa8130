"""What a class has done so far, as lines over turns: all together, by arm, beside a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab.room._seats import RoomGroup
from llmsim_lab.run import Run
from llmsim_lab.run._turn import Columns, Series

_MOST_CHARTS = 4


def class_charts(
    groups: Iterable[RoomGroup],
    beside: Run | None,
    *,
    with_arms: bool,
) -> list[JSON]:
    """Return charts of the means over groups, turn by turn.

    Args:
        groups: all of a round; those that have not begun have nothing to show.
        beside: a run to compare with, such as a model's.
        with_arms: whether there are lines of arms, of ``beside`` and of theory too.
    """
    begun = [group for group in groups if group.run is not None]
    if not begun:
        return []
    by_arm: dict[str, list[RoomGroup]] = {}
    for group in begun:
        by_arm.setdefault(group.plan.arm, []).append(group)
    charts: list[JSON] = []
    for series in _charted(begun[0]):
        column = series.column
        lines = [_line("class", "class", column, [group.rows() for group in begun])]
        if with_arms and len(by_arm) > 1:
            for arm, of_arm in by_arm.items():
                lines.append(_line(arm, "arm", column, [group.rows() for group in of_arm]))
        if with_arms and beside is not None:
            rows = [{"turn": turn.number, **turn.columns()} for turn in beside.turns]
            lines.append(_line(beside.name, "beside", column, [rows]))
        if with_arms:
            lines += _theory(column, by_arm)
            lines += _published(column, begun[0])
        shown: list[JSON] = [line for line in lines if line]
        charts.append({"name": series.label, "unit": series.unit, "lines": shown})
    return charts


def _charted(group: RoomGroup) -> Sequence[Series]:
    """Return what is charted: what theory speaks of, else the most telling columns."""
    run = group.run
    if run is None:
        return []
    # As in windows and pages: theory's columns first.
    predicted = run.prediction()
    series = [item for item in run.series if item.column in predicted]
    return (series or list(run.series))[:_MOST_CHARTS]


def _line(label: str, kind: str, column: str, groups: Sequence[Sequence[Columns]]) -> JSONObject:
    """Return the means of a column, by turn; nothing where no group has it."""
    values: dict[int, list[float]] = {}
    for rows in groups:
        for row in rows:
            value = row.get(column)
            if isinstance(value, int | float):
                values.setdefault(row["turn"], []).append(value)
    if not values:
        return {}
    # A mean of the fast groups alone would move as the others come.
    most = max(map(len, values.values()))
    points: list[JSON] = [
        [turn, fmean(of_turn)] for turn, of_turn in sorted(values.items()) if len(of_turn) == most
    ]
    return {"label": label, "kind": kind, "values": points, "groups": most}


def _theory(column: str, by_arm: Mapping[str, Sequence[RoomGroup]]) -> list[JSONObject]:
    """Return what theory says: one line, or where arms differ in it a line each."""
    lines: list[JSONObject] = []
    for arm, groups in by_arm.items():
        run = groups[0].run
        value = None if run is None else run.prediction().get(column)
        if run is not None and value is not None:
            points: list[JSON] = [[1, float(value)], [run.config.turns, float(value)]]
            lines.append({"label": arm, "kind": "theory", "values": points, "groups": 0})
    if all(line["values"] == lines[0]["values"] for line in lines):
        return [{**line, "label": ""} for line in lines[:1]]
    return lines


def _published(column: str, group: RoomGroup) -> list[JSONObject]:
    """Return what people did in the study whose design the world has; see ``Run.people``."""
    if group.run is None:
        return []
    turns = range(1, group.run.config.turns + 1)
    points: list[JSON] = []
    label = ""
    for measure, figure in group.run.people().items():
        name, _, turn = measure.partition("@")
        if name == column:
            of_turns = [int(turn)] if turn.isdecimal() else turns
            points += [[number, figure.mean] for number in of_turns]
            label = f"{figure.n} people, {figure.study}"
    if not points:
        return []
    return [{"label": label, "kind": "people", "values": points, "groups": 0}]
