"""Scenes drawn with matplotlib, without pyplot, so that nothing global changes.

For files, static views and pages without plotly; ``_interactive`` draws the same scenes to be
hovered over and clicked.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def marker_of(look: Look, points: int) -> str:
    """Return how points are marked; one by itself always is, since it makes no line."""
    if points == 1:
        return look.marker or "x"
    return look.marker if points <= _FEW else ""


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
        self._scene, self._labelled = scene, labelled
        self._build()
        main = self._main = self._axes[scene.main.column]
        # As the legend's title: the layout keeps room for it, however long it is.
        caption = [fill(drawable(note, _MOST_CAPTION), _CAPTION_WIDE) for note in scene.caption]
        self.figure.legend(
            handles=[*self._curves(), *self._areas()],
            loc="outside lower center",
            ncols=2,
            fontsize="small",
            title="\n".join(caption) or None,
            title_fontsize="small",
        )
        for column, axes in self._axes.items():
            axes.set(xlim=scene.reach, ylim=scene.limits[column])
        self._marks()
        self._bounds()
        if labelled:
            # Space for what is written at the lines' ends and at the marks.
            first, last = scene.reach
            bottom, top = scene.limits[scene.main.column]
            main.set_xlim(first, last + 0.13 * (last - first))
            main.set_ylim(bottom, top + 0.05 * min(len(scene.marks), 4) * (top - bottom))
        main.set_xticks(scene.ticks.at, scene.ticks.names or None)
        main.set_xlabel(scene.ticks.label)
        if labelled:
            self._end_labels()

    def _build(self) -> None:
        from matplotlib.ticker import MaxNLocator

        scene = self._scene
        names = [series.column for series in scene.panels]
        # Three small panels a row; a last row that is not full is padded with blanks.
        wide = min(3, len(names)) or 1
        rows = [(names + [_BLANK] * wide)[at : at + wide] for at in range(0, len(names), wide)]
        self.figure.set_size_inches(_SIZE[0], _SIZE[1] + max(0, len(rows) - 1) * _ROW_HIGH)
        cells: list[Any] = [[scene.main.column] * wide, *rows]
        # The main panel is twice as high as a row of small ones, at the full width.
        self._axes: dict[str, Axes] = self.figure.subplot_mosaic(
            cells, height_ratios=(2, *(1 for _ in rows)), empty_sentinel=_BLANK
        )
        for series in scene.panel_series:
            axes = self._axes[series.column]
            axes.grid(alpha=0.3)
            # In full, not as differences from an offset; only huge ones have an exponent.
            axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-5, 10))
            axes.yaxis.set_offset_position("right")  # the title is on the left
            if series is scene.main:
                axes.set_title(self._name(scene.title), loc="left")
                axes.set_ylabel(drawable(series.unit or series.label))
            else:
                label = f"{series.label}, {series.unit}" if series.unit else series.label
                axes.set_title(drawable(label, 34), loc="left", fontsize="small")
                axes.tick_params(labelsize="small")
                axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
                unit = "turn (quarters)" if scene.ticks.names else scene.ticks.label
                axes.set_xlabel(unit, fontsize="small")

    def _name(self, text: str) -> str:
        return drawable(text, 90) if self._labelled else text

    def _curves(self) -> Iterator[Any]:
        """Draw the curves, and yield those that the legend names."""
        for curve in self._scene.curves:
            look = curve.look
            for column, (x, y) in curve.points.items():
                axes = self._axes[column]
                large = axes is self._main
                [line] = axes.plot(
                    *thinned(x, y),
                    color=look.colour,
                    linestyle=look.style,
                    linewidth=look.width if large else look.width * 0.8,
                    alpha=look.alpha,
                    marker=marker_of(look, len(x)),
                    markersize=3.5 if large else 2,
                    label=self._name(curve.legend) if curve.legend else "_",
                )
                if large and curve.legend:
                    yield line

    def _areas(self) -> Iterator[Any]:
        """Draw bands and shaded turns, and yield their patches for the legend."""
        from matplotlib.patches import Patch

        for band in self._scene.bands:
            fill_look: Any = {"color": band.colour, "alpha": band.alpha}
            for column, edges in band.points.items():
                self._axes[column].fill_between(*edges, linewidth=0, **fill_look)
            yield Patch(label=self._name(band.legend), **fill_look)
        for turns, colour, name in self._scene.shades:
            look: Any = {"color": colour, "alpha": 0.12, "linewidth": 0}
            for axes in self._axes.values():
                axes.axvspan(*turns, **look)
            yield Patch(label=name, **look)

    def _marks(self) -> None:
        marks = self._scene.marks
        for turn in self._scene.marked:
            for axes in self._axes.values():
                axes.axvline(turn, color=_GREY, linewidth=0.8, linestyle=(0, (1, 2)))
        for place, mark in enumerate(marks):
            worded = f" {drawable(mark.text, 28)}" if len(marks) <= _MANY_MARKS else ""
            left = self._scene.late(mark.turn)
            self._main.annotate(
                f"{mark.number}{worded}",
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

    def _bounds(self) -> None:
        """Draw bounds as thin lines, labelled on the side where no value can be."""
        for bound in self._scene.bounds:
            axes = self._axes[bound.column]
            axes.axhline(bound.value, color=_GREY, linewidth=0.7, linestyle=(0, (6, 3)))
            axes.annotate(
                str(bound),
                (bound.at, bound.value),
                xytext=(0, 4 if bound.upper else -4),
                textcoords="offset points",
                va="bottom" if bound.upper else "top",
                fontsize=7.5 if axes is self._main else 6.5,
                color=_GREY,
                in_layout=False,
            )

    def _end_labels(self) -> None:
        """Write names at the lines' ends, where they do not overlap; the legend has them all."""
        import numpy as np

        main, ends = self._scene.main.column, []
        for curve in self._scene.curves:
            if curve.labelled and main in curve.points:
                x, y = curve.points[main]
                known = np.isfinite(y)
                ends += [(curve.name, x[known][-1], y[known][-1])] if known.any() else []
        low, high = self._main.get_ylim()
        # The main panel is about 260 points high; 10 points hold a line of 8-point text.
        unit = (high - low) / 260
        heights = spread_out([y for _, _, y in ends], gap=10 * unit, most=16 * unit)
        for (name, end, _), height in zip(ends, heights, strict=True):
            if height is not None:
                self._main.annotate(
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
