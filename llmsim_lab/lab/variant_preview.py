"""A variant of a prompt as the model would get it, on a state to be chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w

from llmsim_lab.errors import LabError
from llmsim_lab.experiments._bench import Bench
from llmsim_lab.lab.choices import checkbox
from llmsim_lab.lab.inputs import row
from llmsim_lab.markup import join, pre, safe, visible
from llmsim_lab.prompts import Prompt

__all__ = ["VariantPreview", "show"]


class VariantPreview(w.VBox):
    """Shows one variant, rendered for one agent in one turn.

    Args:
        bench: what renders it.

    Attributes:
        open_box: whether it is shown at all.
        variant_choice, turn_choice, agent_choice: what is shown.
        view: the prompt, by role.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._prompts: Mapping[str, Prompt] = {}
        self._busy = False
        self.open_box = checkbox("Show a variant as the model would get it")
        self.variant_choice, self.turn_choice, self.agent_choice = (
            w.Dropdown(
                options=[],
                description=label,
                layout=w.Layout(width="16em"),
                style={"description_width": "initial"},
            )
            for label in ("Variant", "Turn", "Agent")
        )
        self.view = w.HTML()
        choices = (self.variant_choice, self.turn_choice, self.agent_choice)
        for choice in choices:
            choice.observe(self._on_choice, names="value")
        self._inside = w.VBox([row(*choices), self.view], layout=w.Layout(display="none"))
        self.open_box.observe(self._on_open, names="value")
        super().__init__([self.open_box, self._inside])

    def offer(self, bench: Bench, prompts: Mapping[str, Prompt]) -> None:
        """Offer variants, and the turns there are.

        Args:
            bench: what renders them.
            prompts: the variants without a fault, by name.
        """
        self._bench, self._prompts = bench, prompts
        self._busy = True
        try:
            _options(self.variant_choice, list(prompts))
            _options(self.turn_choice, list(bench.turns))
        finally:
            self._busy = False
        self._show()

    def _on_open(self, _: Any) -> None:
        self._inside.layout.display = "" if self.open_box.value else "none"

    def _on_choice(self, _: Any) -> None:
        if not self._busy:
            self._show()

    def _show(self) -> None:
        turn, name = self.turn_choice.value, self.variant_choice.value
        self._busy = True
        try:
            _options(self.agent_choice, [] if turn is None else self._bench.subjects(turn))
        finally:
            self._busy = False
        if turn is None or name not in self._prompts:
            show(self.view, "<em>Nothing to show: no turn, or no variant without a fault.</em>")
            return
        try:
            text = self._bench.render(self._prompts[name], turn, agent=self.agent_choice.value)
        except LabError as error:
            show(self.view, f'<div role="alert">⚠ {safe(error, limit=1_000)}</div>')
            return
        parts = pre(f"[system]\n{text.system}\n\n[user]\n{text.user}")
        show(self.view, str(join([safe(f"{name} at turn {turn}:"), parts])))


def show(part: w.HTML, value: str) -> None:
    """Show something, if it is not there already."""
    if part.value != value:
        part.value = value


def _options(choice: w.Dropdown, values: Sequence[str | int]) -> None:
    """Offer values under labels that hide nothing; what was chosen stays, if it is still there."""
    options = [(visible(str(value)), value) for value in values]
    if list(choice.options) != options:
        before = choice.value
        choice.options = options
        if before in values:
            choice.value = before
        elif values:
            choice.value = values[0]
