"""One line that says how far work is, what is waited for and how long it takes; gone at the end.

It appears only where work takes a while and somebody looks: on a terminal, or in a notebook's cell
that a person runs. Pipes, tests, nbconvert and nbval get nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from statistics import median
from typing import Any

from llmsim_lab._util.text import clip, printable
from llmsim_lab.llm._scope import InFlight, scope, scoped
from llmsim_lab.types import ChatRequest

Show = Callable[[str], object]
"""Shows a text instead of the one before; an empty one removes the line."""

_PATIENCE_S = 1.5
"""Work that is done by then shows nothing."""
_TICK_S = 0.5
_terminal = threading.Lock()
"""Held by the line on the terminal, which has room for one."""
_HUMAN = "human"
"""The model's name in requests to a person, who may be typing where the line would be."""


@asynccontextmanager
async def progress_line(
    unit: str, *, number: int, last: int | None, enabled: bool
) -> AsyncIterator[Callable[[], None]]:
    """Show a line while the work inside takes long; yields a function to call as a unit is done.

    Inside another one, or where a widget watches the model calls, there is no further line.

    Args:
        unit: what the work consists of, such as ``turn``.
        number: of the first unit.
        last: the number of the last; None for a single one.
        enabled: False for no line. The environment variable ``LLMSIM_PROGRESS=0`` does the same.
    """
    # The task's context says whether a line counts already: step() inside run(), or run() inside
    # a comparison, is part of what that one counts.
    around = scope()
    if around.counted:
        yield lambda: None
        return
    show = _screen() if enabled and around.watch is None else None
    if show is None:
        with scoped(counted=True):
            yield lambda: None
        return
    line = ProgressLine(show, unit=unit, number=number, last=last)
    ticker = asyncio.create_task(line.tick())
    try:
        with scoped(counted=True, watch=line):
            yield line.advance
    finally:
        ticker.cancel()
        # Waited for, so that it cannot show the line once more after it was hidden.
        with suppress(asyncio.CancelledError, Exception):
            await ticker
        line.hide()


class ProgressLine(InFlight):
    """What the line says. It watches the model calls of the work.

    Args:
        show: shows a text.
        unit: what the work consists of.
        number: of the first unit.
        last: the number of the last; None for a single one.
        clock: returns seconds.
    """

    def __init__(
        self,
        show: Show,
        *,
        unit: str,
        number: int,
        last: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._show = show
        self._people: set[int] = set()
        self._unit, self._number, self._last, self._clock = unit, number, last, clock
        self._began = self._unit_began = clock()
        self._seconds: list[float] = []
        self._finished_before = 0

    def advance(self) -> None:
        """Record that a unit is done; the next one has begun."""
        now = self._clock()
        self._seconds.append(now - self._unit_began)
        self._unit_began = now
        self._number += 1
        self._finished_before = self.finished

    def began(self, request: ChatRequest) -> None:
        """Record that the backend is being asked; while a person is, there is no line."""
        super().began(request)
        if request.model == _HUMAN:
            self._people.add(id(request))
            self.hide()

    def ended(self, request: ChatRequest) -> None:
        """Record the end of a request."""
        super().ended(request)
        self._people.discard(id(request))

    async def tick(self) -> None:
        """Show the line after a while, and again and again."""
        await asyncio.sleep(_PATIENCE_S)
        while True:
            if not self._people:
                self._show(self.text)
            await asyncio.sleep(_TICK_S)

    def hide(self) -> None:
        """Take the line away; a terminal that is gone is no reason to end a run."""
        with suppress(Exception):
            self._show("")

    @property
    def text(self) -> str:
        """What the line says now, such as ``turn 3 of 8 · waiting for 2 of 4 answers · 1:20 left``.

        The time left follows from the median of the units so far.
        """
        waiting, now, last = self.waiting, self._clock(), self._last
        # After the last one it stays on that, while a callback or a file takes its time.
        parts = [f"{self._unit} {self._number}"]
        if last is not None:
            parts = [f"{self._unit} {min(self._number, last)} of {last}"]
        if len(waiting) == 1:
            parts.append(f"waiting for {clip(printable(str(waiting[0])), 40)}")
        elif waiting:
            asked = len(waiting) + self.finished - self._finished_before
            parts.append(f"waiting for {len(waiting)} of {asked} answers")
        left, word = now - self._began, "so far"
        if last is not None and self._seconds:
            usual, word = median(self._seconds), "left"
            left = usual * (last - self._number) + max(0.0, usual - (now - self._unit_began))
        minutes = str(timedelta(seconds=round(max(0.0, left)))).removeprefix("0:")
        return " · ".join([*parts, f"{minutes.removeprefix('0')} {word}"])


def _screen() -> Show | None:
    """Return what shows a text where somebody looks; None where nobody does."""
    if os.environ.get("LLMSIM_PROGRESS", "").strip().lower() in ("0", "no", "off", "false"):
        return None
    ipython = sys.modules.get("IPython")
    kernel = getattr(ipython.get_ipython(), "kernel", None) if ipython else None
    if kernel is None:
        return _on_terminal()
    # Who runs a cell by hand can be asked for input; nbconvert, nbval and papermill cannot.
    request: Any = kernel.get_parent("shell") or {}
    return _in_cell() if request.get("content", {}).get("allow_stdin") else None


def _in_cell() -> Show:
    """Return what shows a text as an output of the cell that is running."""
    from IPython.display import DisplayHandle

    make: Any = DisplayHandle  # which has no types
    handle = make()
    shown: list[str] = []

    def show(text: str) -> None:
        if shown or text:
            (handle.update if shown else handle.display)({"text/plain": text}, raw=True)
            shown[:] = ["it has a place"]

    return show


def _on_terminal() -> Show | None:
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream)
    if not console.is_interactive:  # such as TERM=dumb, where a line cannot be written anew
        return None
    # What is printed meanwhile appears above the line, unless it goes elsewhere.
    above = sys.stdout is not None and sys.stdout.isatty()
    live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=above)

    def show(text: str) -> None:
        if text and not live.is_started and _terminal.acquire(blocking=False):
            live.start()
        if live.is_started:
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            live.update(line, refresh=bool(text))
            if not text:
                live.stop()
                _terminal.release()

    return show
