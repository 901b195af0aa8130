"""Scenes as matplotlib draws them: names, lines, marks, axes; the other tests look at scenes."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import make_client, make_config, make_simulation
from matplotlib.figure import Figure

from llmsim_lab._util.drawing import drawable, spread_out
from llmsim_lab._util.files import data_path
from llmsim_lab.lab import RateChart
from llmsim_lab.lab._prompt_comparer import chart_html
from llmsim_lab.lab.charts._drawing import draw, thinned
from llmsim_lab.lab.charts._scene import Scene
from llmsim_lab.lab.figures import difference_figure
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Comparison


def scene_of(*runs: object, **choice: Any) -> Scene:
    return RateChart(*runs, **choice).scene


def moods(*values: float, **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"turn": range(len(values)), "mood": values, **more})


def legend(drawing: Figure) -> list[str]:
    return [text.get_text() for text in drawing.legends[0].get_texts()]


def written(drawing: Figure) -> list[str]:
    """What stands in the large panel, at lines' ends and at marks."""
    return [text.get_text() for text in drawing.axes[0].texts]


def test_everything_in_a_scene_is_drawn_and_named() -> None:
    simulation = Simulation(
        make_config(start="1979Q3", interventions=[{"turn": 2, "set": {"inflation": 5}}])
    )
    simulation.run(4)
    fan = [moods(1, 2, 3).assign(interest_rate=n, inflation=[n, 2 * n, 0]) for n in range(5)]
    scene = scene_of({"mine": simulation}, fan, names=["mine", "fan"], panels=["inflation"])
    scene = replace(scene, bounds=())
    drawing = draw(scene)
    curves = ["mine", "fan: median of 5 runs", "what the Taylor rule asks, on the data of: mine"]
    bands = ["fan: 90 % of runs", "fan: 50 % of runs"]
    assert legend(drawing) == [*curves, *bands, "planned, not played yet"]
    # The first mark's text, then the names where the lines end.
    assert written(drawing) == ["1 inflation=5", "mine", "fan", "Taylor rule"]
    main, small = drawing.axes
    assert [main.get_title(loc="left"), main.get_ylabel()] == ["Policy rate", "% per year"]
    assert small.get_title(loc="left") == "Inflation, % over four quarters"
    for axes, column in ((main, "interest_rate"), (small, "inflation")):
        lines = axes.get_lines()
        drawn = [curve.points[column] for curve in scene.curves if column in curve.points]
        for line, (x, y) in zip(lines, drawn, strict=False):
            assert line.get_xdata().tolist() == x.tolist()
            assert line.get_ydata() == pytest.approx(y)
        assert [line.get_xdata() for line in lines[len(drawn) :]] == [[2, 2]]
        areas = [band.points[column] for band in scene.bands if column in band.points]
        assert len(axes.collections) == len(areas)
        for shape, (x, low, high) in zip(axes.collections, areas, strict=True):
            corners = shape.get_paths()[0].vertices
            assert {*corners[:, 0]} == {*x}
            assert (corners[:, 1].min(), corners[:, 1].max()) == (low.min(), high.max())
    assert small.get_ylim() == scene.limits["inflation"]


def test_bounds_are_lines_with_their_labels_on_the_side_where_no_value_is() -> None:
    frame = moods(0.1, 0.5, 1.0)
    frame.attrs = {"bounds": {"mood": (0.0, 1.0)}}
    drawing = draw(scene_of(frame))
    [axes] = drawing.axes
    assert [line.get_ydata() for line in axes.get_lines()[1:]] == [[0, 0], [1, 1]]
    drawing.draw_without_rendering()
    for text, bound in zip(axes.texts, (0, 1), strict=False):
        box = text.get_window_extent()
        line = axes.transData.transform((0, bound))[1]
        assert text.get_text() == ("at least 0", "at most 1")[bound]
        assert box.y1 <= line if bound == 0 else box.y0 >= line
        assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1


