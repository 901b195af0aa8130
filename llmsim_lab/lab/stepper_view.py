"""The stepper's looking side: which run and turn is shown, back and forth, for others to follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from markupsafe import Markup

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.stepper_layout import StepperLayout
from llmsim_lab.lab.stepper_runs import RunList
from llmsim_lab.lab.turn_panel import turn_and_before
from llmsim_lab.lab.turn_view import turn_html, turn_text

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run

__all__ = ["StepperView"]


class StepperView(StepperLayout):
    """A stepper that shows a run's turns and plays none.

    Args:
        simulation: the run.

    Attributes:
        shown: the number of the turn shown.
    """

    def __init__(self, simulation: Run) -> None:
        super().__init__()
        self._runs = RunList(simulation)
        self._change_hooks: list[Callable[[Any], object]] = []
        # Clicks come on threads of their own, whole turns on the loop.
        self._view = threading.RLock()
        self.shown = simulation.turn_number
        self._seen = self.shown
        self._relisting = False
        self._listen()
        self.first_button.on_click(lambda _: self.show(self.simulation.turns[0].number))
        self.previous_button.on_click(lambda _: self._move(-1))
        self.next_button.on_click(lambda _: self._move(+1))
        self.latest_button.on_click(lambda _: self.show(self.simulation.turn_number))
        self.turn_box.observe(lambda change: self._jump(change["new"]), names="value")
        self.run_box.observe(lambda change: self._choose(change["new"]), names="value")

    @property
    def simulation(self) -> Run:
        """The run shown."""
        return self._runs.shown

    @property
    def forks(self) -> list[Run]:
        """The forks made here, in order."""
        return self._runs.forks

    def show(self, turn: int) -> None:
        """Show a turn that has been played.

        Args:
            turn: its number.

        Raises:
            ConfigError: the run has no such turn.
        """
        turn = whole_number("turn", turn)
        first, last = self.simulation.turns[0].number, self.simulation.turn_number
        if not first <= turn <= last:
            raise ConfigError(f"turn {turn} is not there to show; the run has {first} to {last}")
        with self._view:
            self.shown = turn
            self.refresh()

    def _move(self, by: int) -> None:
        """Go back or forth; at the ends of the run there is nowhere to go."""
        to = self.shown + by
        if self.simulation.turns[0].number <= to <= self.simulation.turn_number:
            self.show(to)

    def _jump(self, turn: int) -> None:
        if turn != self.shown:
            self.show(turn)

    def refresh(self) -> None:
        """Look at the run again: it may have been stepped from a cell."""
        with self._view:
            simulation = self.simulation
            first, last = simulation.turns[0].number, simulation.turn_number
            self.shown = min(max(self.shown, first), last)
            self._seen = last
            with self.turn_box.hold_trait_notifications():
                self.turn_box.min, self.turn_box.max = first, last
                self.turn_box.value = self.shown
            self._show_runs()
            self.panel.show(simulation, self.shown, name=self._runs.name_of(simulation))
        self._tell(self._change_hooks, self)

    def _listen(self) -> None:
        """Hear of turns that the run shown plays, whoever plays them."""
        self.follow(self.simulation, lambda: self.worker.call(self._grew))

    def _grew(self) -> None:
        """Show what was played from elsewhere; one's own turns have been shown already."""
        with self._view:
            if self._seen == self.simulation.turn_number:
                return
            if self.shown == self._seen:
                self.shown = self.simulation.turn_number
            self.refresh()
            if not self.worker.busy:
                self.say(
                    f"The run is at turn {self.simulation.turn_number}; it was played elsewhere."
                )

    def _show_runs(self) -> None:
        options = self._runs.options()
        if self.run_box.options != options:
            # New options choose the first one by themselves, which is nobody's choice.
            self._relisting = True
            try:
                self.run_box.options = options
                self.run_box.value = self._runs.place
            finally:
                self._relisting = False

    def _choose(self, place: int | None) -> None:
        with self._view:
            if place is None or self._relisting or place == self._runs.place:
                return
            self._runs.place = place
            self._look_at(self.simulation.turn_number)

    def _look_at(self, turn: int) -> None:
        """Show a turn of the run that has just been chosen or made."""
        self._listen()
        self.shown = turn
        self.refresh()

    def on_change(self, callback: Callable[[Self], object]) -> None:
        """Have something called, with this stepper, whenever another turn or run is shown."""
        self._change_hooks.append(callback)

    def _tell(self, hooks: Sequence[Callable[[Any], object]], about: object) -> None:
        for hook in list(hooks):
            try:
                hook(about)
            except Exception as error:  # noqa: BLE001 - a stranger's code; shown, nothing hidden
                self.show_error(error)

    # --- where no widget lives ----------------------------------------------------------------

    def face_text(self) -> str:
        """Return the turn shown as plain text, the same for the same run."""
        turn, before = turn_and_before(self.simulation, self.shown)
        name, at = self._runs.name_of(self.simulation), self.simulation.turn_number
        of = f"TurnStepper of {name}, at turn {at}"
        return f"{of}\n{turn_text(self.simulation, turn, before)}"

    def face_html(self) -> Markup:
        """Return the turn shown as simple HTML, the same for the same run."""
        turn, before = turn_and_before(self.simulation, self.shown)
        return turn_html(self.simulation, turn, before)
