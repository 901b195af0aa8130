"""Statecharts: which state an agent may go to from where, on what trigger, under which guard.

A chart is a table that any number of agents share; it holds no agent's state. The vocabulary
(trigger, guard, action, document order) is that of the W3C's State Chart XML recommendation (2015).
Charts here are flat: no state has states inside. They come from Python or from YAML files, which
name their guards and actions.

The libraries for state machines (python-statemachine, transitions) bind a machine to each agent and
change its state when a trigger fires; where several transitions match they take the first. Here a
chart must say what is legal without doing it, so that somebody else can choose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

from pydantic import Field, StringConstraints

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab._util.text import log_event
from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart._diagram import Arrow, Diagram

logger = logging.getLogger(__name__)

TIMEOUT = "timeout"
"""The trigger that fires for an agent that has been in a state too long."""


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

StateT = TypeVar("StateT", bound=StrEnum)


class _HasState(Protocol[StateT]):
    """An agent, as far as a chart needs to know it."""

    name: str
    state: StateT


Guard = Callable[[Any, Any], bool]
"""Called with the agent and the context; returns True if the transition may be taken."""
Action = Callable[[Any, Any], object]
"""Called with the agent and the context when the transition is taken."""


@dataclass(frozen=True, slots=True)
class Transition(Generic[StateT]):
    """One legal move.

    Attributes:
        trigger: the event that it answers to.
        source: the state it starts from.
        target: the state it leads to.
        guard: a condition on agent and context; without one the transition is always legal.
        action: called when the transition is taken.
    """

    trigger: str
    source: StateT
    target: StateT
    guard: Guard | None = None
    action: Action | None = None

    @property
    def guard_name(self) -> str:
        """The guard's name, as tables and YAML files have it; empty without a guard."""
        return getattr(self.guard, "__name__", repr(self.guard)) if self.guard else ""

    @property
    def arrow(self) -> Arrow:
        """The transition as it is written."""
        return Arrow(
            str(self.source),
            str(self.target),
            f"{self.trigger} [{self.guard_name}]" if self.guard else self.trigger,
            getattr(self.action, "__name__", "action") if self.action else "",
        )

    def __str__(self) -> str:
        return str(self.arrow)


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
        # Found by state and trigger: a turn asks for every agent.
        # Of one state and trigger in the chart's order, which decides where several match.
        self._moves: dict[tuple[StateT, str], tuple[Transition[StateT], ...]] = {}
        for move in self.transitions:
            key = (move.source, move.trigger)
            self._moves[key] = (*self._moves.get(key, ()), move)
        self.complaints = tuple(self._find_complaints())
        for complaint in self.complaints:
            log_event(logger, logging.WARNING, "STATECHART", complaint=complaint)

    @classmethod
    def load(
        cls,
        source: str | Path | ChartTable,
        *,
        guards: Mapping[str, Guard] | None = None,
        actions: Mapping[str, Action] | None = None,
    ) -> Statechart[Any]:
        """Return the chart that a file describes.

        Its states are those of ``AgentState`` where all of them are known there, else an enum made
        for the file.

        Args:
            source: a file, the content of one, or the name of a shipped chart: ``social_feed``.
            guards: by the names that the file uses.
            actions: likewise.

        Raises:
            ConfigError: the file cannot be read, names what does not exist, or is not a valid
                chart; the message names file and line.
        """
        file, table = None, source
        if not isinstance(table, ChartTable):
            file = _yaml_file(_path_of(table))
            table = file.parse(ChartTable)
        guards, actions = guards or {}, actions or {}
        for place, what in _unknown_names(table, guards, actions):
            if file is not None:
                raise ConfigError(file.fault(place, what))
            raise ConfigError(f"chart: {'.'.join(map(str, place))}: {what}")
        states = _enum_of(table.states)
        return cls(
            map(states, table.states),
            [
                Transition(
                    move.trigger,
                    states(move.source),
                    states(move.target),
                    None if move.guard is None else guards[move.guard],
                    None if move.action is None else actions[move.action],
                )
                for move in table.transitions
            ],
            states(table.initial),
            final=map(states, table.final),
            timeouts={states(name): ticks for name, ticks in table.timeouts.items()},
        )

    def _check(self) -> None:
        if not self.states:
            raise ConfigError("a statechart needs states; give it at least one")
        there = ", ".join(self.states)
        for place, state in _states_named(self):
            if state not in self.states:
                where = self.transitions[place[1]] if place[0] == "transitions" else place[0]
                raise ConfigError(f"{where}: there is no state {state!s}; there are: {there}")
        seen: set[tuple[object, ...]] = set()
        for move in self.transitions:
            # Without the action: of two that match, the second's action would never run.
            key = (move.trigger, move.source, move.target, move.guard)
            if key in seen:
                raise ConfigError(f"the transition {move} is there twice; leave one out")
            seen.add(key)
        for state, ticks in self.timeouts.items():
            if ticks < 1:
                raise ConfigError(f"timeouts: {state!s} has {ticks} ticks; it must be 1 or more")

    def _find_complaints(self) -> Iterable[str]:
        # Guards count as True: whether one ever holds cannot be found out without agents.
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
            agent: passed to the guards; without an agent all guards count as True.
            context: passed to the guards too.
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
        """Return the state that a trigger takes an agent to, and run the transition's action.

        The agent's state is not changed; the caller does that. Where several transitions match,
        the first in the chart's order is taken; to choose another, see ``valid_targets``.

        Args:
            agent: its state is the source; guards and actions get it.
            trigger: the event.
            context: guards and actions get it too.
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
        """Return True if a guard allows a move."""
        return move.guard is None or bool(move.guard(agent, context))

    # --- as text ------------------------------------------------------------------------------

    @property
    def _diagram(self) -> Diagram:
        return Diagram(
            tuple(map(str, self.states)),
            str(self.initial),
            frozenset(map(str, self.final)),
            tuple(move.arrow for move in self.transitions),
        )

    def to_mermaid(self) -> str:
        """Return the chart as a Mermaid state diagram, for Markdown."""
        return self._diagram.mermaid()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # Without HTML, which JupyterLab would show instead of the drawing.
        return {
            "text/vnd.mermaid": self.to_mermaid(),
            "text/plain": f"{self!r}\n{self._diagram.table()}",
        }

    def __repr__(self) -> str:
        return (
            f"<Statechart: {len(self.states)} states, {len(self.transitions)} transitions, "
            f"initial {self.initial!s}>"
        )


# --- files ---------------------------------------------------------------------------------------

_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class MoveRow(Settings):
    """A transition as a file has it; see ``Transition``."""

    trigger: _Name
    source: _Name
    target: _Name
    guard: _Name | None = None
    action: _Name | None = None


class ChartTable(Settings):
    """A chart as a file has it: plain names throughout; see ``Statechart``."""

    initial: _Name
    states: Annotated[tuple[_Name, ...], Field(min_length=1)]
    transitions: tuple[MoveRow, ...] = ()
    final: tuple[_Name, ...] = ()
    timeouts: dict[_Name, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)


def read_table(path: Path) -> ChartTable:
    """Return the content of a chart's file.

    Raises:
        ConfigError: it cannot be read, or is not a chart; the message names file and line.
    """
    return _yaml_file(path).parse(ChartTable)


def _yaml_file(path: Path) -> YamlFile:
    return YamlFile.read(path, example="initial: idle")


def _states_named(chart: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield each state that a chart, or the table of one, names, with its place there."""
    for index, move in enumerate(chart.transitions):
        yield ("transitions", index, "source"), move.source
        yield ("transitions", index, "target"), move.target
    yield ("initial",), chart.initial
    yield from ((("final", index), state) for index, state in enumerate(chart.final))
    yield from ((("timeouts", state), state) for state in chart.timeouts)


