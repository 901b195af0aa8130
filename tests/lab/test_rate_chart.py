"""The chart of runs as its reader meets it: lines, marks, words, files, and what it follows."""

from __future__ import annotations

import asyncio
import base64
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import make_config, make_simulation
from pydantic import Field
from viewer_kit import turn_over

from llmsim_lab import Ask, Run, State
from llmsim_lab._util.files import data_path
from llmsim_lab.economy import TaylorRule, initial_state
from llmsim_lab.economy._macro import StaticEconomy
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.engines._engines import EngineConfig
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import RateChart
from llmsim_lab.lab._widget import Pace
from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation

FIRST_RUN = data_path("tapes/first_run.tape")


def ruled(turns: int = 4, **config: Any) -> Simulation:
    """A run of the Taylor rule that has been played, with real data at its start."""
    config.setdefault("start", "1979Q3")
    simulation = Simulation(make_config(**config))
    simulation.run(turns)
    return simulation


def shocked(seed: int, turns: int = 6) -> Simulation:
    return ruled(turns, start=None, seed=seed, economy={"shock_scale": 1})


def lines(chart: RateChart) -> dict[str, tuple[list[float], list[float]]]:
    """What is to be drawn in the large panel, by what the legend calls it."""
    return {
        curve.legend: (x.tolist(), y.tolist())
        for curve in chart.scene.curves
        if curve.legend and chart.scene.main.column in curve.points
        for x, y in [curve.points[chart.scene.main.column]]
    }


def tiny() -> RateChart:
    """A chart that is drawn at little cost."""
    return RateChart({"x": pd.DataFrame({"turn": [0, 1], "mood": [1, 2]})}, title="A <b>mood</b>")


def marks(chart: RateChart) -> list[str]:
    return [f"{mark.number} {mark.text}" for mark in chart.scene.marks]


def drawn_alt(chart: RateChart) -> str:
    """What the picture on the page says it shows; empty if there is none."""
    found = re.search(r'alt="([^"]*)"', chart.picture.value)
    return found[1] if found else ""


# --- what is drawn -------------------------------------------------------------------------------


def test_a_run_is_drawn_with_the_rule_and_history() -> None:
    simulation = ruled(4, name="mine")
    chart = RateChart(simulation)
    drawn = lines(chart)
    assert list(drawn) == [
        "mine",
        "what the Taylor rule asks, on the data of: mine",
        "history (T-bill)",
    ]
    assert drawn["mine"] == ([0, 1, 2, 3, 4], simulation.to_frame()["interest_rate"].tolist())
    assert chart.scene.title == "Policy rate from 1979Q3"
    labels = [series.label for series in chart.scene.series]
    assert labels == ["Policy rate", "Inflation", "Output gap", "Unemployment"]
    for series in chart.scene.series[1:]:
        [own, _] = [
            c.points[series.column] for c in chart.scene.curves if series.column in c.points
        ]
        assert own[1].tolist() == simulation.to_frame()[series.column].tolist()


def test_a_runs_forks_on_a_tape_are_drawn_from_where_they_leave_it() -> None:
    chart = RateChart(FIRST_RUN)
    drawn = lines(chart)
    assert drawn["1 one nation"][0] == list(range(9))
    assert drawn["2 one nation"][0] == drawn["3 one nation"][0] == list(range(3, 9))
    assert drawn["2 one nation"][1][0] == drawn["1 one nation"][1][3]
    assert marks(chart)[0] == "1 fork of 1 one nation"
    assert "1: turn 3, fork of 1 one nation (2 one nation, 3 one nation)" in chart.static_text()
    assert "2: turn 4, supply shock +4 (oil) (2 one nation)" in chart.remarks.value


def test_runs_of_a_tape_can_be_chosen_and_named() -> None:
    chart = RateChart(Tape(FIRST_RUN, read_only=True), run=[1, 3], names=["calm", "hawk"])
    assert {"calm", "hawk"} <= set(lines(chart))
    with pytest.raises(TapeError, match="has no run 9"):
        RateChart(FIRST_RUN, run=[9])


def test_a_fork_in_memory_that_has_not_gone_on_is_a_point_on_its_parent() -> None:
    simulation = ruled(3, name="parent")
    fork = simulation.fork(turn=2)
    chart = RateChart({"parent": simulation, "fork": fork})
    assert lines(chart)["fork"][0] == [2]
    fork.run(2)
    assert lines(chart)["fork"][0] == [2, 3, 4]
    assert "turn 2, fork of parent (fork)" in chart.static_text()


