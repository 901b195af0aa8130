"""The state of a crisis after a step, the record of a step, and what may be done from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from llmsim_lab.calls import Status
from llmsim_lab.context.game_engine import ENGINE, GameEngine, UpdateRecord
from llmsim_lab.context.scenario import ScenarioEvent
from llmsim_lab.context.variable import Scalar
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs import RunTurn
from llmsim_lab.runs._config import RunIntervention
from llmsim_lab.text import clip
from llmsim_lab.values import FrozenDict

__all__ = ["CrisisAction", "CrisisIntervention", "CrisisState", "CrisisTurn", "Happening", "plain"]

_MOST_ASKED_CHARS = 200
_LARGEST = 1e15
_OUTSIDE = "outside"
"""The source of changes made by interventions; it may set what the engine's model may not."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened; prompts show its description.

    Attributes:
        description: one sentence.
        type: one word for what it is.
        source: ``engine``, ``scenario``, or ``outside`` where it was injected.
    """

    description: str
    type: str = "event"
    source: str = "engine"

    @property
    def event(self) -> dict[str, str]:
        """The event as ``build_prompt`` takes it."""
        return {"type": self.type, "description": self.description}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrisisState:
    """The world after a step.

    Attributes:
        global_vars: the world's variables by name.
        agent_vars: each agent's, by the agent's name.
        responses: what each agent was heard to say in the step; empty where it said nothing.
        events: what agents were told in the step had happened.
        pending: what they will be told in the next step besides what the engine makes of it.
        muted: agents that are not asked.
    """

    global_vars: dict[str, Scalar]
    agent_vars: dict[str, dict[str, Scalar]]
    responses: dict[str, str] = field(default_factory=dict)
    events: tuple[Happening, ...] = ()
    pending: tuple[Happening, ...] = ()
    muted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = {agent: FrozenDict(values) for agent, values in self.agent_vars.items()}
        object.__setattr__(self, "global_vars", FrozenDict(self.global_vars))
        object.__setattr__(self, "agent_vars", FrozenDict(own))
        object.__setattr__(self, "responses", FrozenDict(self.responses))

    @property
    def columns(self) -> dict[str, Scalar]:
        """All variables: the world's by name, agents' as ``agent.variable``."""
        columns: dict[str, Scalar] = dict(self.global_vars)
        for agent, values in self.agent_vars.items():
            columns |= {f"{agent}.{name}": value for name, value in values.items()}
        return columns


class CrisisIntervention(RunIntervention):
    """Something done from outside after a step; it matters from the next step on.

    Attributes:
        turn: the number of the step whose state is changed.
        set_to: new values of the world's variables by name; ``set`` in files.
        set_agents: new values of agents' variables: ``{"Taiwan": {"trust_level": 30}}``.
        events: what everybody will hear has happened: texts, or ``{type, description}``.
        mute: agents that are not asked any more.
        unmute: agents that are asked again.
        note: why, for the record.
    """

    model_config = ConfigDict(populate_by_name=True)

    set_to: dict[str, Any] = Field(default_factory=dict, alias="set")
    set_agents: dict[str, dict[str, Any]] = Field(default_factory=dict)
    events: tuple[ScenarioEvent, ...] = ()
    mute: tuple[str, ...] = ()
    unmute: tuple[str, ...] = ()
    note: Annotated[str, Field(max_length=500)] = ""

    @field_validator("events", mode="before")
    @classmethod
    def _texts_are_events(cls, events: Any) -> Any:
        if isinstance(events, str):
            events = [events]
        if not isinstance(events, list | tuple):
            return events
        return [
            {"type": _OUTSIDE, "description": item} if isinstance(item, str) else item
            for item in events
        ]

    @field_validator("mute", "unmute", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: Any) -> Any:
        return (names,) if isinstance(names, str) else names

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        own = any(self.set_agents.values())
        if not (self.set_to or own or self.events or self.mute or self.unmute):
            raise ValueError(
                "an intervention needs 'set', 'set_agents', 'events', 'mute' or 'unmute'"
            )
        return self

    def __str__(self) -> str:
        parts = [f"{name} = {value}" for name, value in self.set_to.items()]
        for agent, values in self.set_agents.items():
            parts += [f"{agent}.{name} = {value}" for name, value in values.items()]
        parts += [f'event "{clip(event.description, 60)}"' for event in self.events]
        parts += [f"mute {name}" for name in self.mute]
        parts += [f"unmute {name}" for name in self.unmute]
        note = f" ({self.note})" if self.note else ""
        return f"turn {self.turn}: {clip(', '.join(parts), 200)}{note}"

    def applied(self, state: CrisisState, world: GameEngine) -> CrisisState:
        """Return a state with what is done to it.

        Args:
            state: the state.
            world: the state's variables, to be changed.

        Raises:
            ConfigError: there is no such variable or agent, or the value is impossible.
        """
        named = (*self.mute, *self.unmute)
        if strangers := [name for name in named if name not in world.agents]:
            raise ConfigError(
                f"there is no agent {strangers[0]!r} to mute or unmute; there are: "
                f"{', '.join(world.agents)}"
            )
        if both := set(self.mute) & set(self.unmute):
            raise ConfigError(f"{', '.join(sorted(both))}: cannot be muted and unmuted at once")
        updates = {"global_vars": self.set_to, "agent_vars": self.set_agents}
        for record in world.apply_state_updates(updates, source=_OUTSIDE):
            if record.status == "failed":
                raise ConfigError(f"{_named(record)} = {record.asked!r}: {record.reason}")
        told = [Happening(event.description, event.type, source=_OUTSIDE) for event in self.events]
        muted = {*state.muted, *self.mute} - {*self.unmute}
        return replace(
            state,
            **world.get_current_state(),
            pending=(*state.pending, *told),
            muted=tuple(name for name in state.agent_vars if name in muted),
        )


def _named(record: UpdateRecord) -> str:
    return f"{record.agent}.{record.variable}" if record.agent else record.variable


@dataclass(frozen=True, slots=True)
class CrisisAction:
    """What an agent did in a step.

    Attributes:
        agent_name: who.
        action_string: what the others hear.
        status: how the answer came about; ``failed`` where the model gave none, so that the agent
            said nothing.
        parts: all that it said, by the labels of the response format.
    """

    agent_name: str
    action_string: str
    status: Status = "ok"
    parts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrisisTurn(RunTurn[CrisisState, CrisisIntervention]):
    """A step.

    Attributes:
        actions: what the agents did, in the scenario's order; muted ones are left out.
        updates: every change asked for, by modules first, then by the engine, and what became of
            it.
        reasoning: the engine's.
    """

    actions: tuple[CrisisAction, ...] = ()
    updates: tuple[UpdateRecord, ...] = ()
    reasoning: str = ""

    @property
    def changes(self) -> tuple[UpdateRecord, ...]:
        """The changes that were made and made a difference."""
        return tuple(
            record
            for record in self.updates
            if record.status != "failed" and record.after != record.before
        )

    @property
    def refused(self) -> tuple[UpdateRecord, ...]:
        """The changes that were not made."""
        return tuple(record for record in self.updates if record.status == "failed")

    def own_columns(self) -> dict[str, Any]:
        """Return all variables, and what became of the changes asked for.

        Columns: the world's variables by name; each agent's as ``agent.variable``; ``events``,
        told in the step; ``changes``, values that became others in it; ``refused``, changes that
        were impossible.
        """
        return {
            **self.state.columns,
            "events": len(self.state.events),
            "changes": len(self.changes),
            "refused": len(self.refused),
        }

    def in_words(self) -> Sequence[str]:
        """Return what happened, what was said, what changed, and what was refused."""
        lines = [f"event: {clip(item.description, 200)}" for item in self.state.events]
        if self.reasoning:
            lines.append(f"engine: {clip(self.reasoning, 300)}")
        lines += [
            f"{_named(record)}: {record.before} -> {record.after} ({record.source})"
            for record in self.changes
        ]
        for record in self.refused:
            asked = clip(repr(record.asked), 60)
            lines.append(f"{_named(record)}: {asked} REFUSED: {record.reason} ({record.source})")
        lines += [
            f"{action.agent_name}: {clip(action.action_string, 300) or '(said nothing)'}"
            for action in self.actions
        ]
        return lines

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return ``changes`` and ``refused``: how many the engine asked for and were (not) made."""
        updates = {"changes": self.changes, "refused": self.refused}
        counts = {
            name: sum(record.source == ENGINE for record in records)
            for name, records in updates.items()
        }
        none = dict.fromkeys(counts)
        return [counts if chain.component == "engine" else none for chain in chains]


def plain(records: Iterable[UpdateRecord]) -> tuple[UpdateRecord, ...]:
    """Return records that JSON can hold: what is no plain value asked for becomes a text."""
    return tuple(replace(record, asked=_plain(record.asked)) for record in records)


def _plain(asked: Any) -> Scalar | None:
    if asked is None or isinstance(asked, bool):
        return asked
    if isinstance(asked, int | float) and abs(asked) < _LARGEST:  # which NaN is not
        return asked
    if isinstance(asked, str):
        return clip(asked, _MOST_ASKED_CHARS)
    return clip(repr(asked), _MOST_ASKED_CHARS)
