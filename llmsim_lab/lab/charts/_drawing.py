"""Scenes drawn with matplotlib, without pyplot, so that nothing global changes.

For files, static views and pages without plotly; ``_interactive`` draws the same scenes to be
hovered over and clicked.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import chart_class, drawable, spread_out

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from llmsim_lab.lab.charts._scene import Look, Scene


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
        # nanargmin raises where there is no number at all.
        if not np.isnan(values).all():
            kept |= {int(part[np.nanargmin(values)]), int(part[np.nanargmax(values)])}
    chosen = np.array(sorted(kept))
    return x[chosen], y[chosen]


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


_SIZE = (9.0, 6.4)
"""Inches; at 10 points and up the text is readable in a column of that width."""
_ROW_HIGH = 2.0
"""Inches that a further row of small panels takes."""
_BLANK = "."
_FEW = 60
"""Up to so many points, each is marked."""
_MANY_MARKS = 10
_GREY = "#444444"
_BEHIND_TEXT = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5}
_REST: Mapping[str, Any] = {"color": "#777777", "alpha": 0.1, "linewidth": 0}
_TAPED: Mapping[str, Any] = {"color": "#56B4E9", "alpha": 0.12, "linewidth": 0}
_MOST_CAPTION, _CAPTION_WIDE = 400, 110
"""Letters of a note in the caption, and of a line of it."""


class Drawing:
    """A scene as a figure.

    Args:
        scene: what to draw.
        labelled: True to write names at the ends of lines and to draw texts as they are, with no
            formula in them; the legend is always there.

    Attributes:
        figure: what is drawn on.
    """

    def __init__(self, scene: Scene, *, labelled: bool = True) -> None:
        self.figure: Figure = chart_class()(figsize=_SIZE, layout="constrained")
        self._labelled = labelled
        self._build(scene)
        for band in scene.bands:
            for column, (x, low, high) in band.points.items():
                self._axes[column].fill_between(
                    x, low, high, color=band.colour, alpha=band.alpha, linewidth=0
                )
        self._marks(scene)
        for series in scene.panel_series:
            set_limits(self._axes[series.column], scene, series.column)
        self._bounds(scene)
        for span, look in ((scene.rest, _REST), (scene.taped, _TAPED)):
            for axes in self._axes.values():
                if span is not None:
                    axes.axvspan(*span, **look)
        axes = self._axes[scene.main.column]
        if labelled:
            # Space for what is written at the lines' ends and at the marks.
            first, last = axes.get_xlim()
            bottom, top = axes.get_ylim()
            axes.set_xlim(first, last + 0.13 * (last - first))
            axes.set_ylim(bottom, top + 0.05 * min(len(scene.marks), 4) * (top - bottom))
        set_ticks(axes, scene)
        if labelled:
            self._end_labels(scene)

    def _build(self, scene: Scene) -> None:
        from matplotlib.ticker import MaxNLocator

        self._lines: dict[tuple[str, int], Any] = {}
        names = [series.column for series in scene.panels]
        main = scene.main.column
        # Three small panels a row; a last row that is not full is padded with blanks.
        wide = min(3, len(names)) or 1
        rows = [(names + [_BLANK] * wide)[at : at + wide] for at in range(0, len(names), wide)]
        self.figure.set_size_inches(_SIZE[0], _SIZE[1] + max(0, len(rows) - 1) * _ROW_HIGH)
        cells: list[Any] = [[main] * wide, *rows]
        # The main panel is twice as high as a row of small ones, at the full width.
        mosaic = self.figure.subplot_mosaic(
            cells, height_ratios=(2, *(1 for _ in rows)), empty_sentinel=_BLANK
        )
        self._axes: dict[str, Axes] = {str(name): axes for name, axes in mosaic.items()}
        for series in scene.panel_series:
            axes = self._axes[series.column]
            axes.grid(alpha=0.3)
            plain_numbers(axes)
            if series is scene.main:
                axes.set_title(self._name(scene.title), loc="left")
                axes.set_ylabel(drawable(series.unit or series.label))
            else:
                label = f"{series.label}, {series.unit}" if series.unit else series.label
                axes.set_title(drawable(label, 34), loc="left", fontsize="small")
                axes.tick_params(labelsize="small")
                axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
                dated = bool(scene.ticks.names)
                unit = "turn (quarters)" if dated else scene.ticks.label
                axes.set_xlabel(unit, fontsize="small")
        self._plot(scene)
        self._legend(scene)

    def _plot(self, scene: Scene) -> None:
        main = scene.main.column
        for place, curve in enumerate(scene.curves):
            look = curve.look
            for column, (x, y) in curve.points.items():
                [line] = self._axes[column].plot(
                    *thinned(x, y),
                    color=look.colour,
                    linestyle=look.style,
                    linewidth=look.width if column == main else look.width * 0.8,
                    alpha=look.alpha,
                    marker=_marker(look, len(x)),
                    markersize=3.5 if column == main else 2,
                    label=self._name(curve.legend) if curve.legend else "_",
                )
                self._lines[column, place] = line

    def _name(self, text: str) -> str:
        return drawable(text, 90) if self._labelled else text

    def _legend(self, scene: Scene) -> None:
        from matplotlib.patches import Patch

        main = scene.main.column
        handles: list[Any] = [
            self._lines[main, place]
            for place, curve in enumerate(scene.curves)
            if curve.legend and (main, place) in self._lines
        ]
        handles += [
            Patch(color=band.colour, alpha=band.alpha, label=self._name(band.legend))
            for band in scene.bands
        ]
        if scene.rest:
            handles.append(Patch(label="planned, not played yet", **_REST))
        if scene.taped:
            handles.append(Patch(label="from the tape", **_TAPED))
        # As the legend's title: the layout keeps room for it, however long it is.
        caption = [fill(drawable(note, _MOST_CAPTION), _CAPTION_WIDE) for note in scene.caption]
        self.figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=2,
            fontsize="small",
            title="\n".join(caption) or None,
            title_fontsize="small",
        )

    def _marks(self, scene: Scene) -> None:
        main = self._axes[scene.main.column]
        for turn in dict.fromkeys(mark.turn for mark in scene.marks):
            for axes in self._axes.values():
                axes.axvline(turn, color=_GREY, linewidth=0.8, linestyle=(0, (1, 2)))
        worded = len(scene.marks) <= _MANY_MARKS
        first, last = scene.span
        for place, mark in enumerate(scene.marks):
            text = f"{mark.number} {drawable(mark.text, 28)}" if worded else f"{mark.number}"
            left = mark.turn > first + 0.6 * (last - first)
            main.annotate(
                text,
                (mark.turn, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3 if left else 3, -4 - 11 * (place % 4)),
                textcoords="offset points",
                ha="right" if left else "left",
                va="top",
                fontsize=7.5,
                color=_GREY,
                bbox=_BEHIND_TEXT,
                in_layout=False,
            )

    def _bounds(self, scene: Scene) -> None:
        """Draw bounds as thin lines, labelled on the side where no value can be."""
        for bound in scene.bounds:
            axes = self._axes[bound.column]
            axes.axhline(bound.value, color=_GREY, linewidth=0.7, linestyle=(0, (6, 3)))
            axes.annotate(
                str(bound),
                (bound.at, bound.value),
                xytext=(0, 4 if bound.upper else -4),
                textcoords="offset points",
                va="bottom" if bound.upper else "top",
                fontsize=7.5 if bound.column == scene.main.column else 6.5,
                color=_GREY,
                in_layout=False,
            )

    def _end_labels(self, scene: Scene) -> None:
        """Write names at the lines' ends, where they do not overlap; the legend has them all."""
        import numpy as np

        main = scene.main.column
        axes = self._axes[main]
        ends = []
        for curve in scene.curves:
            if not curve.labelled or main not in curve.points:
                continue
            x, y = curve.points[main]
            there = np.flatnonzero(np.isfinite(y))
            if len(there):
                ends.append((curve.name, float(x[there[-1]]), float(y[there[-1]])))
        low, high = axes.get_ylim()
        # The main panel is about 260 points high; 10 points hold a line of 8-point text.
        unit = (high - low) / 260
        heights = spread_out([y for _, _, y in ends], gap=10 * unit, most=16 * unit)
        for (name, end, _), height in zip(ends, heights, strict=True):
            if height is not None:
                axes.annotate(
                    drawable(name, 18),
                    (end, height),
                    xytext=(6, 0),
                    textcoords="offset points",
                    fontsize=8,
                    color="#222222",
                    va="center",
                    bbox=_BEHIND_TEXT,
                    annotation_clip=False,
                    in_layout=False,
                )


def _marker(look: Look, points: int) -> str:
    """Return how points are marked; one by itself always is, since it makes no line."""
    if points == 1:
        return look.marker or "x"
    return look.marker if points <= _FEW else ""
