"""A study as it is played: effects first, charts, its runs by arm, what failed, and any run."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from markupsafe import Markup

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import counted, duration, error_text
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._lab import Lab
from llmsim_lab.lab.window import ALL
from llmsim_lab.llm import LLMClient
from llmsim_lab.study import Study
from llmsim_lab.study.playing import Key
from llmsim_lab.study.view import VIEW, put_runs, put_study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOOK_S = 0.2
"""Between two looks at the study."""
_REST = 8
"""Effects are computed anew after so many times as long as they took."""


class _Began(NamedTuple):
    """When the study was begun here, and how many of its runs were done by then."""

    at_s: float
    ended: int


class StudyBoard(Lab):
    """Shows a study's effects, charts, runs and failures; plays, stops and opens its runs.

    It follows the study, whatever plays it: its own Run button, or ``await study.arun()`` in a
    cell. A click on a square or a point opens that run.

    Args:
        study: the study.
        parallel: how many runs the Run button plays at once; as ``Study.run`` if not given.
        llm_client: the model for forks of its runs.

    Attributes:
        study: the study.
    """

    parts: ClassVar[Sequence[str]] = (VIEW, *ALL)
    study: Any = None
    _playing_all: asyncio.Task[None] | None = None

    def __init__(
        self,
        study: Study,
        *,
        parallel: int | None = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        if not isinstance(study, Study):
            raise ConfigError(
                f"{type(study).__name__} is not a study; make one: "
                "Study(MyWorld, vary={'factor': [1, 2]})"
            )
        self._parallel = parallel
        super().__init__(study, llm_client=llm_client)  # type: ignore[arg-type]

    def _open(self, source: Any, run: int | None) -> None:
        self._follow(source)
        # Kept for the view that comes later and asks; there is none yet to be told.
        self._live |= {"running": source.running, "says": self._words()}

    def _follow(self, study: Study) -> None:
        """Show a study, instead of one before it."""
        self.study = study
        self._opened: dict[Key, int] = {}
        self._began: _Began | None = None
        self._rested = 0.0
        put_study(self.reading, study, self._opened)
        self._stop_listening = [*self._stop_listening, study.listen(self._changed)]

    def _changed(self) -> None:
        """Look at the study soon: it calls this on the loop that plays, for each turn."""
        self._later(self._look_at_study, _LOOK_S)

    def _look_at_study(self) -> None:
        put_runs(self.reading, self.study, self._opened)
        self._send_new()  # squares at once; effects may take long, and come below
        self._tell({**self._live, "running": self.study.running, "says": self._words()})
        began = time.monotonic()
        if began < self._rested and self.study.running:
            return
        self._rested = math.inf  # two threads may look at once: the second leaves it to the first
        put_study(self.reading, self.study, self._opened)
        ended = time.monotonic()
        self._rested = ended + _REST * (ended - began)
        self._send_new()

    def _words(self) -> str:
        """Return how far the study is, in words."""
        runs = self.study.progress()
        counts = Counter(run.status for run in runs)
        words = [f"{counts['done']} of {counted(len(runs), 'run')} done"]
        statuses = [status for status in ("running", "failed", "stopped") if counts[status]]
        words += [f"{counts[status]} {status}" for status in statuses]
        left_s = self._seconds_left(counts["done"], len(runs))
        if left_s is not None:
            words.append(f"about {duration(left_s)} left")
        return " · ".join(words)

    def _seconds_left(self, ended: int, all_runs: int) -> float | None:
        """Return how long the rest takes at the pace since it was begun; None where none ended."""
        if not self.study.running:
            self._began = None
            return None
        now = time.monotonic()
        # A study that continues had runs before: they say nothing of the pace now.
        if self._began is None:
            self._began = _Began(now, ended)
        ended_here = ended - self._began.ended
        if not ended_here:
            return None
        return (now - self._began.at_s) / ended_here * (all_runs - ended)

    # --- commands -----------------------------------------------------------------------------

    def _do_run(self) -> None:
        if not self.study.running:
            self._playing_all = self._start(self._play_all(self.study))

    async def _play_all(self, study: Study) -> None:
        try:
            # Its own bar would be printed into whichever cell was run last.
            await study.arun(parallel=self._parallel, progress=False)
        except Exception as error:
            self._say({"fault": error_text(error), "of": "run"})
            raise

    def halt(self) -> None:
        """Stop the study; what was played is kept."""
        if self.study is not None:  # a comparer's begins with the first run
            self.study.stop()

    _do_halt = halt

    def _do_open(self, place: int) -> None:
        runs = [] if self.study is None else self.study.progress()
        if not 0 <= place < len(runs):
            raise ConfigError(f"there is no run {place} in this study yet; it has {len(runs)}")
        self.open_run(*runs[place].key)

    def open_run(self, arm: str, unit: int | str) -> None:
        """Show a run, with its turns and prompts.

        Args:
            arm: its arm.
            unit: its seed, or the situation that was asked again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        # Each once: a second click shows the run that is here, with the forks made of it.
        if (arm, unit) not in self._opened:
            self._opened[arm, unit] = self._add(self.study.simulation(arm, unit))
            put_runs(self.reading, self.study, self._opened)
            self._send_new()
        self.show(run=self._opened[arm, unit], view="overview")

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return how far the study is, and the effects, as plain text."""
        return visible(f"{type(self).__name__} of {self.study!r}\n{self.study}")

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        return Markup(self.study._repr_html_())

    def static_picture(self) -> Figure | None:
        """Return a chart of the first outcome; None of texts, too many arms, or nothing yet."""
        if self.study is None:
            return None
        figure: Figure | None = None
        with suppress(LabError):
            figure = self.study.chart(next(iter(self.study.outcome), ""))
        return figure

    def close(self) -> None:
        """Take the window from the page; what it plays is stopped."""
        # From whichever thread: a task may be cancelled on its own loop alone.
        if self._playing_all is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._playing_all.cancel)
        super().close()
