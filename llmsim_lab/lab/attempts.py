"""A run's requests to its model, as they can be looked at: by turn, and by what they say.

The decisions of whole turns come from the turns. The tape, where there is one, adds what they do
not hold: calls that failed for good, and those of a turn that is not whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmsim_lab.calls import Attempt, Status
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs._turn import every_chain

if TYPE_CHECKING:
    from llmsim_lab.llm import Tape
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = [
    "FAILED_ATTEMPTS",
    "Attempts",
    "Hit",
    "Seen",
    "fits",
    "follow",
    "turn_at",
]

FAILED_ATTEMPTS = "failed attempts"
"""The filter for requests that went wrong, whatever became of their calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request of a run's, or a decision by rule, which made none.

    Attributes:
        turn: that was being played.
        component: which made it.
        agent: who decided, or whose action was judged or applied.
        attempt: the request and what became of it; None for a rule's decision.
        chain: the decision it led to; None where it led to none.
    """

    turn: int
    component: str
    agent: str
    attempt: Attempt | None
    chain: LLMReasoningChain | None

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
        """Which of a call's attempts it is and what became of it, in words."""
        if self.attempt is None:
            return "by rule, no model asked"
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


def turn_at(simulation: Run, number: int) -> RunTurn | None:
    """Return a run's turn by its number, or None."""
    place = number - simulation.turns[0].number
    return simulation.turns[place] if 0 <= place < len(simulation.turns) else None


def follow(simulation: Run, grew: Callable[[], object]) -> Callable[[], None]:
    """Have something done after each turn that a run plays; returns what ends that.

    Args:
        simulation: the run; one that cannot be listened to is left alone.
        grew: what is done.
    """
    listen = getattr(simulation, "listen", None)
    if listen is None:
        return lambda: None
    stop: Callable[[], None] = listen(lambda _: grew())
    return stop


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
        number: int = self.simulation.turns[0].number
        return number

    @property
    def last(self) -> int:
        """The number of the last turn that there is something of, whole or not.

        What the tape has of turns that a replay has yet to play is not this run's.
        """
        tape = self.simulation.tape
        last: int = self.simulation.turns[-1].number
        if tape is None:
            return last
        # Only after the last turn that was recorded whole can there be one that broke off.
        run = self.simulation.run_id
        [row] = tape.file.query(
            "SELECT max(turn) AS turn FROM calls WHERE run = ?"
            " AND NOT EXISTS (SELECT 1 FROM turns WHERE run = ? AND turn > ?)",
            (run, run, last),
        )
        return max(last, row["turn"] or 0)

    def player(self, number: int) -> int | None:
        """Return the run that played a turn: a fork's first turns are its parents'."""
        shared = (run for run, last in self._prefix if number <= last)
        return next(shared, self.simulation.run_id)

    def of(self, number: int) -> list[Seen]:
        """Return a turn's requests and rules' decisions in the order of its chains, lost ones last.

        Args:
            number: the turn's.
        """
        turn = turn_at(self.simulation, number)
        found = list(_of_chains(turn)) if turn else []
        if self.simulation.tape is not None:
            run = self.player(number)
            found += _only_on_tape(self.simulation.tape, run, number, whole=turn is not None)
        return found

    def search(self, wanted: str) -> Iterator[Hit]:
        """Yield where a text is in prompts, replies and faults, upper and lower case alike.

        Args:
            wanted: the text.
        """
        low, pattern = wanted.lower(), re.compile(re.escape(wanted), re.IGNORECASE)
        for number in range(self.first, self.last + 1):
            for seen in self.of(number):
                for part, text in _texts(seen):
                    if low in text.lower() and (found := pattern.search(text)):
                        yield Hit(seen=seen, part=part, line=_line(text, found.start()))


def _of_chains(turn: RunTurn) -> Iterator[Seen]:
    for chain in every_chain(turn):
        attempts: tuple[Attempt | None, ...] = chain.call.history if chain.call else (None,)
        for attempt in attempts:
            yield Seen(
                turn=turn.number,
                component=chain.component,
                agent=chain.agent,
                attempt=attempt,
                chain=chain,
            )


def _only_on_tape(tape: Tape, run: int | None, number: int, *, whole: bool) -> Iterator[Seen]:
    """Yield the calls that failed for good, and, of a turn that is not whole, all."""
    rows = tape.file.query(
        "SELECT id FROM calls WHERE run = ? AND turn = ? AND (forgotten OR NOT ?) ORDER BY id",
        (run, number, whole),
    )
    for row in rows:
        attempt = tape.call(row["id"]).attempt
        site = attempt.request.site
        yield Seen(
            turn=number,
            component=site.component if site else "",
            agent=(site.agent if site else None) or "",
            attempt=attempt,
            chain=None,
        )


def fits(seen: Seen, *, status: str = "", component: str = "", agent: str = "") -> bool:
    """Say whether a request passes the filters; empty ones let all pass.

    Args:
        seen: the request.
        status: of its decision, or ``FAILED_ATTEMPTS``.
        component: which made it.
        agent: whom it is about.
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
