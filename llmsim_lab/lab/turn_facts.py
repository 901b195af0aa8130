"""What a turn of any simulation comes down to: its numbers, its decisions by agent.

The work does not grow with the number of turns: a turn is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs._turn import WorldTurn, answer_in_words, every_chain
from llmsim_lab.text import number

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = ["Decisions", "Fact", "change_text", "decisions_of", "facts_of", "value_text"]

_BOOKKEEPING = frozenset(
    ("turn", "period", "calls", "ok", "repaired", "fallback", "failed", "tokens", "seconds")
)
"""Columns of every run's frame that the stepper shows elsewhere."""
_DEEPEST = 3
_LEAST_CHANGE = 0.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value of a turn.

    Attributes:
        name: for people.
        unit: may be empty.
        value: a number, a text, a truth value or None.
        main: whether the kind of simulation charts it.
    """

    name: str
    value: object
    unit: str = ""
    main: bool = False

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def facts_of(simulation: Run, turn: RunTurn) -> list[Fact]:
    """Return what a turn's state says, what the kind charts first.

    Args:
        simulation: the run; how its columns are called is known from it.
        turn: one of its turns.
    """
    own = getattr(simulation, "own_columns", None)
    values = dict(own(turn)) if own is not None else dict(_scalars(turn.state))
    series = {item.column: item for item in getattr(simulation, "series", ())}
    named = [column for column in series if column in values]
    rest = [name for name in values if name not in series and name not in _BOOKKEEPING]
    return [
        Fact(name=series[name].label, value=values[name], unit=series[name].unit, main=True)
        for name in named
    ] + [Fact(name=name.replace("_", " "), value=values[name]) for name in rest]


def _scalars(value: object, prefix: str = "", depth: int = 0) -> Iterable[tuple[str, object]]:
    """Yield the plain values of an object's fields, by dotted names."""
    for name, item in _fields(value):
        place = f"{prefix}{name}"
        if item is None or isinstance(item, bool | int | float | str):
            yield place, item
        elif depth < _DEEPEST:
            yield from _scalars(item, f"{place}.", depth + 1)


def _fields(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [(str(name), item) for name, item in value.items()]
    return ()


def value_text(value: object) -> str:
    """Return a value as it stands in a table."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def change_text(before: object, now: object) -> str:
    """Say how a value changed: ``+0.25``, ``was …``, or nothing where it did not."""
    if before == now:
        return ""
    if _is_number(before) and _is_number(now):
        change = now - before  # type: ignore[operator]
        return _float_change(change) if isinstance(change, float) else f"{change:+,}"
    return f"was {value_text(before)}"


def _float_change(change: float) -> str:
    """Write a change with two decimals, one too small for them with its first figure."""
    if abs(change) < _LEAST_CHANGE:
        return ""
    return f"{change:+.1g}" if abs(change) < 0.005 else f"{change:+.2f}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What was decided for one agent in a turn.

    Attributes:
        agent: its name.
        proposed: what it did, in words, where the turn says so.
        chains: why, in order, by component.
    """

    agent: str
    proposed: tuple[str, ...]
    chains: Mapping[str, Sequence[LLMReasoningChain]]


def decisions_of(turn: RunTurn) -> tuple[list[str], list[Decisions]]:
    """Return the components that decided in a turn, and the decisions, an entry an agent."""
    every = every_chain(turn)
    components = list(dict.fromkeys(chain.component for chain in every))
    chains: dict[str, dict[str, list[LLMReasoningChain]]] = {}
    for chain in every:
        chains.setdefault(chain.agent, {}).setdefault(chain.component, []).append(chain)
    proposed = _answered(turn, chains)
    for action in getattr(turn, "actions", ()):
        name, words = getattr(action, "agent_name", None), getattr(action, "action_string", None)
        if name is not None and words is not None:
            proposed.setdefault(name, []).append(_verdict(action) + str(words))
    names = [*chains, *(name for name in proposed if name not in chains)]
    return components, [
        Decisions(agent=name, proposed=tuple(proposed.get(name, ())), chains=chains.get(name, {}))
        for name in names
    ]


def _answered(
    turn: RunTurn, chains: Mapping[str, Mapping[str, Sequence[LLMReasoningChain]]]
) -> dict[str, list[str]]:
    """Return what a world's players answered, in words, beside their chains; {} for others."""
    if not isinstance(turn, WorldTurn):
        return {}
    ruled = dict(zip(map(id, turn.chains), turn.answers, strict=False))
    return {
        agent: [
            str(ruled[id(chain)]) if id(chain) in ruled else answer_in_words(_said(chain))
            for its in by_component.values()
            for chain in its
        ]
        for agent, by_component in chains.items()
    }


def _said(chain: LLMReasoningChain) -> Mapping[str, Any]:
    reply = chain.call.reply if chain.call else None
    with suppress(InvalidReply):
        return reply_fields(reply.text) if reply else {}
    return {}


def _verdict(action: Any) -> str:
    return "" if getattr(action, "validated", True) else "(rejected) "
