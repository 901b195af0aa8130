"""Statecharts: the transitions between an agent's states, each with a trigger and a guard.

A chart is a table that any number of agents share; it has no agent's state. The vocabulary
(trigger, guard, document order) is that of the W3C's State Chart XML recommendation (2015).
Charts here are flat: no state has states inside.

The libraries for state machines (python-statemachine, transitions) bind a machine to each agent and
change its state when a trigger fires; where several transitions match they take the first. Here a
chart must tell which transitions are legal without taking one, so that a player can choose.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from llmsim_lab._util.checks import (
    instance_of,
    items_of,
    known_names,
    text_argument,
    whole_number,
)
from llmsim_lab._util.config import Settings, read_config
from llmsim_lab._util.files import as_path
from llmsim_lab._util.html import visible
from llmsim_lab._util.text import among, brief, plain_text
from llmsim_lab.errors import ConfigError

TIMEOUT = "timeout"
"""The trigger of an agent that has been in a state too long."""

_A_STATE = "a state, such as AgentState.IDLE"
_SHIPPED = Path(__file__).parent / "charts" / "social_feed.yaml"


class AgentState(StrEnum):
    """What an agent is doing."""

    IDLE = "idle"
    SCROLLING = "scrolling"
    EVALUATING = "evaluating"
    COMPOSING = "composing"
    ENGAGING_LIKE = "engaging_like"
    ENGAGING_REPLY = "engaging_reply"
    ENGAGING_RESHARE = "engaging_reshare"
    RESTING = "resting"


STATE_DESCRIPTIONS: dict[AgentState, str] = {
    AgentState.IDLE: "Stop browsing, wait for next round",
    AgentState.SCROLLING: "Continue browsing without engaging",
    AgentState.EVALUATING: "Look more closely at this post",
    AgentState.COMPOSING: "Write a response or original content",
    AgentState.ENGAGING_LIKE: "Like this post",
    AgentState.ENGAGING_REPLY: "Reply to this post",
    AgentState.ENGAGING_RESHARE: "Reshare this post",
    AgentState.RESTING: "Take a break from activity",
}
"""What a model reads about each state that it may choose. Wording: the reasoner contract's."""


Guard = Callable[[Any, Any], bool]
"""Called with the agent and the context; returns True if the transition may be taken."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One legal move.

    Attributes:
        trigger: the event that it answers to.
        source: the state it starts from.
        target: the state it leads to.
        guard: a condition on agent and context; without one the transition is always legal.

    Raises:
        ConfigError: the trigger is not a text, or the guard is not a function.
    """

    trigger: str
    source: AgentState
    target: AgentState
    guard: Guard | None = None

    @property
    def label(self) -> str:
        """Trigger and guard, as UML writes them."""
        guard = getattr(self.guard, "__name__", "")
        return f"{self.trigger} [{guard}]" if guard else self.trigger

    def __post_init__(self) -> None:
        text_argument("trigger", self.trigger)
        instance_of("source", self.source, Hashable, _A_STATE)
        instance_of("target", self.target, Hashable, _A_STATE)
        if self.guard is not None and not callable(self.guard):
            raise ConfigError(
                f"guard={brief(self.guard)} must be a function of the agent and the context"
            )

    def allows(self, agent: Any, context: object) -> bool:
        """Return the guard's answer for an agent; errors get a note that names the transition."""
        if self.guard is None:
            return True
        try:
            return self.guard(agent, context)
        # A note, not another error: the guard is a user's code, whose own error tells most.
        except Exception as error:
            name = getattr(agent, "name", agent)
            error.add_note(f"The guard of {self} raised this for {name!s:.80}.")
            raise

    def __str__(self) -> str:
        return f"{self.source} --{self.label}--> {self.target}"


