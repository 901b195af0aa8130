"""Charts of studies, from frames: which means are drawn, in which colours, under which names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._charts import arms_chart, runs_chart


def frame_of(**arms: list[float]) -> pd.DataFrame:
    """Two seeds an arm, the second one above the first."""
    rows: list[dict[str, Any]] = [
        {"arm": arm, "seed": seed, "turn": turn, "level": value + seed}
        for arm, values in arms.items()
        for seed in (0, 1)
        for turn, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_an_arm_keeps_its_colour_while_another_has_no_runs() -> None:
    figure = arms_chart(frame_of(late=[1, 2]), "level", arms=["early", "late"])
    [axes] = figure.axes
    assert [line.get_color() for line in axes.lines] == [SERIES_COLOURS[1]]
    assert [text.get_text() for text in axes.texts] == ["late"]


def test_what_has_no_value_at_the_start_is_drawn_from_its_first_value_on() -> None:
    figure = arms_chart(frame_of(one=[float("nan"), 3, 5]), "level", arms=["one"])
    [axes] = figure.axes
    assert axes.lines[0].get_xydata().tolist() == [[1, 3.5], [2, 5.5]]
    assert len(axes.collections) == 1
    assert "one: 3.50 at first, 5.50 at last" in figure.alt  # type: ignore[attr-defined]


def test_arms_that_end_together_have_names_apart() -> None:
    figure = arms_chart(frame_of(one=[0, 1], two=[2, 1]), "level", arms=["one", "two"])
    [axes] = figure.axes
    one, two = (text.xy[1] for text in axes.texts)
    low, high = axes.get_ylim()
    assert two - one >= 0.05 * (high - low)


def test_more_arms_than_anybody_tells_apart_are_not_drawn() -> None:
    names = [f"arm {place}" for place in range(9)]
    with pytest.raises(ConfigError, match="9 arms are too many"):
        arms_chart(frame_of(**{name: [1, 2] for name in names}), "level", arms=names)


def test_runs_are_points_with_a_bar_at_the_mean_and_a_line_for_each_seed() -> None:
    rows = [("late", 0, 1.0), ("late", 1, 3.0), ("late", 2, float("nan"))]
    values = pd.DataFrame(rows, columns=["arm", "seed", "value"]).assign(outcome="loss")
    figure = runs_chart(values, "loss", arms=["early", "late"])
    [axes] = figure.axes
    points, bar = axes.collections
    assert points.get_offsets().tolist() == [[0, 1], [0, 3]]
    assert bar.get_segments()[0][0][1] == 2
    assert len(axes.lines) == 2
    assert figure.alt == "loss by run. late: mean 2 of 2."  # type: ignore[attr-defined]


def test_an_outcome_that_no_run_has_is_an_empty_chart() -> None:
    values = pd.DataFrame([{"arm": "early", "seed": 0, "outcome": "loss", "value": float("nan")}])
    assert not runs_chart(values, "loss", arms=["early"]).axes[0].collections