def test_the_axes_leave_room_for_what_is_planned_and_can_be_read_from_the_start() -> None:
    simulation = make_simulation(start="1979Q3", turns=14)
    chart = RateChart(simulation)
    assert chart.scene.span == (0, 14)
    assert chart.scene.ticks.at == (0, 2, 4, 6, 8, 10, 12, 14)
    quarters = [f"{year}Q{quarter}" for year in range(1979, 1983) for quarter in (1, 3)]
    assert chart.scene.ticks.names == (*quarters[1:], "1983Q1")
    inflation = simulation.state.global_state.inflation
    # History differs from it by rounding alone.
    assert chart.scene.limits["inflation"] == pytest.approx((0.75 * inflation, 1.25 * inflation))
    simulation.run(3)
    assert chart.scene.ticks.names == (*quarters[1:], "1983Q1")
    simulation.run(11)
    played = chart.scene
    assert (played.span, played.ticks.names[-1]) == ((0, 14), "1983Q1")
    values = np.concatenate([curve.points["inflation"][1] for curve in played.curves[::2]])
    room = 0.06 * (values.max() - values.min())
    assert played.limits["inflation"] == (values.min() - room, values.max() + room)
    simulation.run(2)
    assert chart.scene.span == (0, 16)


def test_bounds_are_shown_where_the_rate_comes_near_them() -> None:
    assert ruled(4, engine={"rate_bounds": [0, 40]}).to_frame().interest_rate.max() > 15
    assert bounds(ruled(4, engine={"rate_bounds": [0, 60]})) == []
    near = ruled(4, engine={"rate_bounds": [0, 16]})
    assert bounds(near) == ["interest_rate at most 16"]
    assert bounds(near.to_frame()) == ["interest_rate at most 16"]
    assert "Policy rate can be at most 16 % per year." in RateChart(near).static_text()


def bounds(*runs: object) -> list[str]:
    return [f"{bound.column} {bound}" for bound in RateChart(*runs).scene.bounds]


class Jar(State):
    """Its coins cannot be fewer than none."""

    size: float = 3.0
    coins: float = Field(default=10.0, ge=0)


class Spending(Run[Jar]):
    """Spends two coins a turn, and is over when few are left."""

    async def turn(self, state: Jar, ask: Ask) -> Jar:
        return state.replace(coins=state.coins - 2)

    def done(self, state: Jar) -> bool:
        return state.coins < 2


