"""A statechart as a picture (SVG), and as text for Mermaid and Graphviz.

The picture is made by hand: it needs no program beside Python, is the same everywhere, and is read
out. Mermaid's own picture exists only where a script draws it: not in a widget's HTML, not in a
mailed page without a network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from llmsim_lab._util.html import safe, visible

_WIDTH, _HEIGHT = 860, 520
_BOX_HEIGHT = 40
_LETTER = 7.4
"""Width of a letter at the size used, pixels, near enough for the boxes."""

_PLAIN_ID = re.compile(r"[A-Za-z]+(_[A-Za-z]+)*")
_MERMAID_WORDS = re.compile(
    "as|choice|class|classdef|click|constructor|default|direction|end|fork|hide|href|join|note|of|"
    "prototype|scale|state|style",
    re.IGNORECASE,
)
"""Words that a state of a Mermaid diagram cannot be called."""

# Black on white whatever the page's theme: the labels have an outline of the paper's colour.
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {w} {h}" '
    'style="max-width:{w}px;width:100%;background:#fff;color:#1b1b1b;'
    'font-family:sans-serif;font-size:13px">'
    "<title>Statechart</title><desc>{desc}</desc>"
    '<defs><marker id="llmsim-arrow" viewBox="0 0 10 10" refX="9" refY="5" '
    'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    '<path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>{arrows}{boxes}</svg>'
)
_LABEL = (
    '<text x="{:.1f}" y="{:.1f}" text-anchor="middle" '
    'style="font-size:10.5px;paint-order:stroke;stroke:#fff;stroke-width:4px">{}</text>'
)
_ARROW = '<path d="{}" fill="none" stroke="#555" marker-end="url(#llmsim-arrow)"/>{}'

_Point = tuple[float, float]


class Arrow(NamedTuple):
    """A transition: ``label`` is its trigger and guard, ``action`` the action's name or empty."""

    source: str
    target: str
    label: str
    action: str = ""

    @property
    def full_label(self) -> str:
        """Trigger, guard and action, as UML writes them."""
        return f"{self.label} / {self.action}" if self.action else self.label

    def __str__(self) -> str:
        return f"{self.source} --{self.label}--> {self.target}"


@dataclass(frozen=True, slots=True)
class Diagram:
    """What is drawn of a chart; names may be any texts, also untrusted ones."""

    states: tuple[str, ...]
    initial: str
    final: frozenset[str]
    arrows: tuple[Arrow, ...]

    def mermaid(self) -> str:
        """Return a Mermaid state diagram."""
        lines, ids = ["stateDiagram-v2"], {state: state for state in self.states}
        if not all(
            _PLAIN_ID.fullmatch(name) and not _MERMAID_WORDS.fullmatch(name) for name in ids
        ):
            # Mermaid takes plain words only; other names are titles of numbered states.
            ids = {state: f"s{number}" for number, state in enumerate(self.states)}
            lines += [f'    state "{_mermaid_text(state)}" as {ids[state]}' for state in ids]
        lines.append(f"    [*] --> {ids[self.initial]}")
        lines += [
            f"    {ids[arrow.source]} --> {ids[arrow.target]} : {_mermaid_text(arrow.full_label)}"
            for arrow in self.arrows
        ]
        lines += [f"    {ids[state]} --> [*]" for state in self.states if state in self.final]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """Return a graph in Graphviz's DOT language."""
        lines = ["digraph statechart {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
        lines += ["    __start [shape=point];", f"    __start -> {_dot_text(self.initial)};"]
        for state in self.states:
            look = " [peripheries=2]" if state in self.final else ""
            lines.append(f"    {_dot_text(state)}{look};")
        lines += [
            f"    {_dot_text(arrow.source)} -> {_dot_text(arrow.target)} "
            f"[label={_dot_text(arrow.full_label)}];"
            for arrow in self.arrows
        ]
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self, *, current: str | None = None, counts: Mapping[str, int] | None = None) -> str:
        """Return an SVG picture, with a description that is read out.

        The states stand on an ellipse, in the chart's order, the initial one on top.

        Args:
            current: a state to mark.
            counts: how many agents are in each state; the more, the darker its box.
        """
        order = [self.initial, *(state for state in self.states if state != self.initial)]
        step = 2 * math.pi / len(order)
        points = {
            state: (
                round(_WIDTH / 2 + (_WIDTH / 2 - 100) * math.sin(place * step), 1),
                round(_HEIGHT / 2 - (_HEIGHT / 2 - 50) * math.cos(place * step), 1),
            )
            for place, state in enumerate(order)
        }
        # Transitions between the same two states share an arrow.
        labels: dict[tuple[str, str], list[str]] = {}
        for arrow in self.arrows:
            labels.setdefault((arrow.source, arrow.target), []).append(arrow.label)
        total = sum(counts.values()) if counts else 0
        facts = [f"{len(self.states)} states, beginning at {self.initial}"]
        if current is not None:
            facts.append(f"now at {current}")
        if counts is not None:
            facts += [f"{state}: {counts.get(state, 0)}" for state in self.states]
        return Markup(_SVG).format(
            w=_WIDTH,
            h=_HEIGHT,
            desc=safe("; ".join([*facts, *map(str, self.arrows)])),
            arrows=Markup("").join(
                _loop(points[source], source, ", ".join(texts))
                if source == target
                else _arrow(points, source, target, ", ".join(texts), (target, source) in labels)
                for (source, target), texts in labels.items()
            ),
            boxes=Markup("").join(
                _box(
                    state,
                    points[state],
                    border="#d55e00" if state == current else "#555",
                    border_px=4 if state == current else 2.5 if state == self.initial else 1,
                    share=counts.get(state, 0) / total if counts and total else 0.0,
                    count=None if counts is None else counts.get(state, 0),
                )
                for state in self.states
            ),
        )


