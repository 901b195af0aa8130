"""One line that says how far work is, what is waited for and how long it takes; gone at the end.

It appears where work takes a while and can be watched: on a terminal, or in a notebook's cell that
a person runs. Elsewhere (pipes, nohup, Slurm) the log has a line a minute, and one for each request
that timed out. A notebook that no person runs, as under nbconvert and nbval, gets nothing.
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
from typing import Any

from llmsim_lab._util.text import clip, duration, log_event, printable, roughly
from llmsim_lab.errors import BackendError
from llmsim_lab.llm.scope import InFlight, caller, scope, scoped
from llmsim_lab.types import HUMAN, ChatRequest

logger = logging.getLogger("llmsim_lab.run")  # users know the package, not this module

Show = Callable[[str], object]
"""Shows a text instead of the one before; an empty one removes the line."""

_PATIENCE_S = 1.5
"""Work that is done by then shows nothing."""
_TICK_S = 0.5
_LOG_EVERY_S = 60.0


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
    """Show a line while the work inside takes long; yields a function to call as a unit is done.

    That function takes the number of requests that the unit made. Without a terminal the line is
    logged.

    Inside another one, or where a widget watches the model calls, there is no further line.

    Args:
        unit: what the work consists of, such as ``turn``.
        number: of the first unit.
        last: the number of the last.
        enabled: False for no line. The environment variable ``LLMSIM_PROGRESS=0`` does the same.
        turns: how many turns the units have in all, where they are runs.
        parts: says how far parts of the work are; for the log, where it has more room.
    """
    # The task's context says whether a line counts already: run() inside a study is part of what
    # that one counts.
    around = scope()
    line: ProgressLine | None = None
    if enabled and not around.counted and around.watch is None and not _is_off():
        show = _screen()
        if show is not None:
            line = ProgressLine(
                show,
                unit=unit,
                number=number,
                last=last,
                turns=turns,
            )
        elif _is_unattended():
            line = ProgressLog(
                _in_log,
                unit=unit,
                number=number,
                last=last,
                turns=turns,
                parts=parts,
            )
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
    """Play a run whose turns a study's line counts; yields what is called as one is done.

    Args:
        watch: the study's line, if there is one.
        turns: how many the run has, if it does not end before.
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
        watch.turns -= left  # a run that ended before does not play them