def test_the_bounds_of_a_worlds_own_state_are_drawn_and_its_columns_keep_their_order(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jar.tape"
    run = Spending(tape=path)
    frame = run.run(3)
    for source in (run, frame, path):
        assert bounds(source) == []
        assert RateChart(source).scene.main.column == "size"
    frame = run.run(2)
    for source in (run, frame, path):
        chart = RateChart(source, main="coins")
        assert [str(bound) for bound in chart.scene.bounds] == ["at least 0"]


def test_nothing_more_is_planned_of_a_run_that_is_over(tmp_path: Path) -> None:
    path = tmp_path / "jar.tape"
    run = Spending(turns=9, tape=path)
    run.run(2)
    assert RateChart(run).scene.rest == (2, 9)
    assert RateChart(path).scene.rest is None  # those that ``run`` was told to play were played
    run.run()
    assert run.turn_number == 5
    assert RateChart(run).scene.rest is None
    assert run.to_frame().attrs["planned"] == 5


async def test_a_run_that_stopped_early_shows_on_its_tape_what_was_planned(tmp_path: Path) -> None:
    path = tmp_path / "jar.tape"
    run = Spending(turns=9, tape=path)
    await run.step()
    run.close()
    assert RateChart(path).scene.rest == (1, 9)


def test_the_axis_reaches_what_run_was_told_to_play_from_its_first_turn_on() -> None:
    simulation, seen = make_simulation(start="1979Q3", turns=3), []
    simulation.listen(lambda _: seen.append(RateChart(simulation).scene.span))
    simulation.run(5)
    assert seen == [(0, 5)] * 5


def test_bounds_of_a_given_engine_are_its_own(tmp_path: Path) -> None:
    config = make_config(start="1979Q3")
    engine = EconomicEngine(EngineConfig(rate_bounds=(0, 16)), None, macro=StaticEconomy())
    path = tmp_path / "given.tape"
    given = Simulation(config, engine=engine, state=initial_state("1979Q3"), tape=path)
    given.run(4)
    assert given.series[0].high == 16
    assert bounds(given) == ["interest_rate at most 16"]
    assert bounds(path) == []  # the tape cannot tell


def test_one_row_of_a_frame_has_axes_too() -> None:
    scene = RateChart(pd.DataFrame({"turn": [3], "none": [0.0], "loss": [-8.0]})).scene
    assert scene.span == (3, 4)
    assert scene.limits == {"none": (-1, 1), "loss": (-10, -6)}
    frame = pd.DataFrame({"turn": [3, 4], "x": [1.0, 2.0], "lost": [math.nan, math.nan]})
    assert RateChart(frame).scene.limits == {"x": (0.94, 2.06), "lost": (0, 1)}


def test_a_run_beside_its_own_copy_is_said_to_be_the_same() -> None:
    frame = ruled(3).to_frame()
    chart = RateChart({"one": frame, "other": frame.copy()})
    assert "other is the same as one, turn by turn." in chart.remarks.value


def test_frames_that_only_start_alike_are_drawn_whole() -> None:
    frame = ruled(3).to_frame()
    other = frame.assign(interest_rate=frame["interest_rate"] + [0, 1, 1, 1])
    chart = RateChart({"one": frame, "other": other})
    assert lines(chart)["other"][0] == [0, 1, 2, 3]
    assert "fork" not in chart.static_text()


def test_an_ensemble_is_a_fan_of_quantiles_and_says_how_many() -> None:
    runs = [shocked(seed) for seed in range(7)]
    chart = RateChart(runs, names=["rule"])
    rates = pd.DataFrame([run.to_frame()["interest_rate"] for run in runs])
    drawn = lines(chart)["rule: median of 7 runs"]
    assert drawn[1] == pytest.approx(rates.median().tolist())
    bands = {band.legend: band.points["interest_rate"] for band in chart.scene.bands}
    assert list(bands) == ["rule: 90 % of runs", "rule: 50 % of runs"]
    for (turns, low, high), tail in zip(bands.values(), (0.05, 0.25), strict=True):
        assert turns.tolist() == list(range(7))
        assert low == pytest.approx(rates.quantile(tail).to_numpy())
        assert high == pytest.approx(rates.quantile(1 - tail).to_numpy())
    assert "n = 7 runs" in chart.remarks.value
    assert "The Taylor rule is not drawn" in chart.remarks.value
    assert "rule (median of 7): Policy rate" in chart.alt


def test_too_few_runs_for_a_fan_are_lines_and_it_says_so() -> None:
    chart = RateChart([shocked(1), shocked(2)], names=["rule"], rule=False)
    assert "rule: 2 runs are too few for a fan, which takes 5" in chart.remarks.value
    assert len(chart.scene.curves) == 2
    assert list(lines(chart)) == ["rule (each of 2 runs)"]
    assert "1 run is too few" in RateChart([shocked(1)]).remarks.value


def test_an_ensemble_ends_where_its_shortest_run_does() -> None:
    chart = RateChart([shocked(seed, turns=3 + seed) for seed in range(5)], names=["rule"])
    assert lines(chart)["rule: median of 5 runs"][0] == [0, 1, 2, 3]
    assert "to turn 3, the last that all have" in chart.remarks.value


def test_many_interventions_are_numbered_and_listed() -> None:
    done = [{"turn": turn, "set": {"inflation": 5}, "note": "<b>x</b>"} for turn in range(1, 13)]
    chart = RateChart(ruled(12, interventions=done))
    assert marks(chart) == [f"{number} inflation=5 (<b>x</b>)" for number in range(1, 13)]
    assert "12: turn 12, inflation=5 (&lt;b&gt;x&lt;/b&gt;)" in chart.remarks.value


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x1b[31mred", "a\u202eb"])
def test_a_hostile_name_is_written_as_it_is(name: str) -> None:
    chart = RateChart({name: ruled(1).to_frame()}, title=name)
    static = f"{chart.static_text()}{chart.static_html()}{chart.alt}{chart.remarks.value}"
    assert "\x1b" not in static
    assert "\u202e" not in static
    assert "<script" not in str(chart.static_html())


def test_one_name_for_two_runs_is_told_apart() -> None:
    assert {"economy", "economy (2)"} <= set(lines(RateChart(ruled(1), ruled(2))))


# --- references ----------------------------------------------------------------------------------


def test_the_rule_may_be_another_one_and_on_another_runs_data() -> None:
    one, two = ruled(3, name="one"), ruled(3, name="two", start="1990Q1")
    chart = RateChart(one, two, rule="two")
    expected = two.to_frame()["taylor_rate"].tolist()
    assert lines(chart)["what the Taylor rule asks, on the data of: two"][1] == expected
    assert "History is not drawn: the runs begin in different quarters." in chart.static_text()
    passive = TaylorRule(inflation_weight=0)
    asked = lines(RateChart(one, rule=passive))["what the Taylor rule asks, on the data of: one"]
    row = one.to_frame().iloc[-1]
    assert asked[1][-1] == pytest.approx(
        passive.rate(
            inflation=row["inflation"],
            output_gap=row["output_gap"],
            previous_rate=row["interest_rate"],
        )
    )
    with pytest.raises(ConfigError, match=r"on the data of 'three'.*runs are: one, two"):
        RateChart(one, two, rule="three")


def test_a_frame_without_the_rules_data_says_so() -> None:
    frame = pd.DataFrame({"turn": [0, 1], "interest_rate": [2.0, None]})
    chart = RateChart({"mine": frame})
    assert "The Taylor rule is not drawn" in chart.static_text()
    assert "2 → none" in chart.static_text()


def test_the_rule_is_worked_out_where_a_frame_has_only_its_data() -> None:
    frame = ruled(3).to_frame()
    asked = lines(RateChart({"a": frame.drop(columns="taylor_rate")}))
    wanted = frame["taylor_rate"].tolist()
    assert asked["what the Taylor rule asks, on the data of: a"][1] == pytest.approx(wanted)


class Tally(State):
    heads: int | None = None


class Coins(Run[Tally]):
    """Fair coins, so that half of them are expected to show heads."""

    coins: int = 10

    async def turn(self, state: Tally, ask: Ask) -> Tally:
        return Tally(heads=sum(ask.rng.random() < 0.5 for _ in range(self.coins)))

    def prediction(self) -> dict[str, float]:
        return {"heads": self.coins / 2}


def test_what_a_run_predicts_is_a_dashed_line_before_there_are_values_and_after() -> None:
    run = Coins()
    chart = RateChart(run)
    assert lines(chart) == {"prediction": ([0, 8], [5, 5])}
    [first, _] = chart.figure.legends[0].get_texts()
    assert first.get_text() == "prediction"
    run.run(2)
    [line] = [curve for curve in chart.scene.curves if curve.name == "prediction"]
    assert (line.style, line.marker) == ("--", "")
    assert len(lines(chart)) == 2
    assert "Prediction: heads 5." in chart.static_text()


def test_runs_of_which_theory_says_the_same_share_the_line_and_others_are_named() -> None:
    runs = [Coins(), Coins(seed=1), Coins(coins=30)]
    chart = RateChart(*runs, names=["a", "b", "c"])
    assert {name: y for name, (_, y) in lines(chart).items() if "prediction" in name} == {
        "prediction for a, b": [5, 5],
        "prediction for c": [15, 15],
    }
    assert "Prediction for c: heads 15." in chart.static_text()


def test_a_recorded_runs_prediction_is_that_of_its_parameters(tmp_path: Path) -> None:
    Coins(coins=4, tape=tmp_path / "coins.tape").run(2)
    chart = RateChart(tmp_path / "coins.tape")
    assert lines(chart)["prediction"] == ([0, 2], [2, 2])


def test_an_ensemble_has_one_prediction() -> None:
    runs = [Coins(seed=seed) for seed in range(5)]
    for run in runs:
        run.run(2)
    assert lines(RateChart(runs))["prediction"] == ([0, 8], [5, 5])


def test_a_prediction_that_is_not_a_number_is_named() -> None:
    class Vague(Coins):
        def prediction(self) -> Any:
            return {"heads": "half"}

    with pytest.raises(ConfigError, match=r"Vague\.prediction says heads is 'half'; return a num"):
        RateChart(Vague())


def test_history_may_be_given_and_may_end_early() -> None:
    own = pd.DataFrame({"interest_rate": [1.0, 2.0]})
    assert lines(RateChart(ruled(4), history=own))["history (T-bill)"] == ([0, 1], [1.0, 2.0])
    assert "History ends with 2009Q3." in RateChart(ruled(4, start="2009Q1")).static_text()
    late = ruled(2).to_frame().assign(period=["2030Q1", "2030Q2", "2030Q3"])
    assert "History is not drawn: quarter=2030Q1 is outside" in RateChart(late).static_text()
    with pytest.raises(ConfigError, match=r"history= must hold numbers in interest_rate: .*two"):
        RateChart(ruled(4), history=pd.DataFrame({"interest_rate": ["two"]}))


# --- choosing ------------------------------------------------------------------------------------


async def test_columns_and_references_are_chosen_by_the_reader() -> None:
    chart = RateChart(ruled(3, name="mine"))
    chart.rule_box.value = chart.history_box.value = False
    chart.panel_boxes["unemployment"].value = False
    await chart.idle()
    assert list(lines(chart)) == ["mine"]
    assert "Unemployment" not in chart.alt
    assert [series.column for series in chart.scene.series[1:]] == ["inflation", "output_gap"]
    chart.main_box.value = "inflation"
    await chart.idle()
    assert chart.alt.startswith("Chart of Inflation from 1979Q3, turns 0 to 3.")
    assert [series.column for series in chart.scene.series] == ["inflation", "output_gap"]


def test_a_frame_of_another_kind_is_charted_by_its_numbers() -> None:
    frame = pd.DataFrame({"turn": [0, 1], "happy people": [1, 5], "calls": [0, 2], "x": ["a", "b"]})
    chart = RateChart(frame)
    assert list(chart.panel_boxes) == ["happy people", "calls"]
    assert "happy people 5" in chart.alt
    assert RateChart(frame, main="calls", panels=[]).scene.series[1:] == ()


# --- following a run -----------------------------------------------------------------------------


async def test_the_chart_follows_a_run_played_in_a_cell() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    await simulation.arun(3)
    await chart.idle()
    assert "turns 0 to 4" in chart.alt
    assert "Up to turn 4." in chart.status.value
    assert len(lines(chart)["economy"][0]) == 5


async def test_an_intervention_at_the_latest_turn_is_taken_over() -> None:
    simulation = ruled(2)
    chart = RateChart(simulation)
    simulation.intervene(2, set={"inflation": 9})
    chart.update_button.click()
    await chart.idle()
    assert "Inflation 9," in chart.alt
    assert "Up to turn 2." in chart.status.value


async def test_it_is_drawn_when_the_page_first_shows_it() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    await simulation.step()
    await chart.idle()
    assert chart.status.value.endswith(">Up to turn 2.</div>")
    assert chart.picture.value == ""
    chart._view_count = 1  # as the page says
    await turn_over()
    assert drawn_alt(chart) == chart.alt
    assert "turns 0 to 2." in chart.alt
    drawn = chart._drawn
    chart._view_count = 2
    await turn_over()
    assert chart._drawn is drawn


@pytest.mark.usefixtures("undrawn")
async def test_a_cell_that_shows_it_and_plays_on_sees_it_follow() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    chart._repr_mimebundle_()  # the page's count comes only when the cell has ended
    assert "turns 0 to 1." in drawn_alt(chart)
    await simulation.step()
    await chart.idle()
    assert "turns 0 to 2." in drawn_alt(chart)


async def test_many_turns_are_drawn_few_times() -> None:
    simulation = ruled(0)
    chart = RateChart(simulation)
    chart._view_count = 1
    drawn: list[object] = []
    chart.picture.observe(drawn.append, names="value")
    await simulation.arun(200)
    await chart.idle()
    assert 1 <= len(drawn) < 20
    assert "turns 0 to 200." in drawn_alt(chart)


@pytest.mark.usefixtures("undrawn")
async def test_a_closed_chart_no_longer_listens() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    chart._repr_mimebundle_()
    chart.close()
    before = chart.picture.value
    await simulation.step()
    await turn_over()
    assert not simulation._listeners
    assert chart.picture.value == before


@pytest.mark.usefixtures("undrawn")
async def test_a_chart_that_is_on_no_page_any_more_waits_until_it_is() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    chart._view_count = 1
    await turn_over()
    chart._view_count = 0
    await simulation.step()
    await turn_over()
    assert "turns 0 to 1." in drawn_alt(chart)
    chart._view_count = 1
    await turn_over()
    assert "turns 0 to 2." in drawn_alt(chart)


async def test_what_goes_wrong_while_drawing_is_shown_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    monkeypatch.setattr(
        "llmsim_lab.lab._rate_chart.compose",
        lambda *_, **__: (_ for _ in ()).throw(KeyError("rate")),
    )
    chart._view_count = 1
    await simulation.step()
    await turn_over()
    assert "KeyError" in chart.error.value
    assert simulation.turn_number == 2


def test_a_run_in_plain_code_is_drawn_when_asked_for() -> None:
    simulation = ruled(1)
    chart = RateChart(simulation)
    simulation.run(2)
    assert "0 to 3" in chart.static_text()


def test_a_tape_is_read_again_on_demand(tmp_path: Path) -> None:
    simulation = Simulation(make_config(), tape=tmp_path / "new.tape")
    chart = RateChart(tmp_path / "new.tape")
    simulation.run(2)
    chart.refresh(reread=True)
    assert "turns 0 to 2" in chart.alt


def test_pace_goes_elsewhere_without_a_loop_and_forgets_a_closed_one() -> None:
    elsewhere: list[object] = []
    drawn: list[int] = []
    pace = Pace(lambda: drawn.append(1), elsewhere.append, least_s=0.05)
    pace.ask()
    assert len(elsewhere) == 1

    async def ask(wait_s: float) -> None:
        pace.ask()
        pace.ask()
        await asyncio.sleep(wait_s)

    asyncio.run(ask(0.02))
    assert drawn == [1]
    asyncio.run(ask(0))
    assert drawn == [1]
    asyncio.run(ask(0.1))
    assert drawn == [1, 1]


# --- table, files, views -------------------------------------------------------------------------


async def test_the_table_shows_the_latest_turns_and_turns_its_pages() -> None:
    chart = RateChart(ruled(25, start=None))
    assert chart.table.html.value == ""
    chart.table.toggle.click()
    rows = re.findall(r'<th scope="row"[^>]*>(\d+)</th>', chart.table.html.value)
    assert rows == [str(turn) for turn in range(25, 15, -1)]
    chart.table.page_box.value = 3
    rows = re.findall(r'<th scope="row"[^>]*>(\d+)</th>', chart.table.html.value)
    assert rows == [str(turn) for turn in range(5, -1, -1)]
    chart.table.page_box.value = 4
    assert chart.table.page_box.value == 3
    chart.table.page_box.value = 2
    assert ">15</th>" in chart.table.html.value
    chart.table.toggle.click()
    assert chart.table.toggle.description == "Show table"


def test_the_table_has_the_values_of_runs_that_begin_later() -> None:
    def late(first: int, end: int = 8) -> pd.DataFrame:
        turns = range(first, end)
        values = [10.0 * turn for turn in turns]
        return pd.DataFrame({"turn": turns, "period": [f"Q{n}" for n in turns], "mood": values})

    chart = RateChart({"late": late(6), "many": [late(3), late(5)]})
    chart.table.toggle.click()
    rows = re.findall(r"<tr>(.*?)</tr>", chart.table.html.value, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    assert cells == [
        ["turn", "quarter", "run", "mood"],
        ["7", "Q7", "late", "70"],
        ["7", "Q7", "many (median of 2)", "70"],
        ["6", "Q6", "late", "60"],
        ["6", "Q6", "many (median of 2)", "60"],
        ["5", "Q5", "many (median of 2)", "50"],
    ]
    chart = RateChart({"all on one page": late(8, 15)})
    chart.table.toggle.click()
    assert chart.table.page_box.layout.display == "none"


def test_half_a_character_in_a_name_spoils_no_table(tmp_path: Path) -> None:
    saved = RateChart({"a\ud83d": ruled(1)}).save(tmp_path / "chart.csv")
    assert "\na\N{REPLACEMENT CHARACTER},0,1," in saved.read_text(encoding="utf-8")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "csv"])
def test_a_chart_is_written_with_the_same_bytes_each_time(ending: str, tmp_path: Path) -> None:
    chart = tiny()
    first = chart.save(tmp_path / f"a.{ending}").read_bytes()
    assert chart.save(tmp_path / f"b.{ending}").read_bytes() == first
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "csv": b"run,member,turn"}
    assert first.startswith(start[ending])


