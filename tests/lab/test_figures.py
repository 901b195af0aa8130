"""The chart as its reader sees it: lines, names, quarters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from builders import make_simulation, played
from worlds import PublicGoods

from llmsim_lab import Ask, Run, State
from llmsim_lab.economy import load_us_macro
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import RateChart
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.simulation import Simulation


class Sketch(State):
    given: dict[str, float]
    share: float = 0.0
    over: bool = False


class Drawing(Run[Sketch]):
    """What a state holds is charted as it is."""

    last: dict[str, float]

    async def turn(self, state: Sketch, ask: Ask) -> Sketch:
        return Sketch(given=self.last, share=ask.turn / 4, over=ask.turn > 1)


def drawing(turns: int = 1, *, first: dict[str, float], last: dict[str, float]) -> Drawing:
    return played(Drawing(last=last, state=Sketch(given=first)), turns)


def ruled(**settings: Any) -> Simulation:
    return Simulation(players="rule", **settings)


def test_every_run_history_and_the_rule_are_drawn_and_named() -> None:
    first, second = ruled(start_at="1979Q3"), make_simulation(start_at="1979Q3")
    frames = {"ruled": first.run(4), "model": second.run(4)}
    past = load_us_macro().loc["1979Q3":].head(5)
    figure = rate_figure(frames, history=past, rule_of="model", title="Policy rate from 1979Q3")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [
        "ruled",
        "model",
        "history (T-bill)",
        "what the Taylor rule asks, on the data of: model",
    ]
    rate = figure.axes[0]
    assert rate.get_title(loc="left") == "Policy rate from 1979Q3"
    drawn = {line.get_label(): list(line.get_ydata()) for line in rate.get_lines()}
    assert drawn["ruled"] == frames["ruled"]["interest_rate"].tolist()
    assert drawn["history (T-bill)"] == past["interest_rate"].tolist()
    quarters = [label.get_text() for label in rate.get_xticklabels()]
    assert quarters == frames["model"]["period"].tolist()
    assert {axes.get_title(loc="left").split(" (")[0] for axes in figure.axes[1:]} == {
        "Inflation",
        "Output gap",
        "Unemployment",
    }


def test_long_and_undated_runs_have_a_readable_axis() -> None:
    axes = rate_figure({"ruled": ruled().run(60)}).axes[0]
    assert axes.get_xlabel() == "turn"
    assert len(axes.get_xticks()) <= 12


def test_a_fork_is_drawn_below_its_parent_and_what_was_done_is_named() -> None:
    first = played(ruled(), 4)
    other = played(first.fork(2, intervene=[{"turn": 3, "set": {"shock.supply": 2}}]), 2)
    rate, prices, *_ = rate_figure({"one": first.to_frame(), "other": other.to_frame()}).axes
    one, fork = rate.get_lines()[:2]
    assert list(one.get_xdata()) == list(fork.get_xdata()) == [0, 1, 2, 3, 4]
    assert one.get_zorder() > fork.get_zorder()
    assert [text.get_text() for text in rate.texts] == ["shock.supply = 2"]
    assert prices.get_title(loc="left").startswith("Inflation")


def test_a_notebook_shows_the_figure_without_pyplot() -> None:
    figure = rate_figure({"ruled": ruled().run(2)})
    png, told = figure._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")
    assert told["alt"].startswith("Chart: Policy rate\nruled, turns 0 to 2: Policy rate ")
    assert getattr(figure, "number", None) is None  # which pyplot gives its figures


def test_a_run_of_a_world_without_rates_is_refused() -> None:
    with pytest.raises(ConfigError, match="the run 'pot' has no interest_rate; RateChart draws"):
        rate_figure({"pot": pd.DataFrame({"turn": [0, 1], "coins.Ann": [10.0, 11.0]})})


def test_dollars_in_a_name_are_no_formula() -> None:
    figure = rate_figure({"$\\frac{1$": ruled().run(2)}, title="$1 and $2")
    figure.draw_without_rendering()
    [name] = [line.get_label() for line in figure.axes[0].get_lines()[:1]]
    assert name == "\\$\N{SET MINUS}frac{1\\$"
    assert figure.axes[0].get_title(loc="left") == r"\$1 and \$2"


def test_what_is_counted_elsewhere_is_not_charted() -> None:
    rows = [{"turn": turn, "ok": 1.0, "coverage": 1.0, "tokens": 1.0} for turn in (0, 1)]
    axes = RateChart(pd.DataFrame(rows)).figure.axes
    assert [panel.get_ylabel() for panel in axes] == ["coverage"]


def test_a_dict_of_numbers_is_one_chart_with_names_at_the_ends_of_its_lines() -> None:
    run = PublicGoods(players="random", seed=3)
    run.run(4, progress=False)
    coins, given = RateChart(run).figure.axes
    assert (coins.get_ylabel(), given.get_title(loc="left")) == ("coins", "given")
    assert [text.get_text() for text in coins.texts if text.get_text() in run.state.coins] == (
        sorted(run.state.coins, key=lambda name: -run.state.coins[name])
    )
    assert RateChart(run, columns=["coins"]).static_text().count("coins.Ann 20 → ") == 1


def test_names_of_lines_that_end_together_stand_apart_and_none_below_the_axis() -> None:
    run = drawing(first=dict.fromkeys("ABCD", 10.0), last=dict.fromkeys("ABCD", 1.0))
    given = RateChart(run, columns=["given"]).figure.axes[0]
    heights = sorted(text.xy[1] for text in given.texts if text.get_text() in "ABCD")
    assert heights[0] == 1
    assert min(high - low for low, high in pairwise(heights)) > 0.3


def test_of_many_lines_the_highest_and_the_lowest_are_named_and_several_runs_have_means() -> None:
    wealth = {str(n): float(n) for n in range(9)}
    run = drawing(first=dict.fromkeys(wealth, 0.0), last=wealth)
    chart = RateChart(run, columns=["given"])
    assert {text.get_text() for text in chart.figure.axes[0].texts} == {"8", "0"}
    assert "given, mean of 9: 0 → 4" in chart.static_text()
    both = RateChart({"one": run, "other": run}, columns=["given"]).figure
    assert [text.get_text() for text in both.legends[0].texts] == ["one", "other"]


def test_shares_and_truth_values_have_their_own_axes() -> None:
    run = drawing(3, first={}, last={})
    share, over = RateChart(run, columns=["share", "over"]).figure.axes
    assert share.get_ylim() == (0, 1)
    assert [tick.get_text() for tick in over.get_yticklabels()] == ["no", "yes"]


def test_of_very_many_runs_the_first_twenty_are_in_words() -> None:
    frame = pd.DataFrame({"turn": [0, 1], "level": [1.0, 2.0]})
    text = RateChart({f"run {n}": frame for n in range(23)}).static_text()
    assert "\nrun 19, turns 0 to 1: level 1 → 2\nand 3 more runs\n" in text
