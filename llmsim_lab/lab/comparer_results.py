"""What a prompt comparer shows of what was played: numbers, charts, answers, the static face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments import PromptExperiment
from llmsim_lab.experiments._bench import Bench, source_of
from llmsim_lab.lab.comparer_layout import ComparerLayout
from llmsim_lab.lab.comparison_html import answers_html, charts_html, results_html, results_text
from llmsim_lab.lab.variant_editor import VariantEditor, VariantList
from llmsim_lab.lab.variant_preview import show
from llmsim_lab.markup import join, pre, safe, visible

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ComparerResults"]


class ComparerResults(ComparerLayout):
    """A prompt comparer without what it does.

    Args:
        bench: the component whose prompts are compared.
        turns: the turns, as text.
        samples: of each variant at each turn.

    Attributes:
        experiment: the one that was run last or loaded, if any.
        experiments: all of them, in order.
    """

    variants: VariantList

    def __init__(self, bench: Bench, *, turns: str, samples: int) -> None:
        super().__init__(bench, turns=turns, samples=samples)
        self.bench = bench
        self.experiment: PromptExperiment | None = None
        self.experiments: list[PromptExperiment] = []

    @property
    def editors(self) -> list[VariantEditor]:
        """One for each variant; the first is what the others are held against."""
        return self.variants.editors

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

    @property
    def _heading(self) -> str:
        source = source_of(self.bench.simulation)
        return f"Prompts of {self.bench.component} compared, on {source}"

    def face_text(self) -> str:
        """Return variants, set-up and results as plain text."""
        lines = [visible(self._heading)]
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
        heading = Markup("<p>{}</p>").format(safe(self._heading))
        return join([heading, results_html(self.experiment), answers_html(self.experiment)])
