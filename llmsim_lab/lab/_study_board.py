"""A study while it is played: its effects, charts, runs by arm, failures, and any of its runs."""

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
"""The time between two looks at the study."""
_REST = 8
"""Effects are computed again after this many times as long as the computation took."""


class _Began(NamedTuple):
    """When playing the study began here, and how many of its runs were done before."""

    at_s: float
    ended: int


class StudyBoard(Lab):
    """Shows a study's effects, charts, runs and failures; plays, stops and opens its runs.

    It follows the study whoever plays it: its Run button, or ``await study.arun()`` in a cell. A
    click on a square or a point opens that run.

    Args:
        study: the study.
        parallel: how many runs the Run button plays at once; as in ``Study.run`` if not given.
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
        # Kept for a view that is drawn later and asks; there is none yet.
        self._live |= {"running": source.running, "says": self._words()}

    def _follow(self, study: Study) -> None:
        """Show a study, in place of an earlier one."""
        self.study = study
        self._opened: dict[Key, int] = {}
        self._began: _Began | None = None
        self._rested = 0.0
        put_study(self.reading, study, self._opened)
        stop_listening = study.listen(self._changed)
        self._stop_listening = [*self._stop_listening, stop_listening]

    def _changed(self) -> None:
        """Look at the study soon; the study calls this for each turn, on the loop that plays."""
        self._later(self._look_at_study, _LOOK_S)

    def _look_at_study(self) -> None:
        put_runs(self.reading, self.study, self._opened)
        self._send_new()  # squares first, since effects may take long
        live = {**self._live, "running": self.study.running}
        self._tell({**live, "says": self._words()})
        began = time.monotonic()
        if began < self._rested and self.study.running:
            return
        self._rested = math.inf  # another thread that looks now leaves the work to this one
        put_study(self.reading, self.study, self._opened)
        ended = time.monotonic()
        self._rested = ended + _REST * (ended - began)
        self._send_new()

    def _words(self) -> str:
        """Return the study's progress, in words."""
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
        """Return the time left at the pace so far; None if no run has ended here."""
        if not self.study.running:
            self._began = None
            return None
        now = time.monotonic()
        # Runs that were done before say nothing about the pace now.
        if self._began is None:
            self._began = _Began(now, ended)
        ended_here = ended - self._began.ended
        if not ended_here:
            return None
        return (now - self._began.at_s) / ended_here * (all_runs - ended)

    # --- commands -----------------------------------------------------------------------------

    def _do_run(self) -> None:
        if not self.study.running:
            playing = self._play_all(self.study)
            self._playing_all = self._start(playing)

    async def _play_all(self, study: Study) -> None:
        try:
            # The study's own line would be printed below the cell that ran last.
            await study.arun(parallel=self._parallel, progress=False)
        except Exception as error:
            self._say({"fault": error_text(error), "of": "run"})
            raise

    def halt(self) -> None:
        """Stop the study; the turns that were played are kept."""
        if self.study is not None:  # a comparer has no study before its first run
            self.study.stop()

    _do_halt = halt

    def _do_open(self, place: int) -> None:
        runs = []
        # A comparer has no study before its first run.
        if self.study is not None:
            runs = self.study.progress()
        if not 0 <= place < len(runs):
            raise ConfigError(f"there is no run {place} in this study yet; it has {len(runs)}")
        self.open_run(*runs[place].key)

    def open_run(self, arm: str, unit: int | str) -> None:
        """Show a run, with its turns and prompts.

        Args:
            arm: the run's arm.
            unit: its seed, or the situation that was asked again.

        Raises:
            ConfigError: there is no such run, or it has not begun.
        """
        # Opened only once: a second click shows the same run, with the forks made from it.
        if (arm, unit) not in self._opened:
            simulation = self.study.simulation(arm, unit)
            self._opened[arm, unit] = self._add(simulation)
            put_runs(self.reading, self.study, self._opened)
            self._send_new()
        self.show(run=self._opened[arm, unit], view="overview")

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the study's progress and effects as plain text."""
        return visible(f"{type(self).__name__} of {self.study!r}\n{self.study}")

    def static_html(self) -> Markup:
        """Return the static text as simple HTML."""
        return Markup(self.study._repr_html_())

    def static_picture(self) -> Figure | None:
        """Return a chart of the first outcome; None for texts, too many arms, or no results."""
        if self.study is None:
            return None
        figure: Figure | None = None
        with suppress(LabError):
            first_outcome = next(iter(self.study.outcome), "")
            figure = self.study.chart(first_outcome)
        return figure

    def close(self) -> None:
        """Remove the window from the page, and stop what it plays."""
        # This may run on any thread, but a task may be cancelled only on its own loop.
        if self._playing_all is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._playing_all.cancel)
        super().close()