def test_turns_still_to_be_played_are_shaded_until_they_are() -> None:
    simulation = make_simulation(start="1979Q3", turns=3)
    for played in (0, 1, 2):
        drawing = draw(scene_of(simulation))
        for axes in drawing.axes:
            [area] = axes.patches
            corners = area.get_corners()[:, 0]
            assert (corners.min(), corners.max()) == (played, 3)
        assert legend(drawing)[-1] == "planned, not played yet"
        simulation.run(1)
    drawing = draw(scene_of(simulation))
    assert not any(axes.patches for axes in drawing.axes)
    assert "planned, not played yet" not in legend(drawing)


def test_turns_from_a_tape_are_shaded_where_live_ones_follow() -> None:
    fork = replay(data_path("tapes/first_run.tape"), 1).fork(turn=3, llm_client=make_client())
    fork.run(2)
    drawing = draw(scene_of(fork))
    assert legend(drawing)[-1] == "from the tape"
    for axes in drawing.axes:
        corners = axes.patches[-1].get_corners()[:, 0]
        assert (corners.min(), corners.max()) == (0, 3)
    # Where nothing is live, or nothing from a tape, there is nothing to tell apart.
    assert scene_of(data_path("tapes/first_run.tape")).taped is None
    live = make_simulation(start="1979Q3", turns=3)
    live.run(2)
    assert scene_of(live, live.fork(turn=2)).taped is None


