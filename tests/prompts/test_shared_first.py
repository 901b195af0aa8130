"""The shipped worlds put first what all players read, and tell each what another order does."""

from __future__ import annotations

from typing import Any

import pytest
from crisis_kit import judged, make_crisis, said
from social_kit import make_social

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape.prompts_read import PromptsRead, prompts_read
from llmsim_lab.types import Attempt, ChatReply, ChatRequest


def statement(request: ChatRequest) -> Any:
    """Answer at the length of what a small model says."""
    assert request.site is not None
    words = f"{request.site.agent}, turn {request.site.turn}: " + "we keep the lanes open, and " * 5
    if request.site.component == "engine":
        return judged({"crisis_level": 50 + (request.site.turn or 0)}, {}, words)
    return said(words, communications=words)


def move(request: ChatRequest) -> Any:
    """Choose by who asks and when, whatever the order of the options."""
    assert request.site is not None
    assert request.schema is not None
    options = sorted(request.schema["properties"]["next_state"]["enum"])
    place = len(request.site.agent or "") + (request.site.turn or 0)
    return {"next_state": options[place % len(options)]}


def crisis(stable_first: bool) -> Run[Any]:
    return make_crisis(scenario="strait", replies=statement, stable_first=stable_first)


def social(stable_first: bool) -> Run[Any]:
    run = make_social(population=12, seed_posts=8, seed=7, replies=move)
    if not stable_first:
        run.prompts |= {"social_reasoner": Prompt.load("reasoner")}
    return run


def committee(stable_first: bool) -> Run[Any]:
    one_banks = None if stable_first else Prompt.load("agent_briefing").text
    nations = [
        {"name": name, "temperament": mood, "inflation_target": target, "prompt": one_banks}
        for name, mood, target in (("Ann", "bold", 2), ("Bob", "slow", 3), ("Cleo", "calm", 2))
    ]
    decision = {"reasoning": "Steady.", "rate_change_bp": 25, "action": "Raise", "confidence": 1}
    client = LLMClient(LLMConfig(model="scripted"), ScriptedBackend(lambda _: decision))
    return Simulation(nations=nations, llm_client=client)


def reads(run: Run[Any], kind: str) -> tuple[PromptsRead, dict[Any, list[str]]]:
    """Return how much a server would read of six turns, and each prompt's lines in any order."""
    run.run(6)
    assert run.llm_client is not None
    backend = run.llm_client.backend
    assert isinstance(backend, ScriptedBackend)
    sent = [it for it in backend.requests if it.site and it.site.component == kind]
    lines = {it.site: sorted(filter(None, it.prompt.splitlines())) for it in sent}
    return prompts_read(
        [Attempt(request=it, reply=ChatReply(text=""), seconds=0) for it in sent]
    ), lines


@pytest.mark.parametrize(
    ("world", "kind"), [(crisis, "agent"), (social, "reasoner"), (committee, "agent")]
)
def test_a_world_has_six_tenths_read_of_what_another_order_has_and_tells_the_same(
    world: Any, kind: str
) -> None:
    now, lines = reads(world(True), kind)
    other, other_lines = reads(world(False), kind)
    assert now.requests == other.requests > 10
    assert now.by_kind <= 0.6 * other.by_kind
    assert now.characters <= 1.05 * other.characters
    assert lines == other_lines