def test_text_in_a_drawing_stays_text(tmp_path: Path) -> None:
    svg = tiny().save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ">A &lt;b&gt;mood&lt;/b&gt;</text>" in svg
    assert "<dc:date>" not in svg


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    chart = RateChart(ruled(1))
    with pytest.raises(ConfigError, match=r"must end in \.png, \.svg, \.pdf or \.csv"):
        chart.save("rates.gif")
    with pytest.raises(ConfigError, match=r"cannot write .*chart\.csv.*; choose another file"):
        chart.save(tmp_path / "nowhere" / "chart.csv")


async def test_buttons_make_links_to_the_same_files(tmp_path: Path) -> None:
    chart = tiny()
    for kind, button in chart.export.items():
        button.click()
        await chart.idle()
        found = re.search(r'download="chart\.(\w+)" href="data:[^,]*,([^"]*)"', chart.link.value)
        assert found
        assert found[1] == kind
        saved = chart.save(tmp_path / f"chart.{kind}").read_bytes()
        assert base64.b64decode(found[2]) == saved
        assert chart.link.value.endswith(", up to turn 1")


async def test_a_file_too_large_for_a_link_is_pointed_to_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmsim_lab.lab.charts._export._MOST_BYTES", 10)
    chart = RateChart(ruled(1))
    chart.export["csv"].click()
    await chart.idle()
    assert "chart.save(" in chart.error.value
    assert chart.link.value == ""


