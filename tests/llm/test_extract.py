"""Finding the JSON in what models really write."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from llmsim_lab.llm.extract import InvalidReply, parse_reply
from llmsim_lab.models import PolicyDecision

GOOD = '{"action": "Cut taxes", "reasoning": "Demand is {weak}.", "confidence": 0.5}'
WANTED = PolicyDecision(action="Cut taxes", reasoning="Demand is {weak}.", confidence=0.5)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n\n  {GOOD}\n",
        f"Here you are:\n```json\n{GOOD}\n```\nAnything else?",
        f"<think>Maybe {{1}} or {{}}? Let me see.</think>\n{GOOD}",
        f"<Thinking>\n{GOOD.replace('Cut', 'Raise')}</THINKING> {GOOD}",
        f"Hm, no opening tag.</think>{GOOD}",
        f"First I thought {GOOD.replace('Cut', 'Raise')}, but finally: {GOOD}",
        '{"confidence": 0.5, "new": [1], "action": "Cut taxes", "reasoning": "Demand is {weak}."}',
        f"A set {{a, b}} of things, then {GOOD} and {{an open end",
    ],
)
def test_the_decision_is_found(text: str) -> None:
    assert parse_reply(text, PolicyDecision) == WANTED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("No.", "no JSON object"),
        (" \n", "empty$"),
        ("<think>still thinking about it", "empty: it has only thinking, and no answer after it"),
        (f"<think>Perhaps {GOOD}? Or rather", "only thinking"),
        ('{"action": "Cut', "not valid JSON"),
        ('{"action": "Cut taxes"}', "it lacks reasoning, confidence"),
        (GOOD.replace("0.5", "NaN"), "confidence"),
        (GOOD.replace("Cut taxes", " "), "action: String should have at least 1 character"),
        ("[" * 100_000, "no JSON object"),
        ('{"a":' * 5_000, "not valid JSON"),
        ("{" * 200_000, "not valid JSON"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    with pytest.raises(InvalidReply, match=complaint):
        parse_reply(text, PolicyDecision)


def test_a_complaint_names_what_is_missing_and_then_four_more_faults() -> None:
    class Scores(BaseModel):
        ann: int
        bob: int
        cy: int
        di: int
        eve: int
        fay: int

    with pytest.raises(InvalidReply) as caught:
        parse_reply('{"ann": "a", "bob": "b", "cy": "c", "di": "d", "eve": "e"}', Scores)
    complaints = str(caught.value).split("; ")
    assert complaints[0] == "it lacks fay"
    assert [one[:3] for one in complaints[1:-1]] == ["ann", "bob", "cy:", "di:"]
    assert complaints[-1] == "and 1 more"
