"""What a model call finds around it: the run that it belongs to, who watches, how long it may take.

A run sets this for the tasks that it starts; a client finds it, so that agents, validators and
engines need not hand it on. It is the package's one context variable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from llmsim_lab.calls import Attempt, CallRecord, ChatRequest
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    from llmsim_lab.llm.budget import Purse
    from llmsim_lab.llm.watch import Watch

__all__ = [
    "CallLog",
    "Recorder",
    "Scope",
    "recording",
    "scope",
    "scoped",
    "seconds_left",
    "time_limit",
]


class Recorder(Protocol):
    """What keeps a run's model calls."""

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with its turn, which the run knows, whatever its caller says."""
        ...

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt | None:
        """Return what became of this very request before, or None to have it made.

        Args:
            request: a placed one.
            previous: for a call's second attempt, what became of the first.

        Raises:
            TapeMiss: it is not there, and no request may be made.
        """
        ...

    async def keep(self, attempt: Attempt) -> Attempt:
        """Keep what became of a request; returns it with its number once it is safe."""
        ...

    def keep_now(self, attempt: Attempt) -> Attempt:
        """Do what ``keep`` does from code that cannot wait."""
        ...


class CallLog:
    """The calls of one turn, as the run itself notes them, whoever makes them.

    Args:
        run: the run's name, for messages.
        turn: the turn being played.
        purse: what limits its requests, if anything does.
    """

    def __init__(self, run: str, turn: int, purse: Purse | None = None) -> None:
        self.run = run
        self.turn = turn
        self.purse = purse
        self.closed = False
        self._calls: list[CallRecord] = []
        self._under_way: dict[int, ChatRequest] = {}

    def begin(self, request: ChatRequest) -> None:
        """Note that a call begins.

        Raises:
            ConfigError: the turn is over.
        """
        if self.closed:
            raise ConfigError(
                f"{_who(request)} made a call for turn {self.turn} of {self.run!r}, which is over: "
                "a task was left running. Await every task in the turn that starts it, as in "
                "await asyncio.gather(...)"
            )
        self._under_way[id(request)] = request

    def end(self, request: ChatRequest, call: CallRecord | None) -> None:
        """Note what became of a call that began; None if nothing was answered."""
        self._under_way.pop(id(request), None)
        if call is not None and not self.closed:
            self._calls.append(call)

    def close(self) -> tuple[CallRecord, ...]:
        """End the turn; returns its calls, in the order in which their first answers came.

        Raises:
            ConfigError: a call is still under way.
        """
        self.closed = True
        if self._under_way:
            [request, *more] = self._under_way.values()
            others = f" and {len(more)} more" if more else ""
            raise ConfigError(
                f"turn {self.turn} of {self.run!r} ended while a call of {_who(request)}{others} "
                "is still under way; await every call in the turn that makes it"
            )
        # On a tape the numbers tell the order, which is then that of the recording in a replay too.
        return tuple(sorted(self._calls, key=lambda call: call.history[0].number or 0))


def _who(request: ChatRequest) -> str:
    site = request.site
    if site is None:
        return "somebody"
    return f"{site.component} {site.agent}" if site.agent else site.component


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the current task's calls belong to.

    Attributes:
        recorder: keeps them, on a tape.
        log: notes them, for the turn.
        watch: is told of each request.
        deadline: when whoever waits gives up, seconds of ``time.monotonic``.
        asker: for whom tools are looked up.
        counted: whether a line on the screen counts the work already.
        outgoing: what a backend's transport adds to the request that is being made.
    """

    recorder: Recorder | None = None
    log: CallLog | None = None
    watch: Watch | None = None
    deadline: float | None = None
    asker: str | None = None
    counted: bool = False
    outgoing: Any = None


_scope: ContextVar[Scope] = ContextVar("llmsim_lab_scope", default=Scope())  # noqa: B039 - frozen


def scope() -> Scope:
    """Return what the current task's calls belong to."""
    return _scope.get()


@contextmanager
def scoped(**changes: Any) -> Iterator[None]:
    """Let calls made inside, also by tasks started there, find other values of ``Scope``."""
    token = _scope.set(replace(_scope.get(), **changes))
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def recording(recorder: Recorder | None, log: CallLog | None = None) -> Iterator[None]:
    """Record the model calls made inside, also by tasks started there."""
    with scoped(recorder=recorder, log=log):
        yield


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the calls made inside, their retries included; an earlier limit stays in force.

    A client keeps to it by itself, so that a call given up leaves its mark on the tape like any
    other that failed. A caller who gives up from outside, by cancelling, leaves nothing there.

    Args:
        seconds: from now on.
    """
    known, own = _scope.get().deadline, time.monotonic() + seconds
    with scoped(deadline=own if known is None else min(known, own)):
        yield


def seconds_left() -> float | None:
    """Return how long the present limit leaves, at least 0; None where there is none."""
    deadline = _scope.get().deadline
    return None if deadline is None else max(0.0, deadline - time.monotonic())
