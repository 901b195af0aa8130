"""One turn's facts and how they are written."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_config, make_simulation, policy, verdict
from pydantic import Field

from llmsim_lab import Ask, Run, State
from llmsim_lab.lab import TurnStepper
from llmsim_lab.lab._run_reading import change_text, facts_of, value_text
from llmsim_lab.lab._stepper import (
    cost_text,
    decisions_html,
    state_html,
    turn_html,
    turn_name,
    turn_text,
)
from llmsim_lab.simulation import Simulation


def turn(state: Any, **values: Any) -> Any:
    values = {"number": 1, "chains": (), "statuses": {}, "tokens": 0, "seconds": 1.5} | values
    return SimpleNamespace(state=state, interventions=(), calls=(), **values)


def test_what_a_kind_charts_comes_first_with_its_unit() -> None:
    simulation = Simulation(make_config())
    found = facts_of(simulation, simulation.turns[0])
    assert found[0].label == "Policy rate (% per year)"
    mains = [fact.main for fact in found]
    assert mains == sorted(mains, reverse=True)
    assert {"turn", "tokens", "seconds"}.isdisjoint(fact.name for fact in found)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (4.0, 4.25, "+0.25"),
        (4.0, 3.999, "-0.001"),
        (4.0, 4.0 - 1e-9, ""),
        (4.0, 3.995, "-0.005"),
        (4.0, 4.0, ""),
        (1000, 3500, "+2,500"),
        ("calm", "storm", "was calm"),
        (True, False, "was True"),
        (None, 1.0, "was none"),
    ],
)
def test_a_change_is_said_in_the_words_of_its_type(before: Any, now: Any, said: str) -> None:
    assert change_text(before, now) == said


def test_values_are_written_for_people() -> None:
    assert [value_text(value) for value in (2.0, 12345, None, True, "x")] == [
        "2",
        "12,345",
        "none",
        "True",
        "x",
    ]


class Crowd(State):
    of: dict[str, int] = Field(
        default_factory=lambda: {f"value {number:03}": number for number in range(300)}
    )


class Crowded(Run[Crowd]):
    async def turn(self, state: Crowd, ask: Ask) -> Crowd:
        return state


def test_a_large_state_is_folded() -> None:
    run = Crowded()
    shown = str(state_html(run, run.turns[0], None))
    assert "<summary>288 more</summary>" in shown
    assert "value 011" in shown
    assert "value 111" in shown
    assert "value 112" not in shown
    assert turn_text(run, run.turns[0], None).count("\n") == 12


def test_seconds_are_left_out_of_what_must_not_change() -> None:
    model_turn = turn({}, statuses={"ok": 2, "repaired": 1, "failed": 0}, tokens=1200)
    assert cost_text(model_turn) == "model decisions: 2 ok, 1 repaired · 1,200 tokens · 1.50 s"
    assert cost_text(model_turn, still=True) == "model decisions: 2 ok, 1 repaired · 1,200 tokens"


async def test_a_turn_is_called_by_its_number_and_quarter() -> None:
    simulation = make_simulation(start="1979Q3")
    await simulation.step()
    assert [turn_name(turn) for turn in simulation.turns] == [
        "Initial state (1979Q3)",
        "Turn 1 (1979Q4)",
    ]


def visible_rows(page: object) -> list[list[str]]:
    """The cells of a page's last table as they are read while nothing is unfolded."""
    shown = re.sub(r"</summary>.*?</details>", "</summary></details>", str(page), flags=re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", shown[shown.rindex("<table") :], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


async def test_what_was_decided_and_why_is_seen_without_unfolding() -> None:
    simulation = make_simulation(
        lambda request: (
            verdict(is_valid=False, reasoning="Too bold.")
            if request.site.component == "validator"
            else policy("Raise taxes at once", reasoning="Why not?", confidence=0.3)
        ),
        names=("Aland",),
    )
    turn = await simulation.step()
    rows = visible_rows(turn_html(simulation, turn, simulation.turns[0]))
    assert rows == [
        ["who", "agent", "validator"],
        [
            "Aland",
            "(rejected) Raise taxes at once ok confidence 0.3 Why not?",
            "ok confidence 0.9 Too bold.",
        ],
    ]
    decisions = TurnStepper(simulation).decisions.value
    assert visible_rows(decisions) == rows
    # Words of a language that is read from the right are.
    assert '<div dir="auto">(rejected) Raise taxes at once</div>' in decisions
    assert '<summary><span dir="auto">Why not?</span></summary>' in decisions


async def test_who_only_thought_is_quoted_in_the_text() -> None:
    simulation = make_simulation(names=("Aland",))
    await simulation.step()
    thinker = replace(simulation.turns[1], actions=(), calls=(), chains=simulation.turns[1].chains)
    assert turn_text(simulation, thinker, None).endswith("Aland: Aland sees turn 1.")


async def test_a_turns_decisions_stand_in_one_table() -> None:
    simulation = make_simulation(names=("Aland",))
    await simulation.step()
    assert decisions_html(simulation.turns[1]).count(">Decisions</caption>") == 1
