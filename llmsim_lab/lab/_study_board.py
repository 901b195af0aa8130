"""A study as it is played: which runs are done, how long it takes, what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import STATUS_COLOURS, join, safe, styled, visible
from llmsim_lab._util.text import clip, duration, printable
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._lab import TurnStepper
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import LabWidget, Pace, block, dropdown, row, sideways
from llmsim_lab.study import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmsim_lab.study._playing import StudyRun

_RESULTS_S, _RESULTS_REST = 1.0, 8.0
"""Effects and charts take long: they are drawn as often, and leave so much time, to the runs."""
_MOST_ERRORS = 3


class StudyBoard(LabWidget):
    """Shows a study's runs, how far they are, the effects so far and a chart; plays and stops it.

    It follows the study, whoever plays it: its own Run button, ``await study.arun()`` in a cell, or
    a task. Choose a run to open it below.

    Args:
        study: the study.
        parallel: how many runs the Run button plays at once; as ``Study.run`` if not given.

    Attributes:
        study: the study.
        run_button, stop_button: play the runs that are left; stop.
        outcome_box: chooses what the chart is of.
        run_box: chooses the run to open.
        progress, results, chart: what is shown of it.
        stepper: what a run was opened in, or None.

    Example:
        >>> StudyBoard(study)  # doctest: +SKIP
    """

    def __init__(self, study: Study, *, parallel: int | None = None) -> None:
        super().__init__()
        if not isinstance(study, Study):
            raise ConfigError(
                f"{type(study).__name__} is not a study; make one: StudyBoard(Study(MyWorld, "
                "vary={'factor': [1, 2]}))"
            )
        self.study, self._parallel = study, parallel
        self.stepper: TurnStepper | None = None
        self._began: tuple[float, int] | None = None
        played = "Play the runs that are left"
        self.run_button = self.starter("Run", played, self._run, button_style="primary")
        self.stop_button = self.stopper("Stop", "Stop; what was played is kept", self._stop)
        chosen = self._choices.on_choice
        self.outcome_box = chosen(dropdown("Chart of", width="24em"), self._draw_results)
        self._choices.options(self.outcome_box, [(name, name) for name in study.outcome])
        self.run_box = chosen(dropdown("Open", width="24em"), self._open)
        self.progress, self.results, self.chart = w.HTML(), w.HTML(), w.HTML()
        self.opened = w.VBox()
        self.children = (
            row(self.run_button, self.stop_button, self.retry),
            self.status,
            self.error,
            self.progress,
            self.results,
            row(self.outcome_box, self.run_box),
            self.chart,
            self.opened,
        )
        self._pace = Pace(self._draw, self.worker.call)
        self._slow = Pace(
            self._draw_results, self.worker.call, least_s=_RESULTS_S, rest=_RESULTS_REST
        )
        self._draw()
        self._draw_results()
        self._following.callback(study.listen(self._changed))

    def _changed(self) -> None:
        """Called by the study, on whichever loop plays it."""
        self._pace.ask()
        self._slow.ask()

    def _draw(self) -> None:
        """Draw what is drawn often: how far it is, what failed, and which runs can be opened."""
        with self._view:
            runs = self.study.progress()
            self.progress.value = str(block(safe(self._said(runs)), *_failures(runs)))
            begun = [(f"{it.arm}, {it.unit}: {it.status}", it.key) for it in runs if it.turns]
            self._choices.options(self.run_box, [("nothing", None), *begun], self.run_box.value)
            self._set_busy(self.worker.busy)

    def _said(self, runs: Sequence[StudyRun]) -> str:
        counts = {name: sum(it.status == name for it in runs) for name in _STATES}
        said = f"{counts['done']} of {len(runs)} runs done"
        said += "".join(f" · {counts[it]} {it}" for it in _STATES[1:] if counts[it])
        if not self.study.running:
            self._began = None
        elif self._began is None:
            self._began = time.monotonic(), counts["done"]
        elif ended := counts["done"] - self._began[1]:
            each = (time.monotonic() - self._began[0]) / ended
            said += f" · about {duration(each * (len(runs) - counts['done']))} left"
        return said

    def _draw_results(self) -> None:
        with self._view:
            self.results.value = str(
                sideways(Markup(self.study._repr_html_()), name="Runs by arm, and effects")
            )
            self.chart.value = str(self._chart())

    def _chart(self) -> Markup:
        if not self.study.counts["done"]:
            return safe("The chart comes with the first run that is done.")
        try:
            return figure_html(self.study.chart(self.outcome_box.value), dpi=100)
        except LabError as error:  # of one run; its message names that
            return safe(f"No chart yet: {error}")

    async def _run(self) -> None:
        left = len(self.study.progress()) - self.study.counts["done"]
        self.say(f"Playing {left} runs." if left else "Nothing is left to play.")
        await self.study.arun(parallel=self._parallel, progress=False)
        done, failed = self.study.counts["done"], self.study.counts["failed"]
        again = f"; {failed} failed, and Run plays them again" if failed else ""
        self.say(f"Finished: {done} runs are done{again}.")

    def _stop(self) -> None:
        if self.worker.busy:
            self.worker.stop()
        else:
            self.study.stop()

    def _set_busy(self, busy: bool) -> None:
        super()._set_busy(busy or self.study.running)

    def ended(self) -> None:
        """Show how it ended."""
        self._draw()
        self._draw_results()

    def _open(self) -> None:
        if (key := self.run_box.value) is not None:
            self.open_run(*key)

    def open_run(self, arm: str, unit: int | str) -> None:
        """Open a run below, in a ``TurnStepper``.

        Args:
            arm: its arm.
            unit: its seed, or the situation that was asked again.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        stepper = TurnStepper(self.study.simulation(arm, unit))
        if self.stepper is not None:
            self.stepper.close()
        self.stepper = stepper
        self.opened.children = (stepper,)

    def close(self) -> None:
        """Remove the widget from the page, with the opened run; their work is stopped."""
        if self._built and self.stepper is not None:
            self.stepper.close()
        super().close()

    def static_text(self) -> str:
        """Return how far the study is, and the effects, as plain text."""
        return visible(f"StudyBoard of {self.study!r}\n{self.study}")

    def static_html(self) -> Markup:
        """Return the same as simple HTML, with the chart."""
        parts = (self.progress, self.results, self.chart)
        return join(Markup(part.value) for part in parts)


_STATES = ("done", "failed", "running", "stopped")


def _failures(runs: Sequence[StudyRun]) -> list[Markup]:
    """Return why runs failed, the first few."""
    failed = [it for it in runs if it.status == "failed"]
    lines = [f"{it.arm}, {it.unit}: {it.error}" for it in failed[:_MOST_ERRORS]]
    if len(failed) > _MOST_ERRORS:
        lines.append(f"and {len(failed) - _MOST_ERRORS} more failed")
    look = f"border-left:4px solid {STATUS_COLOURS['failed']};padding:2px 8px"
    return [styled(clip(printable(line), 500), look) for line in lines]
