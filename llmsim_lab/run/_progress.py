"""One line that says how far work is, what is waited for and how long it takes; gone at the end.

It appears only where work takes a while and somebody looks: on a terminal, or in a notebook's cell
that a person runs. Pipes, tests, nbconvert and nbval get nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.text import clip, end_of, log_event, printable
from llmsim_lab.llm._scope import InFlight, scope, scoped
from llmsim_lab.types import Attempt, ChatRequest

if TYPE_CHECKING:
    from rich.live import Live

logger = logging.getLogger(__name__)

Show = Callable[[str], object]
"""Shows a text instead of the one before; an empty one removes the line."""

_PATIENCE_S = 1.5
"""Work that is done by then shows nothing."""
_TICK_S = 0.5
_LEAST_WRITTEN, _MOST_WRITTEN = 20, 60
"""How many characters are shown of what is being written; on a terminal, as many as fit."""
_HUMAN = "human"
"""The model's name in requests to a person, who may be typing where the line would be."""

_terminal = threading.Lock()
"""Held by the line on the terminal, which has room for one."""


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
    wanted = enabled and not around.counted and around.watch is None
    show = _screen() if wanted else None
    with scoped(counted=True):
        if show is None:
            yield lambda: None
            return
        line = ProgressLine(show, unit=unit, number=number, last=last)
        ticker = asyncio.create_task(line.tick())
        try:
            with scoped(watch=line):
                yield line.advance
        finally:
            ticker.cancel()
            # Waited for, so that it cannot show the line once more after it was hidden.
            with suppress(asyncio.CancelledError):
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
        self._unit, self._number, self._last = unit, number, last
        self._clock = clock
        self._began = self._unit_began = clock()
        self._seconds: list[float] = []
        self._finished_before = 0
        self._people: set[int] = set()

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

    def ended(self, request: ChatRequest, attempt: Attempt | None) -> None:
        """Record what became of a request."""
        super().ended(request, attempt)
        self._people.discard(id(request))

    async def tick(self) -> None:
        """Show the line after a while, and again and again."""
        await asyncio.sleep(_PATIENCE_S)
        while True:
            if not self._people:
                self._safely(self.text)
            await asyncio.sleep(_TICK_S)

    def hide(self) -> None:
        """Take the line away."""
        self._safely("")

    def _safely(self, text: str) -> None:
        try:
            self._show(text)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone is no reason to end a run
            self._show = str  # which shows nothing, so that this is logged once
            log_event(logger, logging.INFO, "PROGRESS_NOT_SHOWN", error=repr(error))

    @property
    def text(self) -> str:
        """What the line says now, such as ``turn 3 of 8 · waiting for 2 of 4 answers · 1:20 left``.

        The time left follows from the median of the units so far. Where replies are read as they
        are written, the end of the oldest one follows.
        """
        # After the last one it stays on that, while a callback or a file takes its time.
        unit = self._number if self._last is None else min(self._number, self._last)
        of = "" if self._last is None else f" of {self._last}"
        parts = [f"{self._unit} {unit}{of}"]
        waiting = self.waiting
        if len(waiting) == 1:
            parts.append(f"waiting for {clip(printable(str(waiting[0])), 40)}")
        elif waiting:
            asked = len(waiting) + self.finished - self._finished_before
            parts.append(f"waiting for {len(waiting)} of {asked} answers")
        parts.append(self._time())
        if written := next((call.text for call in waiting if call.text), ""):
            # Line breaks separate words; all else that a terminal obeys is taken out.
            columns = shutil.get_terminal_size(fallback=(200, 24)).columns
            room = columns - len(" · ".join(parts)) - len(" · ") - 1
            room = max(_LEAST_WRITTEN, min(room, _MOST_WRITTEN))
            parts.append(end_of(printable(written, keep="\n\t"), room))
        return " · ".join(parts)

    def _time(self) -> str:
        now = self._clock()
        if self._last is None or not self._seconds:
            return f"{_minutes(now - self._began)} so far"
        usual = median(self._seconds)
        left = usual * (self._last - self._number) + max(0.0, usual - (now - self._unit_began))
        return f"{_minutes(max(0.0, left))} left"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
    handle, displayed = make(), False

    def show(text: str) -> None:
        nonlocal displayed
        content = {"text/plain": text}
        if displayed:
            handle.update(content, raw=True)
        elif text:
            handle.display(content, raw=True)
            displayed = True

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
    live: Live | None = None

    def show(text: str) -> None:
        nonlocal live
        if text and live is None and _terminal.acquire(blocking=False):
            # What is printed meanwhile appears above the line, unless it goes elsewhere.
            above = sys.stdout is not None and sys.stdout.isatty()
            live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=above)
            live.start()
        if text and live is not None:
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            live.update(line, refresh=True)
        elif live is not None:
            # First: what is thrown while it is taken away must not leave a line that is gone.
            gone, live = live, None
            try:
                gone.stop()
            finally:
                _terminal.release()

    return show
