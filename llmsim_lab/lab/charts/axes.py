"""The axes of a chart: limits, ticks, places of labels, points enough for a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from llmsim_lab.lab.charts.scene import Scene

__all__ = ["pin_labels", "plain_numbers", "set_limits", "set_ticks", "thinned"]

_MOST_POINTS = 2000


def thinned(
    x: NDArray[np.float64], y: NDArray[np.float64], *, most: int = _MOST_POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a line with fewer points that looks the same: each stretch's ends, low and high.

    Args:
        x: the line's turns.
        y: its values.
        most: up to so many points it is returned as it is; beyond, about as many are kept.
    """
    import numpy as np

    if len(x) <= most:
        return x, y
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(x)), most // 4):
        values = y[part]
        kept |= {int(part[0]), int(part[-1])}
        if not np.isnan(values).all():
            kept |= {int(part[np.nanargmin(values)]), int(part[np.nanargmax(values)])}
    chosen = np.array(sorted(kept))
    return x[chosen], y[chosen]


def pin_labels(axes: Axes, *, large: bool) -> None:
    """Say where labels stand, which else is worked out at each drawing."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_label_coords(0.5, -0.12 if large else -0.2)
    if not large:  # which bear no label on that side
        axes.yaxis.set_label_coords(-0.2, 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(6 if large else 4))


def set_limits(axes: Axes, scene: Scene, column: str) -> None:
    """Give a panel the scene's limits."""
    axes.set_ylim(scene.limits[column])
    first, last = scene.span
    side = 0.03 * (last - first)
    axes.set_xlim(first - side, last + side)


def plain_numbers(axes: Axes) -> None:
    """Write values in full, not as differences from an offset; only huge ones have an exponent."""
    axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-5, 10))
    axes.yaxis.set_offset_position("right")  # the title is on the left


def set_ticks(axes: Axes, scene: Scene) -> None:
    """Label the turns' axis."""
    axes.set_xticks(scene.ticks.at)
    if scene.ticks.names:
        axes.set_xticklabels(scene.ticks.names)
    axes.set_xlabel(scene.ticks.label)