class ProgressLine(InFlight):
    """What the line says. It watches the model calls of the work.

    Args:
        show: shows a text.
        unit: what the work consists of.
        number: of the first unit.
        last: the number of the last.
        turns: how many turns the units have in all, where they are runs.

    Attributes:
        has_runs: whether the units are runs, several of which may be under way.
        runs: how many are.
        turns: how many turns there are in all.
    """

    def __init__(
        self,
        show: Show,
        *,
        unit: str,
        number: int,
        last: int,
        turns: int | None = None,
    ) -> None:
        super().__init__()
        self._show = show
        self._is_shown = False
        self._unit = unit
        self._first = number
        self._number = number
        self._last = last
        self.has_runs = turns is not None
        self.runs = 0
        self.turns = last - number + 1 if turns is None else turns
        self._turns_done = 0
        self._calls_of_turns = 0
        self._began = time.monotonic()
        self._latest = self._began
        """When the latest answer came, or the latest unit was done."""

    def advance(self, calls: int = 0) -> None:
        """Record that a unit is done, and how many requests it made; the next one has begun."""
        self._number += 1
        if not self.has_runs:
            self.turn_done(calls)
        self._latest = time.monotonic()
        self.say("")  # what is printed of the unit has the line's place

    def turn_done(self, calls: int = 0) -> None:
        """Record that a turn is done, and how many requests it made."""
        self._turns_done += 1
        self._calls_of_turns += calls

    def ended(self, request: ChatRequest) -> None:
        """Record the end of a request, and when it was."""
        super().ended(request)
        self._latest = time.monotonic()

    def recorded(self) -> None:
        """Record that a tape answered a request, and when."""
        super().recorded()
        self._latest = time.monotonic()

    def began(self, request: ChatRequest) -> None:
        """Record that the backend is being asked; as a person is, the line goes."""
        super().began(request)
        if request.model == HUMAN:  # who may be typing where the line would be
            self.say("")

    async def tick(self) -> None:
        """Show the line after a while, and again and again, but not while a person is asked."""
        await asyncio.sleep(_PATIENCE_S)
        while True:
            # A line that comes and goes would write over what a person types.
            if not any(entry.model == HUMAN for entry in self.waiting):
                self.say(self.text)
            await asyncio.sleep(_TICK_S)

    def say(self, text: str) -> None:
        """Show a text in the line's place; an empty one takes the line away."""
        if text or self._is_shown:
            self._is_shown = bool(text)
            with suppress(Exception):  # a terminal that is gone is no reason to end a run
                self._show(text)

    @property
    def text(self) -> str:
        """What the line says now, such as ``turn 3 of 8 · waiting for 2 answers · 2 min left``.

        While nothing of the reply that is waited for longest has come, also what the server does,
        ``turn 3 of 8 · agent of Ann: reading about 870 tokens · 2 min left``, where that is known.

        The time left follows from the mean of the calls so far; of the units, where none is made.
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
        """Which unit is under way."""
        # After the last one it stays on that, while a callback or a file takes its time.
        return f"{self._unit} {min(self._number, self._last)} of {self._last}"

    @property
    def _time(self) -> str:
        """How long it takes until the end, or how long it took."""
        now = time.monotonic()
        ended: float = self._number - self._first
        total: float = self._last - self._first + 1
        # Calls are the finer measure: a turn of forty may take an hour.
        if self.finished:
            ended = self.finished
            total = self._calls_in_all
        if not ended:
            return f"{duration(now - self._began)} so far"
        each_s = (self._latest - self._began) / ended
        # Until the next answer the time runs down, so that it does not grow while work goes on.
        since_s = min(now - self._latest, each_s)
        return f"{duration(max(0.0, each_s * (total - ended) - since_s))} left"

    @property
    def _calls_in_all(self) -> float:
        """How many calls there will be: as many a turn as so far, and no fewer than were asked."""
        begun = self.finished + self.under_way
        # Before a turn has ended: what each run that is under way has begun so far.
        if self._turns_done:
            a_turn = self._calls_of_turns / self._turns_done
        else:
            a_turn = begun / max(1, self.runs)
        return max(begun, a_turn * self.turns)


class ProgressLog(ProgressLine):
    """The same for a log, where each line stays.

    Args:
        show: takes a line.
        unit: what the work consists of.
        number: of the first unit.
        last: the number of the last.
        turns: how many turns the units have in all, where they are runs.
        parts: says how far parts of the work are.
    """

    def __init__(
        self,
        show: Show,
        *,
        unit: str,
        number: int,
        last: int,
        turns: int | None = None,
        parts: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(
            show,
            unit=unit,
            number=number,
            last=last,
            turns=turns,
        )
        self._parts = parts

    async def tick(self) -> None:
        """Log a line each minute."""
        while True:
            await asyncio.sleep(_LOG_EVERY_S)
            self.say(self.text)

    def say(self, text: str) -> None:
        """Log a line; an empty one, which would take away the last one, is none."""
        if text:
            super().say(text)

    def failed(self, request: ChatRequest, fault: BackendError) -> None:
        """Log at once that a request timed out."""
        # All else is an ERROR line of its own, or is repaired without a word.
        if fault.reason != "timeout":
            return
        player = clip(printable(caller(request.site)), 40)
        line = f"{self._place}: {player} timed out: {clip(printable(str(fault)), 300)}."
        if fault.retry and request.attempt == 1:
            line += " It is asked again."
        self.say(line)

    @property
    def text(self) -> str:
        """What a line says, such as ``turn 3 of 8: 41 of about 160 calls done; waiting for Ann``.

        Of what is waited for longest it says for how long, and what the server does, where known.
        """
        place = self._place
        parts = "" if self._parts is None else self._parts()
        if parts:
            place += f" ({parts})"
        waiting = self.waiting
        lines = [place]
        if self.finished or waiting:  # not so of rules, and of calls in other processes
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
    """Return the kernel of the notebook that this is part of, if it is."""
    ipython = sys.modules.get("IPython")  # not imported: without it there is no kernel
    if ipython is None:
        return None
    return getattr(ipython.get_ipython(), "kernel", None)


def _is_unattended() -> bool:
    """Return True where the standard error is a file or a pipe."""
    # A program without a console, as pythonw starts it, has no standard error.
    return _kernel() is None and sys.stderr is not None and not sys.stderr.isatty()


def _in_log(text: str) -> None:
    """Log a line; where no logging that would show it is set up, on the standard error."""
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
    """Return what shows a text on a terminal or under a cell; None elsewhere."""
    kernel = _kernel()
    if kernel is None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        return _on_terminal if is_terminal else None
    # Who runs a cell by hand can be asked for input; nbconvert, nbval and papermill cannot.
    request: Any = kernel.get_parent("shell") or {}
    is_attended = request.get("content", {}).get("allow_stdin")
    return _in_cell() if is_attended else None


def _in_cell() -> Show:
    """Return what shows a text as an output of the cell that is running."""
    from IPython.display import DisplayHandle

    make: Any = DisplayHandle  # which has no types
    handle = make()
    # The first text makes the output, and each later one takes its place.
    calls = chain([handle.display], repeat(handle.update))
    return lambda text: next(calls)({"text/plain": text}, raw=True)


def _on_terminal(text: str) -> None:
    # A character in the last column would make some terminals begin a new line.
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r{clip(text, width).ljust(width)}\r")
    sys.stderr.flush()
