"""What widgets read from runs: the run itself, its requests, and each turn's values and decisions.

The decisions of whole turns come from the turns. The tape, where there is one, adds what they do
not hold: calls that failed for good, and those of a turn that is not whole. A turn is read by
itself, so the work does not grow with the number of turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmsim_lab._util.text import clip, number, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.charts._tracks import plain_number
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run
from llmsim_lab.run._run import load
from llmsim_lab.run._state import COMMON_COLUMNS
from llmsim_lab.run._turn import WorldTurn, answer_in_words, decided, every_chain, reply_of
from llmsim_lab.types import Attempt, CallSite, LLMReasoningChain, Status

if TYPE_CHECKING:
    from llmsim_lab.run._turn import RunTurn


Source = Run | Tape | str | Path
"""A simulation, or a tape or its file."""


def simulation_of(source: Source, *, run: int | None = None) -> Run:
    """Return the simulation to show; a tape's run is loaded, not played.

    Args:
        source: a simulation, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; the latest if not given.

    Raises:
        ConfigError: it is not one of these, or a run was named for a simulation.
        TapeError: the tape cannot be read, or has no such run.
    """
    if isinstance(source, Tape | str | Path):
        loaded: Run = load(source, run)
        return loaded
    if not isinstance(source, Run):
        raise ConfigError(
            f"{type(source).__name__} is neither a simulation nor a tape; pass a Simulation, a "
            "Tape, or a tape's file"
        )
    if run is not None:
        raise ConfigError(f"run={run} goes with a tape; a simulation is one run already")
    return source


FAILED_ATTEMPTS = "failed attempts"
"""The filter for requests that went wrong, whatever came of their calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request of a run's, or a decision by rule, which made none.

    Attributes:
        turn: that was being played.
        attempt: the request and its outcome; None for a rule's decision.
        chain: the decision it led to; None where it led to none.
    """

    turn: int
    attempt: Attempt | None
    chain: LLMReasoningChain | None

    @property
    def _origin(self) -> LLMReasoningChain | CallSite | None:
        return self.chain or (self.attempt.request.site if self.attempt else None)

    @property
    def component(self) -> str:
        """Which component made it."""
        return self._origin.component if self._origin else ""

    @property
    def agent(self) -> str:
        """Who decided, or whose action was judged or applied."""
        return (self._origin.agent if self._origin else None) or ""

    @property
    def status(self) -> Status | None:
        """How the decision came about; None where the request led to none."""
        return self.chain.status if self.chain else None

    @property
    def fault(self) -> str | None:
        """What was wrong with the request or its reply, in a word; None if nothing was."""
        return self.attempt.reason if self.attempt else None

    @property
    def name(self) -> str:
        """Which of a call's attempts it is and its outcome, in words."""
        if self.attempt is None:
            rule = self.chain is None or self.chain.by_rule
            return "by rule, no model asked" if rule else "a choice, measured by other calls"
        what = self.fault or "answered"
        lost = "" if self.chain else ", led to no decision"
        return f"attempt {self.attempt.request.attempt}: {what}{lost}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Where a text was found.

    Attributes:
        seen: the request.
        part: ``prompt``, ``reply``, ``thinking``, ``fault``, or a rule's ``reasoning``.
        line: the first line of it that has the text.
    """

    seen: Seen
    part: str
    line: str

    @property
    def where(self) -> str:
        """Turn, component, agent and part, on one line."""
        seen = self.seen
        return clip(f"turn {seen.turn} · {seen.component} · {seen.agent} · {self.part}", 80)


def turn_at(simulation: Run, number: int) -> RunTurn | None:
    """Return a run's turn by its number, or None."""
    place = number - simulation.turns[0].number
    return simulation.turns[place] if 0 <= place < len(simulation.turns) else None


def turn_name(turn: RunTurn) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    period = getattr(turn.state, "period", None)
    name = "Initial state" if turn.number == 0 else f"Turn {turn.number}"
    return f"{name} ({printable(str(period))})" if period else name


