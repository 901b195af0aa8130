"""A statechart as a picture, and as text for Mermaid and Graphviz.

The picture is made by hand as SVG, so that it needs no program beside Python and is the same
everywhere: the states on an ellipse, in the chart's order, the initial one on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.markup import safe

if TYPE_CHECKING:
    from llmsim_lab.statechart.chart import Statechart

__all__ = ["dot", "mermaid", "svg"]

_WIDTH, _HEIGHT = 860, 520
_BOX_HEIGHT = 40
_LETTER = 7.4
"""Width of a letter at the size used, pixels, near enough for the boxes."""

_STYLE = "font-family:sans-serif;font-size:13px"

Points = dict[Any, tuple[float, float]]


def mermaid(chart: Statechart[Any]) -> str:
    """Return a chart as a Mermaid state diagram."""
    lines, ids = ["stateDiagram-v2"], {state: str(state) for state in chart.states}
    if not all(name.isidentifier() for name in ids.values()):
        # Mermaid takes plain words only; other names are titles of numbered states.
        ids = {state: f"s{number}" for number, state in enumerate(chart.states)}
        lines += [
            f'    state "{str(state).replace(chr(34), "#quot;")}" as {ids[state]}' for state in ids
        ]
    lines += [f"    [*] --> {ids[chart.initial]}"]
    lines += [
        f"    {ids[move.source]} --> {ids[move.target]} : {_label(move, arrow=' / ')}"
        for move in chart.transitions
    ]
    lines += [f"    {ids[state]} --> [*]" for state in chart.states if state in chart.final]
    return "\n".join(lines) + "\n"


def dot(chart: Statechart[Any]) -> str:
    """Return a chart in Graphviz's DOT language."""
    lines = ["digraph statechart {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += ["    __start [shape=point];", f"    __start -> {_quoted(chart.initial)};"]
    for state in chart.states:
        look = " [peripheries=2]" if state in chart.final else ""
        lines.append(f"    {_quoted(state)}{look};")
    lines += [
        f"    {_quoted(move.source)} -> {_quoted(move.target)} "
        f"[label={_quoted(_label(move, arrow=' / '))}];"
        for move in chart.transitions
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: object) -> str:
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _label(move: Any, *, arrow: str) -> str:
    guard = f" [{move.guard_name}]" if move.guard else ""
    action = getattr(move.action, "__name__", "action") if move.action else ""
    return f"{move.trigger}{guard}{arrow + action if action else ''}"


def svg(
    chart: Statechart[Any],
    *,
    current: object | None = None,
    counts: Mapping[Any, int] | None = None,
) -> str:
    """Return a chart as an SVG picture, with a description that is read out.

    Args:
        chart: the chart.
        current: a state to mark.
        counts: how many agents are in each state; the more, the darker its box.
    """
    points = _ellipse(chart)
    labels = _labels_by_arrow(chart)
    arrows = Markup("").join(
        _arrow(points, source, target, ", ".join(texts), (target, source) in labels)
        for (source, target), texts in labels.items()
    )
    boxes = Markup("").join(
        _box(
            state,
            points[state],
            current=state == current,
            initial=state == chart.initial,
            share=_share(counts, state),
            count=None if counts is None else counts.get(state, 0),
        )
        for state in chart.states
    )
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {w} {h}" '
            'style="max-width:{w}px;width:100%;background:#fff;color:#1b1b1b;{style}">'
            "<title>Statechart</title><desc>{desc}</desc>"
            '<defs><marker id="llmsim-arrow" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            '<path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>{arrows}{boxes}</svg>'
        ).format(
            w=_WIDTH,
            h=_HEIGHT,
            style=_STYLE,
            desc=safe(_description(chart, current, counts)),
            arrows=arrows,
            boxes=boxes,
        )
    )


def _description(
    chart: Statechart[Any], current: object | None, counts: Mapping[Any, int] | None
) -> str:
    parts = [f"{len(chart.states)} states, beginning at {chart.initial!s}"]
    if current is not None:
        parts.append(f"now at {current!s}")
    if counts is not None:
        parts += [f"{state!s}: {counts.get(state, 0)}" for state in chart.states]
    parts += [str(move) for move in chart.transitions]
    return "; ".join(parts)


def _ellipse(chart: Statechart[Any]) -> Points:
    order = [chart.initial, *(state for state in chart.states if state != chart.initial)]
    step = 2 * math.pi / len(order)
    wide, high = _WIDTH / 2 - 100, _HEIGHT / 2 - 50
    return {
        state: (
            round(_WIDTH / 2 + wide * math.sin(place * step), 1),
            round(_HEIGHT / 2 - high * math.cos(place * step), 1),
        )
        for place, state in enumerate(order)
    }


