"""The demonstration's picture, in words and in what it draws."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.economy import load_us_macro
from llmsim_lab.lab.figures import demo_figure
from llmsim_lab.simulation import Demonstration
from llmsim_lab.simulation.demonstration import INERTIA, OIL_TURN, RULE, effect_in_short


@pytest.fixture(scope="module")
def figure(shipped: Demonstration) -> Any:
    return demo_figure(shipped)


def test_the_picture_says_the_verdict_and_names_every_player_in_full(
    shipped: Demonstration, figure: Any
) -> None:
    words = f"{shipped.verdict} {shipped.judged} {shipped.headline}"
    assert figure.alt == words
    assert " ".join(figure.get_suptitle().split()) == shipped.verdict
    oil, slopes, plain, mirrored = figure.axes
    [legend] = figure.legends
    first, *names = [text.get_text() for text in legend.get_texts()]
    assert first == f"{shipped.model}: mean and range of {len(shipped.runs)} seeds"
    assert names == [*shipped.players[1:], "history, its own shocks"]
    assert [tick.get_text() for tick in slopes.get_yticklabels()] == shipped.players
    said = {"pass": "responds", "fail": "does not respond", "undecided": "undecided"}
    outcomes = [said[it] for it in shipped.to_frame()["verdict"]]
    assert [text.get_text() for text in slopes.texts] == outcomes
    assert "inflation below target, slump" in mirrored.get_title(loc="left")
    assert f"{effect_in_short(shipped.response())} under the model" in oil.get_title(loc="left")
    bounds = [text.get_text() for text in plain.texts]
    assert bounds == [f"{which} bound of the rate" for which in ("lower", "upper")]


def test_means_are_over_seeds_and_end_where_one_does(shipped: Demonstration, figure: Any) -> None:
    *_, plain, mirrored = figure.axes
    paths = shipped.path(shipped.model, "mirrored").dropna()
    assert list(mirrored.get_lines()[0].get_ydata()) == paths.mean(axis=1).tolist()
    last = min(found["plain"].turn_number for found in shipped.runs.values())
    assert max(plain.get_lines()[0].get_xdata()) == last


def test_the_oil_shock_is_drawn_from_the_quarter_before_it_with_the_inflation_it_brings(
    shipped: Demonstration, figure: Any
) -> None:
    oil, *_ = figure.axes
    *lines, inflation, shock, zero = oil.get_lines()
    for line, player in zip(lines, (RULE, INERTIA, shipped.model), strict=True):
        means = shipped.responses(player).dropna().mean(axis=1)
        assert line.get_xdata().tolist() == means.index.tolist()
        assert line.get_ydata().tolist() == means.tolist()
    prices = shipped.responses(RULE, "inflation").mean(axis=1)
    assert inflation.get_ydata().tolist() == prices.tolist()
    assert (list(shock.get_xdata()), list(zero.get_ydata())) == ([OIL_TURN] * 2, [0, 0])
    # Nothing is drawn before the shock, and words stand on the right.
    assert oil.get_xlim() == (OIL_TURN - 1, prices.index[-1] + 1.6)
    [words] = oil.texts
    assert words.get_text().split() == ["inflation", "(rule)"]
    assert words.get_position() == (prices.index[-1], prices.iloc[-1])


def test_each_player_s_response_is_a_line_from_low_to_high_with_its_verdict_above(
    shipped: Demonstration, figure: Any
) -> None:
    _, slopes, *_ = figure.axes
    *drawn, zero = slopes.get_lines()
    for row, player in enumerate(shipped.players):
        slope = shipped.responds(player)["inflation"]
        interval, mark = drawn[2 * row : 2 * row + 2]
        assert list(interval.get_xdata()) == [slope.low, slope.high]
        assert list(interval.get_ydata()) == [row, row]
        assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([slope.value], [row])
        assert slopes.texts[row].get_position() == (slope.value, pytest.approx(row - 0.28))
    assert list(zero.get_xdata()) == [0, 0]
    # The first player stands above, and words beside an interval have room.
    assert slopes.get_ylim() == pytest.approx((4.6, -0.6))
    assert slopes.get_yticks().tolist() == [0, 1, 2, 3, 4]
    assert slopes.margins()[0] == 0.15
    assert f"\n{len(shipped.moves)} judged quarters" in slopes.get_title(loc="left")


def test_rates_are_drawn_between_their_bounds_which_are_named_outside_of_them(
    shipped: Demonstration, figure: Any
) -> None:
    _, _, plain, mirrored = figure.axes
    assert figure.get_size_inches().tolist() == [11, 8]
    for axes in (plain, mirrored):
        # The model of this recording may set a rate from 0 to 25 %.
        assert axes.get_ylim() == (-3, 28)
        assert [list(line.get_ydata()) for line in axes.get_lines()[5:7]] == [[0, 0], [25, 25]]
        below, above = axes.texts
        assert (below.xy, below.xyann, below.get_va()) == ((0.3, 0), (0, -5), "top")
        assert (above.xy, above.xyann, above.get_va()) == ((0.3, 25), (0, 5), "bottom")
        assert all(tick == int(tick) for tick in axes.get_xticks())
    start = shipped.runs[min(shipped.runs)]["plain"].config.start_at
    real = load_us_macro().loc[start:]["interest_rate"]  # type: ignore[misc]
    history = plain.get_lines()[-1].get_ydata()
    assert len(history) == len(shipped.path(RULE, "plain"))
    assert list(history) == real.tolist()[: len(history)]
    band = plain.collections[0].get_paths()[0].vertices[:, 1]
    rates = shipped.path(shipped.model, "plain").dropna()
    assert {band.min(), band.max()} == {rates.min(axis=None), rates.max(axis=None)}
