"""Figures of runs without a widget, for notebooks and papers.

Each is a matplotlib figure made without pyplot, so that nothing global changes, and has its
content in words as ``alt``, for screen readers. A notebook shows it where a cell ends in it;
``figure.savefig("rates.svg")`` writes it. Colours are from palettes that colour-blind readers can
tell apart (Okabe and Ito's; Paul Tol's "muted"), or shades of one; names, shapes and numbers say
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import BEHIND, drawable, new_figure, told
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._picture import lines_of, picture
from llmsim_lab.simulation._config import SERIES
from llmsim_lab.study._figures import demo_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from llmsim_lab.run._turn import Turn
    from llmsim_lab.statechart import SocialSimulation
    from llmsim_lab.statechart._analysis import Cascade

__all__ = [
    "cascade_figure",
    "demo_figure",
    "rate_figure",
    "state_figure",
]

_PANELS = ("interest_rate", "inflation", "output_gap", "unemployment")


def rate_figure(
    runs: Mapping[str, pd.DataFrame],
    *,
    history: pd.DataFrame | None = None,
    rule_of: str | None = None,
    title: str = "Policy rate",
) -> Figure:
    """Draw runs' interest rates, and inflation, output gap and unemployment below.

    Args:
        runs: frames of ``Simulation.to_frame``, by the name in the legend.
        history: what happened, as ``economy.history`` gives it, from the runs' first quarter on.
        rule_of: name of the run for whose data the Taylor rule's answer is drawn.
        title: above the chart.

    Returns:
        A figure of four panels, which a notebook shows when a cell ends in it;
        ``figure.savefig("rates.png")`` writes it.

    Raises:
        ConfigError: there is no run, a frame is not a run's, or ``rule_of`` does not name one.
    """
    known = {series.column: series for series in SERIES}
    if history is not None and not hasattr(history, "columns"):
        raise ConfigError(f"history={history!r:.80} must be a frame, as economy.history gives it")
    lines = lines_of(dict(runs))
    for line in lines:
        if not any("interest_rate" in row for row in line.rows):
            what = f"the run {line.name!r} has no interest_rate"
            raise ConfigError(f"{what}; RateChart draws runs of any world")
    beside: dict[str, Any] = {}
    if history is not None:
        turns = list(range(int(lines[0].rows[0]["turn"]), len(history)))
        beside["history (T-bill)"] = {
            name: (turns, history[name].to_numpy(dtype=float)[: len(turns)])
            for name in _PANELS
            if name in history.columns
        }
    if rule_of is not None:
        if rule_of not in runs:
            what = f"rule_of={rule_of!r} is not a run here"
            raise ConfigError(f"{what}; the runs are: {', '.join(map(str, runs))}")
        [line] = [line for line in lines if line.name == rule_of]
        name = f"what the Taylor rule asks, on the data of: {rule_of}"
        beside[name] = {"interest_rate": line.points("taylor_rate")}
    panels = [known[name] for name in _PANELS]
    return picture(lines, panels, title, beside)


_COLOURS = ("#BBBBBB", "#88CCEE", "#332288", "#117733", "#DDCC77", "#CC6677", "#882255", "#DDDDDD")
"""Of the states, in their order."""
_KINDS = {"original": ("o", "#332288"), "reply": ("s", "#CC6677"), "reshare": ("^", "#117733")}
_MOST_NAMED = 40
"""Posts of a cascade up to which their authors are written beside them."""


def _name(state: str) -> str:
    return state.replace("_", " ")


def state_figure(turns: Sequence[Turn], *, title: str = "What users are doing") -> Figure:
    """Draw how many users are in each state, turn by turn, as stacked areas.

    Args:
        turns: a run's.
        title: above the chart.
    """
    import pandas as pd

    # Here, since the social world loads numpy, and `rate_figure` is on the front page.
    from llmsim_lab.statechart import AgentState

    numbers = [turn.number for turn in turns]
    frame = pd.DataFrame([turn.state.columns() for turn in turns], index=numbers)
    figure = new_figure(8, 4, small=True)
    axes = figure.subplots()
    colours = dict(zip([state.value for state in AgentState], _COLOURS, strict=True))
    shown = [name for name in colours if frame[name].any()]
    # An area begins half a turn before its turn; the last one ends half a turn after it.
    edges = [*(number - 0.5 for number in frame.index), frame.index[-1] + 0.5]
    areas = [[*frame[name], frame[name].iloc[-1]] for name in shown]
    look: dict[str, Any] = {"step": "post", "edgecolor": "white", "linewidth": 0.5}
    look |= {"labels": [_name(name) for name in shown], "colors": [colours[name] for name in shown]}
    axes.stackplot(edges, areas, **look)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, len(turns[0].state.people)))
    axes.set(xlabel="turn", ylabel="users")
    axes.set_title(drawable(title, 80), loc="left")
    # Top to bottom as the areas stand.
    axes.legend(reverse=True, loc="center left", bbox_to_anchor=(1, 0.5))
    last = frame.iloc[-1]
    counts = ", ".join(f"{_name(name)} {last[name]}" for name in shown if last[name])
    turns_shown = f"turns {frame.index[0]} to {frame.index[-1]}"
    words = f"stacked areas of users by state, {turns_shown}. In the last one: {counts}."
    return told(figure, f"{title}: {words}")


def cascade_figure(run: SocialSimulation, post: int, *, title: str | None = None) -> Figure:
    """Draw the cascade that a post is in as a tree: who replied to whom, or reshared what.

    Args:
        run: a run of the social simulation.
        post: the number of any of its posts.
        title: above the chart; the first post's author and text if not given.

    Raises:
        ConfigError: the run has no such post.
    """
    cascade = run.cascade_of(post)
    places = _places(cascade)
    width = min(14.0, max(8.0, 1.6 * (cascade.depth + 1)))
    height = min(12.0, max(2.5, 0.26 * (max(y for _, y in places.values()) + 2)))
    figure = new_figure(width, height, small=True)
    axes = figure.subplots()
    for parent, below in cascade.children.items():
        for child in below:
            (x1, y1), (x2, y2) = places[parent], places[child.id]
            axes.plot([x1, x2], [y1, y2], color="#999999", linewidth=0.8, zorder=1)
    for kind, (marker, colour) in _KINDS.items():
        points = [places[one.id] for one in cascade.posts if one.kind == kind]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.scatter(xs, ys, marker=marker, color=colour, s=36, label=kind, zorder=2)
    if cascade.size <= _MOST_NAMED:
        for member in cascade.posts:
            look: dict[str, Any] = {"va": "center", "fontsize": 8, "bbox": BEHIND}
            axes.annotate(
                drawable(member.author, 24),
                places[member.id],
                (6, 0),
                textcoords="offset points",
                **look,
            )
    axes.set_xlim(-0.3, cascade.depth + 0.9)
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("steps from the first post")
    axes.spines[["left", "right", "top"]].set_visible(False)
    title = title or f"{cascade.root.author}: {cascade.root.text}"
    axes.set_title(drawable(title, 90), loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    counts = f"{cascade.size} posts, depth {cascade.depth}, breadth {cascade.breadth}"
    words = f"Tree of a cascade: {clip(title, 120)}. {counts}, {cascade.likes} likes."
    return told(figure, words)


def _places(cascade: Cascade) -> dict[int, tuple[float, float]]:
    """Return the posts' places: levels to the right, ends of branches below each other."""
    ends = (post for post in cascade.levels if post not in cascade.children)
    heights: dict[int, float] = {post: place for place, post in enumerate(ends)}
    for post in reversed(cascade.levels):
        if post in cascade.children:
            below = [heights[child.id] for child in cascade.children[post]]
            heights[post] = sum(below) / len(below)
    return {post: (level, heights[post]) for post, level in cascade.levels.items()}
