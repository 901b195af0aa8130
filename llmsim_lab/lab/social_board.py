"""What the users of a social network are doing, round by round, as the run goes on."""

from __future__ import annotations

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.inputs import number_box, row
from llmsim_lab.lab.social_figures import draw_states, figure_html
from llmsim_lab.lab.social_widget import SocialWidget, chart_html, counts_of, wide_chart_html
from llmsim_lab.lab.source import Source
from llmsim_lab.lab.widget import button
from llmsim_lab.markup import join, table, visible
from llmsim_lab.statechart import AgentState, SocialSimulation
from llmsim_lab.statechart._state import SocialTurn
from llmsim_lab.text import clip

__all__ = ["SocialBoard"]

_MOST_ROUNDS = 200
"""Rounds drawn, the latest ones: so drawing costs the same however long a run is."""


class SocialBoard(SocialWidget):
    """Shows how many users are in each state: over the rounds, and on the chart for one round.

    It follows the run, whoever plays it: a cell, a TurnStepper, another widget.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Attributes:
        simulation: the run.
        previous_button, round_box, next_button, latest_button: choose the round.
        heading, picture, chart: what is shown.

    Example:
        >>> board = SocialBoard("data/tapes/social.tape")  # doctest: +SKIP
    """

    def __init__(self, source: Source | SocialSimulation, *, run: int | None = None) -> None:
        super().__init__(source, run=run)
        self._counts: dict[int, dict[AgentState, int]] = {}
        self._drawn: tuple[int, int] | None = None
        self.previous_button = button("Previous", tooltip="Show the round before")
        self.round_box = number_box("Round shown", value=0, least=0, most=0)
        self.next_button = button("Next", tooltip="Show the round after")
        self.latest_button = button("Latest", tooltip="Show the latest round")
        self.heading, self.picture, self.chart = w.HTML(), w.HTML(), w.HTML()
        self.children = (
            self.heading,
            row(self.previous_button, self.round_box, self.next_button, self.latest_button),
            self.status,
            self.error,
            self.picture,
            self.chart,
        )
        box, clicked = self.round_box, self._choices.on_click
        clicked(self.previous_button, lambda: self._go(max(box.min, box.value - 1)))
        clicked(self.next_button, lambda: self._go(min(box.max, box.value + 1)))
        clicked(self.latest_button, lambda: self._go(box.max))
        self._choices.on_choice(box, lambda: self._go(box.value))
        self.show(self.simulation.turn_number)

    def show(self, turn: int) -> None:
        """Show a round.

        Raises:
            ConfigError: the run has no such round.
        """
        first, last = self.simulation.turns[0].number, self.simulation.turn_number
        if not first <= turn <= last:
            raise ConfigError(f"round {turn} is not there to show; the run has {first} to {last}")
        with self._view:
            self._go(turn)

    def refresh(self) -> None:
        """Show the run as it is now; who looked at the latest round sees the new one."""
        with self._view:
            latest = self.round_box.value >= self.round_box.max
            self._go(self.simulation.turn_number if latest else self.round_box.value)

    def _go(self, number: int) -> None:
        turns = self.simulation.turns
        self._choices.number(self.round_box, number, least=turns[0].number, most=turns[-1].number)
        shown = turns[number - turns[0].number]
        self.heading.value = str(Markup("<strong>{}</strong>").format(self._title(shown)))
        self.chart.value = str(wide_chart_html(self.simulation, counts=self._count(shown)))
        span = (turns[max(0, len(turns) - _MOST_ROUNDS)].number, turns[-1].number)
        if span != self._drawn:
            self._drawn = span
            self.picture.value = str(self._draw(turns[-_MOST_ROUNDS:]))

    def _title(self, turn: SocialTurn) -> str:
        name = clip(visible(self.simulation.config.name), 80)
        users = len(turn.state.people)
        return f"{name}, round {turn.number}: {users:,} users; choices left open: {turn.asked:,}"

    def _count(self, turn: SocialTurn) -> dict[AgentState, int]:
        if turn.number not in self._counts:
            self._counts[turn.number] = counts_of(turn)
        return self._counts[turn.number]

    def _draw(self, turns: list[SocialTurn]) -> Markup:
        import pandas as pd

        frame = pd.DataFrame(
            [{state.value: n for state, n in self._count(turn).items()} for turn in turns],
            index=pd.Index([turn.number for turn in turns], name="turn"),
        )
        return figure_html(draw_states(frame, title="What users are doing"))

    # --- the static face ---------------------------------------------------------------------

    def _rows(self) -> list[tuple[str, int, int]]:
        turns = self.simulation.turns
        place = self.round_box.value - turns[0].number
        now, before = (self._count(turns[at]) for at in (place, max(0, place - 1)))
        return [(state.value, now[state], now[state] - before[state]) for state in AgentState]

    def face_text(self) -> str:
        """Return the shown round's counts, and the change since the round before."""
        with self._view:
            shown = self.simulation.turns[self.round_box.value - self.simulation.turns[0].number]
            lines = [f"SocialBoard of {self._title(shown)}"]
            lines += [f"  {name}: {count} ({change:+})" for name, count, change in self._rows()]
            return "\n".join(lines)

    def face_html(self) -> Markup:
        """Return the same as a table, with the chart."""
        with self._view:
            shown = self.simulation.turns[self.round_box.value - self.simulation.turns[0].number]
            title = Markup("<p><strong>{}</strong></p>").format(self._title(shown))
            rows = [(name, count, f"{change:+}") for name, count, change in self._rows()]
            counts = table(("state", "users", "change"), rows, caption="Users by state")
            return join([title, counts, chart_html(self.simulation, counts=self._count(shown))])
