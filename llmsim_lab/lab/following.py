"""Look for the end of a turn that somebody else plays, such as another widget or a cell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Following", "thread_of_loop"]

_LONGEST_WAIT_S = 2.0
_PATIENCE_S = 600.0


class Following:
    """Watches one thing at a time; call its methods on the event loop only."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def follow(self, arrived: Callable[[], bool], then: Callable[[], None]) -> None:
        """Do something once something has come about, or ten minutes have passed.

        Args:
            arrived: whether it has; asked now and then, less often as time passes.
            then: what to do.
        """
        self.stop()
        if arrived():
            then()
        else:
            self._task = asyncio.get_running_loop().create_task(self._look(arrived, then))

    def stop(self) -> None:
        """Watch no more, if anything was watched."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self, arrived: Callable[[], bool], then: Callable[[], None]) -> None:
        wait_s = 0.05
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while not arrived():
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        then()


def thread_of_loop() -> int | None:
    """Return this thread's number if an event loop runs in it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return None
    return threading.get_ident()