class Attempts:
    """All requests of a run's, those included that only its tape has.

    Args:
        simulation: the run; turns that it plays later are seen too.
    """

    def __init__(self, simulation: Run) -> None:
        self.simulation = simulation
        self._prefix: list[tuple[int, int]] = []
        if simulation.tape is not None and simulation.run_id is not None:
            # What a fork shares with its parents never changes; all else is its own.
            self._prefix = simulation.tape.line(simulation.run_id)[:-1]

    @property
    def first(self) -> int:
        """The number of the state that the run started from."""
        return int(self.simulation.turns[0].number)

    @property
    def last(self) -> int:
        """The number of the last turn that there is something of, whole or not.

        What the tape has of turns that a replay has not played yet is not this run's.
        """
        tape = self.simulation.tape
        last: int = self.simulation.turns[-1].number
        if tape is None:
            return last
        # Only after the last turn that was recorded whole can there be an unfinished one.
        run = self.simulation.run_id
        if run is None or tape.last_turn(run) > last:
            return last
        return max(last, tape.last_asked(run) or 0)

    def of(self, number: int) -> list[Seen]:
        """Return a turn's requests and rules' decisions in the order of its chains, lost ones last.

        Args:
            number: the turn's.
        """
        turn = turn_at(self.simulation, number)
        found = [
            Seen(turn=number, attempt=attempt, chain=chain)
            for chain in (every_chain(turn) if turn else ())
            for attempt in (chain.call.history if chain.call else (None,))
        ]
        tape = self.simulation.tape
        if tape is not None:
            # A fork's first turns were played by its parents.
            shared = (run for run, last in self._prefix if number <= last)
            # Those that failed for good, and, of a turn that is not whole, all.
            run = next(shared, self.simulation.run_id or 0)
            calls = tape.calls(run, turn=number, forgotten=True)
            lost = (call.attempt for call in calls if call.forgotten or turn is None)
            found += [Seen(turn=number, attempt=attempt, chain=None) for attempt in lost]
        return found

    def search(self, wanted: str) -> Iterator[Hit]:
        """Yield where a text is in prompts, replies and faults, upper and lower case alike.

        Args:
            wanted: the text.
        """
        low, pattern = wanted.lower(), re.compile(re.escape(wanted), re.IGNORECASE)
        for turn in range(self.first, self.last + 1):
            for seen in self.of(turn):
                for part, text in _texts(seen):
                    # ``in`` is many times faster than the pattern; that gives the place in the text
                    # as it is, since lower() may change a text's length.
                    if low in text.lower() and (found := pattern.search(text)):
                        yield Hit(seen=seen, part=part, line=_line(text, found.start()))


def fits(seen: Seen, *, status: str = "", component: str = "", agent: str = "") -> bool:
    """Return True if a request passes the filters; empty ones let all pass.

    Args:
        seen: the request.
        status: of its decision, or ``FAILED_ATTEMPTS``.
        component: which made it.
        agent: the one it is about.
    """
    right = seen.fault is not None if status == FAILED_ATTEMPTS else status in ("", seen.status)
    return right and component in ("", seen.component) and agent in ("", seen.agent)


def _texts(seen: Seen) -> Iterator[tuple[str, str]]:
    if seen.attempt is None:
        if seen.chain:
            yield "reasoning", seen.chain.reasoning
        return
    for message in seen.attempt.request.messages:
        yield "prompt", message.content
    reply = seen.attempt.reply
    if reply is not None:
        yield "reply", reply.text
        yield "thinking", reply.thinking
    yield "fault", seen.attempt.detail


def _line(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[max(start, at - 100) : at + 200 if end < 0 else min(end, at + 200)]


_BOOKKEEPING = COMMON_COLUMNS | {"period"}
"""Columns of every run's frame that the stepper shows elsewhere."""
_LEAST_CHANGE = 0.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value of a turn.

    Attributes:
        name: for people.
        unit: may be empty.
        value: a number, a text, a truth value or None.
        main: True if the kind of simulation charts it.
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
    values = dict(simulation.own_columns(turn))
    # Of this turn alone, since a run's ``series`` looks through all its turns.
    charted = simulation._series([values])
    named = {item.column: item for item in charted if item.column in values}
    return [
        Fact(name=item.label, value=values[name], unit=item.unit, main=True)
        for name, item in named.items()
    ] + [
        Fact(name=name.replace("_", " "), value=value)
        for name, value in values.items()
        if name not in named and name not in _BOOKKEEPING
    ]


def value_text(value: object) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def change_text(before: object, now: object) -> str:
    """Return how a value changed: ``+0.25``, ``was …``, or nothing where it did not."""
    if before == now:
        return ""
    if plain_number(before) and plain_number(now):
        change = now - before  # type: ignore[operator]
        if not isinstance(change, float):
            return f"{change:+,}"
        if abs(change) < _LEAST_CHANGE:
            return ""
        # One too small for two decimals is written with its first figure, not as +0.00.
        return f"{change:+.1g}" if abs(change) < 0.005 else f"{change:+.2f}"
    return f"was {value_text(before)}"


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
    every = decided(turn)
    components = list(dict.fromkeys(chain.component for chain in every))
    chains: dict[str, dict[str, list[LLMReasoningChain]]] = {}
    for chain in every:
        chains.setdefault(chain.agent, {}).setdefault(chain.component, []).append(chain)
    proposed: dict[str, list[str]] = {}
    if isinstance(turn, WorldTurn):
        # What a world's players answered, in words, beside their chains; by identity, since chains
        # of equal contents are equal.
        ruled = dict(zip(map(id, turn.chains), turn.answers, strict=False))
        for agent, its in chains.items():
            proposed[agent] = [
                str(ruled[id(chain)])
                if id(chain) in ruled
                else answer_in_words(reply_of(chain.call))
                for by_component in its.values()
                for chain in by_component
            ]
    for action in getattr(turn, "actions", ()):
        name, words = getattr(action, "agent_name", None), getattr(action, "action_string", None)
        if name is not None and words is not None:
            verdict = "" if getattr(action, "validated", True) else "(rejected) "
            proposed.setdefault(name, []).append(f"{verdict}{words}")
    return components, [
        Decisions(agent=name, proposed=tuple(proposed.get(name, ())), chains=chains.get(name, {}))
        for name in dict.fromkeys([*chains, *proposed])
    ]
