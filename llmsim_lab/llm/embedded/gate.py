"""Let one request at a time through to a model, in order, from any thread and event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType

__all__ = ["Gate"]

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Gate:
    """A lock for coroutines of different event loops; first come, first served.

    The runtime answers one request at a time anyway. Waiting here and not there makes giving up
    free, and leaves no doubt about which request a silent process is silent on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True
        self._waiters: deque[_Waiter] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._open:
                self._open = False
                return
            turn: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, turn))
        try:
            await turn
        except BaseException:
            with self._lock:
                waiting = (loop, turn) in self._waiters
                if waiting:
                    self._waiters.remove((loop, turn))
            if not waiting:  # it was our turn just then
                self._pass_on()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next one in the queue whose loop still runs."""
        with self._lock:
            while self._waiters:
                loop, turn = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_grant, turn)
                except RuntimeError:
                    continue  # that loop was closed with the request waiting
                return
            self._open = True


def _grant(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
