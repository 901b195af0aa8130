"""The stepper's buttons, boxes and panel, and where they stand."""

from __future__ import annotations

import ipywidgets as w

from llmsim_lab.lab.inputs import dropdown, number_box, row
from llmsim_lab.lab.turn_panel import TurnPanel
from llmsim_lab.lab.widget import LabWidget, button

__all__ = ["MOST_TURNS", "StepperLayout"]

MOST_TURNS = 100_000
"""As many as a configuration may ask for."""


class StepperLayout(LabWidget):
    """The stepper without what its parts do.

    Attributes:
        step_button, play_button, turns_box, pause_button, stop_button: play turns.
        first_button, previous_button, turn_box, next_button, latest_button: look back and forth.
        fork_button, run_box: make runs and choose among them.
        panel: the turn shown; its parts are attributes here too.
        progress: how far the turns under way are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step_button = button("Step", tooltip="Play one turn", button_style="primary")
        self.play_button = button("Play", tooltip="Play as many turns as the box says")
        self.pause_button = button("Pause", tooltip="Finish the turn under way, then stop")
        self.stop_button = button("Stop", tooltip="Break off the turn under way")
        self.turns_box = number_box("Turns to play", value=4, least=1, most=MOST_TURNS)
        self.first_button = button("First", tooltip="Show the initial state")
        self.previous_button = button("Previous", tooltip="Show the turn before")
        self.next_button = button("Next", tooltip="Show the turn after")
        self.latest_button = button("Latest", tooltip="Show the latest turn")
        self.turn_box = number_box("Turn shown", value=0, least=0, most=0)
        self.fork_button = button("Fork here", tooltip="Make a run that goes on from this turn")
        self.run_box = dropdown("Run shown", width="34em")
        self.panel = TurnPanel()
        self.heading, self.interventions = self.panel.heading, self.panel.interventions
        self.state, self.decisions = self.panel.state, self.panel.decisions
        self.agents_box = self.panel.agents_box
        self.progress = w.HTML()
        self.controls = (
            self.step_button,
            self.play_button,
            self.turns_box,
            self.fork_button,
            self.run_box,
        )
        self.stoppers = (self.pause_button, self.stop_button)
        self.children = self._rows()

    def _rows(self) -> tuple[w.Widget, ...]:
        return (
            self.panel.heading,
            row(
                self.step_button,
                self.play_button,
                self.turns_box,
                self.pause_button,
                self.stop_button,
            ),
            row(
                self.first_button,
                self.previous_button,
                self.turn_box,
                self.next_button,
                self.latest_button,
            ),
            row(self.fork_button, self.run_box),
            self.status,
            self.progress,
            self.error,
            self.retry,
            self.panel.body,
        )
