"""A tape's runs and forks to choose from: look at one, hold two against each other, open, check."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.experiments._keeping import refuse_experiment
from llmsim_lab.lab.inputs import dropdown, row
from llmsim_lab.lab.run_compare import chart_html, differences, differences_html
from llmsim_lab.lab.run_facts import facts, run_html
from llmsim_lab.lab.stepper import TurnStepper
from llmsim_lab.lab.tape_check import Checked, check_tape
from llmsim_lab.lab.widget import LabWidget, button, settled
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.markup import join, pairs, pre, safe, table
from llmsim_lab.text import clip, number, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RunTree"]

_NOTHING = 0
"""In the list of runs to compare with: none. Runs are numbered from 1."""
_MOST_FINDINGS = 20
_LIST_WIDTH = "56em"
"""So that a run's line is read to its end, the model; narrower where the page is."""


class RunTree(LabWidget):
    """A tape's runs as a tree, each with what it was; ``tape.tree()`` is the same tree as text.

    Args:
        tape: the tape or its file, which is opened for reading only.
        run: the number of the run whose facts are shown; the first if not given.
        llm_client: the model for forks made in the stepper that a run is opened in.

    Attributes:
        tape: the tape.
        selected: the number of the run whose facts are shown.
        comparison: how the selected run and the one it is compared with differ, as
            ``tape.compare`` gives it; None while nothing is compared.
        stepper: what the run was opened in, or None.
        checked: what the last check came to, or None before it.
    """

    stepper: TurnStepper | None = None

    def __init__(
        self,
        tape: Tape | str | Path,
        *,
        run: int | None = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(tape, Tape | str | Path):
            raise ConfigError(
                f"{type(tape).__name__} is no tape; pass a Tape or a tape's file: RunTree('x.tape')"
            )
        self.tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        self.llm_client = llm_client
        self.comparison: pd.DataFrame | None = None
        self.checked: Checked | None = None
        self._relisting = False
        self.tree = w.HTML()
        self.run_box = dropdown("Run", width=_LIST_WIDTH)
        self.other_box = dropdown("Compare with", width=_LIST_WIDTH)
        self.open_button = button("Open", tooltip="Step through the run below")
        self.close_button = button("Close", tooltip="Take the opened run away")
        self.check_button = button("Verify", tooltip="Check the tape and replay each of its runs")
        self.stop_button = button("Stop", tooltip="Break off what is under way")
        self.refresh_button = button("Refresh", tooltip="Read the tape again")
        self.facts = w.HTML()
        self.differences = w.HTML()
        self.chart = w.HTML()
        self.opened = w.VBox()
        self.controls = (
            self.run_box,
            self.other_box,
            self.open_button,
            self.check_button,
            self.refresh_button,
        )
        self.stoppers = (self.stop_button,)
        side = w.VBox([self.differences, self.chart], layout=w.Layout(flex="1 1 28em"))
        self._wire()
        self.children = (
            self.tree,
            self.run_box,
            self.other_box,
            row(
                self.open_button,
                self.close_button,
                self.check_button,
                self.stop_button,
                self.refresh_button,
            ),
            self.status,
            self.error,
            self.retry,
            row(self.facts, side, gap="24px"),
            self.opened,
        )
        self._set_busy(False)
        self.refresh()
        if run is not None:
            self.select(run)

    def _wire(self) -> None:
        self.run_box.observe(self._chosen, names="value")
        self.other_box.observe(self._chosen, names="value")
        self.open_button.on_click(lambda _: self.start(self._open))
        self.close_button.on_click(lambda _: self.close_run())
        self.check_button.on_click(lambda _: self.start(self._check))
        self.stop_button.on_click(lambda _: self.worker.stop())
        self.refresh_button.on_click(lambda _: self.start(self._refresh))

    # --- the tree and a run -------------------------------------------------------------------

    @property
    def selected(self) -> int:
        """The number of the run whose facts are shown."""
        return int(self.run_box.value)

    def refresh(self) -> None:
        """Read the tape again: a run may have come, or gone on.

        Raises:
            TapeError: it cannot be read, or holds no run.
        """
        text = self.tape.tree()
        if not text.runs:
            raise TapeError(f"the tape {self.tape.path} holds no run yet; record one first")
        lines = text.lines[1:]
        self.tree.value = str(self._tree_html(text.runs, lines))
        options = [(clip(line, 100), info.id) for line, info in zip(lines, text.runs, strict=True)]
        chosen, other = self.run_box.value or options[0][1], self.other_box.value
        self._relisting = True
        try:
            self.run_box.options = options
            self.run_box.value = chosen
            self.other_box.options = [
                ("nothing", _NOTHING),
                *(
                    option
                    for option, info in zip(options, text.runs, strict=True)
                    if info.verb != "experiment"
                ),
            ]
            self.other_box.value = other
        finally:
            self._relisting = False
        self._show_facts()

    @staticmethod
    def _tree_html(runs: tuple[RunInfo, ...], lines: tuple[str, ...]) -> Markup:
        rows = [
            (Markup('<span style="white-space:pre;font-family:monospace">{}</span>').format(line),)
            for line in lines
        ]
        count = f"{len(runs)} run" + ("" if len(runs) == 1 else "s")
        return table((f"The tape's {count}, forks and reruns below what they came from",), rows)

    def select(self, run: int, *, compare_with: int | None = None) -> None:
        """Show a run's facts, and hold another against it if one is named.

        Args:
            run: its number.
            compare_with: another's.

        Raises:
            ConfigError: a number is no whole one, or the widget is at work.
            TapeError: there is no such run, or one of those to compare is an experiment.
        """
        run = whole_number("run", run)
        shown = self.tape.run(run)
        if compare_with is not None:
            compare_with = whole_number("compare_with", compare_with)
            for info in (self.tape.run(compare_with), shown):
                refuse_experiment(info)
        if self.worker.busy:
            raise ConfigError("this widget is at work; await widget.idle() first, or stop it")
        self._relisting = True
        try:
            self.run_box.value = run
            self.other_box.value = _NOTHING if compare_with is None else compare_with
        finally:
            self._relisting = False
        self._chosen()

    def _chosen(self, _: object = None) -> None:
        """Show what was chosen: facts at once, a comparison, which takes a moment, by and by."""
        if self._relisting:
            return
        try:
            self._show_facts()
        except TapeError as error:
            self.show_error(error)
            return
        if self.other_box.value == _NOTHING:
            self._clear_comparison()
        else:
            self.start(self._compare_chosen)

    async def _compare_chosen(self) -> None:
        self.say(f"Comparing run {self.selected} and run {self.other_box.value}.")
        await asyncio.sleep(0)  # so that it is seen before the chart is drawn
        self._show_comparison()

    def _show_facts(self) -> None:
        self.facts.value = str(run_html(self.tape, self.tape.run(self.selected)))

    def _show_comparison(self) -> None:
        other = int(self.other_box.value)
        self._clear_comparison()
        if other in (_NOTHING, self.selected):
            if other:
                self.say("A run does not differ from itself; compare it with another one.")
            return
        a, b = self.tape.run(self.selected), self.tape.run(other)
        for info in (a, b):
            refuse_experiment(info)
        self.comparison = self.tape.compare(a.id, b.id)
        self.differences.value = str(
            differences_html(self.tape, a, b, differences(self.comparison))
        )
        self.chart.value = str(chart_html(self.tape, a, b))
        self.say(f"Run {a.id} and run {b.id} are compared.")

    def _clear_comparison(self) -> None:
        self.comparison = None
        self.differences.value = self.chart.value = ""

    async def _refresh(self) -> None:
        self.refresh()
        self._show_comparison()
        self.say("The tape was read again.")

    # --- open and check -----------------------------------------------------------------------

    async def _open(self) -> None:
        await settled(self.run_box)
        run = self.selected
        stepper = TurnStepper(self.tape, run=run, llm_client=self.llm_client)
        stepper.on_change(lambda _: self._look_again())
        self.close_run()
        self.stepper = stepper
        self.opened.children = (stepper,)
        self.say(f"Run {run} is open below.")

    def _look_again(self) -> None:
        """Show a fork that was made in the opened stepper, if it is on this tape."""
        if len(self.tape) != len(self.run_box.options):
            self.refresh()

    def close_run(self) -> None:
        """Take the opened run away; what it is playing is stopped."""
        self.opened.children = ()
        if self.stepper is not None:
            self.stepper.close()
            self.stepper = None

    def close(self) -> None:
        """Take the widget from the page, with the opened run; what they are at is stopped."""
        if self.stepper is not None:
            self.close_run()
        super().close()

    async def _check(self) -> None:
        def say(run: int, runs: int) -> None:
            self.say(f"The tape is whole. Replaying run {run}; there are {runs}.")

        self.checked = None
        self.say("Reading the tape.")
        checked = self.checked = await check_tape(self.tape.path, on_run=say)
        if checked.findings:
            shown = [str(finding) for finding in checked.findings[:_MOST_FINDINGS]]
            left = len(checked.findings) - len(shown)
            raise TapeError("; ".join(shown) + (f"; and {left} more" if left else ""))
        runs = "1 run" if checked.same == 1 else f"{checked.same} runs"
        self.say(f"The tape is sound; {runs} replayed to the same turns.")

    # --- where no widget lives ----------------------------------------------------------------

    def face_text(self) -> str:
        """Return the tree and the selected run as plain text, the same for the same tape."""
        lines = [f"RunTree of {self.tape.path.name}", *self.tape.tree().lines[1:]]
        lines += [f"  {name}: {clip(printable(value), 120)}" for name, value in self._facts()]
        if self.comparison is not None:
            apart = differences(self.comparison)
            where = "nowhere" if apart.empty else f"at turn {number(apart.index[0])}"
            lines.append(f"Run {self.selected} and run {self.other_box.value} part {where}")
        return "\n".join(lines)

    def face_html(self) -> Markup:
        """Return the same as simple HTML."""
        parts = [
            pre("\n".join(self.tape.tree().lines[1:])),
            pairs(self._facts(), caption=f"Run {self.selected}"),
        ]
        return join([*parts, safe(Markup(self.differences.value))])

    def _facts(self) -> list[tuple[str, str]]:
        return facts(self.tape.run(self.selected))
