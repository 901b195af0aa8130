"""A study as it is played: which runs are done, how long it takes, what came of it.

The grid has a button for each run, an arm a row. Its states differ by sign and by name, not by
colour alone; a style sheet draws the sign, so that a screen reader reads arm, seed and state.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import LARGE, STATUS_COLOURS, join, safe, styled, table, visible
from llmsim_lab._util.text import clip, duration, printable
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._lab import TurnStepper
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import (
    LabWidget,
    Pace,
    block,
    button,
    close_all,
    dropdown,
    number_box,
    row,
    sideways,
)
from llmsim_lab.study import Study
from llmsim_lab.study._charts import runs_chart

if TYPE_CHECKING:
    from llmsim_lab.study._playing import Key, StudyRun
    from llmsim_lab.study._study import Effects

_SIGNS = {"done": "✓", "failed": "✗", "running": "▶", "stopped": "‖", "left": "·"}
_SEEDS_A_PAGE, _ARMS_A_PAGE = 25, 12
_MOST_ERRORS = 3
_RESULTS_S, _RESULTS_REST = 1.0, 8.0
"""Effects and charts take long: they are drawn as often, and leave so much time, to the runs."""

# Colours with white on them have a contrast of 4.5 or more. What is left has a border only, in the
# colour of the page's text, so that it reads on light and on dark pages.
_COLOURS = {
    "done": STATUS_COLOURS["ok"],
    "failed": STATUS_COLOURS["failed"],
    "running": "#0969da",
    "stopped": STATUS_COLOURS["repaired"],
    "left": "transparent",
}
_STYLE = """
.llmsim-board .llmsim-run,.llmsim-legend .llmsim-run{font-size:0;line-height:24px;padding:0;
 overflow:hidden;text-align:center;border-radius:4px;color:#fff;box-shadow:none;opacity:1}
.llmsim-run::after{font-size:14px;font-weight:700}
.llmsim-legend .llmsim-run{display:inline-block;width:24px;height:24px;margin:0 6px 0 0;
 vertical-align:middle}
.llmsim-board .llmsim-run:focus-visible{outline:3px solid #218bff;outline-offset:1px}
.llmsim-board .llmsim-run.llmsim-open{outline:3px solid #bf8700;outline-offset:1px}
:is(.llmsim-board,.llmsim-legend) .llmsim-left{color:inherit;border:1px dashed #8c959f}
""" + "".join(
    f":is(.llmsim-board,.llmsim-legend) .llmsim-{status}{{background:{colour}}}\n"
    f'.llmsim-{status}::after{{content:"{_SIGNS[status]}"}}\n'
    for status, colour in _COLOURS.items()
)


class StudyBoard(LabWidget):
    """Shows a study's runs, how far they are, the effects so far and a chart; plays and stops it.

    It follows the study, whoever plays it: its own Run button, ``await study.arun()`` in a cell, or
    a task. Click a run to open it below.

    Args:
        study: the study.
        parallel: how many runs the Run button plays at once; as ``Study.run`` if not given.

    Attributes:
        study: the study.
        run_button, stop_button: play the runs that are left; stop.
        cells: the buttons of the runs shown, by arm and seed.
        page_box: which part of a large study's runs is shown.
        outcome_box: chooses what the chart is of.
        progress, effects, chart: what is shown of it.
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
        self.study = study
        self.opened = w.VBox()
        self.close_button = button("Close", "Take the opened run away", self.close_run)
        self._parallel = parallel
        self._shown: Key | None = None
        self._began: tuple[float, float] | None = None
        self._pace = Pace(self._draw, self.worker.call)
        self._slow_pace = Pace(
            self._draw_results, self.worker.call, least_s=_RESULTS_S, rest=_RESULTS_REST
        )
        self._lay_out()
        self.refresh()
        self._following.callback(study.listen(self._changed))

    def _lay_out(self) -> None:
        self.add_class("llmsim-board")
        names = list(self.study.outcome)
        played = "Play the runs that are left"
        self.run_button = self.starter("Run", played, self._run, button_style="primary")
        self.stop_button = self.stopper("Stop", "Stop; what was played is kept", self._stop)
        arms, seeds = list(self.study.arms), self.study.seeds
        self._pages = [
            (arms[first : first + _ARMS_A_PAGE], seeds[left : left + _SEEDS_A_PAGE])
            for first in range(0, len(arms), _ARMS_A_PAGE)
            for left in range(0, len(seeds), _SEEDS_A_PAGE)
        ]
        page = number_box("Page of runs", value=1, least=1, most=len(self._pages))
        page.layout.display = "" if len(self._pages) > 1 else "none"
        chosen = self._choices.on_choice
        self.page_box = chosen(page, self._turn_page)
        self.outcome_box = chosen(dropdown("Chart of", width="24em"), self._draw_results)
        self._choices.options(self.outcome_box, [(name, name) for name in names])
        self.outcome_box.layout.display = "" if len(names) > 1 else "none"
        self.heading, self.progress, self.errors = w.HTML(), w.HTML(), w.HTML()
        self.effects, self.chart = w.HTML(), w.HTML()
        self.grid = w.VBox()
        self.cells: dict[Key, w.Button] = {}
        self._ends: dict[str, w.HTML] = {}
        self.children = (
            w.HTML(f"<style>{_STYLE}</style>"),
            self.heading,
            row(self.run_button, self.stop_button, self.page_box, self.retry),
            self.status,
            self.error,
            self.progress,
            self.grid,
            w.HTML(str(_legend())),
            self.errors,
            self.effects,
            self.outcome_box,
            self.chart,
            self.close_button,
            self.opened,
        )
        self._lay_out_grid()
        shown = (self.close_button.layout, "display")
        w.dlink((self.opened, "children"), shown, lambda parts: "" if parts else "none")
        self.opened.observe(lambda _: self._draw(), names="children")

    # --- the grid -----------------------------------------------------------------------------

    def _lay_out_grid(self) -> None:
        before = self.grid.children
        arms, seeds = self._pages[self.page_box.value - 1]
        width = f"{min(24, 2 + max(len(arm) for arm in arms)) * 0.62:.1f}em"
        side = w.Layout(width=width, flex="0 0 auto")
        # One for all, since each layout and style is a model of its own on the page.
        square = w.Layout(width="24px", height="24px", margin="1px", flex="0 0 auto")
        line = w.Layout(flex_flow="row nowrap", align_items="center")
        wrapped = w.Layout(flex_flow="row wrap", align_items="center", flex="1 1 0", min_width="0")
        style = w.ButtonStyle()
        look = "width:24px;margin:0 1px;text-align:center;font-size:11px"
        numbers = join(styled(seed, look, tag="span") for seed in seeds)
        head = w.HTML(str(styled(numbers, "display:flex;flex-wrap:wrap;line-height:1.2")))
        lines = [w.HBox([w.HTML("seed", layout=side), w.HBox([head], layout=wrapped)], layout=line)]
        self.cells, self._ends = {}, {}
        for arm in arms:
            for seed in seeds:
                cell = self.cells[arm, seed] = w.Button(layout=square, style=style)
                cell.on_click(partial(self._clicked, (arm, seed)))
            self._ends[arm] = w.HTML(layout=w.Layout(margin="0 0 0 8px"))
            name = styled(clip(arm, 40), _ONE_LINE, title=arm)
            inside = [*(self.cells[arm, seed] for seed in seeds), self._ends[arm]]
            parts = [w.HTML(str(name), layout=side), w.HBox(inside, layout=wrapped)]
            lines.append(w.HBox(parts, layout=line))
        self.grid.children = lines
        for part in before:
            close_all(part)

    def _turn_page(self) -> None:
        self._lay_out_grid()
        self._draw()

    def _changed(self) -> None:
        """Called by the study, on whichever loop plays it."""
        self._pace.ask()
        self._slow_pace.ask()

    def refresh(self) -> None:
        """Show the study as it is now."""
        self._draw()
        self._draw_results()

    def _draw(self) -> None:
        """Draw what is drawn often: the grid and how far it is."""
        with self._view:
            runs = self._runs()
            for key, cell in self.cells.items():
                cell.description = cell.tooltip = self._said(run := runs[key])
                opened = self.stepper is not None and key == self._shown
                classes = {"llmsim-run", f"llmsim-{run.status}", *(["llmsim-open"] * opened)}
                kept = [name for name in cell._dom_classes if not name.startswith("llmsim-")]
                # Sorted, since what is set to what it is sends no message to the page.
                cell._dom_classes = (*kept, *sorted(classes))
                cell.disabled = run.status == "left"
            for arm, end in self._ends.items():
                end.value = str(safe(_counted(run for run in runs.values() if run.arm == arm)))
            self.heading.value = str(self._heading())
            self.progress.value = str(self._progress(runs))
            self.errors.value = str(self._errors(runs.values()))
            self._set_busy(self.worker.busy)

    def _runs(self) -> dict[Key, StudyRun]:
        """Return all runs, those under way with the status ``running``."""
        return {(run.arm, run.seed): run for run in self.study.progress()}

    def _said(self, run: StudyRun) -> str:
        text = f"{clip(visible(run.arm), 60)}, seed {run.seed}: {run.status}"
        if run.status in ("running", "stopped", "failed") and run.turns:
            text += f" at turn {run.turns} of {self.study.turns}"
        return text + (f", {clip(visible(run.error), 200)}" if run.error else "")

    def _heading(self) -> Markup:
        study, folder = self.study, self.study.tape
        where = f"tapes in {folder.name}" if folder else "on no tape: kept in memory"
        size = f"{len(study.arms)} arms of {len(study.seeds)} seeds, {study.turns} turns each"
        title = styled(f"Study {study.name!r}", f"{LARGE};line-height:1.6")
        return title + styled(f"{size} · {', '.join(study.outcome)} · {where}")

    def _progress(self, runs: Mapping[Key, StudyRun]) -> Markup:
        total = len(runs)
        counts = Counter[str](run.status for run in runs.values())
        turns = sum(
            self.study.turns if run.status == "done" else min(run.turns, self.study.turns)
            for run in runs.values()
            if run.status != "failed"
        )
        left = self._time_left(turns, total - counts["failed"])
        said = f"{counts['done']} of {total} runs done"
        said += "".join(
            f" · {counts[name]} {name}" for name in ("failed", "running", "stopped") if counts[name]
        )
        said += f" · about {duration(left)} left" if left is not None else ""
        parts = [
            styled("", f"flex:{counts[name]} 1 0;background:{colour}")
            for name, colour in _COLOURS.items()
            if counts[name]
        ]
        bar = styled(
            join(parts),
            _BAR,
            role="progressbar",
            aria_label="runs that have ended",
            aria_valuemin=0,
            aria_valuemax=total,
            aria_valuenow=counts["done"] + counts["failed"],
        )
        return styled(said, "line-height:1.6") + bar

    def _time_left(self, turns: int, runs: int) -> float | None:
        """Return an estimate in seconds, from the turns since playing began; None if not known."""
        if not self.study.running:
            self._began = None
            return None
        now = time.monotonic()
        if self._began is None:
            self._began = now, turns
        began, before = self._began
        if turns <= before or now - began < 1:
            return None
        return (runs * self.study.turns - turns) * (now - began) / (turns - before)

    def _errors(self, runs: Iterable[StudyRun]) -> Markup:
        look = f"line-height:1.4;border-left:4px solid {_COLOURS['failed']};padding:2px 8px"
        return join(styled(safe(line, limit=500), look) for line in _failures(runs))

    # --- what came of it ----------------------------------------------------------------------

    def _draw_results(self) -> None:
        with self._view:
            self.effects.value = str(self._effects_html())
            self.chart.value = str(self._charts())

    def _effects_html(self) -> Markup:
        if len(self.study.arms) < 2:
            return safe("There is one arm, so nothing is compared: look at the chart.")
        try:
            return _effects_table(self.study.effects())
        except LabError as error:
            return safe(f"No effects yet: {error}")

    def _charts(self) -> Markup:
        """Return the outcome by turn, where it is a column, and by run, side by side."""
        if not self.study.counts["done"]:
            return safe("The chart comes with the first run that is done.")
        label = self.outcome_box.value
        try:
            values = self.study.outcomes()
        except LabError as error:  # of one run; its message names that
            return safe(f"No chart yet: {error}")
        figures = []
        item = self.study.outcome[label]
        with suppress(ConfigError):  # of a measure of the whole run, which has no turns
            if isinstance(item, str):
                figures.append(self.study.chart(item.removesuffix("@last")))
        figures.append(runs_chart(values, label, arms=list(self.study.arms)))
        for figure in figures:
            figure.set_size_inches(_SIZE)
        pictures = (figure_html(figure, dpi=100) for figure in figures)
        inside = join(styled(picture, "flex:1 1 22em;max-width:40em") for picture in pictures)
        return styled(inside, "display:flex;flex-wrap:wrap;gap:12px")

    # --- clicks -------------------------------------------------------------------------------

    async def _run(self) -> None:
        counts = self.study.counts
        left = len(self.study.arms) * len(self.study.seeds) - counts["done"]
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
        self.refresh()

    def _clicked(self, key: Key, _: object = None) -> None:
        # Not as the worker's work: a run is looked at while the study is played.
        self.worker.call(self._choices.attempt, partial(self.open_run, *key))

    def open_run(self, arm: str, seed: int) -> None:
        """Open a run below, in a ``TurnStepper``.

        Args:
            arm: its arm.
            seed: its seed.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        run = self._runs().get((arm, seed))
        try:
            stepper = TurnStepper(self.study.simulation(arm, seed))
        except LabError:
            if run is not None and run.error:
                self.say(self._said(run))
            raise
        assert run is not None
        self._shown = arm, seed
        self.close_run()
        self.opened.children = (stepper,)
        self.show_error(None)
        self.say(f"{self._said(run)}. It is open below.")

    @property
    def stepper(self) -> TurnStepper | None:
        """What a run was opened in, or None."""
        return self.opened.children[0] if self.opened.children else None

    def close_run(self) -> None:
        """Close the opened run; a turn under way there is stopped."""
        stepper, self.opened.children = self.stepper, ()
        if stepper is not None:
            stepper.close()

    def close(self) -> None:
        """Remove the widget from the page, with the opened run; their work is stopped."""
        if self._built:
            self.close_run()
        super().close()

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the grid, the effects and what failed as plain text."""
        runs = self._runs()
        lines = [f"StudyBoard of {self.study!r}"]
        for arm in self.study.arms:
            own = [run for run in runs.values() if run.arm == arm]
            signs = clip("".join(_SIGNS[run.status] for run in own), 60)
            lines.append(f"  {printable(arm)}  {signs}  {_counted(own)}")
        lines += [f"  {clip(printable(line), 200)}" for line in _failures(runs.values())]
        if len(self.study.arms) > 1:
            try:
                lines.append(str(self.study.effects()))
            except LabError as error:
                lines.append(f"no effects yet: {error}")
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the same as simple HTML, with the chart."""
        runs = self._runs()
        rows = []
        for arm in self.study.arms:
            own = [run for run in runs.values() if run.arm == arm]
            signs = join(_sign(run.status, self._said(run)) for run in own[:_MOST_SIGNS])
            rows.append((clip(arm, 60), signs, _counted(own)))
        return join(
            [
                self._heading(),
                table(("arm", f"seeds {self.study.seeds[0]} to {self.study.seeds[-1]}", ""), rows),
                self._errors(runs.values()),
                block(self._effects_html()),
                self._charts(),
            ]
        )


_MOST_SIGNS = 200
_SIZE = 6.0, 3.9
"""Of a chart, inches: two stand beside each other."""
_BAR = (
    "display:flex;height:10px;border:1px solid #8c959f;border-radius:5px;overflow:hidden;"
    "margin:2px 0 6px"
)
_ONE_LINE = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis;line-height:1.6"


def _effects_table(effects: Effects) -> Markup:
    """Return effects, their label, and below, each once, what they speak of and how."""
    rows = []
    for effect in effects:
        name = f"{effect.contrast}, {effect.outcome}"
        said = str(effect).removeprefix(f"{name}: ")
        estimate, _, rest = said.partition(" ")
        shown = said if effect.estimate is None else Markup("<b>{}</b> {}").format(estimate, rest)
        rows.append((name, shown))
    below = dict.fromkeys(f"Speaks of {it.speaks_of}: {it.method}." for it in effects)
    below |= dict.fromkeys(f"Note: {it.note}." for it in effects if it.note)
    notes = (styled(line, "font-size:0.9em;line-height:1.5") for line in below)
    shown = table(("effect", "estimate"), rows, caption=effects.label)
    return join([sideways(shown, name="Effects", least="18em"), *notes])


def _counted(runs: Iterable[StudyRun]) -> str:
    counts = Counter[str](run.status for run in runs)
    return " · ".join(f"{counts[name]} {name}" for name in _SIGNS if counts[name])


def _failures(runs: Iterable[StudyRun]) -> list[str]:
    """Return the commonest errors, and how many runs have each."""
    errors = Counter(run.error for run in runs if run.status == "failed")
    return [f"{count} failed: {error}" for error, count in errors.most_common(_MOST_ERRORS)]


def _sign(status: str, said: str) -> Markup:
    """Return a state's sign as a small coloured label that needs no style sheet."""
    look = f"background:{_COLOURS[status]};color:#fff"
    if status == "left":
        look = "border:1px dashed #8c959f"
    css = f"display:inline-block;width:1.5em;text-align:center;margin:1px;border-radius:3px;{look}"
    return styled(_SIGNS[status], css, tag="span", role="img", aria_label=said, title=said)


def _legend() -> Markup:
    """Return what the signs mean; the words are there, so screen readers skip the signs."""
    names = (
        Markup('<span aria-hidden="true" class="llmsim-run llmsim-{0}"></span>{0}').format(name)
        for name in _SIGNS
    )
    parts = join(styled(it, "white-space:nowrap;margin-right:16px", tag="span") for it in names)
    return Markup('<div class="llmsim-legend" style="line-height:2">{}</div>').format(parts)
