"""Which moves a chart allows, what it complains of, how it is drawn."""

from __future__ import annotations

import logging
import re
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import AgentState, SocialAgent, Statechart, Transition
from llmsim_lab.statechart._agent import interested


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    DARK = "dark"


def at(state: Light, **more: Any) -> Any:
    return SimpleNamespace(name="lamp", state=state, **more)


def traffic(*more: Transition[Light], **settings: Any) -> Statechart[Light]:
    moves = (
        Transition("go", Light.RED, Light.GREEN),
        Transition("halt", Light.GREEN, Light.RED),
        Transition("fail", Light.GREEN, Light.DARK),
        Transition("mend", Light.DARK, Light.RED),
    )
    return Statechart(Light, (*moves, *more), Light.RED, **settings)


def test_a_trigger_leads_where_the_chart_says_and_leaves_the_agent_to_its_caller() -> None:
    lamp = at(Light.RED)
    assert traffic().fire(lamp, "go") is Light.GREEN
    assert lamp.state is Light.RED


def test_a_trigger_that_nothing_answers_to_leads_nowhere() -> None:
    assert traffic().fire(at(Light.RED), "halt") is None
    assert traffic().valid_targets(Light.RED, "halt") == []


def test_triggers_and_targets_come_in_the_charts_order_each_once() -> None:
    chart = traffic(
        Transition("go", Light.RED, Light.DARK), Transition("go", Light.RED, Light.GREEN, bool)
    )
    assert chart.valid_triggers(Light.GREEN) == ["halt", "fail"]
    assert chart.valid_targets(Light.RED, "go") == [Light.GREEN, Light.DARK]


def test_the_first_matching_transition_is_taken_unless_a_target_is_named() -> None:
    chart = traffic(Transition("go", Light.RED, Light.DARK))
    assert chart.fire(at(Light.RED), "go") is Light.GREEN
    assert chart.fire(at(Light.RED), "go", target=Light.DARK) is Light.DARK
    assert chart.fire(at(Light.RED), "go", target=Light.RED) is None


def test_a_guard_sees_agent_and_context() -> None:
    def bright(agent: Any, context: Any) -> bool:
        return bool(agent.power > context)

    chart = traffic(Transition("flash", Light.RED, Light.DARK, bright))
    strong, weak = at(Light.RED, power=9), at(Light.RED, power=1)
    assert chart.fire(strong, "flash", 5) is Light.DARK
    assert chart.fire(weak, "flash", 5) is None
    assert chart.valid_targets(Light.RED, "flash", agent=weak, context=5) == []
    assert chart.valid_targets(Light.RED, "flash") == [Light.DARK]


def test_a_guard_that_raises_raises() -> None:
    def broken(agent: Any, context: Any) -> bool:
        raise KeyError("mood")

    chart = traffic(Transition("flash", Light.RED, Light.DARK, broken))
    with pytest.raises(KeyError, match="mood"):
        chart.fire(at(Light.RED), "flash")


def test_an_action_is_done_when_its_transition_is_taken_and_only_then() -> None:
    done: list[object] = []
    chart = traffic(
        Transition(
            "flash", Light.RED, Light.DARK, None, lambda agent, context: done.append(context)
        )
    )
    chart.fire(at(Light.RED), "go", "no")
    chart.fire(at(Light.RED), "flash", "yes")
    assert done == ["yes"]


def test_an_action_that_raises_is_the_callers_to_know() -> None:
    def broken(agent: Any, context: Any) -> None:
        raise RuntimeError("lamp fell off")

    chart = traffic(Transition("flash", Light.RED, Light.DARK, None, broken))
    with pytest.raises(RuntimeError, match="lamp fell off"):
        chart.fire(at(Light.RED), "flash")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"final": ["blue"]}, "final: there is no state blue; there are: red, green, dark"),
        ({"timeouts": {"blue": 3}}, "timeouts: there is no state blue"),
        ({"timeouts": {Light.RED: 0}}, "red has 0 ticks; it must be 1 or more"),
    ],
)
def test_settings_that_name_what_is_not_there_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        traffic(**settings)


