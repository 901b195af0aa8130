"""Scenes drawn with matplotlib, without pyplot, so that nothing global changes.

While a run is played, a figure's lines are moved and the rest stays: laying out a figure takes most
of the time that drawing takes. ``Screen`` makes the pictures.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.text import clip, printable

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from llmsim_lab.lab.charts._scene import Curve, Look, Scene


def drawable(text: str, length: int = 40) -> str:
    """Return an untrusted text that matplotlib draws as it is: no formula, no missing letter.

    Args:
        text: such as a run's name.
        length: the most characters; a longer one is cut with an ellipsis.
    """
    shown = clip(printable(text), length)
    known = "".join(letter if _has(letter) else "\N{WHITE SQUARE}" for letter in shown)
    # A pair of dollars is a formula, and a backslash before one would undo its escape.
    return known.replace("\\", "\N{SET MINUS}").replace("$", r"\$")


@cache
def _has(letter: str) -> bool:
    """Return True if the font has a letter; without it drawing would warn."""
    return letter.isascii() or bool(_font().get_char_index(ord(letter)))


@cache
def _font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


def spread_out(heights: Sequence[float], *, gap: float, most: float) -> list[float | None]:
    """Return where labels go so that they do not overlap; None for one that finds no room.

    Args:
        heights: where each should be.
        gap: the least distance between two.
        most: how far one may be moved.
    """
    placed: list[float | None] = [None] * len(heights)
    lowest = float("-inf")
    for place in sorted(range(len(heights)), key=heights.__getitem__):
        wanted = max(heights[place], lowest + gap)
        if wanted - heights[place] <= most:
            placed[place] = lowest = wanted
    return placed


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


def pin_labels(axes: Axes, *, large: bool) -> None:
    """Fix the labels' places, which matplotlib would otherwise compute at each drawing."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_label_coords(0.5, -0.12 if large else -0.2)
    if not large:  # small panels have no label on that side
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
_MOST_CAPTION, _CAPTION_WIDE = 400, 110
"""Letters of a note in the caption, and of a line of it."""


class Drawing:
    """A scene as a figure, which later scenes can take over.

    Args:
        scene: what to draw.
        labelled: True to write names at the ends of lines and to draw texts as they are, with no
            formula in them; the legend is always there.
        quick: for screens: the places of titles and labels are not computed each time.

    Attributes:
        figure: what is drawn on.
    """

    def __init__(self, scene: Scene, *, labelled: bool = True, quick: bool = False) -> None:
        self.figure: Figure = chart_class()(figsize=_SIZE, layout="constrained")
        self._labelled = labelled
        self._quick = quick
        self._frame: tuple[object, ...] = ()
        self._axes: dict[str, Axes] = {}
        self._lines: dict[tuple[str, int], Any] = {}
        self._passing: list[Any] = []
        self.show(scene)

    def show(self, scene: Scene) -> None:
        """Draw a scene, in place of the one before."""
        frame = _frame(scene)
        # Bands, marks and labels cannot be moved like lines, so they are drawn again.
        for artist in self._passing:
            artist.remove()
        self._passing = []
        if frame != self._frame:
            self._build(scene)
            self._frame = frame
        else:
            self._move(scene)
        for band in scene.bands:
            for column, (x, low, high) in band.points.items():
                fill = self._axes[column].fill_between(
                    x, low, high, color=band.colour, alpha=band.alpha, linewidth=0
                )
                self._passing.append(fill)
        self._marks(scene)
        for series in scene.panel_series:
            set_limits(self._axes[series.column], scene, series.column)
        self._bounds(scene)
        self._rest(scene)
        axes = self._axes[scene.main.column]
        if self._labelled:
            # Space for what is written at the lines' ends and at the marks.
            first, last = axes.get_xlim()
            bottom, top = axes.get_ylim()
            axes.set_xlim(first, last + 0.13 * (last - first))
            axes.set_ylim(bottom, top + 0.05 * min(len(scene.marks), 4) * (top - bottom))
        set_ticks(axes, scene)
        if self._labelled:
            self._end_labels(scene)

    def _build(self, scene: Scene) -> None:
        from matplotlib.ticker import MaxNLocator

        self.figure.clear()
        self.figure.set_layout_engine("constrained")
        self._lines, self._passing = {}, []
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
        self._axes = {str(name): axes for name, axes in mosaic.items()}
        # With a given height matplotlib does not search for one that is clear of everything.
        height = 1.0 if self._quick else None
        for series in scene.panel_series:
            axes = self._axes[series.column]
            axes.grid(alpha=0.3)
            plain_numbers(axes)
            if self._quick:
                pin_labels(axes, large=series is scene.main)
            if series is scene.main:
                axes.set_title(self._name(scene.title), loc="left", y=height)
                axes.set_ylabel(drawable(series.unit or series.label))
            else:
                label = f"{series.label}, {series.unit}" if series.unit else series.label
                axes.set_title(drawable(label, 34), loc="left", fontsize="small", y=height)
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

    def _move(self, scene: Scene) -> None:
        for place, curve in enumerate(scene.curves):
            for column, (x, y) in curve.points.items():
                line = self._lines[column, place]
                line.set_data(*thinned(x, y))
                line.set_marker(_marker(curve.look, len(x)))

    def _marks(self, scene: Scene) -> None:
        main = self._axes[scene.main.column]
        for turn in dict.fromkeys(mark.turn for mark in scene.marks):
            for axes in self._axes.values():
                line = axes.axvline(turn, color=_GREY, linewidth=0.8, linestyle=(0, (1, 2)))
                self._passing.append(line)
        worded = len(scene.marks) <= _MANY_MARKS
        first, last = scene.span
        for place, mark in enumerate(scene.marks):
            text = f"{mark.number} {drawable(mark.text, 28)}" if worded else f"{mark.number}"
            left = mark.turn > first + 0.6 * (last - first)
            self._passing.append(
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
            )

    def _bounds(self, scene: Scene) -> None:
        """Draw bounds as thin lines, labelled on the side where no value can be."""
        for bound in scene.bounds:
            axes = self._axes[bound.column]
            line = axes.axhline(bound.value, color=_GREY, linewidth=0.7, linestyle=(0, (6, 3)))
            label = axes.annotate(
                str(bound),
                (scene.span[0], bound.value),
                xytext=(0, 1.5 if bound.upper else -1.5),
                textcoords="offset points",
                va="bottom" if bound.upper else "top",
                fontsize=7.5 if bound.column == scene.main.column else 6.5,
                color=_GREY,
                in_layout=False,
            )
            self._passing += [line, label]

    def _rest(self, scene: Scene) -> None:
        """Shade the turns that are planned and not played yet."""
        if scene.rest:
            for axes in self._axes.values():
                self._passing.append(axes.axvspan(*scene.rest, **_REST))

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
                self._passing.append(
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
                )


