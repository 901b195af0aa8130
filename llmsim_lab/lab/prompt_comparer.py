"""The prompt comparer: variants of a prompt edited, run on the same states, and held together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments import Progress, PromptExperiment, Variant
from llmsim_lab.experiments.bench import Bench
from llmsim_lab.experiments.keeping import asks_nobody
from llmsim_lab.experiments.plan import duration, plan_of
from llmsim_lab.lab.comparer_form import draft_schedule, read_turns, spread, turns_text
from llmsim_lab.lab.comparer_layout import ComparerLayout
from llmsim_lab.lab.comparison_html import answers_html, charts_html, results_html, results_text
from llmsim_lab.lab.source import Source, simulation_of
from llmsim_lab.lab.variant_editor import VariantEditor, VariantList
from llmsim_lab.lab.variant_preview import show
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.markup import join, pre, safe, visible

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PromptComparer"]

_TICK_S = 1.0
_MOST_TURNS_AT_FIRST = 4


class PromptComparer(ComparerLayout):
    """Edit two or more variants of a prompt, run them on the same recorded states, and compare.

    Slots are checked as you type; what the comparison will cost stands beside the button before it
    runs. The results are in ``frame`` and ``summary``, and on the run's own tape, if it has one
    that can be written to.

    Args:
        source: a simulation, a tape, or a tape's file, which is opened for reading only.
        component: ``agent``, ``agent:NAME``, ``validator`` or ``engine``.
        run: for a tape, the run's number; the latest if not given.
        variants: prompts by name, to begin with: a ``Prompt``, a text, or None for the prompt as
            the run used it; that one and a copy of it if not given.
        turns: the turns to play again; at most four, spread over the run, if not given.
        samples: of each variant at each turn.
        llm_client: the model; the simulation's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0.
        temperature: of the model; as recorded if not given.

    Attributes:
        experiment: the one that was run last or loaded, if any.
        run_button, stop_button, add_button: what they say.

    Example:
        ``PromptComparer(simulation, component="agent")`` at the end of a cell shows it.
    """

    def __init__(
        self,
        source: Source,
        component: str = "agent",
        *,
        run: int | None = None,
        variants: Mapping[str, Variant] | None = None,
        turns: Sequence[int] | None = None,
        samples: int = 5,
        llm_client: LLMClient | None = None,
        seed: int | None = None,
        temperature: float | None = None,
    ) -> None:
        simulation = simulation_of(source, run=run)
        bench = Bench(simulation, component)
        there = bench.turns
        first = spread(there, _MOST_TURNS_AT_FIRST) if turns is None else list(turns)
        super().__init__(bench, turns=turns_text(first), samples=samples)
        self.simulation, self.bench = simulation, bench
        self.llm_client = llm_client
        self.experiment: PromptExperiment | None = None
        self._seed, self._temperature = seed, temperature
        self._set_up_as: tuple[object, ...] | None = None
        self.variants = VariantList(
            bench, variants or {"as it was": None, "variant 2": None}, on_change=self.refresh
        )
        self.editor_box.children = [self.variants]
        self.add_button.on_click(self._on_add)
        self.run_button.on_click(lambda _: self.start(self._run))
        self.stop_button.on_click(lambda _: self.worker.stop())
        for box in (self.turns_box, self.samples_box, self.only_box):
            box.observe(lambda _: self.refresh(), names="value")
        self.refresh()

    @classmethod
    def from_results(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
    ) -> Self:
        """Show a recorded experiment with its results; no model is needed for that.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the experiment's number; the latest if not given.
            llm_client: a model, to go on with an experiment that was stopped, or to vary it.

        Raises:
            TapeError: there is no such experiment.
        """
        experiment = PromptExperiment.load(tape, run, llm_client=llm_client)
        widget = cls(
            experiment.simulation,
            experiment.component,
            variants=experiment.variants,
            turns=experiment.turns,
            samples=experiment.samples,
            llm_client=llm_client,
            seed=experiment.seed,
            temperature=experiment.config.temperature,
        )
        widget.only_box.value = experiment.only_component
        widget._take(experiment)
        widget.refresh()
        widget._show_results()
        return widget

    @property
    def editors(self) -> list[VariantEditor]:
        """One for each variant; the first is what the others are held against."""
        return self.variants.editors

    def _on_add(self, _: object) -> None:
        if not self.worker.busy:
            self.add_variant()

    def add_variant(self, name: str = "", prompt: Variant = None) -> VariantEditor:
        """Add a variant; see ``VariantList.add``."""
        return self.variants.add(name, prompt)

    # --- what is shown before a run -----------------------------------------------------------

    def refresh(self) -> None:
        """Check and show everything anew; also after the simulation was stepped from a cell."""
        self.variants.check()
        self.bench = Bench(
            self.simulation, self.bench.component, only_component=bool(self.only_box.value)
        )
        self.preview.offer(self.bench, self.variants.prompts)
        fault = self.fault
        plan = self.plan
        said = plan if not fault else f"Cannot run: {fault}"
        if fault and fault != plan:
            said = f"{plan} {said}"
        show(
            self.plan_line,
            f'<div role="status" aria-live="polite">{safe(said, limit=2_000)}</div>',
        )
        if not self.worker.busy:
            self.run_button.disabled = bool(fault)

    @property
    def fault(self) -> str:
        """Why there can be no run now; empty if there can."""
        try:
            if fault := self.variants.fault:
                return fault
            read_turns(self.turns_box.value, self.bench.turns)
        except ConfigError as error:
            return str(error)
        if asks_nobody(self.llm_client or self.simulation.llm_client):
            return (
                "there is no model, for a recorded run has none; everything else works. To run: "
                "PromptComparer(..., llm_client=connect('auto'))"
            )
        if self._unchanged() and not self._left():
            return "all samples are played; change a variant, the turns or the samples for more"
        return ""

    @property
    def plan(self) -> str:
        """What a run would cost, or what is wrong with its turns."""
        try:
            turns = read_turns(self.turns_box.value, self.bench.turns)
        except ConfigError as error:
            return str(error)
        if self.experiment is not None and self._unchanged():
            return str(self.experiment.plan())
        samples = draft_schedule(
            variants=len(self.editors), turns=turns, samples=self.samples_box.value
        )
        planned = str(plan_of(self.bench, samples, done=0))
        times = (
            f"{len(self.editors)} variants, {len(turns)} turns, {self.samples_box.value} samples"
        )
        return f"{times}: {planned}"

    def _left(self) -> int:
        experiment = self.experiment
        return 0 if experiment is None else len(experiment.schedule) - len(experiment.played)

    # --- running ------------------------------------------------------------------------------

    def _settings(self) -> tuple[object, ...]:
        prompts = tuple(
            (editor.name, editor.prompt.digest if editor.prompt else "") for editor in self.editors
        )
        return (
            prompts,
            tuple(read_turns(self.turns_box.value, self.bench.turns)),
            self.samples_box.value,
            self.only_box.value,
        )

    def _unchanged(self) -> bool:
        try:
            return self._set_up_as is not None and self._set_up_as == self._settings()
        except ConfigError:
            return False

    def _take(self, experiment: PromptExperiment) -> None:
        self.experiment = experiment
        self._set_up_as = self._settings()

    async def _run(self) -> None:
        if self.experiment is None or not self._unchanged():
            experiment = PromptExperiment(
                self.simulation,
                variants=self.variants.prompts,
                component=self.bench.component,
                turns=read_turns(self.turns_box.value, self.bench.turns),
                samples=self.samples_box.value,
                llm_client=self.llm_client,
                seed=self._seed,
                temperature=self._temperature,
                only_component=bool(self.only_box.value),
            )
            self._take(experiment)
        assert self.experiment is not None
        clock = asyncio.ensure_future(self._tick(self.experiment))
        try:
            await self.experiment.run(self._on_progress)
        finally:
            clock.cancel()

    async def _tick(self, experiment: PromptExperiment) -> None:
        began = time.monotonic()
        while True:
            done, total = len(experiment.played), len(experiment.schedule)
            if done < total:
                now = experiment.schedule[done]
                self.say(
                    f"{done} of {total} samples played, {duration(time.monotonic() - began)}; "
                    f"playing {now.variant!r} at turn {now.turn}, sample {now.sample}"
                )
            await asyncio.sleep(_TICK_S)

    def _on_progress(self, progress: Progress) -> None:
        failed = f", {progress.failed} failed" if progress.failed else ""
        self.say(f"{progress.done} of {progress.total} samples played{failed}")

    def _set_busy(self, busy: bool) -> None:
        super()._set_busy(busy)
        self.variants.lock(busy)

    def stopped(self) -> None:
        """Say how far it got."""
        experiment = self.experiment
        if experiment is not None:
            done, total = len(experiment.played), len(experiment.schedule)
            self.say(f"Stopped after {done} of {total} samples; Run goes on with the next.")

    def ended(self) -> None:
        """Show what there is."""
        self.refresh()
        self._show_results()

    def _show_results(self) -> None:
        experiment = self.experiment
        if experiment is None or not experiment.played:
            return
        show(self.results, str(results_html(experiment)))
        show(self.chart, str(charts_html(experiment)))
        show(self.answers, str(answers_html(experiment)))

    # --- what others see ----------------------------------------------------------------------

    @property
    def frame(self) -> pd.DataFrame:
        """All results so far, one row a decision.

        Raises:
            ConfigError: nothing was played.
        """
        return self._results.frame

    @property
    def summary(self) -> pd.DataFrame:
        """The differences with their intervals and noise floors.

        Raises:
            ConfigError: nothing was played.
        """
        return self._results.summary

    @property
    def _results(self) -> PromptExperiment:
        if self.experiment is None or not self.experiment.played:
            raise ConfigError("nothing was played yet; click Run, or load a recorded experiment")
        return self.experiment

    def face_text(self) -> str:
        """Return variants, set-up and results as plain text."""
        lines = [f"Prompts of {self.bench.component} compared"]
        for editor in self.editors:
            base = "the reference" if editor is self.editors[0] else "a variant"
            fault = f"; wrong: {editor.fault}" if editor.fault else ""
            lines.append(f"  {visible(editor.name)}: {base}{visible(fault)}")
        lines.append(f"  turns {self.turns_box.value}; samples {self.samples_box.value}")
        if self.experiment is None or not self.experiment.played:
            return "\n".join([*lines, "  nothing played yet"])
        done, total = len(self.experiment.played), len(self.experiment.schedule)
        return "\n".join([*lines, f"  {done} of {total} samples", *results_text(self.experiment)])

    def face_html(self) -> Markup:
        """Return the same as simple HTML; with results, their tables."""
        if self.experiment is None or not self.experiment.played:
            return pre(self.face_text())
        heading = Markup("<p>{}</p>").format(f"Prompts of {self.bench.component} compared")
        return join([heading, results_html(self.experiment), answers_html(self.experiment)])
