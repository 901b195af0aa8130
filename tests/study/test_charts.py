"""Charts of studies: which points and means are drawn, in which colours, under which names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

from llmsim_lab.errors import ConfigError
from llmsim_lab.study._charts import (
    arms_figure,
    curve_figure,
    difference_figure,
    letters_of,
    numbers_of,
    scale_of,
)
from llmsim_lab.study.estimates.estimate import Estimate

MINUS = "\N{MINUS SIGN}"
BLUE, ORANGE = "#0072B2", "#D55E00"
GREY = "#999999"


def results_of(**arms: list[float]) -> pd.DataFrame:
    """Two units an arm, the second one above the first; a value a turn."""
    rows: list[dict[str, Any]] = [
        {"arm": arm, "unit": unit, "turn": turn, "outcome": "level", "value": value + unit}
        for arm, values in arms.items()
        for unit in (0, 1)
        for turn, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows)


def lines_of(axes: Any) -> list[tuple[Any, ...]]:
    """Each line's ends or points, and its colour and style."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()), line.get_color(), line.get_linestyle())
        for line in axes.lines
    ]


def bars_of(axes: Any) -> list[tuple[Any, Any]]:
    """Horizontal bars: both ends and the height, and the colour."""
    return [
        (drawn.get_segments()[0].ravel().tolist(), to_hex(drawn.get_color()[0]).upper())
        for drawn in axes.collections
        if isinstance(drawn, LineCollection)
    ]


def points_of(axes: Any) -> list[tuple[Any, Any]]:
    return [
        (drawn.get_offsets().tolist(), to_hex(drawn.get_facecolor()[0]).upper())
        for drawn in axes.collections
        if isinstance(drawn, PathCollection)
    ]


def ticks_of(axis: Any) -> list[tuple[float, str]]:
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return list(zip(axis.get_ticklocs().tolist(), labels, strict=True))


def texts_of(axes: Any) -> tuple[str, str, str]:
    """The title, and what stands beside the axes."""
    return axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()


def is_plain(axes: Any) -> bool:
    return not any(axes.spines[side].get_visible() for side in ("top", "right"))


def size_of(figure: Any) -> list[float]:
    return list(figure.get_size_inches())


def test_an_outcome_with_turns_is_drawn_by_turn_and_by_arm() -> None:
    figure: Any = arms_figure(results_of(low=[1, 2], high=[3, 4]), "level", arms=["low", "high"])
    arms, turns = figure.axes
    assert lines_of(turns) == [([1, 2], [1.5, 2.5], BLUE, "-"), ([1, 2], [3.5, 4.5], ORANGE, "--")]
    assert texts_of(turns) == ("mean over units", "turn", "level")
    assert all(float(tick).is_integer() for tick in turns.get_xticks())
    # A line between the arms for each unit, a point for each unit and arm, a bar at each mean.
    assert [ends for _, ends, *_ in lines_of(arms)] == [[1.5, 3.5], [2.5, 4.5]]
    assert points_of(arms) == [([[0, 1.5], [0, 2.5]], BLUE), ([[1, 3.5], [1, 4.5]], ORANGE)]
    assert bars_of(arms) == [([-0.22, 2, 0.22, 2], BLUE), ([0.78, 4, 1.22, 4], ORANGE)]
    assert texts_of(arms) == ("line: a unit, bar: the mean", "arm", "level")
    assert (ticks_of(arms.xaxis), arms.get_xlim()) == ([(0, "low"), (1, "high")], (-0.5, 1.5))
    [legend] = figure.legends
    assert [text.get_text() for text in legend.texts] == ["low", "high"]
    styles = [(line.get_color(), line.get_linestyle()) for line in legend.get_lines()]
    assert styles == [(BLUE, "-"), (ORANGE, "--")]
    assert legend._ncols == 2  # a row of them
    assert (size_of(figure), is_plain(arms), is_plain(turns)) == ([10, 4], True, True)
    assert figure.alt == "level by arm. low: mean 2 of 2; high: mean 4 of 2."


