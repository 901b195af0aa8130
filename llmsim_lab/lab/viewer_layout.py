"""The prompt viewer's inputs and panes, and where they stand."""

from __future__ import annotations

import ipywidgets as w

from llmsim_lab.lab.attempts import FAILED_ATTEMPTS
from llmsim_lab.lab.choices import checkbox, status_choices
from llmsim_lab.lab.inputs import dropdown, number_box, row
from llmsim_lab.lab.texts import CopyBoxes
from llmsim_lab.lab.widget import LabWidget, button

__all__ = ["ViewerLayout"]


class ViewerLayout(LabWidget):
    """The viewer without what its parts do.

    Attributes:
        previous_button, turn_box, next_button, latest_button: choose the turn.
        status_box: show only requests of that status; back and forth then skip other turns.
        component_box, agent_box, attempt_box: choose the request.
        compare_box, copy_button: what changed since the turn before; the texts to copy.
        heading, prompt, legend, reply, facts, changes, copies: what is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.previous_button = button("Previous", tooltip="Show the turn before")
        self.turn_box = number_box("Turn shown", value=0, least=0, most=0)
        self.next_button = button("Next", tooltip="Show the turn after")
        self.latest_button = button("Latest", tooltip="Show the latest turn")
        self.status_box = dropdown("Status", width="14em")
        self.status_box.options = status_choices(FAILED_ATTEMPTS)
        self.component_box = dropdown("Component", width="16em")
        self.agent_box = dropdown("Agent", width="18em")
        self.attempt_box = dropdown("Attempt", width="24em")
        self.compare_box = checkbox("Compare with the turn before")
        self.copy_button = button("Copy", tooltip="Show prompt and reply as texts to copy")
        self.heading, self.facts, self.changes = (w.HTML() for _ in range(3))
        self.copies = CopyBoxes("Prompt", "Reply")
        self.legend, self.reply = w.HTML(), w.HTML()
        self.prompt = w.HTML(layout=w.Layout(flex="3 1 24em", min_width="0", max_width="100%"))
        beside = w.Layout(flex="2 1 18em", min_width="0", max_width="100%")
        self._beside = w.VBox((self.reply, self.facts), layout=beside)

    def lay_out(self, search: w.Widget) -> None:
        """Put the parts where they belong, with the search bar among them."""
        self.children = (
            self.heading,
            row(self.previous_button, self.turn_box, self.next_button, self.latest_button),
            row(self.status_box, self.component_box, self.agent_box, self.attempt_box),
            search,
            self.status,
            self.error,
            row(self.prompt, self._beside, gap="12px"),
            self.legend,
            row(self.compare_box, self.copy_button),
            self.changes,
            self.copies,
        )
