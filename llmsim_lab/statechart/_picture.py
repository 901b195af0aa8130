"""A statechart as a picture (SVG), and as text for Mermaid and Graphviz.

The picture is made by hand: it needs no program beside Python, is the same everywhere, and is read
out. Mermaid's own picture exists only where a script draws it: not in a widget's HTML, not in a
mailed page without a network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from llmsim_lab._util.html import INK, PAPER, TEXT, safe, visible

_COLUMN, _ROW, _MARGIN = 290, 84, (96, 40)
"""Pixels between the middles of boxes, and from those to the picture's edge."""
_CELL = (3.2, 2.0)
"""Size of a cell where 1 is as near to a box's middle as an arrow may pass."""
_BOX_HEIGHT = 40
_WARMTHS = np.geomspace(20, 3, 40)
_MOST_ARRANGED = 14
"""States up to which places without crossings are searched; 0.3 s for eight of them, once."""
_LETTER = 7.4
"""Width of a letter at the size used, pixels, near enough for the boxes."""

_PLAIN_ID = re.compile(r"[A-Za-z]+(_[A-Za-z]+)*")
_MERMAID_WORDS = re.compile(
    "as|choice|class|classdef|click|constructor|default|direction|end|fork|hide|href|join|note|of|"
    "prototype|scale|state|style",
    re.IGNORECASE,
)
"""Words that a state of a Mermaid diagram cannot be called."""

# In the page's colours; black on white where they are not known, as in a mailed page.
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {w} {h}" '
    f'style="max-width:{{w}}px;width:100%;background:{PAPER};color:{TEXT};fill:{TEXT};'
    'font-family:sans-serif;font-size:13px">'
    "<title>{title}</title><desc>{desc}</desc>"
    '<defs><marker id="llmsim-arrow" viewBox="0 0 10 10" refX="9" refY="5" '
    'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    '<path d="M0 0L10 5L0 10z" fill="#888"/></marker></defs>{arrows}{boxes}{labels}</svg>'
)
_LABEL = (
    '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" '
    f'style="font-size:10.5px;paint-order:stroke;stroke:{PAPER};stroke-width:4px">{{}}</text>'
)
_ARROW = '<path d="{}" fill="none" stroke="#888" marker-end="url(#llmsim-arrow)"/>'

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

    def svg(
        self,
        *,
        current: str | None = None,
        counts: Mapping[str, int] | None = None,
        title: str = "Statechart",
        ring: bool = False,
    ) -> str:
        """Return an SVG picture, with a description that is read out.

        The states stand where as few arrows as can be cross each other or a box.

        Args:
            current: a state to mark.
            counts: how many agents are in each state; the more, the darker its box.
            title: of the picture, read out first.
            ring: True to put the states on an ellipse, which takes no time.
        """
        if ring or len(self.states) > _MOST_ARRANGED:
            points = _ring(self.states)
        else:
            ways = frozenset(arrow[:2] for arrow in self.arrows)
            points = _arranged(self.states, self.initial, ways)
        width, height = (
            max(point[axis] for point in points.values()) + _MARGIN[axis] for axis in (0, 1)
        )
        # Transitions between the same two states share an arrow.
        labels: dict[tuple[str, str], list[str]] = {}
        for arrow in self.arrows:
            labels.setdefault((arrow.source, arrow.target), []).append(arrow.label)
        drawn = [
            _loop(points[source], width / 2, source, ", ".join(texts))
            if source == target
            else _arrow(points, source, target, ", ".join(texts), (target, source) in labels)
            for (source, target), texts in labels.items()
        ]
        total = sum(counts.values()) if counts else 0
        first = None if ring else self.initial
        facts = [] if ring else [f"{len(self.states)} states, beginning at {self.initial}"]
        if current is not None:
            facts.append(f"now at {current}")
        if counts is not None:
            facts += [f"{state}: {counts.get(state, 0)}" for state in self.states]
        return Markup(_SVG).format(
            title=safe(title),
            w=int(width),
            h=int(height),
            desc=safe("; ".join([*facts, *map(str, self.arrows)])),
            arrows=Markup("").join(arrow for arrow, _ in drawn),
            # Above the boxes, which may be near.
            labels=Markup("").join(label for _, label in drawn),
            boxes=Markup("").join(
                _box(
                    state,
                    points[state],
                    border="#d55e00" if state == current else "#888",
                    border_px=4 if state == current else 2.5 if state == first else 1,
                    share=counts.get(state, 0) / total if counts and total else 0.0,
                    lit=bool(counts and counts.get(state)) or state == current,
                    count=None if counts is None else counts.get(state, 0),
                )
                for state in self.states
            ),
        )


