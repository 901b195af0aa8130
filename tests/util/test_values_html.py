"""What a notebook shows where a cell ends in one of the values."""

from __future__ import annotations

import re

import pytest
from builders import make_action, make_client, make_state

from llmsim_lab.agents import NationAgent
from llmsim_lab.models import AgentState, LLMReasoningChain, PolicyDecision, SimulationState
from llmsim_lab.types import FrozenDict

BAD = "<script>alert(1)</script>\x1b[31m\u202e<img src=x onerror=alert(1)></style>" + "x" * 100_000


@pytest.mark.parametrize(
    "value",
    [
        make_action(BAD, name=BAD[:60]),
        PolicyDecision(action=BAD, reasoning=BAD, confidence=0.5),
        LLMReasoningChain(
            component="agent",
            agent=BAD[:40],
            turn=1,
            reasoning=BAD,
            prompt_text=BAD,
            status="failed",
        ),
        SimulationState(agents=FrozenDict({"a": AgentState(name=BAD)})),
    ],
    ids=["action", "decision", "chain", "state"],
)
def test_what_a_model_says_is_shown_and_does_nothing(value: object) -> None:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search(r"<(script|img|/style)", html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert len(html) < 200_000


async def test_a_decision_shows_the_call_behind_it_folded() -> None:
    action = await NationAgent("Aland", make_client()).decide_action(make_state())
    decision = action.policy_decision
    assert decision is not None
    html = decision._repr_html_()
    for name in ("prompt tokens", "reply tokens"):
        assert f">{name}<" in html
    assert "<details><summary>prompt</summary><pre" in html


async def test_what_changes_from_run_to_run_is_left_out() -> None:
    faces = []
    for _ in range(2):
        action = await NationAgent("Aland", make_client()).decide_action(make_state())
        assert action.chain is not None
        faces.append(action.chain._repr_html_())
    assert faces[0] == faces[1]
