"""What a notebook shows where a cell ends in one of the values."""

from __future__ import annotations

import re

import pytest
from builders import make_action

from llmsim_lab.models import AgentState, PolicyDecision, SimulationState
from llmsim_lab.types import FrozenDict

BAD = "<script>alert(1)</script>\x1b[31m\u202e<img src=x onerror=alert(1)></style>" + "x" * 100_000


@pytest.mark.parametrize(
    "value",
    [
        make_action(BAD, name=BAD[:60]),
        PolicyDecision(action=BAD, reasoning=BAD, confidence=0.5),
        SimulationState(agents=FrozenDict({"a": AgentState(name=BAD)})),
    ],
    ids=["action", "decision", "state"],
)
def test_what_a_model_says_is_shown_and_does_nothing(value: object) -> None:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search(r"<(script|img|/style)", html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert len(html) < 200_000
