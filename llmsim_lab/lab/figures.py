"""Figures of runs without a widget, for notebooks and papers.

Each is a matplotlib figure made without pyplot, so that nothing global changes, and has its
content in words as ``alt``, for screen readers. A notebook shows it where a cell ends in it;
``figure.savefig("rates.svg")`` writes it. Colours are from palettes that colour-blind readers can
tell apart (Okabe and Ito's; Paul Tol's "muted"), or shades of one; names, shapes and numbers say
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import chart_class, drawable, new_figure, share_axis, told
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._demo_figure import demo_figure
from llmsim_lab.lab.charts._drawing import Drawing
from llmsim_lab.lab.charts._export import alt_text, figure_bytes, small_png
from llmsim_lab.lab.charts._scene import ChartOptions, compose
from llmsim_lab.lab.charts._tracks import read_runs
from llmsim_lab.simulation._config import SERIES
from llmsim_lab.study import Comparison
from llmsim_lab.study._checks import Measure
from llmsim_lab.study._fitness import FitnessCard, column_names
from llmsim_lab.study._results import Outcome, name_of, sample_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.statechart._analysis import Cascade
    from llmsim_lab.statechart._state import SocialTurn

__all__ = [
    "cascade_figure",
    "demo_figure",
    "difference_figure",
    "fitness_figure",
    "rate_figure",
    "state_figure",
    "transition_figure",
]

_PANELS = ("inflation", "output_gap", "unemployment")


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
    choice = ChartOptions(
        title=title,
        main=known["interest_rate"],
        panels=tuple(known[name] for name in _PANELS),
        history=False if history is None else history,
        rule=False if rule_of is None else rule_of,
        share=False,
    )
    items = read_runs([dict(runs)])
    scene = compose(items, choice)
    figure = Drawing(replace(scene, marks=()), labelled=False).figure
    return told(figure, alt_text(items, scene))


_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#BBBBBB"
"""From Okabe and Ito's palette; shapes differ too."""


def difference_figure(results: Comparison, outcome: Outcome = "interest_rate") -> Figure:
    """Draw how each variant differs from the first in one outcome.

    The small points are pairs of samples, the rings turns' means, the thick mark is the mean of
    those with its 95 % interval; the grey band is about the points: by how much two single samples
    of one prompt differ on average, the larger of the two variants' noise floors.

    Args:
        results: a comparison.
        outcome: one of those it measured.
    """
    import pandas as pd

    summary = results.summary
    found = summary[summary["outcome"] == outcome].to_dict("records")
    figure = new_figure(8, 1.5 + 0.9 * len(found))
    axes: Axes = figure.subplots()
    values = sample_values(results.frame, outcome).pivot_table(
        index=["turn", "sample"], columns="variant", values="value", dropna=False
    )
    for place, item in enumerate(found):
        height = len(found) - place
        # Pandas writes NaN for None where a column holds both.
        there = {name: value for name, value in item.items() if pd.notna(value)}
        if "noise_floor" in there:
            ends, floor = [height - 0.4, height + 0.4], there["noise_floor"]
            axes.fill_betweenx(ends, -floor, floor, color=_GREY, alpha=0.45, linewidth=0)
        if {item["variant"], item["reference"]} <= set(values.columns):
            pairs = (values[item["variant"]] - values[item["reference"]]).dropna()
            means = pairs.groupby(level="turn").mean()
            axes.plot(pairs, [height - 0.18] * len(pairs), ".", color=_BLUE, alpha=0.5)
            axes.plot(means, [height] * len(means), "o", color=_BLUE, fillstyle="none")
        if "estimate" in there:
            mean = there["estimate"]
            reach = [[mean - there.get("low", mean)], [there.get("high", mean) - mean]]
            axes.errorbar([mean], [height + 0.2], xerr=reach, fmt="D", color=_ORANGE, capsize=5)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_ylim(0.4, len(found) + 0.6)
    axes.set_yticks(range(len(found), 0, -1), [drawable(item["variant"], 24) for item in found])
    name, unit = name_of(outcome)
    axes.set_xlabel(f"{name}: difference from {drawable(results.names[0], 24)}, {unit}")
    axes.set_title(
        "orange: mean and 95 % interval · rings: turns · points: pairs · "
        "grey: noise floor of single samples",
        loc="left",
        fontsize="small",
    )
    return told(figure, _difference_alt(results, outcome))


def _difference_alt(results: Comparison, outcome: Outcome) -> str:
    pairs = zip(results.effects, results.verdicts, strict=True)
    return " ".join(text for item, text in pairs if item.outcome == outcome)


_CARD_LOOKS = (("#0072B2", "o"), ("#D55E00", "D"), ("#009E73", "s"), ("#CC79A7", "^"))
_CARD_ROW_IN, _CARD_LINE_IN = 0.2, 0.2
"""Heights, inches: of a model's point in a row of shares, and of a line of text."""


