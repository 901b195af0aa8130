"""The social reasoner that asks for the probability of each option, and draws."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from social_kit import OPTIONS, make_question, social_client

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import ChatReply
from llmsim_lab.statechart import (
    AgentState,
    Reasoner,
    SocialAgent,
    SocialConfig,
    SocialSimulation,
)
from llmsim_lab.statechart._config import ReasonerConfig
from llmsim_lab.statechart._reasoner import MoveQuestion
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


def users(count: int) -> list[SocialAgent]:
    return [SocialAgent(f"User {n}", ("sport",), "curious") for n in range(count)]


def questions(count: int) -> list[MoveQuestion]:
    first = make_question()
    return [
        MoveQuestion(user, first.current_state, first.trigger, OPTIONS, first.context, 3)
        for user in users(count)
    ]


def test_each_user_is_asked_for_a_distribution_and_draws_from_it() -> None:
    client = social_client(likes)
    chosen = asyncio.run(Reasoner(client, decide="sample", draws=1).decide(questions(400)))
    assert len(client.backend.requests) == 400 * len(OPTIONS)  # type: ignore[attr-defined]
    share = Counter(chosen)[AgentState.ENGAGING_LIKE] / 400
    assert share == pytest.approx(LIKED / 0.9, abs=0.06)
    again, other = (
        asyncio.run(Reasoner(client, decide="sample", draws=draws).decide(questions(400)))
        for draws in (1, 2)
    )
    assert chosen == again
    assert chosen != other


def test_the_mode_is_the_same_for_all() -> None:
    chosen = asyncio.run(Reasoner(social_client(likes), decide="mode").decide(questions(5)))
    assert chosen == [AgentState.ENGAGING_LIKE] * 5


def test_a_decision_says_how_it_came_about() -> None:
    client = social_client(likes)
    first, second = questions(2)
    other = MoveQuestion(second.agent, second.current_state, "other", OPTIONS[:2], None, 3)
    reasoner = Reasoner(client, decide="mode")
    chains = [choice.chain for choice in asyncio.run(reasoner.choose_all([first, other, second]))]
    assert [chain.agent for chain in chains if chain] == ["User 0", "User 1", "User 1"]
    assert chains[0] is not None
    assert chains[0].reasoning.startswith("took the likeliest, engaging_like: 66.7% among ")
    assert "; 90.0% of all answers are one of them" in chains[0].reasoning


def test_without_an_answer_every_user_falls_back() -> None:
    reasoner = Reasoner(social_client(TimeoutError()), decide="sample")
    choices = asyncio.run(reasoner.choose_all(questions(3)))
    assert [(it.state, it.status) for it in choices] == [(OPTIONS[0], "fallback")] * 3
    assert reasoner.counts == {"fallback": 3}


def test_a_runs_draws_are_replayed(tmp_path: Path) -> None:
    client = social_client(likes)
    values: dict[str, Any] = {"population": 60, "seed_posts": 8, "seed": 2}
    config = SocialConfig(**values, writer={"kind": "rule"}, reasoner={"decide": "sample"})
    live = SocialSimulation(config, llm_client=client, tape=tmp_path / "x.tape")
    live.run(6)
    decided = [move for turn in live.turns for move in turn.moves if move.decided_by == "reasoner"]
    chains = [chain for turn in live.turns for chain in turn.chains]
    assert len(decided) == len(chains) > 20
    assert {chain.agent for chain in chains} == {move.agent for move in decided}
    calls = sum(len(turn.calls) for turn in live.turns)
    assert calls == len(client.backend.requests)  # type: ignore[attr-defined]
    again = SocialSimulation.replay(tmp_path / "x.tape")
    assert [turn.moves for turn in again.turns] == [turn.moves for turn in live.turns]
    assert again.state == live.state


def test_a_rule_and_a_lookup_cannot_be_combined_with_it() -> None:
    with pytest.raises(ValueError, match="decide and prompt would have no effect"):
        ReasonerConfig(kind="rule", decide="sample")
    with pytest.raises(ConfigError, match="a lookup goes with an answer"):
        Reasoner(social_client(), decide="mode", lookup=object())  # type: ignore[arg-type]