class Statechart:
    """States and the transitions between them.

    Args:
        states: all states.
        transitions: in order of precedence: where several match, ``fire`` takes the first.
        initial: where agents begin.
        timeouts: for some states, the ticks after which the trigger ``timeout`` fires there,
            instead of the agent's own ``timeout_threshold``.

    Raises:
        ConfigError: a transition, the initial state or a timeout names a state that the chart does
            not have.
    """

    def __init__(
        self,
        states: Iterable[AgentState],
        transitions: Iterable[Transition],
        initial: AgentState,
        *,
        timeouts: Mapping[AgentState, int] | None = None,
    ) -> None:
        right = "a list of states, such as those of AgentState"
        self.states = tuple(dict.fromkeys(items_of("states", states, Hashable, right)))
        self.transitions = tuple(
            items_of("transitions", transitions, Transition, "a list of Transitions")
        )
        self.initial = instance_of("initial", initial, Hashable, _A_STATE)
        named_states = [self.initial]
        for move in self.transitions:
            named_states += [move.source, move.target]
        self._check(named_states)
        self.timeouts: dict[AgentState, int] = {}
        given = {} if timeouts is None else timeouts
        instance_of("timeouts", given, Mapping, "ticks by state: {AgentState.SCROLLING: 3}")
        self._check([*given])
        for state, ticks in given.items():
            self.timeouts[state] = whole_number(f"timeouts[{plain_text(state)}]", ticks, least=1)

    def _check(self, named_states: list[AgentState]) -> None:
        """Raise ConfigError for a state that the chart does not have."""
        known_names(
            "chart state",
            map(plain_text, named_states),
            map(plain_text, self.states),
        )

    @classmethod
    def load(
        cls,
        source: str | Path | ChartTable | None = None,
        *,
        guards: Mapping[str, Guard],
    ) -> Statechart:
        """Return the chart that a file describes; its states are among those of ``AgentState``.

        Args:
            source: a YAML file, or the content of one; the shipped chart if not given.
            guards: by the names that the file uses.

        Raises:
            ConfigError: the file cannot be read, names what does not exist, or is not a valid
                chart.
        """
        instance_of("guards", guards, Mapping, "functions by name: {'interested': ...}")
        table = source
        if table is None:
            table = _shipped_table()
        elif not isinstance(table, ChartTable):
            table = read_config(as_path("chart", table), ChartTable)
        moves = []
        for row in table.transitions:
            guard = None
            if row.guard:
                guard = guards.get(row.guard)
                # A guard that is left out would allow what it was written to forbid.
                if guard is None:
                    others = among(row.guard, map(str, guards))
                    raise ConfigError(
                        f"chart: there is no guard {row.guard!r}{others}. Write "
                        "class Town(SocialSimulation): guards = SocialSimulation.guards | "
                        f"{{{row.guard!r}: function}}"
                    )
            moves.append(
                Transition(
                    row.trigger,
                    row.source,
                    row.target,
                    guard,
                )
            )
        return Statechart(
            table.states,
            moves,
            table.initial,
            timeouts=table.timeouts,
        )

    # --- what is legal ------------------------------------------------------------------------

    def valid_triggers(self, state: AgentState) -> list[str]:
        """Return the triggers that some transition from a state answers to, in chart order."""
        # A dict as an ordered set, since several transitions may have the same trigger.
        triggers = [move.trigger for move in self.transitions if move.source == state]
        return list(dict.fromkeys(triggers))

    def valid_targets(
        self,
        state: AgentState,
        trigger: str,
        *,
        agent: Any = None,
        context: object = None,
    ) -> list[AgentState]:
        """Return where a trigger may lead from a state, in chart order, each target once.

        Args:
            state: the state.
            trigger: the event.
            agent: passed to the guards; without an agent all guards count as True.
            context: passed to the guards too.
        """
        targets = []
        for move in self.transitions:
            if move.source != state or move.trigger != trigger:
                continue
            # The guard is called last, since a user's code may be slow.
            if agent is None or move.allows(agent, context):
                targets.append(move.target)
        return list(dict.fromkeys(targets))

    def fire(
        self,
        agent: Any,
        trigger: str,
        context: object = None,
    ) -> AgentState | None:
        """Return the state that a trigger leads an agent to.

        The agent's state is not changed; the caller does that. Where several transitions match,
        the first in the chart's order is taken; to choose another, see ``valid_targets``.

        Args:
            agent: its state is the source; guards get it.
            trigger: the event.
            context: guards get it too.

        Returns:
            The new state, or None if no transition matches.
        """
        if not hasattr(agent, "state"):
            raise ConfigError(f"agent={brief(agent)} has no state, as a SocialAgent has")
        targets = self.valid_targets(
            agent.state,
            trigger,
            agent=agent,
            context=context,
        )
        return targets[0] if targets else None

    # --- as text ------------------------------------------------------------------------------

    def to_mermaid(self) -> str:
        """Return the chart as a Mermaid state diagram, for Markdown."""
        # JupyterLab makes the title the picture's alternative text.
        # Mermaid does not take all words as ids, so that names are titles of these ids.
        ids = {state: f"s{number}" for number, state in enumerate(self.states)}
        lines = ["stateDiagram-v2", f"    accTitle: {self!r}"]
        lines += [f'    state "{_mermaid_text(state)}" as {ids[state]}' for state in ids]
        lines.append(f"    [*] --> {ids[self.initial]}")
        lines += [
            f"    {ids[move.source]} --> {ids[move.target]} : {_mermaid_text(move.label)}"
            for move in self.transitions
        ]
        return "\n".join(lines) + "\n"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        lines = [repr(self)]
        for move in self.transitions:
            # Each on one line, since a file may put line breaks into names.
            words = visible(str(move)).split()
            lines.append(" ".join(words))
        text = "\n".join(lines)
        # Without HTML, which JupyterLab would prefer to the drawing.
        return {"text/vnd.mermaid": self.to_mermaid(), "text/plain": text}

    def __repr__(self) -> str:
        return f"Statechart of {len(self.states)} states and {len(self.transitions)} transitions"


def _mermaid_text(text: str) -> str:
    """Return a text escaped for Mermaid: ``#59;`` for a ``;``, and so on."""
    parts = []
    for letter in " ".join(visible(text).split()):
        is_plain = letter.isalnum() or letter in " _-.,()[]/'"
        parts.append(letter if is_plain else f"#{ord(letter)};")
    return "".join(parts)


# --- files ---------------------------------------------------------------------------------------

_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class MoveRow(Settings):
    """A transition as a file has it; see ``Transition``."""

    trigger: _Name
    source: AgentState
    target: AgentState
    guard: _Name | None = None


@cache  # a tape has thousands of runs, and reading YAML takes 50 ms
def _shipped_table() -> ChartTable:
    return read_config(_SHIPPED, ChartTable)


class ChartTable(Settings):
    """A chart as a file has it; see ``Statechart``."""

    initial: AgentState
    states: tuple[AgentState, ...]
    transitions: tuple[MoveRow, ...] = ()
    timeouts: dict[AgentState, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
