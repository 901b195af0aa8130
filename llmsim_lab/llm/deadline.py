"""How long whoever waits for a model is going to: a limit on a call as a whole, its retry included.

A client keeps to it by itself, so that a call given up leaves its mark on the tape like any other
that failed. A caller who gives up from outside, by cancelling, leaves nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["seconds_left", "time_limit"]

_deadline: ContextVar[float | None] = ContextVar("llmsim_lab_deadline", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the calls made inside, also by tasks started there; an earlier limit stays in force.

    Args:
        seconds: from now on.
    """
    known, own = _deadline.get(), time.monotonic() + seconds
    token = _deadline.set(own if known is None else min(known, own))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float | None:
    """Return how long the present limit leaves, at least 0; None where there is none."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())