def _marker(look: Look, points: int) -> str:
    """Return how points are marked; one by itself always is, since it makes no line."""
    if points == 1:
        return look.marker or "x"
    return look.marker if points <= _FEW else ""


def _parts(curve: Curve) -> tuple[tuple[str, str], ...]:
    """Return a curve's columns and how the legend marks it."""
    return tuple((name, _marker(curve.look, len(x))) for name, (x, _) in curve.points.items())


def _frame(scene: Scene) -> tuple[object, ...]:
    """Return what needs the figure laid out again once it has changed."""
    return (
        scene.title,
        scene.caption,
        scene.rest is None,
        scene.panel_series,
        scene.ticks.label,
        tuple((item.name, item.legend, item.look, _parts(item)) for item in scene.curves),
        tuple((band.legend, band.colour, tuple(band.points)) for band in scene.bands),
    )


@cache
def chart_class() -> type[Figure]:
    """A figure that notebooks show although pyplot does not know it; made when first needed."""
    from matplotlib.figure import Figure

    class Chart(Figure):
        """A matplotlib figure that notebooks show, with its content in words."""

        alt = ""

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=96)
            # nbconvert's classic pages take the image's text from the second; JupyterLab 4.6
            # does not.
            return buffer.getvalue(), {"alt": self.alt}

    return Chart


_DPI = 96


class Screen:
    """Makes pictures of a figure.

    Args:
        figure: with a layout engine; setting one again makes ``Screen`` lay it out again.
    """

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self._reserved: list[int] = []
        self._legend: tuple[slice, slice, NDArray[np.uint8]] | None = None

    def png(self) -> bytes:
        """Return the figure as it is as a PNG file."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from PIL import Image

        self._figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(self._figure)
        if isinstance(self._figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Laid out once and then left: the constrained layout takes longer than the drawing.
            self._reserved = []
            self._lay_out()
        pixels = self._paint(canvas)
        if self._outgrown():
            self._figure.set_layout_engine("constrained")
            self._lay_out()
            pixels = self._paint(canvas)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="png", compress_level=2)
        return buffer.getvalue()

    def _lay_out(self) -> None:
        self._figure.draw_without_rendering()
        self._figure.set_layout_engine("none")
        self._legend = None

    def _outgrown(self) -> bool:
        """Return True if numbers on an axis are longer than when the figure was laid out."""
        longest = [
            max((len(tick.label1.get_text()) for tick in axes.yaxis.get_major_ticks()), default=0)
            for axes in self._figure.axes
        ]
        reserved = self._reserved or longest
        self._reserved = [max(pair) for pair in zip(longest, reserved, strict=True)]
        return self._reserved != reserved

    def _paint(self, canvas: FigureCanvasAgg) -> NDArray[np.uint8]:
        import numpy as np

        [legend] = self._figure.legends
        # Painted once: it stays the same while lines move, and its many texts are slow to draw.
        legend.set_visible(self._legend is None)
        try:
            canvas.draw()  # type: ignore[no-untyped-call]
        finally:
            legend.set_visible(True)
        buffer = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        pixels: NDArray[np.uint8] = np.array(buffer)[:, :, :3]
        if self._legend is None:
            rows, columns = _place(legend, len(pixels))
            self._legend = rows, columns, pixels[rows, columns].copy()
        else:
            rows, columns, painted = self._legend
            pixels[rows, columns] = painted
        return pixels


def _place(legend: Any, height: int) -> tuple[slice, slice]:
    """Return the pixels that a legend takes, its frame's line included."""
    box = legend.get_window_extent()
    rows = slice(max(0, height - int(box.y1) - 3), max(0, height - int(box.y0) + 3))
    return rows, slice(max(0, int(box.x0) - 3), int(box.x1) + 4)
