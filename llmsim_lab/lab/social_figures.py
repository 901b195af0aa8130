"""Charts of the social simulation: states over rounds, the transition matrix, a cascade's tree.

Each is a matplotlib figure with a text for who cannot see it, as ``alt``, made without pyplot so
that nothing global changes. Colours are from Paul Tol's "muted" scheme, which colour-blind readers
can tell apart, or shades of one; names, shapes and numbers say the same.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.lab.charts.export import figure_bytes, small_png
from llmsim_lab.lab.charts.labels import drawable
from llmsim_lab.markup import visible
from llmsim_lab.statechart import AgentState
from llmsim_lab.statechart._analysis import Cascade, state_frame, transition_matrix
from llmsim_lab.statechart._state import SocialTurn
from llmsim_lab.text import clip

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["cascade_figure", "draw_states", "figure_html", "state_figure", "transition_figure"]

_COLOURS = {
    AgentState.IDLE: "#BBBBBB",
    AgentState.SCROLLING: "#88CCEE",
    AgentState.EVALUATING: "#332288",
    AgentState.COMPOSING: "#117733",
    AgentState.ENGAGING_LIKE: "#DDCC77",
    AgentState.ENGAGING_REPLY: "#CC6677",
    AgentState.ENGAGING_RESHARE: "#882255",
    AgentState.RESTING: "#DDDDDD",
}
_KINDS = {"original": ("o", "#332288"), "reply": ("s", "#CC6677"), "reshare": ("^", "#117733")}
_MOST_NAMED = 40
"""Posts of a cascade up to which their authors are written beside them."""


@cache
def _figure_class() -> Any:
    from matplotlib.figure import Figure

    class SocialFigure(Figure):
        """A figure that a notebook shows, with its text for who cannot see it."""

        alt = ""

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            # nbconvert's classic pages take the image's text from the second; JupyterLab 4.6
            # does not.
            return small_png(figure_bytes(self, "png", dpi=80)), {"alt": self.alt}

        def __repr__(self) -> str:
            return self.alt

    return SocialFigure


def figure_html(figure: Figure, *, dpi: float = 80) -> Markup:
    """Return a figure as an image with its text.

    Args:
        figure: one of this module's.
        dpi: dots per inch.
    """
    png = small_png(figure_bytes(figure, "png", dpi=dpi))
    # White below and around, so that it reads on a dark page.
    return Markup(
        '<img alt="{}" src="data:image/png;base64,{}" style="max-width:100%;background:#fff;'
        'padding:6px;box-sizing:border-box">'
    ).format(getattr(figure, "alt", ""), base64.b64encode(png).decode("ascii"))


def _name(state: object) -> str:
    return str(state).replace("_", " ")


def _whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def state_figure(turns: Sequence[SocialTurn], *, title: str = "What users are doing") -> Figure:
    """Draw how many users are in each state, round by round, as stacked areas.

    Args:
        turns: a run's.
        title: above the chart.
    """
    return draw_states(state_frame(turns), title=title)


def draw_states(frame: pd.DataFrame, *, title: str) -> Figure:
    """Do what ``state_figure`` does with what ``state_frame`` returns."""
    figure: Figure = _figure_class()(figsize=(8, 4), layout="constrained", facecolor="white")
    axes = figure.subplots()
    shown = [state for state in AgentState if frame[state.value].any()]
    # A step begins half a round before its round, and the last one ends half a round after it.
    edges = [*(number - 0.5 for number in frame.index), frame.index[-1] + 0.5]
    axes.stackplot(
        edges,
        [[*frame[state.value], frame[state.value].iloc[-1]] for state in shown],
        labels=[_name(state.value) for state in shown],
        colors=[_COLOURS[state] for state in shown],
        step="post",
        edgecolor="white",
        linewidth=0.5,
    )
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, frame.iloc[0].sum())
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel("round")
    axes.set_ylabel("users")
    axes.set_title(drawable(title, 80), loc="left")
    handles, labels = axes.get_legend_handles_labels()
    # Top to bottom as the areas stand.
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))
    last = frame.iloc[-1]
    counts = ", ".join(f"{_name(name)} {count}" for name, count in last.items() if count)
    figure.alt = visible(  # type: ignore[attr-defined]
        f"{title}: stacked areas of users by state, rounds {frame.index[0]} to {frame.index[-1]}. "
        f"In the last one: {counts}."
    )
    return figure


def transition_figure(
    turns: Sequence[SocialTurn], *, title: str = "Where users go from each state"
) -> Figure:
    """Draw the shares of moves out of each state, with the numbers in the fields.

    Args:
        turns: a run's.
        title: above the chart.
    """
    shares, counts = transition_matrix(turns), transition_matrix(turns, shares=False)
    names = [_name(name) for name in shares.columns]
    share_of, count_of = shares.to_numpy(dtype=float), counts.to_numpy(dtype=int)
    figure: Figure = _figure_class()(figsize=(7.5, 5.5), layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.imshow(share_of, cmap="Blues", vmin=0, vmax=1)
    for row in range(len(names)):
        for column in range(len(names)):
            if count := count_of[row, column]:
                share = share_of[row, column]
                axes.text(
                    column,
                    row,
                    f"{share:.0%}\n({count})",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if share > 0.5 else "black",
                )
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    axes.set_title(drawable(title, 80), loc="left")
    parts = [
        f"{names[row]} to {names[column]} {share_of[row, column]:.0%}"
        for row in range(len(names))
        for column in range(len(names))
        if count_of[row, column]
    ]
    figure.alt = visible(  # type: ignore[attr-defined]
        f"{title}: shares of the moves out of each state. {'; '.join(parts) or 'No moves'}."
    )
    return figure


def cascade_figure(cascade: Cascade, *, title: str | None = None) -> Figure:
    """Draw a cascade as a tree, a level a column: who answered or passed on from whom.

    Args:
        cascade: the cascade.
        title: above the chart; the first post's author and text if not given.
    """
    places = _places(cascade)
    width = min(14.0, max(8.0, 1.6 * (cascade.depth + 1)))
    height = min(12.0, max(2.5, 0.26 * (max(y for _, y in places.values()) + 2)))
    figure: Figure = _figure_class()(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    axes = figure.subplots()
    for parent, below in cascade.children.items():
        for post in below:
            (x1, y1), (x2, y2) = places[parent], places[post.id]
            axes.plot([x1, x2], [y1, y2], color="#999999", linewidth=0.8, zorder=1)
    for kind, (marker, colour) in _KINDS.items():
        points = [places[post.id] for post in cascade.posts if post.kind == kind]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.scatter(xs, ys, marker=marker, color=colour, s=36, label=kind, zorder=2)
    if cascade.size <= _MOST_NAMED:
        for post in cascade.posts:
            x, y = places[post.id]
            axes.annotate(
                drawable(post.author, 24),
                (x, y),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )
    axes.set_xlim(-0.3, cascade.depth + 0.9)
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel("steps from the first post")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    title = title or f"{cascade.root.author}: {cascade.root.text}"
    axes.set_title(drawable(title, 90), loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.alt = visible(  # type: ignore[attr-defined]
        f"Tree of a cascade: {clip(title, 120)}. {cascade.size} posts, depth {cascade.depth}, "
        f"breadth {cascade.breadth}, {cascade.likes} likes."
    )
    return figure


def _places(cascade: Cascade) -> dict[int, tuple[float, float]]:
    """Return where posts stand: the level to the right, ends of branches below each other."""
    heights: dict[int, float] = {}
    bottom = 0
    for post, _ in cascade.walk():
        if post.id not in cascade.children:
            heights[post.id] = bottom
            bottom += 1
    for post, _ in reversed(list(cascade.walk())):
        if post.id in cascade.children:
            below = [heights[child.id] for child in cascade.children[post.id]]
            heights[post.id] = sum(below) / len(below)
    return {post: (level, heights[post]) for post, level in cascade.levels.items()}
