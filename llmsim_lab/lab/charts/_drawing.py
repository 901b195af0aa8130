"""Scenes drawn with matplotlib, without pyplot, so that nothing global changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import drawable, new_figure, spread_out, told
from llmsim_lab.lab.charts._export import alt_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.lab.charts._scene import Curve, Scene
    from llmsim_lab.lab.charts._tracks import Values


_MOST_POINTS = 2000
"""Up to so many points a line is drawn as it is; beyond, about as many are kept."""


def thinned(x: Values, y: Values) -> tuple[Values, Values]:
    """Return a long line with fewer points that looks the same: each stretch's ends, low and high.

    Args:
        x: the line's turns.
        y: its values.
    """
    import numpy as np

    if len(x) <= _MOST_POINTS:
        return x, y
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(x)), _MOST_POINTS // 4):
        values = y[part]
        kept |= {int(part[0]), int(part[-1])}
        # nanargmin raises where there is no number at all.
        if not np.isnan(values).all():
            kept |= {int(part[np.nanargmin(values)]), int(part[np.nanargmax(values)])}
    chosen = np.array(sorted(kept))
    return x[chosen], y[chosen]


def marker_of(curve: Curve, points: int) -> str:
    """Return how points are marked; one by itself always is, since it makes no line."""
    if points == 1:
        return curve.marker or "x"
    return curve.marker if points <= _FEW else ""


_WIDE, _HIGH = 9.0, 6.4
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


def draw(scene: Scene) -> Figure:
    """Return a scene as a figure, with its content in words."""
    names = [series.column for series in scene.series[1:]]
    # Three small panels a row; a last row that is not full is padded with blanks.
    wide = min(3, len(names)) or 1
    rows = [(names + [_BLANK] * wide)[at : at + wide] for at in range(0, len(names), wide)]
    figure = new_figure(_WIDE, _HIGH + max(0, len(rows) - 1) * _ROW_HIGH)
    cells: list[Any] = [[scene.main.column] * wide, *rows]
    # The main panel is twice as high as a row of small ones, at the full width.
    panels: dict[str, Axes] = figure.subplot_mosaic(
        cells, height_ratios=(2, *(1 for _ in rows)), empty_sentinel=_BLANK
    )
    main = panels[scene.main.column]
    _frames(panels, scene)
    # As the legend's title: the layout keeps room for it, however long it is.
    caption = [fill(drawable(note, _MOST_CAPTION), _CAPTION_WIDE) for note in scene.caption]
    figure.legend(
        handles=[*_curves(panels, scene), *_areas(panels, scene)],
        loc="outside lower center",
        ncols=2,
        fontsize="small",
        title="\n".join(caption) or None,
        title_fontsize="small",
    )
    for column, axes in panels.items():
        axes.set(xlim=scene.reach, ylim=scene.limits[column])
    _marks(panels, scene)
    _bounds(panels, scene)
    if not scene.plain:
        # Space for what is written at the lines' ends and at the marks.
        first, last = scene.reach
        bottom, top = scene.limits[scene.main.column]
        main.set_xlim(first, last + 0.13 * (last - first))
        main.set_ylim(bottom, top + 0.05 * min(len(scene.marks), 4) * (top - bottom))
        _end_labels(main, scene)
    return told(figure, alt_text(scene))


def _frames(panels: Mapping[str, Axes], scene: Scene) -> None:
    """Write titles, units and turns at the panels."""
    from matplotlib.ticker import MaxNLocator

    for series in scene.series:
        axes = panels[series.column]
        axes.grid(alpha=0.3)
        # In full, not as differences from an offset; only huge ones have an exponent.
        axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-5, 10))
        axes.yaxis.set_offset_position("right")  # the title is on the left
        if series is scene.main:
            axes.set_title(drawable(scene.title, 90), loc="left")
            axes.set_ylabel(drawable(series.unit or series.label))
            names = [drawable(name, 12) for name in scene.ticks.names]
            axes.set_xticks(scene.ticks.at, names or None)
            axes.set_xlabel(scene.ticks.label)
        else:
            label = f"{series.label}, {series.unit}" if series.unit else series.label
            axes.set_title(drawable(label, 34), loc="left", fontsize="small")
            axes.tick_params(labelsize="small")
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            unit = "turn (quarters)" if scene.ticks.names else scene.ticks.label
            axes.set_xlabel(unit, fontsize="small")


def _curves(panels: Mapping[str, Axes], scene: Scene) -> Iterator[Any]:
    """Draw the curves, and yield those that the legend names."""
    for curve in scene.curves:
        for column, (x, y) in curve.points.items():
            axes = panels[column]
            large = column == scene.main.column
            [line] = axes.plot(
                *thinned(x, y),
                color=curve.colour,
                linestyle=curve.style,
                linewidth=curve.width if large else curve.width * 0.8,
                alpha=curve.alpha,
                marker=marker_of(curve, len(x)),
                markersize=3.5 if large else 2,
                label=drawable(curve.legend, 90) if curve.legend else "_",
            )
            if large and curve.legend:
                yield line


def _areas(panels: Mapping[str, Axes], scene: Scene) -> Iterator[Any]:
    """Draw bands and shaded turns, and yield their patches for the legend."""
    from matplotlib.patches import Patch

    for band in scene.bands:
        fill_look: Any = {"color": band.colour, "alpha": band.alpha}
        for column, edges in band.points.items():
            panels[column].fill_between(*edges, linewidth=0, **fill_look)
        yield Patch(label=drawable(band.legend, 90), **fill_look)
    for turns, colour, name in scene.shades:
        look: Any = {"color": colour, "alpha": 0.12, "linewidth": 0}
        for axes in panels.values():
            axes.axvspan(*turns, **look)
        yield Patch(label=name, **look)


def _marks(panels: Mapping[str, Axes], scene: Scene) -> None:
    main, marks = panels[scene.main.column], scene.marks
    for turn in scene.marked:
        for axes in panels.values():
            axes.axvline(turn, color=_GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    for place, mark in enumerate(marks):
        worded = f" {drawable(mark.text, 28)}" if len(marks) <= _MANY_MARKS else ""
        side, aside = ("right", -3) if scene.late(mark.turn) else ("left", 3)
        look = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "top"}
        at, offset = (mark.turn, 1.0), (aside, -4 - 11 * (place % 4))
        _write(main, f"{mark.number}{worded}", at, offset, bbox=_BEHIND_TEXT, **look)


def _bounds(panels: Mapping[str, Axes], scene: Scene) -> None:
    """Draw bounds as thin lines, labelled on the side where no value can be."""
    for bound in scene.bounds:
        axes = panels[bound.column]
        axes.axhline(bound.value, color=_GREY, linewidth=0.7, linestyle=(0, (6, 3)))
        size = 7.5 if bound.column == scene.main.column else 6.5
        above, side = (4, "bottom") if bound.upper else (-4, "top")
        _write(axes, str(bound), (bound.at, bound.value), (0, above), va=side, fontsize=size)


def _end_labels(axes: Axes, scene: Scene) -> None:
    """Write names at the lines' ends, where they do not overlap; the legend has them all."""
    import numpy as np

    main, ends = scene.main.column, []
    for curve in scene.curves:
        if curve.labelled and main in curve.points:
            x, y = curve.points[main]
            known = np.isfinite(y)
            ends += [(curve.name, x[known][-1], y[known][-1])] if known.any() else []
    low, high = axes.get_ylim()
    # The main panel is about 260 points high; 10 points hold a line of 8-point text.
    unit = (high - low) / 260
    heights = spread_out([y for _, _, y in ends], gap=10 * unit, most=16 * unit)
    look = {"color": "#222222", "fontsize": 8, "va": "center", "bbox": _BEHIND_TEXT}
    for (name, end, _), height in zip(ends, heights, strict=True):
        if height is not None:
            _write(axes, drawable(name, 18), (end, height), (6, 0), annotation_clip=False, **look)


def _write(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **look: Any
) -> None:
    """Write a text beside a point, so many points of type to the right and up."""
    usual = {"color": _GREY, "fontsize": 7.5, "in_layout": False}
    axes.annotate(text, at, offset, textcoords="offset points", **{**usual, **look})
