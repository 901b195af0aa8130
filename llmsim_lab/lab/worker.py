"""One piece of async work at a time, started from a click.

A click's handler may run on any thread and under any event loop, or none. So the loop is the one
that ran when the widget was built, handlers only ever post to it, and a lock taken without waiting
makes a second click while work is under way do nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from llmsim_lab.concurrency import background_loop
from llmsim_lab.errors import ConfigError

__all__ = ["Work", "Worker"]

Work = Callable[[], Coroutine[Any, Any, object]]


class Worker:
    """Does async work in the background, one piece at a time.

    Args:
        on_begin: called before a piece of work begins, in the caller's thread.
        on_end: called on the loop when it has ended, with what went wrong: None for nothing,
            ``CancelledError`` where it was stopped.
    """

    def __init__(
        self,
        *,
        on_begin: Callable[[], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._on_begin = on_begin
        self._on_end = on_end
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = background_loop()
        self._lock = threading.Lock()
        self._task: asyncio.Task[object] | None = None
        self._ended: Future[None] = Future()
        self._ended.set_result(None)

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._lock.locked()

    def start(self, work: Work) -> bool:
        """Begin a piece of work; returns False, and does nothing, while another is under way.

        Raises:
            ConfigError: the event loop that the widget was built under is gone.
        """
        if not self._lock.acquire(blocking=False):
            return False
        self._ended = Future()
        try:
            self._on_begin()
            self._loop.call_soon_threadsafe(self._spawn, work)
        except BaseException as error:
            self._release()
            if isinstance(error, RuntimeError) and self._loop.is_closed():
                raise ConfigError(
                    "the event loop that this widget was built under is closed; make it again"
                ) from error
            raise
        return True

    def stop(self) -> None:
        """Cancel the work that is under way, if any; it ends soon after."""
        if self.busy and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def call(self, action: Callable[..., object], *args: object) -> None:
        """Have something done soon on the loop, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action, *args)

    async def idle(self) -> None:
        """Wait until no work is under way; whoever is cancelled waiting leaves the work alone."""
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _spawn(self, work: Work) -> None:
        self._task = self._loop.create_task(work())
        self._task.add_done_callback(self._done)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[object]) -> None:
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        ended = self._ended
        self._lock.release()
        try:
            self._on_end(error)
        finally:
            ended.set_result(None)

    def _release(self) -> None:
        self._lock.release()
        self._ended.set_result(None)
