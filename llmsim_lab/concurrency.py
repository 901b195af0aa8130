"""Waiting for several things at once, and for async work from plain code."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

__all__ = ["gather_all", "run_sync"]

T = TypeVar("T")


async def gather_all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all concurrently and return their results in order.

    When one fails the rest are cancelled and waited for, so that nothing goes on behind the
    caller's back, and the failure of the first in order is raised as it is.
    """
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [
            outcome
            for outcome in done
            if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.CancelledError)
        ]
        if failures and not _being_cancelled():
            raise failures[0] from None
        raise


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _PrivateLoop:
    """One event loop in a daemon thread, started when first needed and kept.

    Keeping it means that a server's connections, which belong to a loop, live on from one call to
    the next, in a script as in a notebook, where the kernel's own loop is busy with the cell.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._serve, args=(loop,), name="llmsim-lab", daemon=True
                )
                thread.start()
                atexit.register(self._stop, loop, thread)
                self._loop = loop
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=2)


_private_loop = _PrivateLoop()


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run async work to its end from plain code: in a script, or in a notebook cell.

    A KeyboardInterrupt cancels the work, waits until it has stopped, and is raised again.
    """
    loop = _private_loop.get()
    if threading.current_thread().name == "llmsim-lab":
        work.close()
        raise RuntimeError("run() inside async code would wait for itself; await arun() instead")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            asyncio.run_coroutine_threadsafe(_settle(), loop).result(timeout=10)
        raise


async def _settle() -> None:
    """Give cancelled tasks the turns of the loop that they need to end."""
    for _ in range(3):
        await asyncio.sleep(0)
