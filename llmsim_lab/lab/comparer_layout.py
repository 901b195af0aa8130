"""The parts of a prompt comparer and where they stand."""

from __future__ import annotations

import ipywidgets as w

from llmsim_lab.experiments._bench import Bench, source_of
from llmsim_lab.lab.choices import checkbox
from llmsim_lab.lab.inputs import number_box, row
from llmsim_lab.lab.variant_preview import VariantPreview
from llmsim_lab.lab.widget import LabWidget, button
from llmsim_lab.markup import safe

__all__ = ["MOST_SAMPLES", "ComparerLayout"]

MOST_SAMPLES = 1_000
"""More is taken for a slip; a recorded experiment may have them all the same."""


class ComparerLayout(LabWidget):
    """What a prompt comparer consists of; what it does is ``PromptComparer``'s.

    Args:
        bench: the component whose prompts are compared.
        turns: the turns, as text.
        samples: of each variant at each turn.

    Attributes:
        editor_box: the variants' editors.
        add_button: adds a variant.
        difference_box: whether to show what differs from the first variant.
        preview: a variant as the model would get it.
        turns_box, samples_box, only_box: what is played.
        plan_line: what it costs, or why it cannot be done.
        run_button, again_button, stop_button: what they say.
        results, chart, answers: what came of it.
    """

    def __init__(self, bench: Bench, *, turns: str, samples: int) -> None:
        super().__init__()
        source = safe(source_of(bench.simulation))
        heading = w.HTML(f"<h3>Compare prompts of: {safe(bench.component)}</h3><p>On {source}</p>")
        self.editor_box = w.VBox()
        self.add_button = button("Add variant", tooltip="Add a copy of the last variant")
        self.difference_box = checkbox("Show what differs, word by word")
        self.preview = VariantPreview(bench)
        self.turns_box = w.Text(
            value=turns,
            description="Turns",
            layout=w.Layout(width="16em"),
            style={"description_width": "initial"},
        )
        self.samples_box = number_box("Samples", value=samples, least=1, most=MOST_SAMPLES)
        self.only_box = w.Checkbox(
            value=False,
            description=f"Ask the {bench.stage} alone (cheaper, no resulting rate)",
            indent=False,
            layout=w.Layout(width="auto"),
        )
        self.plan_line = w.HTML()
        self.run_button = button(
            "Run", tooltip="Play all samples of all variants", button_style="primary"
        )
        self.again_button = button(
            "Play anew", tooltip="Play the whole comparison again with other seeds", disabled=True
        )
        self.stop_button = button("Stop", tooltip="Stop; what was played is kept", disabled=True)
        self.results, self.chart, self.answers = w.HTML(), w.HTML(), w.HTML()
        self.stoppers = [self.stop_button]
        self.controls = [
            self.add_button,
            self.turns_box,
            self.samples_box,
            self.only_box,
            self.run_button,
            self.again_button,
        ]
        self.children = [
            heading,
            self.editor_box,
            row(self.add_button, self.difference_box),
            self.preview,
            row(self.turns_box, self.samples_box, self.only_box),
            self.plan_line,
            row(self.run_button, self.again_button, self.stop_button, self.retry),
            self.status,
            self.error,
            self.results,
            self.chart,
            self.answers,
        ]
