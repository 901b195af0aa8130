"""Draw while a run goes on, but not so often that drawing is all that happens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

__all__ = ["Pace"]

_LEAST_S = 0.25
_REST = 3.0
"""How much longer than it took to draw the run has the loop for itself."""


class Pace:
    """Has something drawn soon, once for all the calls in the meantime.

    The drawing is done on the loop that calls, which is the one the run is played on: the
    notebook's own is blocked while a cell runs. Its last call is always followed by a drawing, if
    that loop lives on.

    Args:
        draw: what is done; its errors are its own to show.
        elsewhere: has something done where the caller is on no loop.
        least_s: the least time between two drawings, seconds.
    """

    def __init__(
        self,
        draw: Callable[[], object],
        elsewhere: Callable[[Callable[[], object]], object],
        *,
        least_s: float = _LEAST_S,
    ) -> None:
        self._draw = draw
        self._elsewhere = elsewhere
        self._least_s = least_s
        self._lock = threading.Lock()
        self._waiting: asyncio.AbstractEventLoop | None = None
        self._next = 0.0

    def ask(self) -> None:
        """Have it drawn soon."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._elsewhere(self.ask)
            return
        with self._lock:
            # A loop that was closed before its time, as a script's is, has drawn nothing.
            if self._waiting is not None and not self._waiting.is_closed():
                return
            self._waiting = loop
        loop.call_later(max(0.0, self._next - time.monotonic()), self._now)

    def _now(self) -> None:
        with self._lock:
            self._waiting = None
        began = time.monotonic()
        try:
            self._draw()
        finally:
            ended = time.monotonic()
            self._next = ended + max(self._least_s, _REST * (ended - began))
