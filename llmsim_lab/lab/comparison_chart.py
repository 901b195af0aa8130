"""Paired differences between prompts as a chart: every turn, the interval, the noise band."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from llmsim_lab.experiments import PromptExperiment
from llmsim_lab.experiments._results import UNITS
from llmsim_lab.experiments._statistics import Outcome, sample_values
from llmsim_lab.lab.charts.labels import drawable
from llmsim_lab.markup import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["alt_text", "chart_html", "difference_figure"]

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#BBBBBB"
"""From Okabe and Ito's palette; shapes differ too."""


def difference_figure(results: PromptExperiment, outcome: Outcome = "interest_rate") -> Figure:
    """Draw how each variant differs from the first in one outcome.

    The small points are pairs of samples, the rings turns' means, the thick mark is the mean of
    those with its 95 % interval; the grey band is about the points: by how much two single samples
    of one prompt differ on average, the larger of the two variants' noise floors.

    Args:
        results: an experiment.
        outcome: one of those it measured.
    """
    found = [item for item in results.differences if item.outcome == outcome]
    summary = results.summary
    floors = summary[summary["outcome"] == outcome].set_index("variant")["noise_floor"]
    figure = _chart_class()(
        figsize=(8, 1.5 + 0.9 * len(found)), layout="constrained", facecolor="white"
    )
    axes: Axes = figure.subplots()
    values = sample_values(results.frame, outcome).pivot_table(
        index=["turn", "sample"], columns="variant", values="value", dropna=False
    )
    for place, item in enumerate(found):
        height = len(found) - place
        if (floor := floors[item.variant]) is not None and floor == floor:
            axes.fill_betweenx(
                [height - 0.4, height + 0.4], -floor, floor, color=_GREY, alpha=0.45, linewidth=0
            )
        if {item.variant, item.reference} <= set(values.columns):
            pairs = (values[item.variant] - values[item.reference]).dropna()
            means = pairs.groupby(level="turn").mean()
            axes.plot(pairs, [height - 0.18] * len(pairs), ".", color=_BLUE, alpha=0.5)
            axes.plot(means, [height] * len(means), "o", color=_BLUE, fillstyle="none")
        if item.estimate is not None:
            low = item.estimate if item.low is None else item.low
            high = item.estimate if item.high is None else item.high
            reach = [[item.estimate - low], [high - item.estimate]]
            axes.errorbar(
                [item.estimate], [height + 0.2], xerr=reach, fmt="D", color=_ORANGE, capsize=5
            )
    axes.axvline(0, color="black", linewidth=1)
    axes.set_ylim(0.4, len(found) + 0.6)
    axes.set_yticks(
        [len(found) - place for place in range(len(found))],
        [drawable(item.variant, 24) for item in found],
    )
    name, unit = UNITS[outcome]
    axes.set_xlabel(f"{name}: difference from {drawable(results.names[0], 24)}, {unit}")
    axes.set_title(
        "orange: mean and 95 % interval · rings: turns · points: pairs · "
        "grey: noise floor of single samples",
        loc="left",
        fontsize="small",
    )
    figure.alt = alt_text(results, outcome)  # type: ignore[attr-defined]
    return figure


@cache
def _chart_class() -> type[Figure]:
    """A figure that notebooks show although pyplot does not know it; made when first needed."""
    from matplotlib.figure import Figure

    class Chart(Figure):
        """A matplotlib figure with a face of its own in notebooks."""

        alt = ""

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            # nbconvert's classic pages take the image's text from the second; JupyterLab 4.6
            # does not.
            return _png(self), {"alt": self.alt}

    return Chart


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=96)
    return buffer.getvalue()


def alt_text(results: PromptExperiment, outcome: Outcome) -> str:
    """Return the numbers of the chart as text."""
    parts: Sequence[str] = [
        text
        for item, text in zip(results.differences, results.verdicts, strict=True)
        if item.outcome == outcome
    ]
    return visible(" ".join(parts))


def chart_html(results: PromptExperiment, outcome: Outcome) -> Markup:
    """Return the chart as an image with its numbers as alternative text."""
    figure = difference_figure(results, outcome)
    image = base64.b64encode(_png(figure)).decode()
    return Markup('<img style="max-width:100%" alt="{}" src="data:image/png;base64,{}">').format(
        figure.alt,  # type: ignore[attr-defined]
        image,
    )
