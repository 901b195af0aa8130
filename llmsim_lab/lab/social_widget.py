"""What the widgets for the social simulation share: a run that is followed, and its counts."""

from __future__ import annotations

import threading
from typing import Any, cast

from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.charts.pace import Pace
from llmsim_lab.lab.choices import Choices
from llmsim_lab.lab.source import Source, simulation_of
from llmsim_lab.lab.texts import sideways
from llmsim_lab.lab.widget import LabWidget
from llmsim_lab.statechart import AgentState, SocialSimulation
from llmsim_lab.statechart._state import SocialTurn

__all__ = ["SocialWidget", "chart_html", "counts_of", "wide_chart_html"]


def counts_of(turn: SocialTurn) -> dict[AgentState, int]:
    """Return how many users are in each state after a round."""
    counts = dict.fromkeys(AgentState, 0)
    for person in turn.state.people:
        counts[person.state] += 1
    return counts


def chart_html(simulation: SocialSimulation, **shown: Any) -> Markup:
    """Return the chart's picture; ``current`` and ``counts`` as in ``Statechart.to_svg``."""
    return Markup(simulation.chart.to_svg(**shown))


def wide_chart_html(simulation: SocialSimulation, **shown: Any) -> Markup:
    """Return the same as wide as its words need, with a bar of its own on a narrow page."""
    return sideways(chart_html(simulation, **shown), name="Chart of states", least="640px")


class SocialWidget(LabWidget):
    """Base of the widgets that show a social simulation and follow it as it is played.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Raises:
        ConfigError: it is no social simulation.
    """

    def __init__(self, source: Source | SocialSimulation, *, run: int | None = None) -> None:
        super().__init__()
        simulation: Any = simulation_of(cast("Source", source), run=run)
        if not isinstance(simulation, SocialSimulation):
            raise ConfigError(
                f"{type(self).__name__} shows social simulations; this one is of the kind "
                f"{getattr(simulation, 'kind', type(simulation).__name__)!r}"
            )
        self.simulation = simulation
        self._view = threading.RLock()
        self._choices = Choices(self._view, show_error=self.show_error)
        self._pace = Pace(self._redraw, self.worker.call)
        self.follow(simulation, self._pace.ask)

    def refresh(self) -> None:
        """Show the run as it is now."""
        raise NotImplementedError

    def _redraw(self) -> None:
        with self._view:
            self.refresh()