def fitness_figure(*cards: FitnessCard) -> Figure:
    """Draw fitness cards: shares with their 95 % intervals, other numbers beside, verdicts below.

    Args:
        cards: of one model, or of up to four to compare.

    Raises:
        ConfigError: there is no card, or there are more than four.
    """
    if not 1 <= len(cards) <= len(_CARD_LOOKS):
        raise ConfigError(f"{len(cards)} cards; a picture holds 1 to {len(_CARD_LOOKS)}")
    names = column_names(cards)
    shares = dict.fromkeys(
        one.title for card in cards for one in card.measures if one.hits is not None
    )
    others = dict.fromkeys(
        one.title for card in cards for one in card.measures if one.title not in shares
    )
    verdicts = [
        fill(drawable(f"{name}: {card.verdict}", 2000), 130)
        for name, card in zip(names, cards, strict=True)
    ]
    lines = sum(text.count("\n") + 1 for text in verdicts) + len(cards)
    body = max(len(shares) * (0.22 + _CARD_ROW_IN * len(cards)), 0.3 * (len(others) + 2)) + 0.9
    foot = _CARD_LINE_IN * lines + 0.1
    figure = new_figure(7 + 2.4 * len(cards), body + foot)
    upper, lower = figure.subfigures(2, 1, height_ratios=[body, foot], squeeze=False).flat
    left, right = upper.subplots(1, 2, width_ratios=[5, 2 + 2.2 * len(cards)])
    _draw_shares(left, cards, names, list(shares))
    _list_others(right, cards, names, list(others))
    lower.text(0.01, 0.95, "\n\n".join(verdicts), va="top", fontsize=9)
    return told(figure, " ".join(map(str, cards)))


def _draw_shares(
    axes: Axes, cards: Sequence[FitnessCard], names: Sequence[str], titles: Sequence[str]
) -> None:
    for place, (card, name) in enumerate(zip(cards, names, strict=True)):
        colour, shape = _CARD_LOOKS[place]
        known = {one.title: one for one in card.measures}
        offset = (place - (len(cards) - 1) / 2) * 0.7 / len(cards)
        look: dict[str, Any] = {
            "fmt": shape,
            "color": colour,
            "capsize": 3,
            "label": drawable(name, 32),
        }
        for row, title in enumerate(titles):
            if (one := known.get(title)) is None:
                continue
            at, height, said = 0.01, row + offset, "not measured"
            if one.value is not None and one.interval is not None:
                low, high = one.interval
                reach = [[one.value - low], [high - one.value]]
                axes.errorbar([one.value], [height], xerr=reach, **look)
                look["label"] = None  # one entry in the legend
                at, said = 1.04, f"{one.hits}/{one.n}"
            axes.text(at, height, said, va="center", fontsize=8, color=colour)
    share_axis(axes, titles, ends=(-0.02, 1.18))
    axes.set_title("Shares with 95 % intervals", loc="left", fontsize="medium")
    if len(cards) > 1 and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.04), ncols=2, fontsize=8, frameon=False)


def _list_others(
    axes: Axes, cards: Sequence[FitnessCard], names: Sequence[str], titles: Sequence[str]
) -> None:
    axes.set_axis_off()
    known = [{one.title: _with_n(one) for one in card.measures} for card in cards]
    used = (f"{card.context_used:,}" for card in cards)
    trained = (f"{card.context_trained:,}" if card.context_trained else "" for card in cards)
    rows = [[title, *(of.get(title, "") for of in known)] for title in titles]
    listed = axes.table(
        cellText=[*rows, ["context used, tokens", *used], ["context trained", *trained]],
        colLabels=["", *(drawable(name, 22) for name in names)],
        cellLoc="left",
        loc="upper left",
        edges="open",
    )
    listed.auto_set_font_size(False)
    listed.set_fontsize(9)
    listed.auto_set_column_width(list(range(len(cards) + 1)))


def _with_n(one: Measure) -> str:
    return drawable(f"{one.shown} (n = {one.n})" if one.n > 1 else one.shown, 40)


_COLOURS = {
    "IDLE": "#BBBBBB",
    "SCROLLING": "#88CCEE",
    "EVALUATING": "#332288",
    "COMPOSING": "#117733",
    "ENGAGING_LIKE": "#DDCC77",
    "ENGAGING_REPLY": "#CC6677",
    "ENGAGING_RESHARE": "#882255",
    "RESTING": "#DDDDDD",
}
_KINDS = {"original": ("o", "#332288"), "reply": ("s", "#CC6677"), "reshare": ("^", "#117733")}
_MOST_NAMED = 40
"""Posts of a cascade up to which their authors are written beside them."""


@cache
def _social_figure() -> Any:
    base: Any = chart_class()

    class SocialFigure(base):
        """A figure that is small in a notebook, and its content in words where that is text."""

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            return small_png(figure_bytes(self, "png", dpi=80)), {"alt": self.alt}

        def __repr__(self) -> str:
            return str(self.alt)

    return SocialFigure


