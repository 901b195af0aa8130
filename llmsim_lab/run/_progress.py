"""One line that says how far work is, what is waited for and how long it takes; gone at the end.

It appears only where work takes a while and can be watched: on a terminal, or in a notebook's cell
that a person runs. Pipes, tests, nbconvert and nbval get nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from typing import Any

from llmsim_lab._util.text import clip, duration, printable
from llmsim_lab.llm._scope import InFlight, scope, scoped
from llmsim_lab.types import ChatRequest

Show = Callable[[str], object]
"""Shows a text instead of the one before; an empty one removes the line."""

_PATIENCE_S = 1.5
"""Work that is done by then shows nothing."""
_TICK_S = 0.5
_HUMAN = "human"
"""The model's name in requests to a person, who may be typing where the line would be."""


@asynccontextmanager
async def progress_line(
    unit: str, *, number: int, last: int, enabled: bool
) -> AsyncIterator[Callable[[], None]]:
    """Show a line while the work inside takes long; yields a function to call as a unit is done.

    Inside another one, or where a widget watches the model calls, there is no further line.

    Args:
        unit: what the work consists of, such as ``turn``.
        number: of the first unit.
        last: the number of the last.
        enabled: False for no line. The environment variable ``LLMSIM_PROGRESS=0`` does the same.
    """
    # The task's context says whether a line counts already: run() inside a study is part of what
    # that one counts.
    around = scope()
    show = _screen() if enabled and not around.counted and around.watch is None else None
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
        line.say("")


class ProgressLine(InFlight):
    """What the line says. It watches the model calls of the work.

    Args:
        show: shows a text.
        unit: what the work consists of.
        number: of the first unit.
        last: the number of the last.
    """

    def __init__(self, show: Show, *, unit: str, number: int, last: int) -> None:
        super().__init__()
        self._show, self._shown = show, False
        self._unit, self._first, self._number, self._last = unit, number, number, last
        self._began = time.monotonic()

    def advance(self) -> None:
        """Record that a unit is done; the next one has begun."""
        self._number += 1
        self.say("")  # what is printed of the unit has the line's place

    def began(self, request: ChatRequest) -> None:
        """Record that the backend is being asked; as a person is, the line goes."""
        super().began(request)
        if request.model == _HUMAN:
            self.say("")

    async def tick(self) -> None:
        """Show the line after a while, and again and again, but not while a person is asked."""
        await asyncio.sleep(_PATIENCE_S)
        while True:
            if not any(entry.model == _HUMAN for entry in self.waiting):
                self.say(self.text)
            await asyncio.sleep(_TICK_S)

    def say(self, text: str) -> None:
        """Show a text in the line's place; an empty one takes the line away."""
        if text or self._shown:
            self._shown = bool(text)
            with suppress(Exception):  # a terminal that is gone is no reason to end a run
                self._show(text)

    @property
    def text(self) -> str:
        """What the line says now, such as ``turn 3 of 8 · waiting for 2 answers · 2 min left``.

        While nothing of the reply that is waited for longest has come, also what the server does,
        ``turn 3 of 8 · agent of Ann: reading about 870 tokens · 2 min left``, where that is known.

        The time left follows from the mean of the units so far.
        """
        waiting, last = self.waiting, self._last
        seconds, word = time.monotonic() - self._began, "so far"
        if done := self._number - self._first:
            seconds, word = seconds / done * max(0, last - self._number + 1), "left"
        # After the last one it stays on that, while a callback or a file takes its time.
        parts = [f"{self._unit} {min(self._number, last)} of {last}"]
        if waiting:
            whom = str(waiting[0]) if len(waiting) == 1 else f"{len(waiting)} answers"
            whom = clip(printable(whom), 40)
            doing = waiting[0].doing
            parts.append(f"{whom}: {doing}" if doing else f"waiting for {whom}")
        return " · ".join([*parts, f"{duration(seconds)} {word}"])


def _screen() -> Show | None:
    """Return what shows a text on a terminal or under a cell; None elsewhere."""
    if os.environ.get("LLMSIM_PROGRESS", "").strip().lower() in ("0", "no", "off", "false"):
        return None
    ipython = sys.modules.get("IPython")
    kernel = getattr(ipython.get_ipython(), "kernel", None) if ipython else None
    if kernel is None:
        return _on_terminal if sys.stderr is not None and sys.stderr.isatty() else None
    # Who runs a cell by hand can be asked for input; nbconvert, nbval and papermill cannot.
    request: Any = kernel.get_parent("shell") or {}
    return _in_cell() if request.get("content", {}).get("allow_stdin") else None


def _in_cell() -> Show:
    """Return what shows a text as an output of the cell that is running."""
    from IPython.display import DisplayHandle

    make: Any = DisplayHandle  # which has no types
    handle = make()
    calls = chain([handle.display], repeat(handle.update))
    return lambda text: next(calls)({"text/plain": text}, raw=True)


def _on_terminal(text: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r{clip(text, width).ljust(width)}\r")
    sys.stderr.flush()
