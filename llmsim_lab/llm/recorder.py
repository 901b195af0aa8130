"""Where a client looks for recorded answers and leaves new ones.

A run sets the recorder for the tasks it starts; a client finds it there, so that agents, validators
and engines need not know of it. Without one, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from llmsim_lab.calls import Attempt, ChatRequest

__all__ = ["Recorder", "current_recorder", "recording"]


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

    def keep(self, attempt: Attempt) -> Attempt:
        """Keep what became of a request, at once and for good; returns it with its number."""
        ...


_current: ContextVar[Recorder | None] = ContextVar("llmsim_lab_recorder", default=None)


def current_recorder() -> Recorder | None:
    """Return the recorder of the run that the current task belongs to, if any."""
    return _current.get()


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Record the model calls made inside, also by tasks started there."""
    token = _current.set(recorder)
    try:
        yield
    finally:
        _current.reset(token)
