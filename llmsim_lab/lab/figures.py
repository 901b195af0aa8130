"""Charts of runs as matplotlib figures, made without pyplot so that nothing global changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["rate_figure"]

_PANELS = ("inflation", "output_gap", "unemployment")


def rate_figure(
    runs: Mapping[str, pd.DataFrame],
    *,
    history: pd.DataFrame | None = None,
    rule_of: str | None = None,
    title: str = "Policy rate",
) -> Figure:
    """Draw runs' interest rates, and inflation, output gap and unemployment below.

    Args:
        runs: frames of ``Simulation.to_frame``, by the name in the legend.
        history: what happened, as ``economy.history`` gives it, from the runs' first quarter on.
        rule_of: name of the run for whose data the Taylor rule's answer is drawn.
        title: above the chart.

    Returns:
        A figure of four panels, which a notebook shows when a cell ends in it;
        ``figure.savefig("rates.png")`` writes it.

    Raises:
        ConfigError: there is no run, a frame is none of a run's, or ``rule_of`` is none of them.
    """
    # Here, since whoever imports the package comes by, and few of them draw.
    from llmsim_lab.lab.charts.drawing import Drawing
    from llmsim_lab.lab.charts.faces import alt_text
    from llmsim_lab.lab.charts.scene import Choice, compose
    from llmsim_lab.lab.charts.tracks import read_runs
    from llmsim_lab.simulation._config import SERIES

    known = {series.column: series for series in SERIES}
    choice = Choice(
        title=title,
        main=known["interest_rate"],
        panels=tuple(known[name] for name in _PANELS),
        history=False if history is None else history,
        rule=False if rule_of is None else rule_of,
        share=False,
    )
    items = read_runs([dict(runs)])
    scene = compose(items, choice)
    figure = Drawing(replace(scene, marks=()), labelled=False).figure
    figure.alt = alt_text(items, scene)  # type: ignore[attr-defined]
    return figure
