"""What a chart draws, to the colour and the place: lines, legends, axes, names, networks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from builders import played
from pydantic import Field

from llmsim_lab import Ask, Run, State, Tape
from llmsim_lab.economy import load_us_macro
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import Lab, RateChart
from llmsim_lab.lab.figures import rate_figure

pytestmark = pytest.mark.usefixtures("undrawn")
BLUE, RED, GREEN, PINK, ORANGE, SKY = (
    *("#0072B2", "#D55E00", "#009E73"),
    *("#CC79A7", "#E69F00", "#56B4E9"),
)


def frame(*levels: Any, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"turn": range(len(levels)), "level": levels, **columns})


def drawn(axes: Any) -> list[tuple[str, str, list[float]]]:
    """Return the lines of a panel: colour, style, values."""
    return [(line.get_color(), line.get_linestyle(), list(line.get_ydata())) for line in axes.lines]


def test_runs_have_six_colours_then_other_styles_and_twenty_of_them_a_name() -> None:
    chart = RateChart({f"run {n}": frame(n, n + 1.0) for n in range(25)})
    figure = chart.figure
    assert figure.get_size_inches().tolist() == [8.2, 3.6]
    lines = drawn(figure.axes[0])
    assert [colour for colour, _, _ in lines[:7]] == [BLUE, RED, GREEN, PINK, ORANGE, SKY, BLUE]
    assert "".join(style for _, style, _ in lines[5:25:6]) == "----.:"
    assert [values for *_, values in lines] == [*([n, n + 1.0] for n in range(25)), []]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [*(f"run {n}" for n in range(20)), "and 5 more runs"]
    orders = [line.get_zorder() for line in figure.axes[0].lines[:25]]
    assert orders == sorted(orders, reverse=True), "where runs coincide, the first is seen"
    assert "\nrun 19, turns 0 to 1: level 19 → 20\nand 5 more runs\n" in chart.static_text()
    assert RateChart({"one": frame(1, 2)}).figure.legends == []


@pytest.mark.parametrize(("letters", "columns"), [(33, 3), (53, 2), (54, 1)])
def test_a_legend_has_as_many_columns_as_fit_into_120_letters(letters: int, columns: int) -> None:
    runs = {"x": frame(1, 2), "y" * letters: frame(2, 3), "z": frame(4, 5), "u": frame(4, 5)}
    assert RateChart(runs).figure.legends[0]._ncols == columns


def test_the_first_chart_is_large_and_has_its_name_at_the_axis_the_others_below_it() -> None:
    columns = {name: [1.0, 2.0] for name in ("pot_eur", "gold", "debt", "fifth")}
    figure = RateChart(frame(1, 2, **columns), title="Mine").figure
    assert figure.get_size_inches().tolist() == [8.2, 5.4]
    main, *small = figure.axes
    assert (main.get_ylabel(), main.get_title(loc="left")) == ("level", "Mine")
    titles = [(axes.get_title(loc="left"), axes.get_ylabel()) for axes in small]
    assert titles == [("pot (€)", ""), ("gold", ""), ("debt", "")]


def test_quarters_are_named_at_most_twelve_and_only_where_the_runs_agree() -> None:
    def dated(first: int, turns: int) -> pd.DataFrame:
        return frame(*range(turns), period=[f"Q{first + turn}" for turn in range(turns)])

    def named(*runs: pd.DataFrame) -> list[str]:
        axes = RateChart({str(place): run for place, run in enumerate(runs)}).figure.axes[0]
        if axes.get_xlabel():
            return [axes.get_xlabel()]
        return [label.get_text() for label in axes.get_xticklabels()]

    assert named(dated(0, 12)) == [f"Q{turn}" for turn in range(12)]
    assert named(dated(0, 13)) == ["Q0", "Q2", "Q4", "Q6", "Q8", "Q10", "Q12"]
    assert named(dated(0, 3), dated(0, 4)) == ["Q0", "Q1", "Q2", "Q3"]
    assert named(dated(0, 3), dated(1, 3)) == ["turn"]
    assert named(frame(1, 2, period=["Q1", None])) == ["turn"]


def test_what_was_done_from_outside_is_a_line_in_each_panel_and_its_words_in_the_first() -> None:
    def shocked(turns: int) -> Any:
        words = ["", *(f"turn {turn}: pot = 1; turn {turn}: level = 2" for turn in range(1, turns))]
        return RateChart(frame(*range(turns), gold=range(turns), interventions=words))

    main, small = shocked(6).figure.axes
    for axes in (main, small):
        assert [line.get_xdata()[0] for line in axes.lines[1:]] == [1, 2, 3, 4, 5]
    assert [text.get_text() for text in main.texts] == ["pot = 1; level = 2"] * 5
    assert [(text.xy, text.xyann) for text in main.texts] == [
        *(((1, 1.0), (3, -4)), ((2, 1.0), (3, -14)), ((3, 1.0), (3, -24))),
        *(((4, 1.0), (3, -4)), ((5, 1.0), (3, -14))),
    ]
    assert not small.texts
    assert len(shocked(9).figure.axes[0].texts) == 8
    assert not shocked(10).figure.axes[0].texts, "more words would cover the lines"
    assert "\nturn 2: pot = 1; level = 2\n" in shocked(6).static_text()


class Told(State):
    level: float = 1.0
    gold: float = 5.0


class Predicted(Run[Told]):
    async def turn(self, state: Told, ask: Ask) -> Told:
        return Told(level=state.level + 1, gold=5)

    def prediction(self) -> dict[str, float]:
        return {"level": 9.5, "debt": 3}


def test_what_theory_says_is_a_dashed_line_that_the_axis_has_room_for() -> None:
    chart = RateChart({"one": played(Predicted(), 2), "other": played(Predicted(), 1)})
    level, gold = chart.figure.axes
    [dashed] = [line for line in level.lines if str(line.get_label()).startswith("prediction")]
    assert (dashed.get_label(), list(dashed.get_ydata())) == ("prediction 9.5", [9.5, 9.5])
    low, high = level.get_ylim()
    assert low == pytest.approx(1 - 0.08 * 8.5)
    assert high == pytest.approx(9.5 + 0.08 * 8.5)
    assert not [line for line in gold.lines if "prediction" in str(line.get_label())]
    assert chart.static_text().splitlines()[1:] == [
        "Chart: one, other",
        "one, turns 0 to 2: level 1 → 3, gold 5",
        "other, turns 0 to 1: level 1 → 2, gold 5",
        *("prediction: debt 3", "prediction: level 9.5"),
        *("2 runs", "1 one · run · no model", "2 other · run · no model"),
    ]


class Open(State):
    level: float = 1.0
    is_open: bool = True


class Opening(Run[Open]):
    levels: tuple[float, ...]

    async def turn(self, state: Open, ask: Ask) -> Open:
        return Open(level=self.levels[ask.turn - 1], is_open=not ask.turn % 2)


def test_a_value_that_no_axis_has_room_for_is_left_out_and_yes_and_no_are_lines_too() -> None:
    levels = [1.0, None, math.nan, 10**400, 3.0, "x", 1e301, -1e300]
    line = RateChart(frame(*levels)).figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [0, 4, 7]
    assert list(line.get_ydata()) == [1, 3, -1e300]
    chart = RateChart(played(Opening(levels=(3.0, 4.0, 2.5)), 3), columns=["is_open"])
    yes = chart.figure.axes[0]
    assert list(yes.lines[0].get_ydata()) == [1, 0, 1, 0]
    assert yes.get_ylim() == (-0.05, 1.05)
    assert [tick.get_text() for tick in yes.get_yticklabels()] == ["no", "yes"]
    assert yes.get_yticks().tolist() == [0, 1]
    assert chart.static_text().splitlines()[2].endswith(": is open no")
    with pytest.raises(ConfigError, match="no column of numbers to chart besides 'turn'"):
        RateChart(frame("x", "y", open=[True, False]))
    with pytest.raises(ConfigError, match="there is no run to chart"):
        RateChart()


class Shares(State):
    given: dict[str, float]


class Giving(Run[Shares]):
    ends: dict[str, float]

    async def turn(self, state: Shares, ask: Ask) -> Shares:
        return Shares(given=self.ends)


def giving(**ends: float) -> Giving:
    return played(Giving(ends=ends, state=Shares(given=dict.fromkeys(ends, 0.0))), 1)


def test_up_to_six_lines_of_a_dict_have_colours_and_names_of_more_the_outermost_two() -> None:
    six = RateChart(giving(a=0, b=30, c=60, d=90, e=120, f=150)).figure.axes[0]
    assert [colour for colour, _, _ in drawn(six)] == [BLUE, RED, GREEN, PINK, ORANGE, SKY]
    ends = [(text.get_text(), text.xy, text.get_color()) for text in six.texts]
    assert ends == [
        *(("f", (1, 150), SKY), ("e", (1, 120), ORANGE), ("d", (1, 90), PINK)),
        *(("c", (1, 60), GREEN), ("b", (1, 30), RED), ("a", (1, 0), BLUE)),
    ]
    chart = RateChart(giving(a=0, b=30, c=60, d=90, e=120, f=150, g=20))
    seven = chart.figure.axes[0]
    grey = "#bbbbbb"
    assert [colour for colour, _, _ in drawn(seven)] == [RED, *[grey] * 4, BLUE, grey]
    assert [line.get_zorder() for line in seven.lines] == [3, 2, 2, 2, 2, 3, 2]
    assert [text.get_text() for text in seven.texts] == ["f", "a"]
    assert "given, mean of 7: 0 → 67.14" in chart.static_text()


def test_names_that_would_meet_are_moved_apart_by_their_height_and_never_below_the_lowest() -> None:
    def heights(**ends: float) -> list[float]:
        return [text.xy[1] for text in RateChart(giving(**ends)).figure.axes[0].texts]

    # A name takes 11 of 150 points, so 11 of values from 0 to 150.
    assert heights(a=150, b=149, c=20) == pytest.approx([150, 139, 20])
    assert heights(a=150, b=3, c=1, d=0) == pytest.approx([150, 22, 11, 0])
    assert heights(a=0, b=0) == pytest.approx([11 / 150, 0])


def test_of_several_runs_of_a_dict_the_means_are_drawn_over_the_keys_that_a_turn_has() -> None:
    chart = RateChart({"one": giving(a=4, b=8), "other": giving(a=1)}, columns=["given"])
    lines = drawn(chart.figure.axes[0])
    assert lines == [
        *((BLUE, "-", [0, 4]), (BLUE, "-", [0, 8]), (BLUE, "-", [0, 6])),
        *((RED, "-", [0, 1]), (RED, "-", [0, 1])),
    ]
    [legend] = chart.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "other"]
    assert "\none, turns 0 to 1: given.a 0 → 4, given.b 0 → 8\n" in chart.static_text()


class Circle(State):
    friends: list[tuple[str, str]] = Field([("N", "E"), ("E", "N"), ("S", "W")])
    level: float = 1.0


class Friendly(Run[Circle]):
    defaults: ClassVar[Any] = {"turns": 2}

    async def turn(self, state: Circle, ask: Ask) -> Circle:
        return state


def network_of(run: Any) -> Any:
    figure = Lab(run).static_picture()
    assert figure is not None
    return figure.axes[-1]


def test_a_network_is_a_circle_of_names_with_a_line_for_each_tie() -> None:
    axes = network_of(played(Friendly(), 2))
    [places] = [dots.get_offsets().tolist() for dots in axes.collections]
    circle = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    for place, wanted in zip(places, circle, strict=True):
        assert place == pytest.approx(wanted, abs=1e-9)
    ties = {tuple(map(tuple, line.get_xydata().round(6).tolist())) for line in axes.lines}
    assert {frozenset(tie) for tie in ties} == {
        frozenset({(1, 0), (0, 1)}),
        frozenset({(0, -1), (-1, 0)}),
    }
    assert [text.get_text() for text in axes.texts] == ["N", "E", "S", "W"]
    assert [text.get_ha() for text in axes.texts] == ["center", "left", "center", "right"]
    assert axes.get_title(loc="left") == "friends, turn 2"
    assert (axes.axison, axes.get_aspect(), axes.margins()) == (False, 1, (0.25, 0.25))


@pytest.mark.parametrize(("players", "named"), [(20, 20), (21, 0)])
def test_players_of_a_network_are_named_where_they_are_not_more_than_twenty(
    players: int, named: int
) -> None:
    pairs = [(f"P{at}", f"P{(at + 1) % players}") for at in range(players)]
    axes = network_of(played(Friendly(state=Circle(friends=pairs)), 1))
    assert (len(axes.lines), len(axes.texts)) == (players, named)


def test_runs_are_named_by_their_tape_or_as_they_are_given(tmp_path: Path) -> None:
    path = tmp_path / "two.tape"
    with Tape(path) as tape:
        run = Predicted(tape=tape, name="mine")
        played(run, 2)
        played(run.fork(1), 1)
        run.close()
        line = "turns 0 to 2: level 1 → 3, gold 5"
        assert RateChart(path).static_text().splitlines()[2:4] == [
            f"1 mine, {line}",
            f"2 mine, {line}",
        ]
    names = RateChart(played(Predicted(name="here"), 2), frame(1, 3, gold=[5, 5]), {4: run})
    assert [text.partition(", turns")[0] for text in names.static_text().splitlines()[2:5]] == [
        *("here", "run", "4"),
    ]
    with pytest.raises(ConfigError, match=r"'x' names 2 runs; name one: load\(tape, 1\)"):
        RateChart({"x": path})


def test_a_chart_and_a_window_say_what_they_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = giving(a=0, b=30, c=60, d=90, e=120, f=150, g=20, h=40)
    monkeypatch.setattr("llmsim_lab.lab._picture._MOST_KEYS", 3)
    axes = RateChart(run).figure.axes[0]
    assert "some of 8 lines" in [text.get_text() for text in axes.texts]
    assert len(axes.lines) == 5
    monkeypatch.setattr("llmsim_lab.lab._charted_runs._MOST_RUNS", 1)
    monkeypatch.setattr("llmsim_lab.run.recorded._MOST_RUNS", 2)
    path = tmp_path / "three.tape"
    for _ in range(3):
        played(Predicted(tape=path, name="mine"), 1).close()
    assert "1 mine, turns 0 to 1" in RateChart(path).static_text()
    assert "drawn=1 runs=3" in caplog.text
    text = Lab(path).static_text()
    assert text.startswith("Lab of three.tape: 2 of 3 runs (run=, or --run, shows another)")


def test_a_chart_of_a_tape_that_is_recorded_anew_draws_the_new_run(tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    played(Predicted(tape=path), 1).close()
    chart = RateChart(path)
    path.unlink()
    played(Predicted(tape=path, state=Told(level=7.0)), 1).close()
    assert drawn(chart.figure.axes[0])[0][2] == [7, 8]


def test_of_a_frame_known_columns_come_first_and_players_who_come_or_go_are_charted() -> None:
    rows = frame(1, 2, inflation=[1, 2], **{"x.a": [None, 2.0], "x.b": [3.0, None]})
    figure = RateChart(rows).figure
    titles = [axes.get_ylabel() or axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Inflation (% over four quarters)", "level", "x.b", "x.a"]


def test_history_and_the_rule_are_beside_the_runs_from_their_first_turn_on() -> None:
    past = load_us_macro().loc["1979Q3":].head(4)
    rates = {"turn": [1, 2], "interest_rate": [5.0, 6.0], "taylor_rate": [7.0, 8.0]}
    run = pd.DataFrame({**rates, "inflation": [3.0, 4.0]})
    figure = rate_figure({"one": run}, history=past, rule_of="one")
    rate, prices, *_ = figure.axes
    lines = {line.get_label(): line for line in rate.lines}
    assert list(lines["history (T-bill)"].get_xdata()) == [1, 2, 3]
    assert list(lines["history (T-bill)"].get_ydata()) == past["interest_rate"].tolist()[:3]
    rule = lines["what the Taylor rule asks, on the data of: one"]
    assert (list(rule.get_xdata()), list(rule.get_ydata())) == ([1, 2], [7, 8])
    assert [lines[name].get_linestyle() for name in lines] == ["-", "--", "-."]
    titles = [axes.get_title(loc="left").split(" (")[0] for axes in figure.axes[1:]]
    assert titles == ["Inflation", "Output gap", "Unemployment"]
    assert len(prices.lines) == 2
    low, high = rate.get_ylim()
    assert low < 5
    assert high > max(past["interest_rate"])
    with pytest.raises(ConfigError, match="history='1979Q3' is not a frame; give one, such as"):
        rate_figure({"one": run}, history="1979Q3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="run 'x'"):
        rate_figure({"one": run}, rule_of="x")


def test_a_title_and_a_name_are_cut_where_a_picture_has_no_room() -> None:
    chart = RateChart({"n" * 200: frame(1, 2), "m" * 200: frame(2, 3)})
    assert chart.figure.axes[0].get_title(loc="left") == "n" * 79 + "…"
    names = [text.get_text() for text in chart.figure.legends[0].get_texts()]
    assert names == ["n" * 59 + "…", "m" * 59 + "…"]
    heading, first, *_ = chart.static_text().splitlines()[1:]
    assert heading == f"Chart: {'n' * 79}…"
    assert first == f"{'n' * 59}…, turns 0 to 1: level 1 → 2"


# --- figures of economic runs ---------------------------------------------------------------------


def test_a_notebook_shows_the_figure_without_pyplot() -> None:
    rates = pd.DataFrame({"turn": [0, 1], "interest_rate": [5.0, 6.0]})
    figure = rate_figure({"ruled": rates})
    png, told = figure._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")
    assert told["alt"] == "Chart: Policy rate\nruled, turns 0 to 1: Policy rate 5 → 6"
    assert getattr(figure, "number", None) is None  # which pyplot gives its figures


def test_a_run_of_a_world_without_rates_is_refused() -> None:
    with pytest.raises(ConfigError, match="the run 'pot' has no interest_rate; RateChart draws"):
        rate_figure({"pot": frame(10, 11)})


@pytest.mark.parametrize("draw", [rate_figure, RateChart])
def test_a_frame_without_turns_is_refused(draw: Any) -> None:
    with pytest.raises(ConfigError, match="the run 'a' has no column turn"):
        draw({"a": pd.DataFrame({"interest_rate": [1, 2]})})


def test_dollars_in_a_name_are_no_formula() -> None:
    figure = RateChart({"$\\frac{1$": frame(1, 2)}, title="$1 and $2").figure
    figure.draw_without_rendering()
    assert figure.axes[0].lines[0].get_label() == "\\$\N{SET MINUS}frac{1\\$"
    assert figure.axes[0].get_title(loc="left") == r"\$1 and \$2"


def test_what_is_counted_elsewhere_is_not_charted() -> None:
    axes = RateChart(frame(1, 2, ok=[1, 1], tokens=[1, 1])).figure.axes
    assert [panel.get_ylabel() for panel in axes] == ["level"]
