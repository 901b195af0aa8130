"""Waiting for several things at once, and for async work from plain code; callbacks."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from llmsim_lab.errors import BudgetReached, ConfigError

T = TypeVar("T")

_LISTEN_S = 1.0
"""How often a waiting caller wakes up, since on Windows Ctrl-C is noticed only then."""
_PATIENCE_S = 10.0
"""How long an interrupted caller waits for cancelled work to stop."""


class Listeners(dict[object, Callable[..., object]]):
    """Callbacks in the order in which they were registered.

    Each use of it is a single step, so that threads need no lock.
    """

    def add(self, callback: Callable[..., object]) -> Callable[[], object]:
        """Register a callback; returns what removes it, which is harmless if called again."""
        key = object()
        self[key] = callback
        return partial(self.pop, key, None)

    def __call__(self, *news: object) -> None:
        """Run the callbacks; one may remove itself, or register another."""
        for callback in tuple(self.values()):
            callback(*news)


async def gather_all(work: Sequence[Coroutine[object, None, T]]) -> list[T]:
    """Run all concurrently and return their results in order.

    When one fails the rest are cancelled and waited for, so that nothing continues behind the
    caller's back, and the failure of the first in order is raised as it is.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(item) for item in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException as error:
        # What is under way as a budget ends is paid for; nothing new begins.
        if not isinstance(error, BudgetReached):
            for task in tasks:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        this_task = asyncio.current_task()
        # The caller is cancelled: a failure in its place would hide that.
        if not failures or (this_task is not None and this_task.cancelling() > 0):
            raise
    # Out here, since "from None" would wipe out the failure's own cause.
    raise failures[0]


LOOP_THREAD = "llmsim-lab"
"""The name of the thread that ``run_sync`` works on."""
_starting = threading.Lock()


class _Background(NamedTuple):
    """The private loop, its thread, and the process that has both."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    process_id: int

    @property
    def is_alive(self) -> bool:
        """Whether it still runs.

        A forked process has the loop but not the thread that ran it; where that thread itself
        forked, as a study's does that starts a pool, only the number tells.
        """
        return self.thread.is_alive() and self.process_id == os.getpid()


_background: _Background | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that ``run_sync`` works on, in a daemon thread of its own.

    It is started when first needed and kept: a server's connections, which belong to a loop, live
    on from one call to the next, in a script as in a notebook, where the kernel's own loop is busy
    with the cell.

    Raises:
        RuntimeError: no thread can be started.
    """
    global _background
    with _starting:
        if _background is None or not _background.is_alive:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=_serve,
                args=(loop,),
                name=LOOP_THREAD,
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:
                loop.close()
                raise
            # A daemon thread that is still running while the interpreter ends may crash it.
            atexit.register(_stop, loop, thread)
            _background = _Background(loop, thread, os.getpid())
        return _background.loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    process = os.getpid()
    while not loop.is_closed():
        # asyncio gives such an exception to those who wait for the task that raised it, and raises
        # it out of the loop as well; without its loop that waiter would never wake up.
        with suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()
            if os.getpid() == process:
                loop.close()
        if os.getpid() != process:
            return


def _leave_the_loop() -> None:
    """Have the loop's thread end in a process that was forked by it, as by a player.

    The two processes share what the system wakes the loop by: in this one it would take the other's
    news, and a loop that is closed here would hear nothing more there.
    """
    if _background is not None and threading.get_ident() == _background.thread.ident:
        _background.loop.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_the_loop)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=2)


def run_sync(work: Coroutine[object, None, T]) -> T:
    """Run async work to its end from plain code: in a script, or in a notebook cell.

    A KeyboardInterrupt cancels the work, waits until it has stopped, and is raised again, without
    the frames of the waiting, which say nothing about the work.

    Raises:
        ConfigError: it is called in async code, which would wait for itself.
    """
    try:
        loop = background_loop()
    except RuntimeError:  # no thread can be started, as in a browser's Python
        return _run_here(work)
    if _running_loop() is loop:
        work.close()
        raise ConfigError("run() inside async code would wait for itself; await arun() instead")
    ended = threading.Event()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.set())

    def stop() -> None:
        if tasks:
            tasks[0].cancel()
        else:
            work.close()
            ended.set()

    # An interrupt may hit the caller even before the work has started.
    try:
        loop.call_soon_threadsafe(start)
        while not ended.wait(_LISTEN_S):
            pass
    except BaseException as error:
        loop.call_soon_threadsafe(stop)
        ended.wait(_PATIENCE_S)
        error.with_traceback(None)
        raise
    # The loop keeps the latest timer, and with it all of the work, until it wakes up once more.
    loop.call_soon_threadsafe(lambda: None)
    return tasks[0].result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run_here(work: Coroutine[object, None, T]) -> T:
    here = _running_loop()
    if here is None:
        return asyncio.run(work)
    try:
        return here.run_until_complete(work)  # which a browser's loop can while it is running
    except RuntimeError as error:
        if inspect.getcoroutinestate(work) != inspect.CORO_CREATED:  # it is the work's own
            raise
        work.close()
        raise ConfigError(
            "there are no threads here to wait in; await arun() or areplay() instead"
        ) from error


async def in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns, called in a thread if there are any: the loop stays free."""
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(1)
    try:
        work = loop.run_in_executor(threads, function)
    except RuntimeError:  # no thread can be started, as in a browser's Python
        return function()
    finally:
        threads.shutdown(wait=False)
    return await work


def called_in_thread(function: Callable[[], T]) -> T:
    """Return what a user's function returns, called in a thread; what it raises goes to a future.

    Raises:
        RuntimeError: it raised StopIteration, as ``next()`` does at an iterator's end. No future of
            asyncio can hold that one: what awaits it would wait for ever.
    """
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError(
            "the function raised StopIteration, as next() does at the end"
        ) from error


def explain(error: BaseException, sentence: str) -> None:
    """Add what to do now to an error; in a notebook its cell then ends in words, without frames.

    ``%tb`` in the next cell shows the frames, and any other traceback ends in the sentence.
    """
    error.add_note(sentence)

    def in_a_cell() -> list[str]:
        del error._render_traceback_  # type: ignore[attr-defined]  # for %tb
        text = str(error).rstrip(".")
        if not text:
            return [f"{type(error).__name__}: {sentence}"]
        return [f"{type(error).__name__}: {text}. {sentence}"]

    # IPython asks an exception for it.
    error._render_traceback_ = in_a_cell  # type: ignore[attr-defined]
