"""Figures of what studies found: a comparison of prompts, fitness cards, the demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import drawable, new_figure, plain_axes, share_axis, told
from llmsim_lab._util.text import counted
from llmsim_lab.economy import history
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._checks import Measure
from llmsim_lab.study._comparison import Comparison
from llmsim_lab.study._demo import OIL_TURN, RULE, Demonstration, World
from llmsim_lab.study._fitness import FitnessCard, column_names
from llmsim_lab.study._results import Outcome, name_of, sample_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.simulation import Simulation

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
    return told(figure, difference_in_words(results, outcome))


def difference_in_words(results: Comparison, outcome: Outcome) -> str:
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
    named = dict(zip(column_names(cards), cards, strict=True))
    measures = [one for card in cards for one in card.measures]
    shares = dict.fromkeys(one.title for one in measures if one.hits is not None)
    others = dict.fromkeys(one.title for one in measures if one.title not in shares)
    said = (drawable(f"{name}: {card.verdict}", 2000) for name, card in named.items())
    verdicts = [fill(text, 130) for text in said]
    lines = sum(text.count("\n") + 1 for text in verdicts) + len(cards)
    body = max(len(shares) * (0.22 + _CARD_ROW_IN * len(cards)), 0.3 * (len(others) + 2)) + 0.9
    foot = _CARD_LINE_IN * lines + 0.1
    figure = new_figure(7 + 2.4 * len(cards), body + foot)
    upper, lower = figure.subfigures(2, 1, height_ratios=[body, foot], squeeze=False).flat
    left, right = upper.subplots(1, 2, width_ratios=[5, 2 + 2.2 * len(cards)])
    _draw_shares(left, named, list(shares))
    _list_others(right, named, list(others))
    lower.text(0.01, 0.95, "\n\n".join(verdicts), va="top", fontsize=9)
    return told(figure, " ".join(map(str, cards)))


def _draw_shares(axes: Axes, cards: Mapping[str, FitnessCard], titles: Sequence[str]) -> None:
    for place, (name, card) in enumerate(cards.items()):
        colour, shape = _CARD_LOOKS[place]
        known = {one.title: one for one in card.measures}
        offset = (place - (len(cards) - 1) / 2) * 0.7 / len(cards)
        look: dict[str, Any] = {"fmt": shape, "color": colour, "label": drawable(name, 32)}
        for row, title in enumerate(titles):
            if (one := known.get(title)) is None:
                continue
            at, height, said = 0.01, row + offset, "not measured"
            if one.value is not None and one.interval is not None:
                low, high = one.interval
                reach = [[one.value - low], [high - one.value]]
                axes.errorbar([one.value], [height], xerr=reach, capsize=3, **look)
                look["label"] = None  # one entry in the legend
                at, said = 1.04, f"{one.hits}/{one.n}"
            axes.text(at, height, said, va="center", fontsize=8, color=colour)
    share_axis(axes, titles, ends=(-0.02, 1.18))
    axes.set_title("Shares with 95 % intervals", loc="left", fontsize="medium")
    if len(cards) > 1 and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.04), ncols=2, fontsize=8, frameon=False)


def _list_others(axes: Axes, cards: Mapping[str, FitnessCard], titles: Sequence[str]) -> None:
    axes.set_axis_off()
    their = cards.values()
    known = [{one.title: _with_n(one) for one in card.measures} for card in their]
    used = (f"{card.context_used:,}" for card in their)
    trained = (f"{card.context_trained:,}" if card.context_trained else "" for card in their)
    rows = [[title, *(of.get(title, "") for of in known)] for title in titles]
    listed = axes.table(
        cellText=[*rows, ["context used, tokens", *used], ["context trained", *trained]],
        colLabels=["", *(drawable(name, 22) for name in cards)],
        cellLoc="left",
        loc="upper left",
        edges="open",
    )
    listed.auto_set_font_size(False)
    listed.set_fontsize(9)
    listed.auto_set_column_width(list(range(len(cards) + 1)))


def _with_n(one: Measure) -> str:
    return drawable(f"{one.shown} (n = {one.n})" if one.n > 1 else one.shown, 40)


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
    figure = new_figure(11, 8)
    (oil, counts), (plain, mirrored) = figure.subplots(2, 2)
    _draw_oil(oil, demonstration)
    _draw_counts(counts, demonstration)
    start = str(_first(demonstration).turns[0].state.period)
    above = f"Policy rate from {start}, inflation above target"
    _draw_rates(plain, demonstration, "plain", above)
    below = "The same quarters mirrored: inflation below target, slump"
    _draw_rates(mirrored, demonstration, "mirrored", below)
    past = history(start, len(demonstration.path(RULE, "plain")))["interest_rate"].tolist()
    plain.plot(
        range(len(past)), past, color=_HISTORY, linewidth=1.5, label="history, its own shocks"
    )
    handles, labels = plain.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    sentence = drawable(demonstration.verdict, 2000)
    figure.suptitle(fill(sentence, 105), x=0.01, ha="left", fontsize=12, fontweight="bold")
    return told(figure, f"{demonstration.verdict} {demonstration.headline}")


def _look(player: str) -> tuple[str, Any]:
    return _LOOKS.get(player, (_MODEL, "-"))


def _line(axes: Axes, values: pd.DataFrame, player: str, label: str) -> None:
    """Draw the mean of seeds and their range, as far as all of them go."""
    values = values.dropna()
    colour, dashes = _look(player)
    turns, reach = values.index, (values.min(axis=1), values.max(axis=1))
    axes.fill_between(turns, *reach, color=colour, alpha=0.18, linewidth=0)
    wide = 2.6 if colour == _MODEL else 1.8
    mean = values.mean(axis=1)
    axes.plot(turns, mean, label=label, color=colour, linestyle=dashes, linewidth=wide)


def _first(demonstration: Demonstration) -> Simulation:
    return next(iter(demonstration.runs.values()))["plain"]


def _draw_rates(axes: Axes, demonstration: Demonstration, world: World, title: str) -> None:
    count = len(demonstration.runs)
    for player in demonstration.players:
        label = drawable(player, 60)
        if player == demonstration.model:
            label = f"{label}: mean and range of {counted(count, 'seed')}"
        _line(axes, demonstration.path(player, world), player, label)
    low, high = _first(demonstration).config.engine.rate_bounds
    axes.set(xlabel="quarter", ylabel="% per year", ylim=(low - 3, high + 3))
    axes.set_title(title, loc="left", fontsize="medium")
    # Beyond the bounds, clear of the lines and bands that run along them.
    for bound, name, side, away in ((low, "lower", "top", -5), (high, "upper", "bottom", 5)):
        axes.axhline(bound, color="#444444", linewidth=1, linestyle=(0, (6, 3)))
        words, at = f"{name} bound of the rate", (0.3, bound)
        axes.annotate(words, at, (0, away), textcoords="offset points", fontsize=8, va=side)
    _with_lines(axes)


def _draw_oil(axes: Axes, demonstration: Demonstration) -> None:
    """Draw the headline: with the oil shock minus without."""
    for player in (RULE, demonstration.model):
        _line(axes, demonstration.responses(player), player, player)
    prices = demonstration.responses(RULE, "inflation").mean(axis=1)
    axes.plot(prices.index, prices, color="#009E73", linestyle=(0, (5, 1, 1, 1)), label="inflation")
    axes.text(prices.index[-1], prices.iloc[-1], " inflation\n (rule)", fontsize=8, color="#007F5C")
    axes.set_xlim(prices.index[0], prices.index[-1] + 1.6)
    axes.axvline(OIL_TURN, color="#AAAAAA", linewidth=1)
    axes.axhline(0, color="black", linewidth=0.8)
    rule, model = (demonstration.response(it).mean for it in (RULE, demonstration.model))
    axes.set_title(
        f"Oil shock, rate with it minus without: {rule:+.2f} under the rule, "
        f"{model:+.2f} under the model",
        loc="left",
        fontsize="medium",
    )
    shock = f"quarter (the shock comes in quarter {OIL_TURN})"
    axes.set(xlabel=shock, ylabel="percentage points")
    _with_lines(axes)


def _draw_counts(axes: Axes, demonstration: Demonstration) -> None:
    """Draw the shares of quarters in which each player raises the rate."""
    players = demonstration.players
    for row, player in enumerate(players):
        one = demonstration.answer(player)
        colour, _ = _look(player)
        shares = []
        for raised, count, marker, filled, offset in (
            (one.raised_low, one.low, "^", colour, -0.24),
            (one.raised_high, one.high, "v", "white", 0.32),
        ):
            if not count:
                continue
            share, words = raised / count, f"{raised} of {count}"
            shares.append(share)
            axes.plot([share], [row], marker, color=colour, markerfacecolor=filled, markersize=10)
            axes.text(share, row + offset, words, fontsize=8, ha="center", va="center")
        axes.plot(shares, [row] * len(shares), color=colour, linewidth=1, zorder=0)
    share_axis(axes, [drawable(player, 60) for player in players], ends=(-0.12, 1.12))
    title = "Raises in quarters in which the rate is ▲ too low, ▽ too high"
    axes.set_title(title, loc="left", fontsize="medium")


def _with_lines(axes: Axes) -> None:
    plain_axes(axes, "y")
    axes.locator_params(axis="x", integer=True)
