"""Statecharts: which state an agent may go to from where, on what trigger, under which guard.

A chart is a table that any number of agents share; it holds no agent's state. The vocabulary
(trigger, guard, action, document order) is that of the W3C's State Chart XML recommendation (2015).
Charts here are flat: no state has states inside.

The libraries for state machines (python-statemachine, transitions) bind a machine to each agent and
change its state when a trigger fires; where several transitions match they take the first. Here a
chart must say what is legal without doing it, so that somebody else can choose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event

__all__ = ["TIMEOUT", "Action", "Guard", "Statechart", "Transition"]

logger = logging.getLogger(__name__)

TIMEOUT = "timeout"
"""The trigger that fires for an agent that has been in a state too long."""

StateT = TypeVar("StateT", bound=StrEnum)


class _HasState(Protocol[StateT]):
    """An agent, as far as a chart needs to know it."""

    name: str
    state: StateT


Guard = Callable[[Any, Any], bool]
"""Called with the agent and the context; says whether the transition may be taken."""
Action = Callable[[Any, Any], object]
"""Called with the agent and the context when the transition is taken."""


@dataclass(frozen=True, slots=True)
class Transition(Generic[StateT]):
    """One legal move.

    Attributes:
        trigger: the event that it answers to.
        source: the state it starts from.
        target: the state it leads to.
        guard: a condition on agent and context; without one it always holds.
        action: what is done when the transition is taken.
    """

    trigger: str
    source: StateT
    target: StateT
    guard: Guard | None = None
    action: Action | None = None

    @property
    def guard_name(self) -> str:
        """The guard's name, as pictures and YAML files have it; empty without a guard."""
        return getattr(self.guard, "__name__", repr(self.guard)) if self.guard else ""

    def __str__(self) -> str:
        guard = f" [{self.guard_name}]" if self.guard else ""
        return f"{self.source} --{self.trigger}{guard}--> {self.target}"


