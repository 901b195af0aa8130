"""Charts of studies: which points and means are drawn, in which colours, under which names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.study._charts import arms_figure, curve_figure, difference_figure
from llmsim_lab.study.estimates.estimate import Estimate

MINUS = "\N{MINUS SIGN}"


def results_of(**arms: list[float]) -> pd.DataFrame:
    """Two units an arm, the second one above the first; a value a turn."""
    rows: list[dict[str, Any]] = [
        {"arm": arm, "unit": unit, "turn": turn, "outcome": "level", "value": value + unit}
        for arm, values in arms.items()
        for unit in (0, 1)
        for turn, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows)


def test_an_outcome_with_turns_is_drawn_by_turn_and_by_arm() -> None:
    figure: Any = arms_figure(results_of(low=[1, 2], high=[3, 4]), "level", arms=["low", "high"])
    arms, turns = figure.axes
    assert [list(line.get_ydata()) for line in turns.lines] == [[1.5, 2.5], [3.5, 4.5]]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.texts] == ["low", "high"]
    assert (arms.get_xlabel(), turns.get_xlabel()) == ("arm", "turn")
    # A line between the arms for each unit, a point for each unit and arm, a bar at each mean.
    assert [list(line.get_ydata()) for line in arms.lines] == [[1.5, 3.5], [2.5, 4.5]]
    assert figure.alt == "level by arm. low: mean 2 of 2; high: mean 4 of 2."


def test_an_arm_keeps_its_colour_while_another_has_no_runs() -> None:
    figure = arms_figure(results_of(late=[1, 2]), "level", arms=["early", "late"])
    both = arms_figure(results_of(early=[1, 2], late=[1, 2]), "level", arms=["early", "late"])
    [line] = figure.axes[1].lines
    assert line.get_color() == both.axes[1].lines[1].get_color()


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


def test_effects_are_a_forest_plot_above_with_bounds_and_a_typical_difference() -> None:
    typical = Estimate(
        contrast=f"high {MINUS} low", outcome="level", value=1.5, low=1.0, high=2.0, p=0.04
    )
    effect = Estimate(
        contrast=f"high {MINUS} low",
        outcome="level",
        value=2.0,
        low=0.5,
        high=3.5,
        p=0.02,
        margin=0.25,
        typical=typical,
    )
    figure: Any = arms_figure(
        results_of(low=[1, 2], high=[3, 4]), "level", arms=["low", "high"], effects=[effect]
    )
    forest = figure.axes[0]
    assert [text.get_text() for text in forest.texts] == [
        "+2.00 (0.50 to 3.50), p .020",
        "+1.50 (1.00 to 2.00)",
    ]
    assert [tick.get_text() for tick in forest.get_yticklabels()] == [
        f"high {MINUS} low",
        "typical difference",
    ]
    assert [line.get_xdata()[0] for line in forest.lines if line.get_marker() == "o"] == [2, 1.5]
    intervals = [drawn.get_paths()[0].vertices[:, 0].tolist() for drawn in forest.collections[-2:]]
    assert intervals == [[0.5, 3.5], [1, 2]]
    assert "smaller than ±0.25" in forest.get_title(loc="left")
    assert f"high {MINUS} low: +2.00, 95 % 0.50 to 3.50, p = .020" in figure.alt


def test_a_chart_names_the_family_and_the_margin_where_its_first_effect_has_neither() -> None:
    alike = Estimate(contrast=f"b {MINUS} a", outcome="level", value=0.0)
    effect = Estimate(
        contrast=f"c {MINUS} a",
        outcome="level",
        value=2.0,
        low=0.5,
        high=3.5,
        p=0.02,
        margin=0.25,
        family="Holm over 2",
    )
    arms = {"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [3.0, 4.0]}
    figure: Any = arms_figure(results_of(**arms), "level", arms=list(arms), effects=[alike, effect])
    title = figure.axes[0].get_title(loc="left")
    assert title.endswith(
        "p adjusted: Holm over 2 · grey: smaller than ±0.25, the smallest effect of interest"
    )


def test_a_difference_by_turn_has_its_band_and_its_peak_in_words() -> None:
    band = pd.DataFrame(
        {"turn": [1, 2], "estimate": [0.5, -2.0], "low": [0.0, -3.0], "high": [1, -1.0], "n": 8}
    )
    figure: Any = difference_figure(
        band, outcome="level", contrast="new \N{MINUS SIGN} old", units="8 pairs"
    )
    assert "largest at turn 2, -2.00, band -3.00 to -1.00" in figure.alt
    assert "mean of 8 pairs" in figure.axes[0].get_title(loc="left")
    # No difference is a line of its own.
    assert [0, 0] in [list(line.get_ydata()) for line in figure.axes[0].lines]


def test_a_specification_curve_marks_what_each_estimate_was_made_with() -> None:
    frame = pd.DataFrame(
        {"wording": list("abab"), "order": list("xxyy"), "estimate": [3.0, 1, 2, 4], "low": 0.0}
    ).assign(high=5.0)
    figure: Any = curve_figure(frame.sort_values("estimate", ignore_index=True), title="y")
    above, below = figure.axes
    names = [tick.get_text() for tick in below.get_yticklabels()]
    assert names == ["order: y", "order: x", "wording: a", "wording: b"]
    marks = {names[int(line.get_ydata()[0])]: list(line.get_xdata()) for line in below.lines}
    assert marks["wording: b"] == [0, 3]
    assert "4 specifications, +1.00 to +4.00" in figure.alt
    assert above.get_title(loc="left") == "y"
