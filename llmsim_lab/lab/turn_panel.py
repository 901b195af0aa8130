"""A part of a widget that shows one turn of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.lab.inputs import dropdown, row
from llmsim_lab.lab.turn_view import (
    AGENTS_A_PAGE,
    cost_text,
    decisions_html,
    interventions_html,
    pages_of,
    state_html,
    turn_name,
)
from llmsim_lab.markup import safe

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = ["TurnPanel", "turn_and_before"]


def turn_and_before(simulation: Run, number: int) -> tuple[RunTurn, RunTurn | None]:
    """Return a turn by its number, and the one before it, if there is one."""
    turns = simulation.turns
    place = number - turns[0].number
    return turns[place], turns[place - 1] if place else None


class TurnPanel:
    """Heading, state, decisions and interventions of a turn; ten agents at a time.

    Attributes:
        heading: which turn of which run, and what it cost.
        interventions: what was done from outside.
        state: the values and how they changed.
        decisions: who decided what and why.
        agents_box: which agents' decisions; there from eleven agents on.
        body: all of it but the heading.
    """

    def __init__(self) -> None:
        self.heading = w.HTML()
        self.interventions = w.HTML()
        self.state = w.HTML()
        self.decisions = w.HTML()
        self.agents_box = dropdown("Agents shown", width="16em")
        self.agents_box.observe(lambda _: self._show_decisions(), names="value")
        # Beside the state where there is room, below it where the page is narrow.
        side = w.VBox([self.agents_box, self.decisions], layout=w.Layout(flex="1 1 28em"))
        both = row(self.state, side, gap="24px")
        self.body = w.VBox([self.interventions, both])
        self._turn: RunTurn | None = None

    def show(self, simulation: Run, number: int, *, name: str) -> None:
        """Show a turn.

        Args:
            simulation: the run.
            number: the turn's.
            name: the run's, for the heading.
        """
        turn, before = turn_and_before(simulation, number)
        self._turn = turn
        last = simulation.turn_number
        of = f" of {last}" if number else f", {last} turns played" if last else ""
        self.heading.value = str(
            Markup("<strong>{}</strong>{} · {} · {}{}").format(
                turn_name(turn),
                of,
                safe(name, limit=200),
                cost_text(turn),
                "" if simulation.tape is not None else " · not recorded",
            )
        )
        self.interventions.value = str(interventions_html(turn))
        self.state.value = str(state_html(simulation, turn, before))
        self._show_pages(pages_of(turn))
        self._show_decisions()

    def _show_pages(self, pages: int) -> None:
        if len(self.agents_box.options) != pages:
            size = AGENTS_A_PAGE
            self.agents_box.options = [
                (f"{page * size + 1} to {(page + 1) * size}", page) for page in range(pages)
            ]
        self.agents_box.layout.display = "" if pages > 1 else "none"

    def _show_decisions(self) -> None:
        if self._turn is not None:
            self.decisions.value = str(decisions_html(self._turn, page=self.agents_box.value or 0))
