"""Statecharts from YAML files; guards and actions are named there and come from Python."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from llmsim_lab.errors import ConfigError
from llmsim_lab.settings import Settings
from llmsim_lab.statechart.chart import Action, Guard, Statechart, Transition
from llmsim_lab.statechart.states import AgentState
from llmsim_lab.yaml_file import YamlFile

__all__ = ["ChartTable", "MoveRow", "load_chart", "read_table"]

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class MoveRow(Settings):
    """A transition as a file has it; see ``Transition``."""

    trigger: Name
    source: Name
    target: Name
    guard: Name | None = None
    action: Name | None = None


class ChartTable(Settings):
    """A chart as a file has it: plain names throughout; see ``Statechart``."""

    initial: Name
    states: Annotated[tuple[Name, ...], Field(min_length=1)]
    transitions: tuple[MoveRow, ...] = ()
    final: tuple[Name, ...] = ()
    timeouts: dict[Name, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)


def read_table(path: Path) -> ChartTable:
    """Return what a chart's file holds.

    Raises:
        ConfigError: it cannot be read, or holds no chart; the message names file and line.
    """
    return _read(path).parse(ChartTable)


def load_chart(
    source: str | Path | ChartTable,
    *,
    guards: Mapping[str, Guard] | None = None,
    actions: Mapping[str, Action] | None = None,
) -> Statechart[Any]:
    """Return the chart that a file describes.

    Its states are those of ``AgentState`` where all of them are known there, else an enum made for
    the file.

    Args:
        source: a file, what one holds, or the name of a chart shipped with the package:
            ``social_feed``.
        guards: by the names that the file uses.
        actions: likewise.

    Raises:
        ConfigError: the file cannot be read, names what is not there, or holds no sound chart; the
            message names file and line.
    """
    file, table = None, source
    if not isinstance(table, ChartTable):
        file = _read(_path_of(table))
        table = file.parse(ChartTable)
    states = _enum_of(table.states)

    def fault(place: tuple[str | int, ...], what: str) -> ConfigError:
        if file is not None:
            return ConfigError(file.fault(place, what))
        return ConfigError(f"chart: {'.'.join(map(str, place))}: {what}")

    def state(name: str, *place: str | int) -> Any:
        if name not in table.states:
            there = ", ".join(table.states)
            raise fault(place, f"there is no state {name!r}; there are: {there}")
        return states(name)

    def named(kind: str, name: str | None, given: Mapping[str, Any] | None, index: int) -> Any:
        if name is None:
            return None
        if name not in (given or {}):
            there = ", ".join(sorted(given or {})) or "none"
            raise fault(
                ("transitions", index, kind),
                f"there is no {kind} {name!r}; registered are: {there}. Pass it: "
                f"load_chart(..., {kind}s={{{name!r}: function}})"
                + ("; a simulation's: register_guard(function)" if kind == "guard" else ""),
            )
        return (given or {})[name]

    moves = [
        Transition(
            move.trigger,
            state(move.source, "transitions", index, "source"),
            state(move.target, "transitions", index, "target"),
            named("guard", move.guard, guards, index),
            named("action", move.action, actions, index),
        )
        for index, move in enumerate(table.transitions)
    ]
    return Statechart(
        [states(name) for name in table.states],
        moves,
        state(table.initial, "initial"),
        final=[state(name, "final", index) for index, name in enumerate(table.final)],
        timeouts={state(name, "timeouts", name): n for name, n in table.timeouts.items()},
    )


def _read(path: Path) -> YamlFile:
    return YamlFile.read(path, example="initial: idle")


def _enum_of(names: tuple[str, ...]) -> Any:
    if set(names) <= {state.value for state in AgentState}:
        return AgentState
    # Numbered, since not every name of a state can be that of an enum's member.
    members: Any = {f"state_{n}": name for n, name in enumerate(dict.fromkeys(names))}
    return StrEnum("State", members)


def _path_of(source: str | Path) -> Path:
    if isinstance(source, Path) or source.endswith((".yaml", ".yml")):
        return Path(source)
    folder = Path(str(resources.files("llmsim_lab.statechart") / "charts"))
    shipped = sorted(path.stem for path in folder.glob("*.yaml"))
    if source not in shipped:
        raise ConfigError(
            f"there is no chart {source!r}; shipped are {', '.join(shipped)}; a file of your own "
            "is named by its path, ending in .yaml"
        )
    return folder / f"{source}.yaml"