def test_a_bounds_label_begins_where_no_curve_is() -> None:
    frame = moods(0, 0, 0, 0.1, 0.4, 0.6, 0.8, 1.2, 1.2, 1.2, 1.0)
    frame.attrs = {"bounds": {"mood": (0.0, 1.0)}}
    [low, high] = scene_of(frame).bounds
    assert (low.at, high.at) == (8, 0)
    frame = moods(1.05, 1.05, 1.05, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
    frame.attrs = {"bounds": {"mood": (None, 1.0)}}
    assert scene_of(frame).bounds[0].at > 2


def test_what_runs_say_of_themselves_is_in_the_picture_however_long_it_is() -> None:
    frame = moods(1, 2)
    frame.attrs = {"notes": ["The model failed: " + "it raises the rate, and " * 10]}
    drawing = draw(scene_of(frame))
    drawing.draw_without_rendering()
    title = drawing.legends[0].get_title()
    assert title.get_text().startswith("The model failed: it raises the rate,")
    assert title.get_text().count("\n") == 2
    box, whole = title.get_window_extent(), drawing.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1


def test_a_run_that_has_yet_to_begin_has_axes_to_read() -> None:
    scene = scene_of(make_simulation(start="1979Q3", turns=6))
    drawing = draw(scene)
    drawing.draw_without_rendering()
    main, *small = drawing.axes
    names = [label.get_text() for label in main.get_xticklabels()]
    assert names == ["1979Q3", "1979Q4", "1980Q1", "1980Q2", "1980Q3", "1980Q4", "1981Q1"]
    assert main.get_xticks().tolist() == list(range(7))
    for axes in small:
        assert axes.get_xlim()[1] >= 6
        low, high = axes.get_ylim()
        assert high - low >= 0.2 * abs(high)
    for axes in drawing.axes:
        assert axes.yaxis.get_offset_text().get_text() == ""
        assert {line.get_marker() for line in axes.get_lines()} == {"o", "x"}


def test_an_exponent_stands_where_the_title_does_not() -> None:
    drawing = draw(scene_of(moods(1e30, 2e30)))
    drawing.draw_without_rendering()
    [axes] = drawing.axes
    offset = axes.yaxis.get_offset_text()
    assert offset.get_text() == "1e30"
    assert offset.get_window_extent().x0 > axes.title.get_window_extent().x1


def test_few_marks_are_worded_and_many_numbered() -> None:
    frame = moods(*range(14))
    done = [f"turn {turn}: rain" if turn else "" for turn in range(14)]
    few = draw(scene_of({"x": frame.assign(interventions=[*done[:4], *[""] * 10])}))
    assert written(few) == ["1 rain", "2 rain", "3 rain", "x"]
    many = draw(scene_of({"x": frame.assign(interventions=done)}))
    assert written(many) == [*map(str, range(1, 14)), "x"]


def test_hostile_names_are_drawn_as_they_are() -> None:
    names = [
        "$\\frac{1}{2}$ \\alpha",
        "<script>alert(1)</script>",
        "\x1b[31mred",
        "a\u202eb",
        "漢 😀",
    ]
    chart = RateChart(
        {name: moods(1, 2 + place) for place, name in enumerate(names)}, title=names[0]
    )
    chart.figure.draw_without_rendering()  # a formula or a missing letter would be an error here
    bundle = chart._repr_mimebundle_()
    assert "<script" not in f"{chart.picture.value}{bundle['text/html']}"
    assert legend(draw(chart.scene))[:2] == [
        "\\$\N{SET MINUS}frac{1}{2}\\$ \N{SET MINUS}alpha",
        "<script>alert(1)</script>",
    ]
    assert drawable("漢 é") == "\N{WHITE SQUARE} é"


def test_long_lines_keep_their_extremes() -> None:
    values = np.full(9000, 2.0)
    values[4321], values[7000] = 99.0, -5.0
    x, y = thinned(np.arange(9000.0), values)
    assert len(x) <= 2100
    assert (y.max(), y.min()) == (99.0, -5.0)
    assert (x[y.argmax()], x[y.argmin()]) == (4321, 7000)
    [line] = draw(scene_of({"long": moods(*values)})).axes[0].get_lines()
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == (x.tolist(), y.tolist())


def test_labels_that_would_overlap_are_moved_apart_or_left_out() -> None:
    assert spread_out([3.0, 1.0, 1.0, 1.1], gap=1.0, most=1.6) == [3.0, 1.0, 2.0, None]


def test_periods_are_drawn_as_they_are() -> None:
    drawing = draw(scene_of(moods(1, 2, period=["$\\frac{1$", "$2$"])))
    drawing.draw_without_rendering()
    labels = [label.get_text() for label in drawing.axes[0].get_xticklabels()]
    assert labels == ["\\$\N{SET MINUS}frac{1\\$", r"\$2\$"]


def test_any_number_of_small_panels_fits() -> None:
    names = [f"column {number}" for number in range(6)]
    frame = moods(1, 2, **{name: [0, place] for place, name in enumerate(names)})
    for count in range(len(names)):
        scene = scene_of(frame, panels=names[:count])
        figure = draw(scene)
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert titles == ["mood", *names[:count]]


def test_a_comparisons_chart_shows_pairs_turns_interval_and_noise() -> None:
    results = Comparison.load(data_path("tapes/prompt_experiment.tape"))
    [axes] = difference_figure(results, "interest_rate").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["hawkish", "reordered"]
    assert axes.get_xlabel() == "resulting interest rate: difference from as it was, points"
    *drawn, zero = axes.get_lines()
    assert zero.get_xdata() == [0, 0]
    rates = results.frame.set_index(["turn", "sample", "variant"])["interest_rate"].unstack()
    rows = results.summary.query("outcome == 'interest_rate'").to_dict("records")
    for place, row in enumerate(rows):
        pairs = rates[row["variant"]] - rates["as it was"]
        means = pairs.groupby("turn").mean()
        wanted = [pairs, means, [row["estimate"]], [row["low"]], [row["high"]]]
        for line, values in zip(drawn[5 * place : 5 * place + 5], wanted, strict=True):
            assert line.get_xdata() == pytest.approx(np.array(values))
        noise = axes.collections[2 * place].get_paths()[0].vertices[:, 0]
        assert (noise.min(), noise.max()) == (-row["noise_floor"], row["noise_floor"])
    image = chart_html(results, "interest_rate")
    assert difference_figure(results, "interest_rate").alt in html.unescape(image)  # type: ignore[attr-defined]
    assert 'src="data:image/png;base64,iVBOR' in image