def _name(state: object) -> str:
    return str(state).replace("_", " ")


def state_figure(
    turns: Sequence[SocialTurn] | pd.DataFrame, *, title: str = "What users are doing"
) -> Figure:
    """Draw how many users are in each state, turn by turn, as stacked areas.

    Args:
        turns: a run's, or the frame that ``state_frame`` makes of them.
        title: above the chart.
    """
    import pandas as pd

    # Here, since the social world loads numpy, and `rate_figure` is on the front page.
    from llmsim_lab.statechart import AgentState
    from llmsim_lab.statechart._analysis import state_frame

    frame = turns if isinstance(turns, pd.DataFrame) else state_frame(turns)
    figure = new_figure(8, 4, figure_class=_social_figure())
    axes = figure.subplots()
    shown = [state for state in AgentState if frame[state.value].any()]
    # An area begins half a turn before its turn; the last one ends half a turn after it.
    edges = [*(number - 0.5 for number in frame.index), frame.index[-1] + 0.5]
    axes.stackplot(
        edges,
        [[*frame[state.value], frame[state.value].iloc[-1]] for state in shown],
        labels=[_name(state.value) for state in shown],
        colors=[_COLOURS[state.name] for state in shown],
        step="post",
        edgecolor="white",
        linewidth=0.5,
    )
    axes.locator_params(axis="x", integer=True)
    ends: dict[str, Any] = {"xlim": (edges[0], edges[-1]), "ylim": (0, frame.iloc[0].sum())}
    axes.set(**ends, xlabel="turn", ylabel="users")
    axes.set_title(drawable(title, 80), loc="left")
    handles, labels = axes.get_legend_handles_labels()
    # Top to bottom as the areas stand.
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))
    last = frame.iloc[-1]
    counts = ", ".join(f"{_name(name)} {count}" for name, count in last.items() if count)
    return told(
        figure,
        f"{title}: stacked areas of users by state, turns {frame.index[0]} to {frame.index[-1]}. "
        f"In the last one: {counts}.",
    )


def transition_figure(
    turns: Sequence[SocialTurn], *, title: str = "Where users go from each state"
) -> Figure:
    """Draw the shares of moves out of each state, with the numbers in the fields.

    Args:
        turns: a run's.
        title: above the chart.
    """
    from llmsim_lab.statechart._analysis import transition_matrix

    shares, counts = transition_matrix(turns), transition_matrix(turns, shares=False)
    names = [_name(name) for name in shares.columns]
    share_of, count_of = shares.to_numpy(dtype=float), counts.to_numpy(dtype=int)
    figure = new_figure(7.5, 5.5, figure_class=_social_figure())
    axes = figure.subplots()
    axes.imshow(share_of, cmap="Blues", vmin=0, vmax=1)
    parts = []
    for row, column in zip(*count_of.nonzero(), strict=True):
        share = share_of[row, column]
        words = f"{share:.0%}\n({count_of[row, column]})"
        ink = "white" if share > 0.5 else "black"
        axes.text(column, row, words, ha="center", va="center", fontsize=8, color=ink)
        parts.append(f"{names[row]} to {names[column]} {share:.0%}")
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="to", ylabel="from")
    axes.set_title(drawable(title, 80), loc="left")
    moves = "; ".join(parts) or "No moves"
    return told(figure, f"{title}: shares of the moves out of each state. {moves}.")


def cascade_figure(cascade: Cascade, *, title: str | None = None) -> Figure:
    """Draw a cascade as a tree, a level a column: who replied to whom, or reshared what.

    Args:
        cascade: the cascade.
        title: above the chart; the first post's author and text if not given.
    """
    places = _places(cascade)
    width = min(14.0, max(8.0, 1.6 * (cascade.depth + 1)))
    height = min(12.0, max(2.5, 0.26 * (max(y for _, y in places.values()) + 2)))
    figure = new_figure(width, height, figure_class=_social_figure())
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
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("steps from the first post")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    title = title or f"{cascade.root.author}: {cascade.root.text}"
    axes.set_title(drawable(title, 90), loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return told(
        figure,
        f"Tree of a cascade: {clip(title, 120)}. {cascade.size} posts, depth {cascade.depth}, "
        f"breadth {cascade.breadth}, {cascade.likes} likes.",
    )


def _places(cascade: Cascade) -> dict[int, tuple[float, float]]:
    """Return the posts' places: levels to the right, ends of branches below each other."""
    ends = (post.id for post, _ in cascade.walk() if post.id not in cascade.children)
    heights: dict[int, float] = {post: place for place, post in enumerate(ends)}
    for post, _ in reversed(list(cascade.walk())):
        if post.id in cascade.children:
            below = [heights[child.id] for child in cascade.children[post.id]]
            heights[post.id] = sum(below) / len(below)
    return {post: (level, heights[post]) for post, level in cascade.levels.items()}