def _labels_by_arrow(chart: Statechart[Any]) -> dict[tuple[Any, Any], list[str]]:
    labels: dict[tuple[Any, Any], list[str]] = {}
    for move in chart.transitions:
        texts = labels.setdefault((move.source, move.target), [])
        texts.append(f"{move.trigger} [{move.guard_name}]" if move.guard else move.trigger)
    return labels


def _share(counts: Mapping[Any, int] | None, state: object) -> float:
    total = sum(counts.values()) if counts else 0
    return counts.get(state, 0) / total if counts and total else 0.0


def _box_width(state: object) -> float:
    return len(str(state)) * _LETTER + 24


def _box(
    state: object,
    point: tuple[float, float],
    *,
    current: bool,
    initial: bool,
    share: float,
    count: int | None,
) -> Markup:
    x, y = point
    wide = _box_width(state)
    look = f"fill:{_shade(share)};stroke:{'#d55e00' if current else '#555'}"
    look += f";stroke-width:{4 if current else 2.5 if initial else 1}"
    text = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
        x, y + (4 if count is None else -2), safe(state)
    )
    if count is not None:
        text += Markup(
            '<text x="{}" y="{}" text-anchor="middle" font-weight="bold">{}</text>'
        ).format(x, y + 14, count)
    return (
        Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="9" style="{}"/>').format(
            round(x - wide / 2, 1), y - _BOX_HEIGHT / 2, round(wide, 1), _BOX_HEIGHT, look
        )
        + text
    )


def _shade(share: float) -> str:
    """Return a light to middling blue, on which black text has enough contrast."""
    red, green, blue = (round(255 - (255 - end) * min(1.0, share)) for end in (116, 173, 209))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _arrow(points: Points, source: Any, target: Any, label: str, both_ways: bool) -> Markup:
    if source == target:
        return _loop(points[source], source, label)
    (x1, y1), (x2, y2) = points[source], points[target]
    length = math.hypot(x2 - x1, y2 - y1)
    # Bent to the right of its way, so that there and back are two lines.
    bend = 34 if both_ways else 12
    cx = (x1 + x2) / 2 - (y2 - y1) / length * bend
    cy = (y1 + y2) / 2 + (x2 - x1) / length * bend
    sx, sy = _edge((x1, y1), (cx, cy), source)
    ex, ey = _edge((x2, y2), (cx, cy), target)
    # The label stands a third of the way along, where fewer lines cross than in the middle.
    lx, ly = (_bezier(*axis, 0.36) for axis in ((sx, cx, ex), (sy, cy, ey)))
    return Markup(
        '<path d="M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}" fill="none" stroke="#555" '
        'marker-end="url(#llmsim-arrow)"/>{}'
    ).format(sx, sy, cx, cy, ex, ey, _arrow_text(lx, ly, label))


def _arrow_text(x: float, y: float, label: str) -> Markup:
    return Markup(
        '<text x="{:.1f}" y="{:.1f}" text-anchor="middle" '
        'style="font-size:10.5px;paint-order:stroke;stroke:#fff;stroke-width:4px">{}</text>'
    ).format(x, y, safe(label))


def _loop(point: tuple[float, float], state: object, label: str) -> Markup:
    x, y = point
    side = 1 if x >= _WIDTH / 2 else -1
    edge = x + side * _box_width(state) / 2
    far = edge + side * 40
    return Markup(
        '<path d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}" fill="none" '
        'stroke="#555" marker-end="url(#llmsim-arrow)"/>{}'
    ).format(edge, y - 10, far, y - 24, far, y + 24, edge, y + 10, _arrow_text(far, y - 24, label))


def _bezier(start: float, middle: float, end: float, at: float) -> float:
    return (1 - at) ** 2 * start + 2 * (1 - at) * at * middle + at**2 * end


def _edge(
    centre: tuple[float, float], toward: tuple[float, float], state: object
) -> tuple[float, float]:
    """Return where the line from a box's centre toward a point leaves the box."""
    dx, dy = toward[0] - centre[0], toward[1] - centre[1]
    half_wide, half_high = _box_width(state) / 2 + 3, _BOX_HEIGHT / 2 + 3
    scale = min(
        half_wide / abs(dx) if dx else math.inf, half_high / abs(dy) if dy else math.inf, 1.0
    )
    return centre[0] + dx * scale, centre[1] + dy * scale