def test_after_six_arms_the_colours_come_again_with_another_style_and_twelve_are_drawn() -> None:
    arms = [f"arm {place}" for place in range(12)]
    results = results_of(**{arm: [1.0, 2.0] for arm in arms[1:]})
    figure: Any = arms_figure(results, "level", arms=arms)
    by_arm, turns = figure.axes
    expected = [("#56B4E9", "--"), (BLUE, "-."), (ORANGE, ":")]  # the sixth to the eighth
    assert [line[2:] for line in lines_of(turns)[4:7]] == expected
    assert [colour for _, colour in points_of(by_arm)[4:7]] == [colour for colour, _ in expected]
    handles = figure.legends[0].get_lines()[4:7]
    assert [(line.get_color(), line.get_linestyle()) for line in handles] == expected


@pytest.mark.parametrize(
    ("lengths", "letters"),
    [([22, 22], ""), ([1, 23], "AB"), ([2] * 26, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), ([2] * 27, "")],
)
def test_arms_have_letters_from_45_letters_of_names_on(lengths: list[int], letters: str) -> None:
    assert letters_of(["x" * length for length in lengths]) == list(letters)


def test_of_an_outcome_the_rows_with_a_number_count() -> None:
    results = results_of(a=[1.0, 2.0]).astype({"value": object})
    results.loc[1, "value"] = "n/a"
    results.loc[2, "outcome"] = "rate"
    assert numbers_of(results, "level")["value"].to_dict() == {0: 1.0, 3: 3.0}


@pytest.mark.parametrize(("units", "lines"), [(60, 60), (61, 0)])
def test_more_than_sixty_lines_between_arms_are_not_drawn(units: int, lines: int) -> None:
    rows = [
        {"arm": arm, "unit": unit, "turn": 0, "outcome": "level", "value": float(unit)}
        for arm in "ab"
        for unit in range(units)
    ]
    figure: Any = arms_figure(pd.DataFrame(rows), "level", arms=["a", "b"])
    [axes] = figure.axes
    assert (len(axes.lines), size_of(figure), figure.legends) == (lines, [6, 4], [])


@pytest.mark.parametrize("count", [0, 13])
def test_no_arm_or_too_many_is_an_error_that_says_where_the_numbers_are(count: int) -> None:
    arms: dict[str, list[float]] = {f"arm {n}": [1.0] for n in range(count)}
    frame = results_of(**arms or {"failed": [float("nan")]})
    with pytest.raises(ConfigError, match=rf"of {count} arms, .* study.results has all of them"):
        arms_figure(frame, "level", arms=list(arms) or ["failed"])


def test_arms_with_long_names_have_letters_that_a_legend_explains() -> None:
    arms = {f"turnover={share} · {tone}": [1.0, 2.0] for share in (0, 0.9) for tone in ("a", "b")}
    effect = Estimate(
        contrast=f"turnover=0.9 · b {MINUS} turnover=0 · a",
        outcome="level",
        value=2.0,
    )
    figure: Any = arms_figure(results_of(**arms), "level", arms=list(arms), effects=[effect])
    forest, by_arm, _ = figure.axes
    assert [tick.get_text() for tick in forest.get_yticklabels()] == [f"D {MINUS} A"]
    assert [tick.get_text() for tick in by_arm.get_xticklabels()] == ["A", "B", "C", "D"]
    [legend] = figure.subfigs[1].legends
    assert legend.texts[3].get_text() == "D: turnover=0.9 · b"
    assert legend._ncols == 2
    one_turn = {arm: values[:1] for arm, values in arms.items()}
    figure = arms_figure(results_of(**one_turn), "level", arms=list(arms))
    assert figure.legends[0].texts[0].get_text() == "A: turnover=0 · a"


