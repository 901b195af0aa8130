"""A progress line: how far the work is, what it waits for, and how much time is left.

The line appears when work takes a while and a person can watch it: on a terminal, or in a notebook
cell that a person runs. It is gone at the end. Elsewhere (pipes, nohup, Slurm) the log has a line a
minute, and one for each request that timed out. A notebook that no person runs, as under nbconvert
and nbval, shows nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from itertools import chain, repeat
from typing import Any, NamedTuple

from llmsim_lab._util.text import clip, duration, is_open, log_event, printable, roughly
from llmsim_lab.errors import BackendError
from llmsim_lab.llm.scope import InFlight, caller, scope, scoped
from llmsim_lab.types import HUMAN, ChatRequest

logger = logging.getLogger("llmsim_lab.run")  # users know the package, not this module

Show = Callable[[str], object]
"""A function that shows a text in place of the one before; an empty text removes the line."""

_PATIENCE_S = 1.5
"""Work that takes less time shows no line."""
_TICK_S = 0.5
_LOG_EVERY_S = 60.0


class Work(NamedTuple):
    """The units of work that a line counts.

    Attributes:
        unit: what a unit is called, such as ``turn``.
        first: the number of the first unit.
        last: the number of the last.
        turns: how many turns the units have in all, if they are runs.
    """

    unit: str
    first: int
    last: int
    turns: int | None = None


@asynccontextmanager
async def progress_line(
    unit: str,
    *,
    number: int,
    last: int,
    enabled: bool,
    turns: int | None = None,
    parts: Callable[[], str] | None = None,
) -> AsyncIterator[Callable[..., None]]:
    """Show a line while the work inside takes long; yields a function to call after each unit.

    That function takes the number of requests that the unit made. Without a terminal the line is
    logged.

    Inside another progress line, or where a widget watches the model calls, no line is shown.

    Args:
        unit: what a unit of the work is called, such as ``turn``.
        number: the number of the first unit.
        last: the number of the last.
        enabled: False for no line. The environment variable ``LLMSIM_PROGRESS=0`` does the same.
        turns: how many turns the units have in all, if they are runs.
        parts: returns how far parts of the work are; only the log has room for it.
    """
    # The task's context says whether another line counts this work: a run() inside a study is part
    # of what the study's line counts.
    around = scope()
    line: ProgressLine | None = None
    if enabled and not around.counted and around.watch is None and not _is_off():
        work = Work(
            unit,
            number,
            last,
            turns,
        )
        show = _screen()
        if show is not None:
            line = ProgressLine(show, work)
        elif _is_unattended():
            line = ProgressLog(_in_log, work, parts)
    if line is None:
        with scoped(counted=True), _run_of(around.watch, last - number + 1) as turn_done:
            yield turn_done
        return
    ticker = asyncio.create_task(line.tick())
    try:
        with scoped(counted=True, watch=line):
            yield line.advance
    finally:
        ticker.cancel()
        line.say("")


@contextmanager
def _run_of(
    watch: InFlight | None,
    turns: int,
) -> Iterator[Callable[..., None]]:
    """Count a run's turns in a study's line; yields a function to call after each turn.

    Args:
        watch: the study's line, if there is one.
        turns: how many turns the run has, unless it ends early.
    """
    if not isinstance(watch, ProgressLine) or not watch.has_runs:
        yield lambda _=0: None
        return
    left = turns

    def turn_done(calls: int = 0) -> None:
        nonlocal left
        left -= 1
        watch.turn_done(calls)

    watch.runs += 1
    try:
        yield turn_done
    finally:
        watch.runs -= 1
        watch.turns -= left  # a run that ended early does not play them


class ProgressLine(InFlight):
    """Writes the line. It watches the model calls of the work.

    Args:
        show: shows a text.
        work: the units that the line counts.

    Attributes:
        has_runs: True if the units are runs, several of which may be under way.
        runs: how many runs are under way.
        turns: how many turns there are in all.
    """

    def __init__(self, show: Show, work: Work) -> None:
        super().__init__()
        self._show = show
        self._is_shown = False
        self._work = work
        self._number = work.first
        """The unit that is under way."""
        self.has_runs = work.turns is not None
        self.runs = 0
        # Else the units themselves are turns.
        self.turns = self._units if work.turns is None else work.turns
        self._turns_done = 0
        self._calls_of_turns = 0
        self._began = time.monotonic()
        self._latest = self._began
        """When the latest answer came, or the latest unit was done."""

    @property
    def _units(self) -> int:
        return self._work.last - self._work.first + 1

    def advance(self, calls: int = 0) -> None:
        """Count a unit as done, with the requests that it made; the next one has begun."""
        self._number += 1
        if not self.has_runs:
            self.turn_done(calls)
        self._latest = time.monotonic()
        self.say("")  # makes room for what is printed about the unit

    def turn_done(self, calls: int = 0) -> None:
        """Count a turn as done, with the requests that it made."""
        self._turns_done += 1
        self._calls_of_turns += calls

    def ended(self, request: ChatRequest) -> None:
        """Count a request as answered, and note the time."""
        super().ended(request)
        self._latest = time.monotonic()

    def recorded(self) -> None:
        """Count a request that a tape answered, and note the time."""
        super().recorded()
        self._latest = time.monotonic()

    def began(self, request: ChatRequest) -> None:
        """Count a request as sent; if it goes to a person, the line is removed."""
        super().began(request)
        if request.model == HUMAN:  # the person may type where the line stands
            self.say("")

    async def tick(self) -> None:
        """Show the line after a while, and renew it again and again, except while people answer."""
        await asyncio.sleep(_PATIENCE_S)
        while True:
            # The line would overwrite what a person types.
            if not any(entry.model == HUMAN for entry in self.waiting):
                self.say(self.text)
            await asyncio.sleep(_TICK_S)

    def say(self, text: str) -> None:
        """Show a text in the line's place; an empty text removes the line."""
        if text or self._is_shown:
            self._is_shown = bool(text)
            with suppress(Exception):  # a terminal that is gone must not end the run
                self._show(text)

    @property
    def text(self) -> str:
        """The line's text now, such as ``turn 3 of 8 · waiting for 2 answers · 2 min left``.

        Before the first piece of the reply that is awaited longest, the line says what the server
        does, if that is known: ``turn 3 of 8 · agent of Ann: reading about 870 tokens · 2 min
        left``.

        The time left is estimated from the mean time of a call so far, or of a unit if no calls
        are made.
        """
        waiting = self.waiting
        parts = [self._place]
        if waiting:
            longest = waiting[0]
            answers = str(longest) if self.under_way == 1 else f"{self.under_way} answers"
            answers = clip(printable(answers), 40)
            if longest.doing:
                parts.append(f"{answers}: {longest.doing}")
            else:
                parts.append(f"waiting for {answers}")
        return " · ".join([*parts, self._time])

    @property
    def _place(self) -> str:
        """Which unit is under way, such as ``turn 3 of 8``."""
        # After the last unit, while a callback or a file takes its time, the number stays.
        number = min(self._number, self._work.last)
        return f"{self._work.unit} {number} of {self._work.last}"

    @property
    def _time(self) -> str:
        """The time left until the end; the time so far, if nothing is done yet."""
        now = time.monotonic()
        ended: float = self._number - self._work.first
        total: float = self._units
        # Calls are a finer measure than units: a turn of forty calls may take an hour.
        if self.finished:
            ended = self.finished
            total = self._calls_in_all
        if not ended:
            return f"{duration(now - self._began)} so far"
        each_s = (self._latest - self._began) / ended
        # Counted down until the next answer, so that the time left does not grow meanwhile.
        since_s = min(now - self._latest, each_s)
        return f"{duration(max(0.0, each_s * (total - ended) - since_s))} left"

    @property
    def _calls_in_all(self) -> float:
        """How many calls there will be, if the turns to come have as many as those so far."""
        begun = self.finished + self.under_way
        # Before a first turn has ended, the calls that each run has begun so far stand in.
        if self._turns_done:
            a_turn = self._calls_of_turns / self._turns_done
        else:
            a_turn = begun / max(1, self.runs)
        return max(begun, a_turn * self.turns)