def test_the_values_come_as_a_frame_with_the_members_of_ensembles() -> None:
    frame = RateChart(ruled(2), [shocked(1, 2), shocked(2, 2)], names=["one", "many"]).frame
    counts = frame.groupby(["run", "member"]).size().to_dict()
    assert counts == {("one", 0): 3, ("many", 1): 3, ("many", 2): 3}


def test_the_static_view_is_the_same_for_the_same_run_and_shows_its_course() -> None:
    one, other = RateChart(FIRST_RUN), RateChart(FIRST_RUN)
    assert one.static_text() == other.static_text()
    assert str(one.static_html()) == str(other.static_html())
    line = one.static_text().splitlines()[2]
    assert re.fullmatch(r"1 one nation +0 to 8 +9\.67 → 16\.75 .*▁▂▂▃▅▆▆▇█", line)
    html = str(one.static_html())
    [(alt_text, png)] = re.findall(r'<img alt="(.+?)" src="data:image/png;base64,(.+?)"', html)
    assert alt_text.startswith("Chart of ")
    assert base64.b64decode(png).startswith(b"\x89PNG")
    assert len(png) < 70_000
    assert "<table" in html


def test_the_static_view_of_very_many_runs_stays_short() -> None:
    frame = ruled(1).to_frame()
    chart = RateChart({f"run {place}": frame.assign(seconds=place) for place in range(25)})
    assert "and 5 more runs" in chart.static_text()
    assert "and 5 more runs" in str(chart.static_html())
    assert "and 5 more runs" in chart.alt