def test_units_that_are_not_pairs_are_not_joined() -> None:
    rows = results_of(low=[1], high=[3])
    rows = rows[(rows["arm"] == "low") | (rows["unit"] == 0)]
    figure: Any = arms_figure(rows, "level", arms=["low", "high"], paired=False)
    [axes] = figure.axes
    assert not axes.lines
    assert figure.alt == "level by arm. low: mean 1.5 of 2; high: mean 3 of 1."
    assert axes.get_title(loc="left") == "dot: a run, bar: the mean"


def test_names_are_drawn_as_they_are_and_not_as_formulas() -> None:
    evil = r"a $\frac{1}$ <b>"
    figure = arms_figure(results_of(**{evil: [1, 2]}), "level", arms=[evil])
    figure.canvas.draw()


def effect_of(arm: str, **known: Any) -> Estimate:
    return Estimate(**{"contrast": f"{arm} {MINUS} low", "outcome": "level", "value": 2.0, **known})


def test_effects_are_a_forest_plot_above_with_bounds_and_a_typical_difference() -> None:
    typical = effect_of("high", value=1.5, low=1.0, high=2.0, p=0.04)
    effects = [
        effect_of("high", low=0.5, high=3.5, p=0.02, typical=typical),
        # The first that has them names the margin and the family.
        effect_of("other", value=None, margin=0.25, family="Holm over 2"),
    ]
    arms = ["low", "high"]
    figure: Any = arms_figure(
        results_of(low=[1, 2], high=[3, 4]), "level", arms=arms, effects=effects
    )
    forest, by_arm, _ = figure.axes
    texts = [(text.get_text(), text.xy) for text in forest.texts]
    assert texts == [
        ("+2.00 (0.50 to 3.50), p .020", (1.01, 0)),
        ("+1.50 (1.00 to 2.00)", (1.01, 1)),
        ("not known", (1.01, 2)),
    ]
    assert {text.xycoords for text in forest.texts} == {("axes fraction", "data")}
    names = [f"high {MINUS} low", "typical difference", f"other {MINUS} low"]
    assert ticks_of(forest.yaxis) == list(enumerate(names))
    # The first stands above.
    assert forest.get_ylim() == (2.5, -0.5)
    zero, *values = forest.lines
    assert (list(zero.get_xdata()), zero.get_color()) == ([0, 0], GREY)
    points = [(line.get_xdata()[0], line.get_ydata()[0], line.get_color()) for line in values]
    assert points == [(2, 0, ORANGE), (1.5, 1, ORANGE)]
    assert [line.get_markerfacecolor() for line in values] == [ORANGE, "white"]
    assert bars_of(forest) == [([0.5, 0, 3.5, 0], ORANGE), ([1, 1, 2, 1], ORANGE)]
    [margin] = forest.patches
    assert (margin.get_x(), margin.get_width()) == (-0.25, 0.5)
    title, below, _ = texts_of(forest)
    assert title == (
        "95 % interval, each comparison alone · p adjusted: Holm over 2 · grey: smaller than "
        "±0.25, the smallest effect of interest"
    )
    assert (below, is_plain(forest)) == ("difference in level", True)
    # 0.36 for each of three rows, above the charts of arms.
    assert size_of(figure) == pytest.approx([10, 4 + 0.9 + 3 * 0.36])
    assert f"high {MINUS} low: +2.00, 95 % 0.50 to 3.50, p = .020" in figure.alt
    assert texts_of(by_arm)[2] == "level"
    # Above a chart without turns it is as wide.
    figure = arms_figure(results_of(low=[1], high=[2]), "level", arms=arms, effects=effects[:1])
    assert size_of(figure) == pytest.approx([10, 4 + 0.9 + 2 * 0.36])
    assert not figure.axes[0].patches


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"value": -1.5}, f"{MINUS}1.50"),
        ({"low": -0.25, "high": 4.0}, f"+2.00 ({MINUS}0.25 to 4.00)"),
        ({"p": 0.00049}, "+2.00, p < .001"),
        ({"p": 0.0005}, "+2.00, p .001"),
        ({"p": 1.0}, "+2.00, p 1.000"),
        ({"p": 0.01, "p_family": 0.04}, "+2.00, p .040"),
    ],
)
def test_beside_an_effect_stand_its_numbers(known: dict[str, float], text: str) -> None:
    arms = ["low", "high"]
    figure = arms_figure(
        results_of(low=[1], high=[2]), "level", arms=arms, effects=[effect_of("high", **known)]
    )
    assert [text.get_text() for text in figure.axes[0].texts] == [text]