class ProgressLog(ProgressLine):
    """Writes progress into a log, where each line stays.

    Args:
        show: takes a line.
        work: the units that are counted.
        parts: returns how far parts of the work are.
    """

    def __init__(
        self,
        show: Show,
        work: Work,
        parts: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(show, work)
        self._parts = parts

    async def tick(self) -> None:
        """Log a line each minute."""
        while True:
            await asyncio.sleep(_LOG_EVERY_S)
            self.say(self.text)

    def say(self, text: str) -> None:
        """Log a line; an empty text logs nothing, since no line can be removed."""
        if text:
            super().say(text)

    def failed(self, request: ChatRequest, fault: BackendError) -> None:
        """Log at once that a request timed out."""
        # Other faults are logged as errors elsewhere, or are repaired silently.
        if fault.reason != "timeout":
            return
        player = clip(printable(caller(request.site)), 40)
        line = f"{self._place}: {player} timed out: {clip(printable(str(fault)), 300)}."
        if fault.retry and request.attempt == 1:
            line += " It is asked again."
        self.say(line)

    @property
    def text(self) -> str:
        """A line's text, such as ``turn 3 of 8: 41 of about 160 calls done; waiting for Ann``.

        For the request that is awaited longest, the text says for how long, and what the server
        does, if that is known.
        """
        place = self._place
        parts = "" if self._parts is None else self._parts()
        if parts:
            place += f" ({parts})"
        waiting = self.waiting
        lines = [place]
        if self.finished or waiting:  # rules make no calls; those of other processes are unseen
            total = max(roughly(self._calls_in_all), self.finished)
            lines = [f"{place}: {self.finished:,} of about {total:,} calls done"]
        if waiting:
            longest = waiting[0]
            players = clip(printable(str(longest)), 40)
            if self.under_way > 1:
                players += f" and {self.under_way - 1:,} more"
            line = f"waiting for {players}, {duration(longest.seconds)}"
            doing = "writing" if longest.text else longest.doing
            if doing:
                line += f", {doing}"
            lines.append(line)
        return "; ".join([*lines, self._time])


def _is_off() -> bool:
    return os.environ.get("LLMSIM_PROGRESS", "").strip().lower() in ("0", "no", "off", "false")


def _kernel() -> Any:
    """Return the kernel of the notebook that this code runs in; None outside notebooks."""
    ipython = sys.modules.get("IPython")  # not imported here: a kernel has imported it
    if ipython is None:
        return None
    return getattr(ipython.get_ipython(), "kernel", None)


def _is_unattended() -> bool:
    """Return True if the standard error is a file or a pipe."""
    # A program without a console, such as one started by pythonw, has no standard error.
    return _kernel() is None and is_open(sys.stderr) and not sys.stderr.isatty()


def _in_log(text: str) -> None:
    """Log a line; if no logging is set up that would show it, write it to the standard error."""
    if logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        log_event(
            logger,
            logging.INFO,
            "PROGRESS",
            detail=text,
        )
    else:
        sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {text}\n")
        sys.stderr.flush()


def _screen() -> Show | None:
    """Return a function that shows a text on a terminal or under a cell; None elsewhere."""
    kernel = _kernel()
    if kernel is None:
        is_terminal = is_open(sys.stderr) and sys.stderr.isatty()
        return _on_terminal if is_terminal else None
    # A person who runs a cell can be asked for input; nbconvert, nbval and papermill cannot.
    request: Any = kernel.get_parent("shell") or {}
    is_attended = request.get("content", {}).get("allow_stdin")
    return _in_cell() if is_attended else None


def _in_cell() -> Show:
    """Return a function that shows a text as an output of the cell that is running."""
    from IPython.display import DisplayHandle

    make: Any = DisplayHandle  # IPython has no types
    handle = make()
    # The first text makes the output; each later one replaces it.
    calls = chain([handle.display], repeat(handle.update))
    return lambda text: next(calls)({"text/plain": text}, raw=True)


def _on_terminal(text: str) -> None:
    # A character in the last column makes some terminals begin a new line.
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r{clip(text, width).ljust(width)}\r")
    sys.stderr.flush()
