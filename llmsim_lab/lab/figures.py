"""Charts of runs as matplotlib figures, made without pyplot so that nothing global changes.

Colours: Okabe and Ito's palette, which colour-blind readers can tell apart; line styles differ too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["rate_figure"]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLES = ("-", "--", "-.", ":")
_PANELS = (
    ("inflation", "Inflation, % over four quarters"),
    ("output_gap", "Output gap, % of potential"),
    ("unemployment", "Unemployment, %"),
)


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
    """
    figure: Figure = _chart_class()(figsize=(9, 6.4), layout="constrained")
    axes = figure.subplot_mosaic(
        [["rate"] * 3, [name for name, _ in _PANELS]], height_ratios=(2, 1)
    )
    rate = axes["rate"]
    rate.set_title(title, loc="left")
    rate.set_ylabel("% per year")
    for index, (name, frame) in enumerate(runs.items()):
        look: dict[str, Any] = {
            "color": _COLOURS[index % len(_COLOURS)],
            "linestyle": _STYLES[index % len(_STYLES)],
            "marker": "o",
            "markersize": 3.5,
        }
        rate.plot(frame["turn"], frame["interest_rate"], label=name, **look)
        for column, _ in _PANELS:
            axes[column].plot(frame["turn"], frame[column], **look | {"markersize": 2})
        if name == rule_of:
            rate.plot(
                frame["turn"],
                frame["taylor_rate"],
                color="#999999",
                linestyle=":",
                label=f"what the Taylor rule asks, on the data of: {name}",
            )
    if history is not None:
        rate.plot(
            range(len(history)), history["interest_rate"], color="black", label="history (T-bill)"
        )
        for column, _ in _PANELS:
            axes[column].plot(range(len(history)), history[column], color="black", linewidth=1)
    longest = max(runs.values(), key=len)
    _label_quarters(rate, longest)
    for column, label in _PANELS:
        axes[column].set_title(label, loc="left", fontsize="small")
        axes[column].tick_params(labelsize="small")
        axes[column].set_xlabel("turn (quarters)", fontsize="small")
        axes[column].grid(alpha=0.3)
    rate.grid(alpha=0.3)
    figure.legend(handles=rate.get_lines(), loc="outside lower center", ncols=2, fontsize="small")
    return figure


@cache
def _chart_class() -> type[Figure]:
    """A figure that notebooks show although pyplot does not know it; made when first needed."""
    from matplotlib.figure import Figure

    class Chart(Figure):
        """A matplotlib figure with a face of its own in notebooks."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=96)
            return buffer.getvalue()

    return Chart


def _label_quarters(axis: Any, frame: pd.DataFrame) -> None:
    """Name the quarters on the axis, at most a dozen of them."""
    every = max(1, len(frame) // 12 + (len(frame) % 12 > 0))
    shown = frame.iloc[::every]
    axis.set_xticks(shown["turn"])
    if frame["period"].notna().all():
        axis.set_xticklabels(shown["period"])
        axis.set_xlabel("quarter")
    else:
        axis.set_xlabel("turn (quarters)")
