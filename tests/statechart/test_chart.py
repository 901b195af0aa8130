"""Which moves a chart allows, what it complains of, how it is drawn."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import Statechart, Transition


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    DARK = "dark"


def lamp(**more: Any) -> Any:
    return SimpleNamespace(state=Light.RED, **more)


def traffic(*more: Transition) -> Statechart:
    moves = (
        Transition("go", Light.RED, Light.GREEN),
        Transition("halt", Light.GREEN, Light.RED),
        Transition("fail", Light.GREEN, Light.DARK),
    )
    return Statechart(Light, (*moves, *more), Light.RED)


def bright(agent: Any, context: Any) -> bool:
    return bool(agent.power > context)


def test_targets_come_in_the_charts_order_and_the_first_is_taken_by_the_caller() -> None:
    others = [
        Transition("go", Light.RED, Light.DARK),
        Transition("go", Light.RED, Light.GREEN, lambda *_: False),
    ]
    chart, agent = traffic(*others), lamp()
    assert chart.fire(agent, "go") is Light.GREEN
    assert chart.fire(agent, "halt") is None
    assert agent.state is Light.RED
    assert chart.valid_triggers(Light.GREEN) == ["halt", "fail"]
    assert chart.valid_targets(Light.RED, "go") == [Light.GREEN, Light.DARK]


def test_a_guard_sees_agent_and_context_and_raises_what_it_raises() -> None:
    chart = traffic(Transition("flash", Light.RED, Light.DARK, bright))
    assert chart.fire(lamp(power=9), "flash", 5) is Light.DARK
    assert chart.fire(lamp(power=1), "flash", 5) is None
    assert chart.valid_targets(Light.RED, "flash", agent=lamp(power=1), context=5) == []
    assert chart.valid_targets(Light.RED, "flash") == [Light.DARK]
    with pytest.raises(AttributeError, match=r"power[^$]*guard of red --flash \[bright\]--> dark"):
        chart.fire(lamp(), "flash", 5)


@pytest.mark.parametrize(
    ("moves", "initial", "timeouts"),
    [
        ([Transition("go", Light.RED, Light.DARK)], Light.RED, {}),
        ([], Light.DARK, {}),
        ([], Light.RED, {Light.DARK: 3}),
    ],
)
def test_an_unknown_state_is_refused_by_its_name(moves: Any, initial: Any, timeouts: Any) -> None:
    with pytest.raises(ConfigError, match="no chart state 'dark'; there are red"):
        Statechart([Light.RED], moves, initial, timeouts=timeouts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Statechart(repeat("red"), [], Light.RED), "has more than 100,000 items"),
        (lambda: Statechart(Light, ["go"], Light.RED), "transitions has 'go' in it"),
        (
            lambda: Statechart(Light, [], Light.RED, timeouts={Light.RED: "2"}),
            "timeouts[red]='2' must be a whole number from 1 on",
        ),
        (lambda: Transition("go", Light.RED, Light.RED, 3), "guard=3 must be a function"),
        (lambda: Statechart.load("a\0b", guards={}), "is not a file's name"),
        (lambda: traffic().fire(3, "go"), "agent=3 has no state"),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_that_names_it(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("states: [idle, blue]", "line 2: states.1: Input should be 'idle', 'scr"),
        (
            "states: [idle]\ntransitions: [{trigger: a, source: idle, target: idle, guard: brave}]",
            "there is no guard 'brave'; there are none. Write class Town(",
        ),
    ],
)
def test_a_wrong_file_is_an_error_that_names_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "chart.yaml"
    path.write_text(f"initial: idle\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        Statechart.load(path, guards={})


def test_no_name_becomes_mermaid_code() -> None:
    class Odd(StrEnum):
        END = "end"
        A = "a\n[*] --> s9"

    trigger = "go;\nnote left of s0: `x` #quot;"
    chart = Statechart(Odd, [Transition(trigger, Odd.END, Odd.A, bright)], Odd.END)
    shown = chart._repr_mimebundle_()
    # JupyterLab prefers HTML to Mermaid, and plain text to neither.
    assert list(shown) == ["text/vnd.mermaid", "text/plain"]
    assert shown["text/plain"].splitlines() == [
        "Statechart of 2 states and 1 transitions",
        "end --go; note left of s0: `x` #quot; [bright]--> a [*] --> s9",
    ]
    assert shown["text/vnd.mermaid"].splitlines() == [
        "stateDiagram-v2",
        "    accTitle: Statechart of 2 states and 1 transitions",
        '    state "end" as s0',
        '    state "a [#42;] --#62; s9" as s1',
        "    [*] --> s0",
        "    s0 --> s1 : go#59; note left of s0#58; #96;x#96; #35;quot#59; [bright]",
    ]
