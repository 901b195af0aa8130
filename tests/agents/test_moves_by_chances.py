"""A central bank whose move follows from the probabilities of the moves on offer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import ChatReply, ChatRequest

MOVES = (-50, -25, 0, 25, 50)


def model(chances: Mapping[int, float]) -> LLMClient:
    """Return a model with these probabilities of moves, wherever they stand among the letters."""

    def answer(request: ChatRequest) -> ChatReply:
        shown = re.findall(r"^([A-Z]): (.+)$", request.messages[-1].content, re.MULTILINE)
        moves = {
            letter: int(text.split()[0]) if text != "no change" else 0 for letter, text in shown
        }
        top = tuple((letter, math.log(chances[move])) for letter, move in moves.items())
        return ChatReply(text="A", top_logprobs=top)

    return LLMClient(LLMConfig(model="scripted"), backend=ScriptedBackend(answer))


def run(chances: Mapping[int, float], how: str, *, turns: int = 1, **more: Any) -> Simulation:
    calm = {"moves_bp": MOVES, "decide": how, "economy": {"shock_scale": 0}, **more}
    simulation = Simulation(llm_client=model(chances), **calm)
    simulation.run(turns, progress=False)
    return simulation


TWO_MINDS = {-50: 0.4, -25: 0.05, 0: 0.1, 25: 0.25, 50: 0.2}


def rates(simulation: Simulation) -> list[float]:
    return simulation.to_frame()["interest_rate"].tolist()


@pytest.mark.parametrize(("how", "rate"), [("mode", 3.5), ("expected", 4.0)])  # the mean is -5
def test_the_mode_or_the_move_nearest_to_the_mean_is_taken(how: str, rate: float) -> None:
    simulation = run(TWO_MINDS, how)
    assert rates(simulation) == [4.0, rate]
    [row] = simulation.decisions().query("component == 'agent'").to_dict("records")
    assert row["rate_change_bp"] == row["applied_bp"] == round(100 * (rate - 4))
    assert row["reasoning"].startswith(f"{how}: rate_change_bp ")


def test_the_calls_that_measured_a_choice_are_the_decisions_own() -> None:
    other = {"name": "B", "inflation_target": 3}  # who is asked the same is measured once
    simulation = run(TWO_MINDS, "sample", nations=("A", other))
    [turn] = simulation.turns[1:]
    rows = simulation.decisions()
    asked = rows[rows["component"] == "agent"].set_index("player")
    assert list(asked["attempts"]) == [len(turn.calls) / 2] * 2
    assert set(asked["model"]) == {turn.calls[0].request.model}
    assert rows["attempts"].sum() == sum(call.attempts for call in turn.calls)
