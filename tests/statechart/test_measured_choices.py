"""Users who are asked for the probability of each option, and draw."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from social_kit import social_client

from llmsim_lab.llm import ChatReply
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.types import ChatRequest

LIKED = 0.6


def likes(request: ChatRequest) -> ChatReply:
    """Answer by letter: 60 % for a like where it is among the options, the rest evenly."""
    letters = dict(re.findall(r"^([A-Z]): (\w+)", request.messages[-1].content, re.MULTILINE))
    rest = (0.9 - LIKED) / (len(letters) - 1)
    chances = {
        letter: LIKED if state == "engaging_like" else rest for letter, state in letters.items()
    }
    top = tuple((letter, math.log(chance)) for letter, chance in chances.items())
    return ChatReply(text="A", top_logprobs=top)


def town(path: Path | None = None, replies: Any = likes, **more: Any) -> SocialSimulation:
    values: dict[str, Any] = {"population": 60, "seed": 2, "decide": "sample"}
    values |= {"players": {"writer": "rule"}, **more}
    return SocialSimulation(**values, llm_client=social_client(replies), tape=path)


def decided(run: SocialSimulation) -> list[str]:
    return [
        move.target
        for turn in run.turns
        for move in turn.state.moves
        if move.decided_by == "reasoner"
    ]


def test_users_draw_from_a_distribution_and_the_draws_are_replayed(tmp_path: Path) -> None:
    run = town(tmp_path / "x.tape", population=300)
    run.run(5)
    share = Counter(decided(run))["engaging_like"] / len(decided(run))
    assert share == pytest.approx(LIKED / 0.9, abs=0.08)
    answers = [answer for turn in run.turns for answer in turn.answers]
    chosen = [answer for answer in answers if answer.component == "reasoner"]
    assert len(chosen) == len(decided(run)) > 100
    assert chosen[0].reasoning.startswith("sample: next_state ")
    assert "66.7%" in " ".join(answer.reasoning for answer in chosen)
    assert len(run.calls) == len(run.llm_client.backend.requests)  # type: ignore[union-attr]
    assert SocialSimulation.replay(tmp_path / "x.tape").turns == run.turns


def test_the_mode_is_the_same_for_all() -> None:
    run = town(decide="mode")
    run.run(4)
    assert set(decided(run)) == {"engaging_like"}
