"""What the engine's model reads: the variables with their limits, their values, what was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmsim_lab.context.game_engine import GameEngine
from llmsim_lab.context.variables import Variable
from llmsim_lab.context.wording import event_line, quote, value_text
from llmsim_lab.text import rounded

__all__ = ["engine_slots", "limits_of"]

_FEW = 12


def engine_slots(
    game_engine: GameEngine,
    *,
    step_number: int,
    responses: Mapping[str, str],
    events: Sequence[Mapping[str, Any]],
) -> dict[str, object]:
    """Return what fills the prompt's slots apart from the scenario's own words.

    Args:
        game_engine: the world as the modules' rules have left it.
        step_number: the number of the step.
        responses: what each agent was heard to say in the step before.
        events: what is known to have happened, dicts with a ``description``.
    """
    state = game_engine.get_current_state()
    agents = game_engine.agents
    names = frozenset(name.casefold() for name in agents)
    said = [quote(name, responses[name], names) for name in agents if name in responses]
    return {
        "agents": ", ".join(agents),
        "variables": _definitions(game_engine),
        "step": step_number,
        "world": _values(state["global_vars"]),
        "parties": "\n".join(
            f"- {agent}: {_values(own)}" for agent, own in state["agent_vars"].items()
        ),
        "events": "\n".join(f"- {event_line(event) or 'Something'}" for event in events)
        or "Nothing yet.",
        "actions": "\n\n".join(said) or "Nobody has acted yet.",
    }


def _definitions(game_engine: GameEngine) -> str:
    """List the world's variables and, once, those that agents have."""
    lines = ["In global_vars:", *_lines(game_engine.definitions_of().items())]
    own: dict[str, Variable] = {}
    for agent in game_engine.agents:
        for name, variable in game_engine.definitions_of(agent).items():
            own.setdefault(name, variable)
    return "\n".join([*lines, "In agent_vars, for each party:", *_lines(own.items())])


def _lines(definitions: Iterable[tuple[str, Variable]]) -> list[str]:
    lines = []
    for name, variable in definitions:
        if variable.engine_may_set:
            about = f". {variable.description}" if variable.description else ""
            lines.append(f"- {name}: {limits_of(variable)}{about}")
    return lines or ["- none"]


def limits_of(variable: Variable) -> str:
    """Return in words what values a variable takes: ``whole number, 0 to 100``."""
    schema = variable.json_schema()
    options = schema.get("enum")
    if options and isinstance(options[0], str):
        return f"one of {', '.join(options)}"
    if options:
        if len(options) <= _FEW:
            return f"one of {', '.join(map(value_text, options))}"
        step = value_text(options[1] - options[0])
        return f"{value_text(options[0])} to {value_text(options[-1])} in steps of {step}"
    if schema["type"] == "string":
        return f"a text of at most {schema['maxLength']} characters"
    if schema["type"] == "boolean":
        return "true or false"
    kind = "whole number" if schema["type"] == "integer" else "number"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {value_text(low)} to {value_text(high)}"
    if low is not None or high is not None:
        return f"{kind}, at {'least' if high is None else 'most'} {value_text(low or high or 0)}"
    return kind


def _values(values: Mapping[str, Any]) -> str:
    written = [
        f"{name} = {json.dumps(rounded(value), ensure_ascii=False)}"
        for name, value in values.items()
    ]
    return ", ".join(written) or "nothing is recorded"
