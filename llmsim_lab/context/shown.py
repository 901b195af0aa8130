"""A crisis for people: which of its variables can be charted, and a turn in words."""

from __future__ import annotations

from collections.abc import Iterable

from llmsim_lab.context.crisis_state import CrisisTurn
from llmsim_lab.context.game_engine import UpdateRecord
from llmsim_lab.context.quantities import NumberVariable, PercentVariable, ScaleVariable
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.context.table import Variables
from llmsim_lab.context.variables import Variable
from llmsim_lab.runs import Series
from llmsim_lab.text import clip, number

__all__ = ["series_in", "words_of"]

_MOST_AGENTS = 20
"""With more, nobody would find one in a list; their columns are in the frame all the same."""


def series_in(definitions: Variables, scenario: CrisisScenario) -> tuple[Series, ...]:
    """Return the variables that are numbers: the world's, then the agents' by agent.

    Args:
        definitions: of all variables.
        scenario: whose agents; those of more than twenty are left out.
    """
    world = _numeric(definitions.global_vars.items())
    found = [
        Series(
            column=name,
            label=definitions.label(name),
            unit=_unit(variable),
            short=definitions.label(name).lower(),
        )
        for name, variable in world
    ]
    if len(scenario.agents) > _MOST_AGENTS:
        return tuple(found)
    own = _numeric(definitions.agent_vars.items())
    found += [
        Series(
            column=f"{agent}.{name}",
            label=f"{agent}: {definitions.label(name).lower()}",
            unit=_unit(variable),
        )
        for agent in scenario.agents
        for name, variable in own
    ]
    return tuple(found)


def _numeric(items: Iterable[tuple[str, Variable]]) -> list[tuple[str, Variable]]:
    kinds = (ScaleVariable, PercentVariable, NumberVariable)
    return [(name, variable) for name, variable in items if isinstance(variable, kinds)]


def _unit(variable: Variable) -> str:
    if isinstance(variable, ScaleVariable):
        return f"{number(variable.min)} to {number(variable.max)}"
    if isinstance(variable, PercentVariable):
        return "%"
    return variable.unit if isinstance(variable, NumberVariable) else ""


def words_of(turn: CrisisTurn) -> list[str]:
    """Return what happened in a turn, what was said, what changed, and what was refused."""
    lines = [f"event: {clip(item.description, 200)}" for item in turn.state.events]
    if turn.reasoning:
        lines.append(f"engine: {clip(turn.reasoning, 300)}")
    lines += [
        f"{_named(record)}: {record.before} -> {record.after} ({record.source})"
        for record in turn.changes
    ]
    for record in turn.refused:
        asked = clip(repr(record.asked), 60)
        lines.append(f"{_named(record)}: {asked} REFUSED: {record.reason} ({record.source})")
    lines += [
        f"{action.agent_name}: {clip(action.action_string, 300) or '(said nothing)'}"
        for action in turn.actions
    ]
    return lines


def _named(record: UpdateRecord) -> str:
    return f"{record.agent}.{record.variable}" if record.agent else record.variable