class Statechart(Generic[StateT]):
    """States and the transitions between them.

    Args:
        states: all states.
        transitions: in order of precedence: where several match, ``fire`` takes the first.
        initial: where agents begin.
        final: states that are meant to have no way out.
        timeouts: for some states, the ticks after which the trigger ``timeout`` fires there,
            instead of the agent's own ``timeout_threshold``.

    Attributes:
        complaints: what looks like a mistake but can be run: a state that cannot be reached, one
            that cannot be left, a timeout that nothing answers to. Each is logged once.

    Raises:
        ConfigError: a transition, the initial state, a final one or a timeout names a state that
            the chart does not have, or two transitions are the same.
    """

    def __init__(
        self,
        states: Iterable[StateT],
        transitions: Iterable[Transition[StateT]],
        initial: StateT,
        *,
        final: Iterable[StateT] = (),
        timeouts: Mapping[StateT, int] | None = None,
    ) -> None:
        self.states = tuple(dict.fromkeys(states))
        self.transitions = tuple(transitions)
        self.initial = initial
        self.final = frozenset(final)
        self.timeouts = dict(timeouts or {})
        self._check()
        self._moves: dict[tuple[StateT, str], tuple[Transition[StateT], ...]] = {}
        for move in self.transitions:
            key = (move.source, move.trigger)
            self._moves[key] = (*self._moves.get(key, ()), move)
        self.complaints = tuple(self._find_complaints())
        for complaint in self.complaints:
            log_event(logger, logging.WARNING, "STATECHART", complaint=complaint)

    def _check(self) -> None:
        if not self.states:
            raise ConfigError("a statechart needs states; give it at least one")
        there = ", ".join(self.states)
        named = [(str(move), state) for move in self.transitions for state in _ends(move)]
        named += [("initial", self.initial), *(("final", state) for state in self.final)]
        named += [("timeouts", state) for state in self.timeouts]
        for where, state in named:
            if state not in self.states:
                raise ConfigError(f"{where}: there is no state {state!s}; there are: {there}")
        seen: set[tuple[object, ...]] = set()
        for move in self.transitions:
            key = (move.trigger, move.source, move.target, move.guard)
            if key in seen:
                raise ConfigError(f"the transition {move} is there twice; leave one out")
            seen.add(key)
        for state, ticks in self.timeouts.items():
            if ticks < 1:
                raise ConfigError(f"timeouts: {state!s} has {ticks} ticks; it must be 1 or more")

    def _find_complaints(self) -> Iterable[str]:
        reached = {self.initial}
        todo = [self.initial]
        while todo:
            here = todo.pop()
            new = {move.target for move in self.transitions if move.source == here} - reached
            reached |= new
            todo += new
        left = {move.source for move in self.transitions if move.target != move.source}
        for state in self.states:
            if state not in reached:
                yield f"state {state!s} cannot be reached from {self.initial!s}"
            if state not in left and state not in self.final:
                yield f"state {state!s} has no way out; add a transition, or name it in final="
            if state in self.timeouts and (state, TIMEOUT) not in self._moves:
                yield f"state {state!s} has a timeout but no transition for the trigger {TIMEOUT!r}"

    # --- what is legal ------------------------------------------------------------------------

    def valid_triggers(self, state: StateT) -> list[str]:
        """Return the triggers that some transition from a state answers to, in chart order."""
        return list(dict.fromkeys(m.trigger for m in self.transitions if m.source == state))

    def valid_targets(
        self,
        state: StateT,
        trigger: str,
        *,
        agent: _HasState[StateT] | None = None,
        context: object = None,
    ) -> list[StateT]:
        """Return where a trigger may lead from a state, in chart order, each target once.

        Args:
            state: the state.
            trigger: the event.
            agent: whose guards are asked; without an agent guards are taken to hold.
            context: what the guards are shown besides the agent.
        """
        moves = self._moves.get((state, trigger), ())
        if agent is not None:
            moves = tuple(move for move in moves if self._holds(move, agent, context))
        return list(dict.fromkeys(move.target for move in moves))

    def fire(
        self,
        agent: _HasState[StateT],
        trigger: str,
        context: object = None,
        *,
        target: StateT | None = None,
    ) -> StateT | None:
        """Return the state that a trigger takes an agent to, and do the transition's action.

        The agent's state is not changed: that is the caller's to do. Where several transitions
        match, the first in the chart's order is taken; ask ``valid_targets`` first where somebody
        else is to choose.

        Args:
            agent: whose state counts, and whom guards and actions are shown.
            trigger: the event.
            context: what guards and actions are shown besides the agent.
            target: only a transition that leads there.

        Returns:
            The new state, or None if no transition matches.
        """
        for move in self._moves.get((agent.state, trigger), ()):
            if target is not None and move.target != target:
                continue
            if self._holds(move, agent, context):
                if move.action is not None:
                    move.action(agent, context)
                return move.target
        return None

    @staticmethod
    def _holds(move: Transition[StateT], agent: _HasState[StateT], context: object) -> bool:
        """Ask a guard; one that raises counts as False, and says so in the log."""
        if move.guard is None:
            return True
        try:
            return bool(move.guard(agent, context))
        except Exception as error:  # noqa: BLE001 - a guard is the user's code
            log_event(
                logger,
                logging.WARNING,
                "GUARD_FAILED",
                transition=str(move),
                agent=agent.name,
                error=f"{type(error).__name__}: {error}",
            )
            return False

    # --- faces --------------------------------------------------------------------------------

    def to_mermaid(self) -> str:
        """Return the chart as a Mermaid state diagram."""
        from llmsim_lab.statechart.picture import mermaid

        return mermaid(self)

    def to_dot(self) -> str:
        """Return the chart in Graphviz's DOT language."""
        from llmsim_lab.statechart.picture import dot

        return dot(self)

    def to_svg(
        self, *, current: StateT | None = None, counts: Mapping[StateT, int] | None = None
    ) -> str:
        """Return the chart as a picture.

        Args:
            current: a state to mark, for example the one an agent is in.
            counts: how many agents are in each state; states are shaded by their share.
        """
        from llmsim_lab.statechart.picture import svg

        return svg(self, current=current, counts=counts)

    def _repr_html_(self) -> str:
        return str(Markup(self.to_svg()))

    def __repr__(self) -> str:
        return (
            f"<Statechart: {len(self.states)} states, {len(self.transitions)} transitions, "
            f"initial {self.initial!s}>"
        )


def _ends(move: Transition[StateT]) -> tuple[StateT, StateT]:
    return move.source, move.target
