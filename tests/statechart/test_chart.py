"""Which moves a chart allows, what it complains of, how it is drawn."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import AgentState, Statechart, Transition
from llmsim_lab.statechart._agent import interested


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    DARK = "dark"


def at(state: Light, **more: Any) -> Any:
    return SimpleNamespace(name="lamp", state=state, **more)


def traffic(*more: Transition, **settings: Any) -> Statechart:
    moves = (
        Transition("go", Light.RED, Light.GREEN),
        Transition("halt", Light.GREEN, Light.RED),
        Transition("fail", Light.GREEN, Light.DARK),
        Transition("mend", Light.DARK, Light.RED),
    )
    return Statechart(Light, (*moves, *more), Light.RED, **settings)


def test_targets_come_in_the_charts_order_and_the_first_is_taken_by_the_caller() -> None:
    others = [
        Transition("go", Light.RED, Light.DARK),
        Transition("go", Light.RED, Light.GREEN, lambda *_: False),
    ]
    chart, lamp = traffic(*others), at(Light.RED)
    assert chart.fire(lamp, "go") is Light.GREEN
    assert chart.fire(lamp, "halt") is None
    assert lamp.state is Light.RED
    assert chart.valid_triggers(Light.GREEN) == ["halt", "fail"]
    assert chart.valid_targets(Light.RED, "go") == [Light.GREEN, Light.DARK]


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


@pytest.mark.parametrize(
    ("states", "moves", "initial", "timeouts"),
    [
        ([Light.RED], [Transition("go", Light.RED, Light.DARK)], Light.RED, {}),
        ([Light.RED], [], Light.DARK, {}),
        ([], [], Light.DARK, {}),
        ([Light.RED], [], Light.RED, {Light.DARK: 3}),
    ],
)
def test_an_unknown_state_is_refused_by_its_name(
    states: Any, moves: Any, initial: Any, timeouts: Any
) -> None:
    with pytest.raises(ConfigError, match=r"no state dark; there are: (red|none)"):
        Statechart(states, moves, initial, timeouts=timeouts)


# --- files, and as text ------------------------------------------------------------------------


def test_the_shipped_chart_is_valid_and_leaves_the_decision_open() -> None:
    chart = Statechart.load(guards={"interested": interested})
    assert set(chart.states) == set(AgentState)
    assert chart.initial is AgentState.IDLE
    assert len(chart.valid_targets(AgentState.EVALUATING, "decides")) > 1


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "chart.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("initial: idle\nstates: [idle, blue]\n", "line 2: states.1: Input should be 'idle', 'scr"),
        ("initial: idle\nstates: []\n", "chart: there is no state idle; there are: none"),
        ("initial: idle\nstates: [idle]\ncolour: red\n", "line 3: colour: unknown key"),
        (
            "initial: idle\nstates: [idle]\ntransitions:\n"
            "  - {trigger: go, source: idle, target: idle, guard: brave}\n",
            "there is no guard 'brave'; there are: none. Derive a class",
        ),
    ],
)
def test_a_wrong_file_is_an_error_that_names_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        Statechart.load(path, guards={})


def test_jupyterlab_draws_a_chart_and_others_have_its_moves_as_text() -> None:
    chart = traffic()
    shown = chart._repr_mimebundle_()
    # JupyterLab prefers HTML to Mermaid, and plain text to neither.
    assert list(shown) == ["text/vnd.mermaid", "text/plain"]
    assert shown["text/vnd.mermaid"] == chart.to_mermaid()
    assert shown["text/plain"].splitlines()[:2] == [repr(chart), "red --go--> green"]


def test_no_name_becomes_mermaid_code() -> None:
    class Odd(StrEnum):
        END = "end"
        A = "a\n[*] --> s9"

    trigger = "go;\nnote left of s0: `x` #quot;"
    chart = Statechart(Odd, [Transition(trigger, Odd.END, Odd.A, interested)], Odd.END)
    assert chart.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    accTitle: Statechart of 2 states and 1 transitions",
        '    state "end" as s0',
        '    state "a [#42;] --#62; s9" as s1',
        "    [*] --> s0",
        "    s0 --> s1 : go#59; note left of s0#58; #96;x#96; #35;quot#59; [interested]",
    ]
