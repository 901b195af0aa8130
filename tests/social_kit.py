"""Small social simulations: few users, a model that answers from the request alone."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.statechart import AgentState, Post, SocialAgent, SocialSimulation
from llmsim_lab.statechart.reasoner import MoveQuestion
from llmsim_lab.statechart.state import SocialState
from llmsim_lab.types import ChatRequest

OPTIONS = [
    AgentState.SCROLLING,
    AgentState.ENGAGING_LIKE,
    AgentState.ENGAGING_REPLY,
    AgentState.ENGAGING_RESHARE,
]

Answer = Callable[[ChatRequest], Any]


def any_option(request: ChatRequest) -> dict[str, str]:
    """Answer with one of the options, or with a text, that follows from the prompt."""
    assert request.schema is not None
    fields = request.schema["properties"]
    turn = blake2b(request.prompt.encode(), digest_size=4).digest()[0]
    options = sorted(fields.get("next_state", {"enum": [""]})["enum"])
    answers = {
        "rationale": f"because of {turn}",
        "next_state": options[turn % len(options)],
        "text": f"words of {turn}",
    }
    return {name: answers[name] for name in fields}


def picks(state: str) -> Answer:
    """Return a model that always answers with this state."""
    return lambda request: {"next_state": state}


def social_client(replies: Any = any_option) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(replies))


def prompts_to(client: LLMClient) -> list[str]:
    assert isinstance(client.backend, ScriptedBackend)
    return [request.prompt for request in client.backend.requests]


def social_values(users: int = 6, **more: Any) -> dict[str, Any]:
    """Return parameters of a small town where set phrases stand in for what users write."""
    return {
        "seed": 3,
        "turns": 8,
        "population": [
            {"name": f"User {n}", "interests": ["tea", "chess"], "activity": 1.0}
            for n in range(1, users + 1)
        ],
        "seed_posts": [
            {"author": "Press", "text": f"Story {n}", "topics": ["tea"]} for n in range(1, 5)
        ],
        "players": {"writer": "rule"},
        **more,
    }


def make_social(
    tape: Tape | str | Path | None = None,
    *,
    replies: Any = any_option,
    users: int = 6,
    state: SocialState | None = None,
    **more: Any,
) -> SocialSimulation:
    values, client = social_values(users, **more), social_client(replies)
    return SocialSimulation(**values, llm_client=client, tape=tape, state=state)


def make_question(
    name: str = "Ada", *, text: str = "Tea is best cold", post: int = 7, **more: Any
) -> MoveQuestion:
    agent = SocialAgent(name, ["tea", "chess"], "curious", state=AgentState.EVALUATING)
    about = Post(id=post, author="Bob", text=text, topics=("tea",))
    values = {"options": OPTIONS, "context": about, "turn": 1, **more}
    return MoveQuestion(agent, AgentState.EVALUATING, "decides", **values)
