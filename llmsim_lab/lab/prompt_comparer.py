"""The prompt comparer: variants of a prompt edited, run on the same states, and held together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments import PromptExperiment
from llmsim_lab.experiments._bench import (
    Bench,
    Variant,
    check_variants,
    config_of,
    run_on,
    seed_of,
    turn_numbers,
)
from llmsim_lab.experiments._experiment import Progress, duration, plan_of
from llmsim_lab.experiments._keeping import has_no_model
from llmsim_lab.lab.comparer_form import (
    done_text,
    draft_schedule,
    read_turns,
    spread,
    turns_text,
)
from llmsim_lab.lab.comparer_layout import MOST_SAMPLES
from llmsim_lab.lab.comparer_results import ComparerResults
from llmsim_lab.lab.source import Source, simulation_of
from llmsim_lab.lab.variant_editor import VariantEditor, VariantList
from llmsim_lab.lab.variant_preview import show
from llmsim_lab.lab.widget import settled
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.markup import safe
from llmsim_lab.simulation import Simulation

__all__ = ["PromptComparer"]

_TICK_S = 1.0
_MOST_TURNS_AT_FIRST = 4


class PromptComparer(ComparerResults):
    """Edit two or more variants of a prompt, run them on the same recorded states, and compare.

    Slots are checked as you type; what the comparison will cost stands beside the button before it
    runs. The results are in ``frame`` and ``summary``, and on the run's own tape, if it has one
    that can be written to.

    Args:
        source: a simulation, a tape, or a tape's file, which is opened for reading only.
        component: ``agent``, ``agent:NAME``, ``validator`` or ``engine``.
        run: for a tape, the run's number; needed where the tape holds several.
        variants: prompts by name, to begin with: a ``Prompt``, a text, or None for the prompt as
            the run used it; that one and a copy of it if not given.
        turns: the turns to play again; at most four, spread over the run, if not given.
        samples: of each variant at each turn.
        llm_client: the model; the simulation's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0.
        temperature: of the model; as recorded if not given.

    Raises:
        ConfigError: an argument is none of these, the run has no such component, or the tape holds
            several runs and none is named; the message lists them.

    Attributes:
        experiment: the one that was run last or loaded, if any.
        experiments: all of them, in order.
        run_button, again_button, stop_button, add_button: what they say.

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
        if isinstance(source, str | Path):
            source = Tape(source, read_only=True)
        if isinstance(source, Tape):
            run = run_on(source, run)
        simulation = simulation_of(source, run=run)
        if not isinstance(simulation, Simulation):
            raise ConfigError(
                f"{type(simulation).__name__} is no economic simulation; PromptComparer compares "
                "prompts of those only, PromptViewer shows the prompts of any"
            )
        bench = Bench(simulation, component)
        there = bench.turns
        first = spread(there, _MOST_TURNS_AT_FIRST) if turns is None else turn_numbers(turns)
        samples = whole_number("samples", samples, least=1, most=MOST_SAMPLES)
        config = config_of(simulation, llm_client or simulation.llm_client, temperature)
        seed = seed if seed is None else seed_of(seed, config)
        if variants is None:
            variants = {"as it was": None, "variant 2": None}
        check_variants(variants)
        super().__init__(bench, turns=turns_text(first), samples=samples)
        self.simulation = simulation
        self.llm_client = llm_client
        self._seed, self._temperature = seed, temperature
        self._set_up_as: tuple[object, ...] | None = None
        self.variants = VariantList(bench, variants, on_change=self.refresh)
        self.editor_box.children = [self.variants]
        self.add_button.on_click(self._on_add)
        self.run_button.on_click(lambda _: self.start(self._run))
        self.again_button.on_click(lambda _: self.start(self._run_again))
        self.difference_box.observe(self._on_differences, names="value")
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
            llm_client=llm_client,
            seed=experiment.seed,
            temperature=experiment.config.temperature,
        )
        widget.samples_box.max = max(MOST_SAMPLES, experiment.samples)
        widget.samples_box.value = experiment.samples
        widget.only_box.value = experiment.only_component
        widget._take(experiment)
        widget.refresh()
        widget._show_results()
        return widget

    def _on_add(self, _: object) -> None:
        if not self.worker.busy:
            self.add_variant()

    def _on_differences(self, _: object) -> None:
        self.variants.show_differences(bool(self.difference_box.value))

    def add_variant(self, name: str = "", prompt: Variant = None) -> VariantEditor:
        """Add a variant; see ``VariantList.add``, which refuses while a comparison runs."""
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
            self.again_button.disabled = not self._all_played or self._has_no_model

    @property
    def fault(self) -> str:
        """Why there can be no run now; empty if there can."""
        try:
            if fault := self.variants.fault:
                return fault
            read_turns(self.turns_box.value, self.bench.turns)
        except ConfigError as error:
            return str(error)
        if self._has_no_model:
            return (
                "there is no model, for a recorded run has none; everything else works. To run: "
                "PromptComparer(..., llm_client=connect('auto'))"
            )
        if self._all_played and self.experiment is not None:
            return done_text(self.experiment)
        return ""

    @property
    def _has_no_model(self) -> bool:
        return has_no_model(self.llm_client or self.simulation.llm_client)

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

    @property
    def _all_played(self) -> bool:
        experiment = self.experiment
        whole = experiment is not None and len(experiment.played) == len(experiment.schedule)
        return whole and self._unchanged()

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
        self.experiments.append(experiment)
        self._set_up_as = self._settings()

    async def _run(self) -> None:
        await self._settle()
        if fault := self.fault:
            raise ConfigError(fault)
        experiment = self.experiment
        if experiment is None or not self._unchanged():
            experiment = self._set_up(self._seed)
        await self._play(experiment)

    async def _run_again(self) -> None:
        """Play all again with the seeds that follow; the earlier results are in `experiments`."""
        await self._settle()
        experiment = self.experiment
        if experiment is None or not self._unchanged():
            raise ConfigError("the set-up was changed since it was played; click Run")
        if self._all_played:
            experiment = self._set_up(max(sample.seed for sample in experiment.schedule))
        await self._play(experiment)

    async def _settle(self) -> None:
        texts = [box for each in self.editors for box in (each.name_box, each.text_box)]
        await settled(self.turns_box, self.samples_box, self.only_box, *texts)
        self.refresh()

    def _set_up(self, seed: int | None) -> PromptExperiment:
        experiment = PromptExperiment(
            self.simulation,
            variants=self.variants.prompts,
            component=self.bench.component,
            turns=read_turns(self.turns_box.value, self.bench.turns),
            samples=self.samples_box.value,
            llm_client=self.llm_client,
            seed=seed,
            temperature=self._temperature,
            only_component=bool(self.only_box.value),
        )
        self._take(experiment)
        return experiment

    async def _play(self, experiment: PromptExperiment) -> None:
        clock = asyncio.ensure_future(self._tick(experiment))
        try:
            await experiment.arun(on_progress=self._on_progress)
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