def test_numbers_too_large_for_an_axis_are_left_out() -> None:
    frame = pd.DataFrame({"turn": [0, 1, 2, 3], "x": [0.0, 1e308, -1e308, 2.0]})
    chart = RateChart({"run": frame})
    assert "<img" in str(chart.static_html())
    assert "0 → 2" in chart.static_text()


# --- misuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "more", "message"),
    [
        ((), {}, "there is no run to chart"),
        ((7,), {}, "int is not a run; pass a Simulation"),
        (([],), {}, "an ensemble of at least one"),
        ((pd.DataFrame({"turn": []}),), {}, "has no turn to chart"),
        ((pd.DataFrame({"x": [1]}),), {}, "has no column 'turn' of numbers"),
        ((pd.DataFrame({"turn": [0, 2]}),), {}, "not one after the other"),
        ((pd.DataFrame({"turn": [0, 1]}),), {}, "no column of numbers to chart"),
        (({"both": FIRST_RUN},), {}, "'both' names 3 runs; say which"),
        ((FIRST_RUN,), {"names": ["one"]}, "must be a list of 3 names"),
        ((FIRST_RUN,), {"main": "mood"}, "no column 'mood' of numbers; they have: interest_rate"),
        ((FIRST_RUN,), {"panels": ["mood"]}, "no column 'mood'"),
    ],
)
def test_misuse_is_explained(runs: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        RateChart(*runs, **more)


def test_an_empty_tape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="holds no run"):
        RateChart(Tape(tmp_path / "empty.tape"))
