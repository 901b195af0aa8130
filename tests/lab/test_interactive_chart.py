"""The chart that plotly draws: what hovering says, clicking opens, and a run going on changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from builders import answer, in_words, make_client, make_config, make_simulation, policy

from llmsim_lab._util.files import data_path
from llmsim_lab.lab import RateChart
from llmsim_lab.lab.charts._interactive import Interactive
from llmsim_lab.lab.charts._tracks import Track
from llmsim_lab.run import Run
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import ChatRequest


def drawn(chart: RateChart, clicked: Any = lambda *_: None) -> Interactive:
    figure = Interactive(clicked)
    figure.show(chart.scene)
    return figure


def sent(figure: Interactive) -> Iterator[Any]:
    """What goes to the page: restyled data and layout."""

    def note(change: Any) -> None:
        if change["new"] is not None:
            messages.append(change["new"])

    messages: list[Any] = []
    names = ["_py2js_update", "_py2js_addTraces", "_py2js_deleteTraces"]
    figure.widget.observe(note, names=names)
    return iter(messages)


def hover(figure: Interactive, name: str, turn: int) -> str:
    [trace] = [t for t in figure.widget.data if t.name == name and t.yaxis in (None, "y")]
    return str(trace.hovertext[list(trace.x).index(turn)])


def test_all_panels_share_an_axis_of_turns_that_reaches_the_last_planned() -> None:
    simulation = make_simulation(start="1979Q3", turns=12)
    simulation.run(2)
    figure = drawn(RateChart(simulation)).widget
    assert {trace.yaxis for trace in figure.data} == {"y", "y2", "y3", "y4"}
    first, last = figure.layout.xaxis.range
    assert first < 0 < 12 < last
    assert figure.layout.xaxis.ticktext[0] == "1979Q3"
    [rest] = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (rest.x0, rest.x1, rest.name) == (2, 12, "planned, not played yet")
    texts = [note.text for note in figure.layout.annotations]
    assert texts[0] == "<b>Policy rate from 1979Q3</b>, % per year"


def test_bands_bounds_and_marks_are_drawn() -> None:
    frames = [
        pd.DataFrame({"turn": [0, 1], "mood": [0, number], "interventions": ["", "turn 1: rain"]})
        for number in range(5)
    ]
    for frame in frames:
        frame.attrs = {"bounds": {"mood": (0.0, 4.0)}}
    figure = drawn(RateChart(frames)).widget
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [band.name for band in bands] == ["ensemble: 90 % of runs", "ensemble: 50 % of runs"]
    assert list(bands[1].y) == [0, 3, 1, 0]
    texts = [note.text for note in figure.layout.annotations]
    assert {"at least 0", "at most 4", "1 rain"} <= {*texts}
    lines = [shape for shape in figure.layout.shapes if shape.type == "line"]
    assert [line.y0 for line in lines] == [0, 0, 4]


def test_a_point_says_its_value_and_who_decided_what() -> None:
    simulation = Simulation(in_words(nations=("Aland", "Borduria")), llm_client=make_client())
    simulation.run(2)
    figure = drawn(RateChart(simulation, names=["mine"]))
    said = hover(figure, "mine", 2)
    rate = simulation.state.global_state.interest_rate
    assert said.startswith(f"<b>mine</b>, Turn 2<br>Policy rate <b>{rate:g}")
    assert "<br><b>Aland</b>, ok:<br>" in said
    assert "<br><b>Borduria</b>, ok:<br>" in said
    assert "Aland" not in hover(figure, "mine", 0)


def test_a_tapes_runs_say_who_decided_too_and_a_rule_says_so() -> None:
    figure = drawn(RateChart(data_path("tapes/first_run.tape")))
    assert "<br><b>United States</b>, " in hover(figure, "1 one nation", 3)
    ruled = Simulation(make_config(start="1979Q3"))
    ruled.run(1)
    assert "by rule" in hover(drawn(RateChart({"rule": ruled})), "rule", 1)


HOSTILE = "<b>bold</b><a href='javascript:alert(1)'>x</a> &lt;i&gt; \x1b[31m"


def test_texts_that_are_not_ours_are_shown_as_they_are() -> None:
    frame = pd.DataFrame({"turn": [0, 1], "mood": [1, 2], "interventions": ["", HOSTILE]})
    figure = drawn(RateChart({HOSTILE: frame}, title=HOSTILE)).widget
    texts = [trace.name for trace in figure.data] + [t for d in figure.data for t in d.hovertext]
    texts += [
        note[name] or "" for note in figure.layout.annotations for name in ("text", "hovertext")
    ]
    whole = " ".join(texts)
    assert "&lt;b&gt;bold&lt;/b&gt;" in whole
    assert "&amp;lt;i&amp;gt;" in whole
    assert {*re.findall("<[^>]*>", whole)} <= {"<b>", "</b>", "<br>"}
    assert "\x1b" not in whole


def test_a_reply_with_tags_in_it_is_text() -> None:
    def replies(request: ChatRequest) -> Any:
        site = request.site
        return policy(HOSTILE) if site and site.component == "agent" else answer(request)

    simulation = Simulation(in_words(nations=("Aland",)), llm_client=make_client(replies))
    simulation.run(1)
    said = hover(drawn(RateChart(simulation, names=["mine"])), "mine", 1)
    assert "&lt;b&gt;bold&lt;/b&gt;" in said
    assert "<a" not in said


def test_a_turn_more_is_sent_as_what_changed() -> None:
    simulation = make_simulation(start="1979Q3", turns=9)
    simulation.run(2)
    chart = RateChart(simulation)
    figure = drawn(chart)
    messages = sent(figure)
    simulation.run(1)
    figure.show(chart.scene)
    [message] = messages
    assert {*message["style_data"]} == {"x", "y", "hovertext"}
    assert "legend" not in message["layout_data"]
    assert list(figure.widget.data[0].x) == [0, 1, 2, 3]
    [rest] = [shape for shape in figure.widget.layout.shapes if shape.type == "rect"]
    assert rest.x0 == 3


def test_what_was_zoomed_into_stays_and_other_columns_make_other_traces() -> None:
    simulation = make_simulation(start="1979Q3", turns=9)
    simulation.run(2)
    chart = RateChart(simulation)
    figure = drawn(chart)
    figure.widget.layout.yaxis.range = (3, 4)  # as the page says
    simulation.run(1)
    figure.show(chart.scene)
    assert figure.widget.layout.yaxis.range == (3, 4)
    assert figure.widget.layout.yaxis2.range == tuple(chart.scene.limits["inflation"])
    chart.main_box.value = "unemployment"
    chart.refresh()
    figure.show(chart.scene)
    assert len(figure.widget.data) == len(drawn(chart).widget.data)


def test_a_page_that_loads_gets_the_script_once_the_state_of_now_and_then_the_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = make_simulation(start="1979Q3")
    chart = RateChart(simulation)
    figure = drawn(chart)
    answers: list[int] = []
    monkeypatch.setattr(
        figure.widget, "send", lambda _, buffers: answers.append(sum(map(len, buffers)))
    )
    simulation.run(1)
    figure.show(chart.scene)
    figure._on_page(None, {"ask": "state", "script": True}, None)
    assert len(figure.widget._widget_data[0]["x"]) == 2
    simulation.run(1)
    figure.show(chart.scene)  # the page would not take it over now
    assert len(figure.widget.data[0].x) == 2
    figure._on_page(None, {"ask": "news"}, None)
    assert len(figure.widget.data[0].x) == 3
    figure._on_page(None, {"ask": "state", "script": False}, None)
    assert answers[0] > 1_000_000
    assert answers[1] == 0


def click(figure: Interactive, trace: int, point: int) -> None:
    """As the page reports it."""
    figure.widget._js2py_pointsCallback = {
        "event_type": "plotly_click",
        "points": {
            "trace_indexes": [trace],
            "point_indexes": [point],
            "xs": [point],
            "ys": [0],
        },
        "device_state": None,
        "selector": None,
    }


async def shown(chart: RateChart) -> Interactive:
    """Put a chart on a page."""
    chart._view_count = 1
    assert chart._loaded is not None
    chart._loaded.join()
    await chart.idle()
    assert chart._interactive is not None
    return chart._interactive


async def test_a_click_opens_the_prompt_beside_the_chart() -> None:
    simulation = Simulation(in_words(nations=("Aland",)), llm_client=make_client())
    await simulation.arun(3)
    chart = RateChart(simulation)
    figure = await shown(chart)
    assert figure.widget in chart.chart.children
    assert "turns 0 to 3." in chart.picture.value
    click(figure, 0, 2)
    await chart.idle()
    assert chart.viewer is not None
    assert "Turn 2 · agent · Aland" in chart.viewer.heading.value
    assert chart.viewer in chart.prompts.children
    click(figure, 0, 1)
    await chart.idle()
    assert "Turn 1 · " in chart.viewer.heading.value
    chart.prompts_button.click()
    await chart.idle()
    assert chart.viewer is None
    chart.prompts_button.click()
    await chart.idle()
    assert chart.viewer is not None
    assert "Turn 3 · " in chart.viewer.heading.value
    chart.close()


async def test_before_the_first_turn_there_is_no_prompt_to_show() -> None:
    chart = RateChart(Simulation(in_words(nations=("Aland",)), llm_client=make_client()))
    chart.prompts_button.click()
    await chart.idle()
    assert "No turn has been played yet" in chart.status.value
    assert (chart.viewer, chart.prompts_button.description) == (None, "Show prompts")


async def test_a_click_calls_back_instead_where_that_is_asked_for() -> None:
    seen: list[tuple[Run, int]] = []
    simulation = make_simulation(start="1979Q3")
    await simulation.arun(2)
    chart = RateChart(simulation, on_select=lambda *point: seen.append(point))
    click(await shown(chart), 0, 2)
    await chart.idle()
    assert seen == [(simulation, 2)]
    assert chart.viewer is None


async def test_a_point_without_a_run_says_so() -> None:
    chart = RateChart(pd.DataFrame({"turn": [0, 1], "mood": [1, 2]}))
    click(await shown(chart), 0, 1)
    await chart.idle()
    assert "This point has no prompts" in chart.status.value


async def test_a_run_that_goes_on_is_followed_on_the_page() -> None:
    simulation = make_simulation(start="1979Q3")
    chart = RateChart(simulation)
    figure = await shown(chart)
    await simulation.arun(2)
    chart.refresh()
    assert list(figure.widget.data[0].x) == [0, 1, 2]
    assert 'role="img" aria-label="Chart of Policy rate from 1979Q3, turns 0 to 2.' in (
        chart.picture.value
    )


async def test_a_click_on_a_tapes_run_opens_that_run() -> None:
    chart = RateChart(data_path("tapes/first_run.tape"))
    track = chart._tracks[2]
    assert isinstance(track, Track)
    await shown(chart)
    chart._on_point(track, 5)
    await chart.idle()
    assert chart.viewer is not None
    assert chart.viewer.simulation.run_id == 3


async def test_a_chart_that_is_closed_while_plotly_is_imported_makes_no_figure() -> None:
    chart = RateChart(make_simulation())
    with chart._view:  # as while it is drawn: the thread waits
        chart._view_count = 1
        chart.close()
    assert chart._loaded is not None
    chart._loaded.join()
    assert chart._interactive is None