@pytest.mark.parametrize(
    ("kind", "unit", "words"),
    [
        ("mean difference", "", "difference in bank level (€)"),
        ("mean difference", "coins", "difference in bank level (€), coins"),
        ("text distance", "coins", "distance between texts of bank level (€): 0 if alike"),
        ("length difference", "coins", "difference in words a text of bank level (€)"),
    ],
)
def test_below_effects_stands_what_they_are_measured_in(kind: Any, unit: str, words: str) -> None:
    assert scale_of(effect_of("high", outcome="bank_level_eur", kind=kind), unit) == words


def test_a_difference_by_turn_has_its_band_and_its_peak_in_words() -> None:
    band = pd.DataFrame(
        {"turn": [1, 2], "estimate": [0.5, -2.0], "low": [0.0, -3.0], "high": [1, -1.0], "n": 8}
    )
    figure: Any = difference_figure(
        band, outcome="level", contrast=f"new {MINUS} old", units="8 pairs"
    )
    [axes] = figure.axes
    assert figure.alt == (
        f"new {MINUS} old, level by turn: largest at turn 2, -2.00, band -3.00 to -1.00."
    )
    assert texts_of(axes) == (
        f"new {MINUS} old · mean of 8 pairs, simultaneous 95 % band",
        "turn",
        "level, difference",
    )
    # No difference is a line of its own.
    zero, line = lines_of(axes)
    assert zero[1:3] == ([0, 0], GREY)
    assert line == ([1, 2], [0.5, -2], BLUE, "-")
    [shaded] = axes.collections
    corners = {tuple(corner) for corner in shaded.get_paths()[0].vertices.tolist()}
    assert corners == {(1, 0), (2, -3), (2, -1), (1, 1)}
    assert (size_of(figure), is_plain(axes)) == ([7, 3.2], True)


def test_a_specification_curve_marks_what_each_estimate_was_made_with() -> None:
    frame = pd.DataFrame(
        {"wording": list("abab"), "order": list("xxyy"), "estimate": [3.0, 1, 2, 4], "low": 0.0}
    ).assign(high=5.0)
    figure: Any = curve_figure(frame.sort_values("estimate", ignore_index=True), title="y")
    above, below = figure.axes
    names = ["order: y", "order: x", "wording: a", "wording: b"]
    assert ticks_of(below.yaxis) == list(enumerate(names))
    marks = {names[int(line.get_ydata()[0])]: list(line.get_xdata()) for line in below.lines}
    assert marks == {
        "order: y": [1, 3],
        "order: x": [0, 2],
        "wording: a": [1, 2],
        "wording: b": [0, 3],
    }
    assert texts_of(above) == ("y", "", "estimate")
    assert texts_of(below) == ("", "4 specifications, by their estimates", "")
    assert (below.get_xticks().tolist(), is_plain(above), is_plain(below)) == ([], True, True)
    # Each estimate with both ends of its interval, and a line where there is no difference.
    points, zero = lines_of(above)
    assert points[:3] == ([0, 1, 2, 3], [1, 2, 3, 4], BLUE)
    assert zero[1:3] == ([0, 0], GREY)
    [reaches] = above.collections
    assert [reach.tolist() for reach in reaches.get_segments()] == [
        [[place, 0], [place, 5]] for place in range(4)
    ]
    assert size_of(figure) == pytest.approx([8, 3 + 4 * 0.22])
    assert figure.alt == "y: 4 specifications, +1.00 to +4.00."