def test_a_transition_to_an_unknown_state_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"red --go--> dark: there is no state dark"):
        Statechart([Light.RED], [Transition("go", Light.RED, Light.DARK)], Light.RED)
    with pytest.raises(ConfigError, match="initial: there is no state dark"):
        Statechart([Light.RED], [], Light.DARK)
    with pytest.raises(ConfigError, match="needs states"):
        Statechart([], [], Light.RED)


def test_the_same_transition_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"red --go--> green is there twice"):
        traffic(Transition("go", Light.RED, Light.GREEN))


def test_what_looks_like_a_mistake_is_complained_of_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        chart = Statechart(
            Light, [Transition("go", Light.RED, Light.GREEN)], Light.RED, timeouts={Light.RED: 2}
        )
    assert chart.complaints == (
        "state red has a timeout but no transition for the trigger 'timeout'",
        "state green has no way out; add a transition, or name it in final=",
        "state dark cannot be reached from red",
        "state dark has no way out; add a transition, or name it in final=",
    )
    assert caplog.text.count("STATECHART") == 4


def test_a_valid_chart_has_no_complaints_and_a_final_state_needs_no_way_out() -> None:
    assert traffic().complaints == ()
    chart = Statechart(
        [Light.RED, Light.DARK],
        [Transition("fail", Light.RED, Light.DARK)],
        Light.RED,
        final=[Light.DARK],
    )
    assert chart.complaints == ()


# --- files ------------------------------------------------------------------------------------


def test_the_shipped_chart_is_valid_and_leaves_the_decision_open() -> None:
    chart = Statechart.load("social_feed", guards={"interested": interested})
    assert chart.complaints == ()
    assert set(chart.states) == set(AgentState)
    assert chart.initial is AgentState.IDLE
    assert len(chart.valid_targets(AgentState.EVALUATING, "decides")) > 1


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "chart.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_mermaid_gets_names_that_are_no_plain_words_as_titles(tmp_path: Path) -> None:
    text = "initial: in 'a' box\nstates: [in 'a' box, 'say \"no\"']\nfinal: ['say \"no\"']\n"
    move = """transitions:\n  - {trigger: go, source: in 'a' box, target: 'say "no"'}\n"""
    assert Statechart.load(written(tmp_path, text + move)).to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    accTitle: Statechart of 2 states and 1 transitions",
        "    state \"in 'a' box\" as s0",
        '    state "say #34;no#34;" as s1',
        "    [*] --> s0",
        "    s0 --> s1 : go",
        "    s1 --> [*]",
    ]


@pytest.mark.parametrize("name", ["mro", "_x_", "__x__", "two words"])
def test_any_word_may_name_a_state(tmp_path: Path, name: str) -> None:
    text = f"initial: {name}\nstates: [{name}, end]\nfinal: [end]\ntransitions:\n"
    path = written(tmp_path, f"{text}  - {{trigger: go, source: {name}, target: end}}\n")
    assert [str(state) for state in Statechart.load(path).states] == [name, "end"]


def test_a_file_may_have_states_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "initial: red\nstates: [red, green]\nfinal: [green]\ntimeouts: {red: 3}\n"
        "transitions:\n  - {trigger: timeout, source: red, target: green, action: shout}\n",
    )
    heard: list[object] = []
    chart = Statechart.load(
        path, actions={"shout": lambda agent, context: heard.append(agent.name)}
    )
    lamp = SimpleNamespace(name="lamp", state=chart.initial)
    assert chart.fire(lamp, "timeout") == "green"
    assert heard == ["lamp"]
    assert chart.timeouts == {"red": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "initial: red\nstates: [red]\ntransitions:\n"
            "  - {trigger: go, source: red, target: blue}\n",
            "line 4: transitions.0.target: there is no state 'blue'; there are: red",
        ),
        (
            "initial: red\nstates: [red]\ntransitions:\n"
            "  - {trigger: go, source: red, target: red, guard: brave}\n",
            "line 4: transitions.0.guard: there is no guard 'brave'; registered are: none",
        ),
        ("initial: red\nstates: []\n", "line 2: states:"),
        ("initial: blue\nstates: [red]\n", "line 1: initial: there is no state 'blue'"),
        ("initial: red\nstates: [red]\ncolour: red\n", "line 3: colour: unknown key"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(f"{path}, {message}")):
        Statechart.load(path)