def _mermaid_text(text: str) -> str:
    """Return a text that Mermaid shows and does not obey: codes such as ``#59;`` for a ``;``."""
    return "".join(
        letter if letter.isalnum() or letter in " _-.,()[]/'" else f"#{ord(letter)};"
        for letter in " ".join(visible(text).split())
    )


def _dot_text(text: str) -> str:
    # Backslashes first, else those of the other escapes would be doubled.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _box_width(state: str) -> float:
    return len(state) * _LETTER + 24


def _box(
    state: str, point: _Point, *, border: str, border_px: float, share: float, count: int | None
) -> Markup:
    x, y = point
    wide = _box_width(state)
    # White to a middling blue, on which black text has enough contrast.
    red, green, blue = (round(255 - (255 - end) * min(1.0, share)) for end in (116, 173, 209))
    look = f"fill:#{red:02x}{green:02x}{blue:02x};stroke:{border};stroke-width:{border_px}"
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


def _arrow(
    points: Mapping[str, _Point], source: str, target: str, label: str, both_ways: bool
) -> Markup:
    (x1, y1), (x2, y2) = points[source], points[target]
    length = math.hypot(x2 - x1, y2 - y1)
    # Bent to the right of its way, so that there and back are two lines.
    bend = 34 if both_ways else 12
    cx = (x1 + x2) / 2 - (y2 - y1) / length * bend
    cy = (y1 + y2) / 2 + (x2 - x1) / length * bend
    sx, sy = _edge((x1, y1), (cx, cy), source)
    ex, ey = _edge((x2, y2), (cx, cy), target)
    # The label stands a third of the way along the Bézier curve: fewer lines cross than in the
    # middle.
    at = 0.36
    lx, ly = (
        (1 - at) ** 2 * start + 2 * (1 - at) * at * middle + at**2 * end
        for start, middle, end in ((sx, cx, ex), (sy, cy, ey))
    )
    return Markup(_ARROW).format(
        f"M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}",
        Markup(_LABEL).format(lx, ly, safe(label)),
    )


def _loop(point: _Point, state: str, label: str) -> Markup:
    x, y = point
    side = 1 if x >= _WIDTH / 2 else -1  # away from the middle, where the other arrows are
    edge = x + side * _box_width(state) / 2
    far = edge + side * 40
    return Markup(_ARROW).format(
        f"M{edge:.1f} {y - 10:.1f}C{far:.1f} {y - 24:.1f} {far:.1f} {y + 24:.1f} "
        f"{edge:.1f} {y + 10:.1f}",
        Markup(_LABEL).format(far, y - 24, safe(label)),
    )


def _edge(centre: _Point, toward: _Point, state: str) -> _Point:
    """Return where the line from a box's centre toward a point leaves the box."""
    dx, dy = toward[0] - centre[0], toward[1] - centre[1]
    half_wide, half_high = _box_width(state) / 2 + 3, _BOX_HEIGHT / 2 + 3
    scale = min(
        half_wide / abs(dx) if dx else math.inf, half_high / abs(dy) if dy else math.inf, 1.0
    )
    return centre[0] + dx * scale, centre[1] + dy * scale