def _unknown_names(
    table: ChartTable, guards: Mapping[str, Guard], actions: Mapping[str, Action]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what a chart names and does not exist, each with its place in the file."""
    for place, name in _states_named(table):
        if name not in table.states:
            yield place, f"there is no state {name!r}; there are: {', '.join(table.states)}"
    for index, move in enumerate(table.transitions):
        named = (("guard", move.guard, guards), ("action", move.action, actions))
        for role, function, given in named:
            if function is not None and function not in given:
                what = (
                    f"there is no {role} {function!r}; registered are: "
                    f"{', '.join(sorted(given)) or 'none'}. Pass it: "
                    f"Statechart.load(..., {role}s={{{function!r}: function}})"
                )
                if role == "guard":
                    what += (
                        "; for a simulation, derive a class: class Town(SocialSimulation): "
                        f"guards = {{**SocialSimulation.guards, {function!r}: function}}"
                    )
                yield ("transitions", index, role), what


def _enum_of(names: tuple[str, ...]) -> Any:
    # Then a simulation's agents can have these states, and prompts describe them.
    if set(names) <= {state.value for state in AgentState}:
        return AgentState
    # Numbered, since not every name of a state can be that of an enum's member.
    members: Any = {f"state_{n}": name for n, name in enumerate(dict.fromkeys(names))}
    return StrEnum("State", members)


def _path_of(source: str | Path) -> Path:
    if isinstance(source, Path) or source.endswith((".yaml", ".yml")):
        return Path(source)
    folder = Path(__file__).parent / "charts"
    shipped = sorted(path.stem for path in folder.glob("*.yaml"))
    if source not in shipped:
        raise ConfigError(
            f"there is no chart {source!r}; shipped are {', '.join(shipped)}; a file of your own "
            "is named by its path, ending in .yaml"
        )
    return folder / f"{source}.yaml"