@cache
def _arranged(
    states: tuple[str, ...], initial: str, ways: frozenset[tuple[str, str]]
) -> dict[str, _Point]:
    """Return where the states stand, found by a search that is the same each time.

    States move to cells in turn, to better ones always and to worse ones ever more rarely
    (simulated annealing).

    Args:
        states: all of them.
        initial: the one that is drawn to the upper left.
        ways: from which to which there is an arrow.
    """
    order = [initial, *(state for state in states if state != initial)]
    place = {state: number for number, state in enumerate(order)}
    ends = sorted(
        (place[a], place[b])
        for a, b in ways
        if a != b and not (place[a] > place[b] and (b, a) in ways)
    )
    edges = np.array(ends, dtype=int).reshape(-1, 2)
    # There and back are two lines, which need more room.
    room = np.array([1.4 if (order[b], order[a]) in ways else 0.9 for a, b in ends])
    # Fewer columns than rows, since boxes are wide, and twice the rows, to leave cells free.
    columns = max(3, round(math.sqrt(len(order)) / 1.2))
    rows = max(7, 2 * -(-len(order) // columns))
    grid = np.array([(x, y) for y in range(rows) for x in range(columns)], dtype=float)
    # Of its own seed: no draw of a run's depends on a picture.
    luck = np.random.default_rng(0)
    at = luck.permutation(grid)[: len(order)]
    best, least = at, np.inf
    for warmth in _WARMTHS:
        for state in range(len(order)):
            tries = np.repeat(at[None], len(grid), axis=0)
            tries[:, state] = grid  # all cells at once, since the costs are computed as arrays
            # Two states change places where the cell is taken.
            for cell, other in np.argwhere((grid[:, None] == at).all(2)):
                tries[cell, other] = grid[cell] if other == state else at[state]
            costs = _costs(tries, edges, room)
            if costs.min() < least - 1e-9:
                best, least = tries[costs.argmin()], costs.min()
            at = tries[(costs + warmth * luck.gumbel(size=len(grid))).argmin()]
    # Turned so that the initial state is to the upper left.
    span = np.ptp(best, axis=0)
    best = best - best.min(0)
    best = np.where(2 * best[0] > span, span - best, best) * (_COLUMN, _ROW) + _MARGIN
    return {state: (float(x), float(y)) for state, (x, y) in zip(order, best, strict=True)}


def _ring(states: Sequence[str]) -> dict[str, _Point]:
    """Return places on an ellipse, the first on top."""
    step = 2 * math.pi / len(states)
    wide, high = 21 * max(10, len(states)), 19 * max(10, len(states))
    return {
        state: (
            _MARGIN[0] + wide * (1 + math.sin(place * step)),
            _MARGIN[1] + high * (1 - math.cos(place * step)),
        )
        for place, state in enumerate(states)
    }


def _costs(
    tries: npt.NDArray[np.float64], edges: npt.NDArray[np.int_], room: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return how bad arrangements are: crossings, arrows through boxes, then lengths."""
    tries = tries * _CELL
    a, b = tries[:, edges[:, 0]], tries[:, edges[:, 1]]
    way = b - a

    def side(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return on which side of each edge points are: tries by edges by points."""
        to = points[:, None] - a[:, :, None]
        crossed: npt.NDArray[np.float64] = (
            way[:, :, None, 0] * to[..., 1] - way[:, :, None, 1] * to[..., 0]
        )
        return crossed

    apart = side(a) * side(b) < 0
    crossings = (apart & apart.transpose(0, 2, 1)).sum((1, 2)) / 2
    lengths = np.hypot(way[..., 0], way[..., 1])
    to = tries[:, None] - a[:, :, None]
    along = (to * way[:, :, None]).sum(3) / np.maximum(lengths[..., None] ** 2, 1e-9)
    near = np.hypot(*np.moveaxis(to - np.clip(along, 0, 1)[..., None] * way[:, :, None], 3, 0))
    own = (edges[:, :, None] == np.arange(tries.shape[1])).any(1)
    through = ((near < room[:, None]) & ~own).sum((1, 2))
    total: npt.NDArray[np.float64] = 40 * (crossings + through) + lengths.sum(1)
    return total


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
    state: str,
    point: _Point,
    *,
    border: str,
    border_px: float,
    share: float,
    lit: bool,
    count: int | None,
) -> Markup:
    x, y = point
    wide = _box_width(state)
    # Pale to a middling blue, on which dark text has enough contrast.
    red, green, blue = (
        round(start - (start - end) * min(1.0, share))
        for start, end in ((222, 116), (235, 173), (247, 209))
    )
    fill = f"#{red:02x}{green:02x}{blue:02x}" if lit else PAPER
    look = f"fill:{fill};stroke:{border};stroke-width:{border_px}"
    ink = f"fill:{INK if lit else TEXT}"
    text = Markup('<text x="{}" y="{}" text-anchor="middle" style="{}">{}</text>').format(
        x, y + (4 if count is None else -2), ink, safe(state)
    )
    if count is not None:
        text += Markup(
            '<text x="{}" y="{}" text-anchor="middle" font-weight="bold" style="{}">{}</text>'
        ).format(x, y + 14, ink, count)
    return (
        Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="9" style="{}"/>').format(
            round(x - wide / 2, 1), y - _BOX_HEIGHT / 2, round(wide, 1), _BOX_HEIGHT, look
        )
        + text
    )


def _arrow(
    points: Mapping[str, _Point], source: str, target: str, label: str, both_ways: bool
) -> tuple[Markup, Markup]:
    (x1, y1), (x2, y2) = points[source], points[target]
    length = math.hypot(x2 - x1, y2 - y1)
    # Bent to the right of its way, so that there and back are two lines.
    bend = 28 if both_ways else 8
    cx = (x1 + x2) / 2 - (y2 - y1) / length * bend
    cy = (y1 + y2) / 2 + (x2 - x1) / length * bend
    sx, sy = _edge((x1, y1), (cx, cy), source)
    ex, ey = _edge((x2, y2), (cx, cy), target)
    # Of two lines there and back, each has its label nearer to its own beginning.
    at = 0.36 if both_ways else 0.5
    lx, ly = (
        (1 - at) ** 2 * start + 2 * (1 - at) * at * middle + at**2 * end
        for start, middle, end in ((sx, cx, ex), (sy, cy, ey))
    )
    anchor = "middle"
    if both_ways and abs(x2 - x1) < abs(y2 - y1) / 2:
        # Outside of two steep lines, whose labels would meet between them.
        left = cx < (x1 + x2) / 2
        anchor, lx = ("end", lx - 4) if left else ("start", lx + 4)
    arrow = f"M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}"
    return Markup(_ARROW).format(arrow), Markup(_LABEL).format(lx, ly, anchor, safe(label))


def _loop(point: _Point, middle: float, state: str, label: str) -> tuple[Markup, Markup]:
    x, y = point
    side = -1 if x >= middle else 1  # where the picture has room
    edge = x + side * _box_width(state) / 2
    far = edge + side * 40
    arrow = (
        f"M{edge:.1f} {y - 10:.1f}C{far:.1f} {y - 24:.1f} {far:.1f} {y + 24:.1f} "
        f"{edge:.1f} {y + 10:.1f}"
    )
    return Markup(_ARROW).format(arrow), Markup(_LABEL).format(far, y - 24, "middle", safe(label))


def _edge(centre: _Point, toward: _Point, state: str) -> _Point:
    """Return where the line from a box's centre toward a point leaves the box."""
    dx, dy = toward[0] - centre[0], toward[1] - centre[1]
    half_wide, half_high = _box_width(state) / 2 + 3, _BOX_HEIGHT / 2 + 3
    scale = min(
        half_wide / abs(dx) if dx else math.inf, half_high / abs(dy) if dy else math.inf, 1.0
    )
    return centre[0] + dx * scale, centre[1] + dy * scale
