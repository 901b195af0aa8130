"""Seeing which model calls are in flight: for progress bars and widgets.

Whoever plays a run sets a watch for the tasks it starts; the client tells it of every request.
Without one, that costs a look-up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from llmsim_lab.calls import Attempt, CallSite, ChatRequest
from llmsim_lab.llm.scope import scoped

__all__ = ["InFlight", "Waiting", "Watch", "watching"]


class Watch(Protocol):
    """What is told of requests, on the thread and in the task that makes them.

    It must be quick, and raise nothing: what it raises ends the call.
    """

    def began(self, request: ChatRequest) -> None:
        """Take note that the backend is being asked; not told of answers from a tape."""

    def ended(self, request: ChatRequest, attempt: Attempt | None, *, taped: bool) -> None:
        """Take note of what became of a request.

        Args:
            request: for one that ``began``, the very same object.
            attempt: the reply or fault; None if the call was cancelled or the backend broke.
            taped: whether it comes from a tape, without having begun.
        """


@contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Let something watch the requests made inside, also by tasks started there.

    Example:
        >>> from llmsim_lab.llm import InFlight, watching
        >>> calls = InFlight()
        >>> with watching(calls):
        ...     pass  # simulation.run(4)
        >>> calls.finished
        0
    """
    with scoped(watch=watch):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A request that is being waited for.

    Attributes:
        site: who asks, about whom, in which turn; None for a call outside a run.
        attempt: 1, or 2 for the retry.
        since: when it began, seconds of ``time.monotonic``.
    """

    site: CallSite | None
    attempt: int
    since: float

    @property
    def seconds(self) -> float:
        """How long it has been waited for until now."""
        return time.monotonic() - self.since

    def __str__(self) -> str:
        if self.site is None:
            return "a call"
        agent = self.site.agent
        return f"{self.site.component} of {agent}" if agent else self.site.component


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """How many requests came to which end; replaced as a whole, so that readers see one moment."""

    finished: int = 0
    taped: int = 0
    faulty: int = 0
    tokens: int = 0


class InFlight:
    """Keeps what is being waited for, and counts what is done; may be read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Waiting] = {}
        self._counts = _Counts()

    def began(self, request: ChatRequest) -> None:
        """Take note that the backend is being asked."""
        entry = Waiting(site=request.site, attempt=request.attempt, since=time.monotonic())
        with self._lock:
            self._waiting[id(request)] = entry

    def ended(self, request: ChatRequest, attempt: Attempt | None, *, taped: bool) -> None:
        """Take note of what became of a request."""
        reply = attempt.reply if attempt is not None else None
        tokens = (reply.prompt_tokens or 0) + (reply.reply_tokens or 0) if reply else 0
        with self._lock:
            self._waiting.pop(id(request), None)
            was = self._counts
            self._counts = _Counts(
                finished=was.finished + 1,
                taped=was.taped + taped,
                faulty=was.faulty + (reply is None),
                tokens=was.tokens + tokens,
            )

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """What is being waited for, the longest wait first."""
        with self._lock:
            return tuple(self._waiting.values())

    @property
    def finished(self) -> int:
        """Requests that came to an end, good or bad, live or from a tape."""
        return self._counts.finished

    @property
    def taped(self) -> int:
        """Those of them that were answered from a tape."""
        return self._counts.taped

    @property
    def faulty(self) -> int:
        """Those of them that got no reply."""
        return self._counts.faulty

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens of all replies, as far as reported."""
        return self._counts.tokens

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.waiting)) or "nothing"
        return f"<InFlight: waiting for {names}; {self.finished} finished, {self.tokens:,} tokens>"
