"""Figures of runs without a widget, for notebooks and papers.

Each is a matplotlib figure made without pyplot, so that nothing global changes. Its ``alt`` has the
content in words, for screen readers. A notebook shows the figure if a cell ends in it;
``figure.savefig("rates.svg")`` writes it. The colours are from a palette for colour-blind readers
(Okabe and Ito's), or shades of one colour; names, shapes and numbers say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmsim_lab._util.checks import instance_of, known_names
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._charted_runs import Points, lines_of
from llmsim_lab.lab._picture import Picture
from llmsim_lab.simulation.figures import demo_figure
from llmsim_lab.simulation.parameters import SERIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["demo_figure", "rate_figure"]

_PANELS = ("interest_rate", "inflation", "output_gap", "unemployment")


def rate_figure(
    runs: Mapping[str, pd.DataFrame],
    *,
    history: pd.DataFrame | None = None,
    rule_of: str | None = None,
    title: str = "Policy rate",
) -> Figure:
    """Draw runs' interest rates, and below them inflation, output gap and unemployment.

    Args:
        runs: frames of ``Simulation.to_frame``, by their names in the legend.
        history: rows of ``economy.load_us_macro``, from the runs' first quarter on.
        rule_of: the name of the run for whose data the Taylor rule's rate is drawn.
        title: the title above the chart.

    Returns:
        A figure of four panels, which a notebook shows if a cell ends in it;
        ``figure.savefig("rates.png")`` writes it.

    Raises:
        ConfigError: there is no run, a frame is not a run's, or ``rule_of`` does not name a run.
    """
    if history is not None and not hasattr(history, "columns"):
        raise ConfigError(
            f"history={brief(history, 80)} is not a frame; give one, such as "
            "load_us_macro().loc['1979Q3':]"
        )
    instance_of("runs", runs, Mapping, "a dict of runs' frames by name")
    lines = lines_of(dict(runs))
    for line in lines:
        if not any("interest_rate" in row for row in line.rows):
            raise ConfigError(
                f"the run {line.name!r} has no interest_rate; RateChart draws runs of any world"
            )
    beside: dict[str, dict[str, Points]] = {}
    if history is not None:
        first_turn = int(lines[0].rows[0]["turn"])
        turns = range(first_turn, len(history))
        curves: dict[str, Points] = {}
        for name in _PANELS:
            if name in history.columns:
                values = history[name].astype(float).tolist()
                curves[name] = Points(
                    turns=turns,
                    values=values[: len(turns)],
                )
        beside["history (T-bill)"] = curves
    if rule_of is not None:
        names = [line.name for line in lines]
        known_names("run", rule_of, names)
        line_of_rule = next(line for line in lines if line.name == rule_of)
        name = f"what the Taylor rule asks, on the data of: {rule_of}"
        beside[name] = {"interest_rate": line_of_rule.points("taylor_rate")}
    drawn = [series for series in SERIES if series.column in _PANELS]
    return Picture(
        lines=lines,
        charts=drawn,
        title=title,
        beside=beside,
    ).figure()