def test_an_unknown_shipped_chart_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no chart 'chess'; shipped are social_feed"):
        Statechart.load("chess")


# --- as text ----------------------------------------------------------------------------------


def test_jupyterlab_draws_a_chart_and_others_have_it_as_a_table() -> None:
    chart = traffic()
    shown = chart._repr_mimebundle_()
    # JupyterLab prefers HTML to Mermaid, and plain text to neither.
    assert list(shown) == ["text/vnd.mermaid", "text/plain"]
    assert shown["text/vnd.mermaid"] == chart.to_mermaid()
    first, header, *rows = shown["text/plain"].splitlines()
    assert first == repr(chart)
    assert header.split() == ["from", "trigger", "to"]
    assert [row.split() for row in rows] == [
        [str(move.source), str(move.arrow.full_label), str(move.target)]
        for move in chart.transitions
    ]


def test_no_name_becomes_mermaid_code() -> None:
    class Odd(StrEnum):
        END = "end"
        A = "a\n[*] --> s9"

    trigger = "go;\nnote left of s0: `x` #quot;"
    chart = Statechart(Odd, [Transition(trigger, Odd.END, Odd.A)], Odd.END, final=[Odd.A])
    assert chart.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    accTitle: Statechart of 2 states and 1 transitions",
        '    state "end" as s0',
        '    state "a [#42;] --#62; s9" as s1',
        "    [*] --> s0",
        "    s0 --> s1 : go#59; note left of s0#58; #96;x#96; #35;quot#59;",
        "    s1 --> [*]",
    ]


def test_mermaid_has_transitions_and_final_states() -> None:
    chart = traffic(final=[Light.DARK])
    assert "    red --> green : go" in chart.to_mermaid().splitlines()
    assert "    dark --> [*]" in chart.to_mermaid().splitlines()


# --- agents -----------------------------------------------------------------------------------


def test_an_agent_counts_its_ticks_and_is_timed_out_after_enough_of_them() -> None:
    agent = SocialAgent("Ada", ["tea"], timeout_threshold=2)
    agent.tick()
    assert not agent.is_timed_out()
    agent.tick()
    assert agent.is_timed_out()
    assert not agent.is_timed_out(3)


def test_a_transition_is_remembered_up_to_a_depth() -> None:
    agent = SocialAgent("Ada", history_depth=2)
    agent.tick()
    for state in (AgentState.SCROLLING, AgentState.EVALUATING, AgentState.RESTING):
        agent.transition_to(state, "next", turn=3)
    assert agent.state is AgentState.RESTING
    assert agent.ticks_in_state == 0
    assert [entry.target for entry in agent.state_history] == ["evaluating", "resting"]
    assert agent.state_history[-1].source is AgentState.EVALUATING
    assert agent.state_history[-1].turn == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": " "},
        {"engagement_threshold": 1.5},
        {"timeout_threshold": 0},
        {"history_depth": -1},
    ],
)
def test_an_agent_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SocialAgent(**{"name": "Ada", **wrong})


def test_a_wrong_depth_is_told_its_range() -> None:
    said = "Ada's history_depth=-1 must be a whole number from 0 on"
    with pytest.raises(ConfigError, match=said):
        SocialAgent("Ada", history_depth=-1)
