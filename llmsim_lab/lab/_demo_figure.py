"""The demonstration's picture: what a model did beside players whose answers are known."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import chart_class, drawable
from llmsim_lab._util.html import visible
from llmsim_lab.economy import history
from llmsim_lab.study import Demonstration
from llmsim_lab.study._demo import OIL_TURN, RULE, World

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MODEL, _HISTORY = "#D55E00", "#000000"
_LOOKS: dict[str, tuple[str, Any]] = {
    RULE: ("#0072B2", "-"),
    "no change": ("#777777", (0, (4, 2))),
    "always +75 bp": ("#CC79A7", (0, (1, 1))),
}
"""Colour and dashes: Okabe and Ito's palette, and a grey."""


def demo_figure(demonstration: Demonstration) -> Figure:
    """Draw a demonstration: an oil shock, who raises when, and the rates, mirrored too.

    Lines are means over seeds, bands reach from the lowest seed to the highest, and the dashed
    lines at the top and at the bottom are the bounds of the rate.

    Args:
        demonstration: of ``Demonstration.read``.
    """
    figure: Figure = chart_class()(figsize=(11, 8), layout="constrained", facecolor="white")
    (oil, counts), (plain, mirrored) = figure.subplots(2, 2)
    _draw_oil(oil, demonstration)
    _draw_counts(counts, demonstration)
    low, high = _bounds(demonstration)
    start = _start(demonstration)
    shown: tuple[tuple[Axes, World, str], ...] = (
        (plain, "plain", f"Policy rate from {start}, inflation above target"),
        (mirrored, "mirrored", "The same quarters mirrored: inflation below target, slump"),
    )
    for axes, world, title in shown:
        _draw_rates(axes, demonstration, world)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set_ylim(low - 3, high + 3)
        for bound, name in ((low, "lower"), (high, "upper")):
            axes.axhline(bound, color="#444444", linewidth=1, linestyle=(0, (6, 3)))
            below = bound == low
            # Beyond the bound, clear of the lines and bands that run along it.
            axes.annotate(
                f"{name} bound of the rate",
                (0.3, bound),
                xytext=(0, -5 if below else 5),
                textcoords="offset points",
                fontsize=8,
                va="top" if below else "bottom",
            )
    past = history(start, len(demonstration.path(RULE, "plain")))["interest_rate"].tolist()
    plain.plot(
        range(len(past)), past, color=_HISTORY, linewidth=1.5, label="history, its own shocks"
    )
    handles, labels = plain.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    sentence = drawable(demonstration.verdict, 2000)
    figure.suptitle(fill(sentence, 105), x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.alt = visible(  # type: ignore[attr-defined]
        f"{demonstration.verdict} {demonstration.headline}"
    )
    return figure


def _bounds(demonstration: Demonstration) -> tuple[float, float]:
    first = next(iter(demonstration.runs.values()))["plain"]
    return first.config.engine.rate_bounds


def _start(demonstration: Demonstration) -> str:
    first = next(iter(demonstration.runs.values()))["plain"]
    return str(first.turns[0].state.period)


def _look(demonstration: Demonstration, player: str) -> tuple[str, Any]:
    return _LOOKS.get(player, (_MODEL, "-"))


def _line(axes: Axes, values: pd.DataFrame, look: tuple[str, Any], label: str) -> None:
    """Draw the mean of seeds and their range, as far as all of them go."""
    values = values.dropna()
    colour, dashes = look
    reach = (values.min(axis=1), values.max(axis=1))
    axes.fill_between(values.index, *reach, color=colour, alpha=0.18, linewidth=0)
    width = 2.6 if colour == _MODEL else 1.8
    axes.plot(
        values.index,
        values.mean(axis=1),
        color=colour,
        linestyle=dashes,
        linewidth=width,
        label=label,
    )


def _draw_rates(axes: Axes, demonstration: Demonstration, world: World) -> None:
    count = len(demonstration.runs)
    for player in demonstration.players:
        label = drawable(player, 60)
        if player == demonstration.model:
            label = f"{label}: mean and range of {count} seed{'' if count == 1 else 's'}"
        _line(axes, demonstration.path(player, world), _look(demonstration, player), label)
    axes.set_xlabel("quarter")
    axes.set_ylabel("% per year")
    _plain(axes)


def _draw_oil(axes: Axes, demonstration: Demonstration) -> None:
    """Draw the headline: with the oil shock minus without."""
    for player in (RULE, demonstration.model):
        _line(axes, demonstration.responses(player), _look(demonstration, player), player)
    prices = demonstration.responses(RULE, "inflation").mean(axis=1)
    axes.plot(prices.index, prices, color="#009E73", linestyle=(0, (5, 1, 1, 1)), label="inflation")
    axes.text(prices.index[-1], prices.iloc[-1], " inflation\n (rule)", fontsize=8, color="#007F5C")
    axes.set_xlim(prices.index[0], prices.index[-1] + 1.6)
    axes.axvline(OIL_TURN, color="#AAAAAA", linewidth=1)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_title(
        f"Oil shock, rate with it minus without: {_shift(demonstration, RULE)} under the rule, "
        f"{_shift(demonstration, demonstration.model)} under the model",
        loc="left",
        fontsize="medium",
    )
    axes.set_ylabel("percentage points")
    axes.set_xlabel(f"quarter (the shock comes in quarter {OIL_TURN})")
    _plain(axes)


def _shift(demonstration: Demonstration, player: str) -> str:
    return f"{demonstration.response(player).mean:+.2f}"


def _draw_counts(axes: Axes, demonstration: Demonstration) -> None:
    """Draw the shares of quarters in which each player raises the rate."""
    players = demonstration.players
    for row, player in enumerate(players):
        one = demonstration.answer(player)
        colour, _ = _look(demonstration, player)
        shares = []
        for raised, count, marker, filled, offset in (
            (one.raised_low, one.low, "^", colour, -0.24),
            (one.raised_high, one.high, "v", "white", 0.32),
        ):
            if not count:
                continue
            share = raised / count
            shares.append(share)
            axes.plot([share], [row], marker, color=colour, markerfacecolor=filled, markersize=10)
            axes.text(
                share, row + offset, f"{raised} of {count}", fontsize=8, ha="center", va="center"
            )
        axes.plot(shares, [row] * len(shares), color=colour, linewidth=1, zorder=0)
    axes.set_yticks(range(len(players)), [drawable(player, 60) for player in players])
    axes.set_ylim(len(players) - 0.4, -0.6)
    axes.set_xlim(-0.12, 1.12)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.set_title(
        "Raises in quarters in which the rate is ▲ too low, ▽ too high",
        loc="left",
        fontsize="medium",
    )
    axes.grid(axis="x", color="#DDDDDD")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color="#E5E5E5")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(axis="x", integer=True)
