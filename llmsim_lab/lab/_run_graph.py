"""A tape's runs as a graph: a node is a run, an edge says what was changed.

Runs stand in columns by how many forks lie before them, a first fork in its parent's row. Siblings
that differ only in a seed, as a sweep's do, are one node until somebody unfolds them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from textwrap import wrap

from markupsafe import Markup

from llmsim_lab._util.html import join, visible
from llmsim_lab._util.text import clip, printable
from llmsim_lab.tape._changes import TextTree, shared_start
from llmsim_lab.tape._codec import RunInfo

NODE_WIDE, EDGE_WIDE, ROW_HIGH, NODE_HIGH = 150, 180, 46, 28
"""Pixels."""
_FEWEST, _MOST = 4, 24
"""Siblings that are folded, and nodes below one run."""
_LINE, _LINES = 28, 2
"""Letters of a line on an edge, and lines."""
_SEED = re.compile(r"((?:seed|replicate)\S* )(-?\d+)")
_NUMBER = re.compile(r"()(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A run, or several that are folded into one.

    Attributes:
        runs: which; of the tape itself, where several runs came from none, empty.
        name: on the node.
        words: on the edge to it.
        column, row: its place.
        parent: the row of the node that it came from; None for the first.
    """

    runs: tuple[RunInfo, ...]
    name: str
    words: str
    column: int
    row: int
    parent: int | None


def nodes_of(tree: TextTree, *, title: str, unfolded: Collection[int] = ()) -> list[Node]:
    """Return where each run stands.

    Args:
        tree: the runs, and what they changed.
        title: what stands for the tape, where several of its runs came from none.
        unfolded: first runs of those that are not to be folded.
    """
    nodes: list[Node] = []
    several = len(tree.below[None]) > 1
    if several:
        nodes.append(Node(runs=(), name=title, words="", column=0, row=0, parent=None))
    # A stack, not recursion: forks of forks may be deeper than Python's stack.
    start = (0, 0) if several else (-1, None)
    todo = [(group, *start) for group in reversed(_groups(tree, None, unfolded))]
    row, last = -1, -1
    while todo:
        group, column, parent = todo.pop()
        # A first fork continues its parent's row, unless that has gone further already.
        row = row if nodes and parent == row and last == column else row + 1
        first = group[0]
        name = f"{first.id} {printable(first.name)}"
        if len(group) > 1:
            name = f"{len(group)} runs: {first.id} to {group[-1].id}"
        words = _words(tree, group)
        last = column + 1
        nodes.append(Node(runs=group, name=name, words=words, column=last, row=row, parent=parent))
        if len(group) == 1:
            below = _groups(tree, first.id, unfolded) if first.id in tree.below else []
            todo += [(each, last, row) for each in reversed(below)]
    return nodes


def _groups(
    tree: TextTree, run: int | None, unfolded: Collection[int]
) -> list[tuple[RunInfo, ...]]:
    """Return what came from a run, with those folded that differ in a seed; in any number, if many.

    Those that others came from stand by themselves.
    """
    found: list[tuple[RunInfo, ...]] = []
    for pattern in (_SEED, _NUMBER, None):
        alike: dict[object, list[RunInfo]] = {}
        for info in tree.below[run]:
            words = "; ".join(tree.changed[info.id])
            own = info.id if info.id in tree.below else 0
            said = pattern.sub(r"\1#", words) if pattern else ""
            alike.setdefault((own, info.name, info.fork_turn, said), []).append(info)
        found = []
        for runs in alike.values():
            fold = len(runs) >= _FEWEST and runs[0].id not in unfolded
            found += [tuple(runs)] if fold else [(info,) for info in runs]
        if len(found) <= _MOST or unfolded:
            break
    return sorted(found, key=lambda runs: runs[0].id)


def _words(tree: TextTree, runs: Sequence[RunInfo]) -> str:
    """Return what was changed, of several runs as ``seed 1 … 200``."""
    first, last = ("; ".join(tree.changed[runs[at].id]) for at in (0, -1))
    words = first
    if first != last:
        words = f"{first} … {last}"
        start = len(first[: shared_start(first, last)].rstrip("0123456789.-"))
        if first[start:].isdigit() and last[start:].isdigit():
            words = f"{first} … {last[start:]}"
    verb, turn = runs[0].verb, runs[0].fork_turn
    if not words and verb != "run":
        words = verb if turn is None else f"{verb} at turn {turn}"
    elif turn is not None and not words.startswith("turn "):
        words = f"after turn {turn}: {words}"
    return printable(words)


def graph_svg(nodes: Sequence[Node], *, boxes: bool) -> Markup:
    """Return the edges and what they say as a drawing.

    Args:
        nodes: where each run stands.
        boxes: True to draw the nodes as well, in dark on white, for an image; else they are drawn
            over it, and the colours are those of the text around.
    """
    columns, rows = grid_of(nodes)
    across, down = columns * (NODE_WIDE + EDGE_WIDE) + NODE_WIDE, rows * ROW_HIGH
    ink = "#222" if boxes else "currentColor"
    paper = Markup('<rect width="{}" height="{}" fill="#fff"/>').format(across, down)
    shapes = [paper if boxes else "", *(_shape(node, boxes=boxes) for node in nodes)]
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="{2}" style="display:block">'
        "{3}</svg>"
    ).format(across, down, ink, join(shapes))


def grid_of(nodes: Sequence[Node]) -> tuple[int, int]:
    """Return how many columns of edges and rows of nodes the graph has."""
    return max(node.column for node in nodes), max(node.row for node in nodes) + 1


def _shape(node: Node, *, boxes: bool) -> Markup:
    left = node.column * (NODE_WIDE + EDGE_WIDE)
    middle = (node.row + 1) * ROW_HIGH - NODE_HIGH // 2
    parts = []
    if node.parent is not None:
        begin, turn = left - EDGE_WIDE, (node.parent + 1) * ROW_HIGH - NODE_HIGH // 2
        path = '<path d="M{} {}h10V{}H{}" fill="none" stroke="#808080" stroke-width="1.5"/>'
        lines = wrap(visible(node.words), _LINE)
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [clip(f"{lines[_LINES - 1]} …", _LINE)]
        texts = [
            Markup('<text x="{}" y="{}">{}</text>').format(begin + 16, middle - 6 - 13 * up, line)
            for up, line in zip(range(len(lines))[::-1], lines, strict=True)
        ]
        parts += [
            Markup(path).format(begin, turn, middle, left),
            Markup("<g><title>{}</title>{}</g>").format(visible(node.words), join(texts)),
        ]
    if boxes or not node.runs:
        rect = '<rect x="{}" y="{}" width="{}" height="{}" rx="4" fill="none" stroke="#808080"/>'
        text = '<text x="{}" y="{}" font-size="12">{}</text>'
        name = clip(visible(node.name), 21)
        parts += [
            Markup(rect).format(left + 0.5, middle - NODE_HIGH // 2, NODE_WIDE - 1, NODE_HIGH - 1),
            Markup(text).format(left + 8, middle + 4, name),
        ]
    return join(parts)
