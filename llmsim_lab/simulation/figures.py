"""The figure of the demonstration."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Literal, NamedTuple

from llmsim_lab._util.drawing import drawable, new_figure, plain_axes, told
from llmsim_lab._util.text import counted
from llmsim_lab.economy import load_us_macro
from llmsim_lab.simulation.demonstration import (
    INERTIA,
    OIL_TURN,
    RULE,
    Demonstration,
    World,
    effect_in_short,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.economy.response import PolicyResponse

_MODEL = "#D55E00"
_OUTCOMES = {
    "pass": "responds",
    "fail": "does not respond",
    "undecided": "undecided",
}


class _Look(NamedTuple):
    """The look of a player's line, in Okabe and Ito's palette and a grey."""

    colour: str
    dashes: str | tuple[int, tuple[int, int]] = "-"


_LOOKS = {
    RULE: _Look("#0072B2"),
    INERTIA: _Look("#56B4E9", (0, (6, 1))),
    "no change": _Look("#777777", (0, (4, 2))),
    "always +75 bp": _Look("#CC79A7", (0, (1, 1))),
}


def _look_of(player: str) -> _Look:
    """Return the look of a player; a player without a look of its own is the model."""
    return _LOOKS.get(player, _Look(_MODEL))


def demo_figure(demonstration: Demonstration) -> Figure:
    """Draw a demonstration: the oil shock, responses to inflation, rates and their mirror images.

    Lines are means over seeds, bands reach from the lowest seed to the highest. The dashed lines at
    the top and at the bottom are the bounds of the rate.

    Args:
        demonstration: as ``Demonstration.read`` returns it.
    """
    figure = new_figure(11, 8)
    # The headline first, the responses beside it, and below them the paths.
    (oil, slopes), (plain, mirrored) = figure.subplots(2, 2)
    _draw_oil(oil, demonstration)
    _draw_responses(slopes, demonstration)
    # All seeds start in the same quarter.
    [first, *_] = demonstration.runs.values()
    start = str(first["plain"].turns[0].state.period)
    _draw_rates(
        plain,
        demonstration,
        "plain",
        f"Policy rate from {start}, inflation above target",
    )
    below = "The same quarters mirrored: inflation below target, slump"
    _draw_rates(mirrored, demonstration, "mirrored", below)
    for axes in (oil, plain, mirrored):
        plain_axes(axes, "y")
        # Whole numbers: there is no quarter 2.5.
        axes.locator_params(axis="x", integer=True)
    # History had other shocks, and is drawn for orientation only.
    quarters = len(demonstration.path(RULE, "plain"))
    past = load_us_macro().loc[start:].head(quarters)
    plain.plot(
        past["interest_rate"].tolist(),
        color="#000000",
        linewidth=1.5,
        label="history, its own shocks",
    )
    handles, labels = plain.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    # matplotlib does not wrap a title, and cuts it at the figure's edge.
    sentence = fill(drawable(demonstration.verdict, 2000), 105)
    figure.suptitle(
        sentence,
        x=0.01,
        ha="left",
        fontsize=12,
        fontweight="bold",
    )
    # The alternative text for screen readers.
    words = f"{demonstration.verdict} {demonstration.judged} {demonstration.headline}"
    return told(figure, words)


def _line(
    axes: Axes,
    values: pd.DataFrame,
    player: str,
    label: str,
) -> None:
    """Draw the mean of the seeds and their range, up to the last quarter of the shortest run."""
    # The mean would jump where a seed ends.
    values = values.dropna()
    look = _look_of(player)
    axes.fill_between(
        values.index,
        values.min(axis=1),
        values.max(axis=1),
        color=look.colour,
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(
        values.mean(axis=1),
        label=label,
        color=look.colour,
        linestyle=look.dashes,
        # The model's line is thicker than those that it is compared with.
        linewidth=2.6 if look.colour == _MODEL else 1.8,
    )


def _draw_rates(
    axes: Axes,
    demonstration: Demonstration,
    world: World,
    title: str,
) -> None:
    """Draw each player's rate in a world, and the rate's bounds."""
    for player in demonstration.players:
        label = drawable(player, 60)
        # Labelled once, since all players have the same number of seeds.
        if player == demonstration.model:
            seeds = counted(len(demonstration.runs), "seed")
            label = f"{label}: mean and range of {seeds}"
        rates = demonstration.path(player, world)
        _line(axes, rates, player, label)
    # All runs have the same bounds and the same start.
    [first, *_] = demonstration.runs.values()
    low, high = first["plain"].config.engine.rate_bounds
    axes.set(
        xlabel="quarter",
        ylabel="% per year",
        ylim=(low - 3, high + 3),
    )
    axes.set_title(
        title,
        loc="left",
        fontsize="medium",
    )
    _draw_bound(axes, low, "lower")
    _draw_bound(axes, high, "upper")


def _draw_bound(
    axes: Axes,
    rate: float,
    name: Literal["lower", "upper"],
) -> None:
    """Draw a bound of the rate, with its name away from lines and bands along the bound."""
    axes.axhline(
        rate,
        color="#444444",
        linewidth=1,
        linestyle=(0, (6, 3)),
    )
    # Beyond the bound, where no rate is drawn.
    points_up = 5
    alignment = "bottom"
    if name == "lower":
        points_up = -5
        alignment = "top"
    axes.annotate(
        f"{name} bound of the rate",
        (0.3, rate),
        (0, points_up),
        textcoords="offset points",
        fontsize=8,
        va=alignment,
    )


def _draw_oil(axes: Axes, demonstration: Demonstration) -> None:
    """Draw the headline: rates with the oil shock minus those without."""
    for player in (RULE, INERTIA, demonstration.model):
        _line(axes, demonstration.responses(player), player, player)
    # The effect on prices under the rule, to which the rates respond.
    prices = demonstration.responses(RULE, "inflation").mean(axis=1)
    axes.plot(
        prices.index,
        prices,
        color="#009E73",
        linestyle=(0, (5, 1, 1, 1)),
        label="inflation",
    )
    axes.text(
        prices.index[-1],
        prices.iloc[-1],
        " inflation\n (rule)",
        fontsize=8,
        color="#007F5C",
    )
    # Room on the right for the labels above.
    axes.set_xlim(prices.index[0], prices.index[-1] + 1.6)
    axes.axvline(
        OIL_TURN,
        color="#AAAAAA",
        linewidth=1,
    )
    axes.axhline(
        0,
        color="black",
        linewidth=0.8,
    )
    rule = effect_in_short(demonstration.response(RULE))
    model = effect_in_short(demonstration.response())
    axes.set_title(
        "Oil shock, rate with it minus without (95 % interval):\n"
        f"{rule} under the rule, {model} under the model",
        loc="left",
        fontsize="medium",
    )
    axes.set(
        xlabel=f"quarter (the shock comes in quarter {OIL_TURN})",
        ylabel="percentage points",
    )


def _draw_response(
    axes: Axes,
    row: int,
    response: PolicyResponse,
    *,
    colour: str,
) -> None:
    """Draw one player's response to inflation, with its interval and verdict."""
    # With few seeds nothing is decided, and there are no intervals.
    if not response.criteria:
        axes.text(
            0,
            row,
            " too few seeds",
            fontsize=8,
            va="center",
        )
        return
    slope = response["inflation"]
    axes.plot(
        [slope.low, slope.high],
        [row, row],
        color=colour,
        linewidth=3,
    )
    axes.plot(
        [slope.value],
        [row],
        "o",
        color=colour,
        markersize=8,
    )
    # Above the interval, since the axis points downwards.
    axes.text(
        slope.value,
        row - 0.28,
        _OUTCOMES[response.outcome],
        fontsize=8,
        ha="center",
        va="center",
    )


def _draw_responses(
    axes: Axes,
    demonstration: Demonstration,
) -> None:
    """Draw how far each player moves the rate for a point of inflation, with intervals."""
    players = demonstration.players
    for row, player in enumerate(players):
        _draw_response(
            axes,
            row,
            demonstration.responds(player),
            colour=_look_of(player).colour,
        )
    axes.axvline(
        0,
        color="#444444",
        linewidth=1,
    )
    names = [drawable(player, 60) for player in players]
    axes.set_yticks(range(len(players)), names)
    axes.set(
        # The first player is at the top.
        ylim=(len(players) - 0.4, -0.6),
        xlabel="percentage points a quarter",
    )
    # Room for the labels of intervals that end at the edge.
    axes.margins(x=0.15)
    plain_axes(axes, "x")
    quarters = counted(len(demonstration.moves), "judged quarter")
    title = f"For a point more of inflation, the rate is moved by (95 %)\n{quarters}"
    axes.set_title(
        title,
        loc="left",
        fontsize="medium",
    )
