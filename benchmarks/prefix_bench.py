"""Measure how many prompt tokens a server reads anew, call by call, in every world.

``python benchmarks/prefix_bench.py --out prefix_bench.json`` plays short runs of the worlds with
canned answers and sends their prompts to an embedded model in the order in which a run sends them,
one token of reply each. The embedded server keeps the prompts that it has read (any earlier one
may be the prefix); it says how much of a prompt it had. A server with one slot keeps the prompt
before alone: what it would read is counted with the model's own tokens. The agents' prompts of a
crisis are measured in each order, and prompts whose order a contract fixes also as they could
stand. The variable ``LLMSIM_MODEL`` chooses another embedded model than the smallest.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.assistant import (
    AgentEngineConfig,
    Chat,
    ChatConfig,
    FunctionTools,
    ToolUsingNationAgent,
    load_constitution,
)
from llmsim_lab.context import CrisisConfig, CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.llm._embedded import backend as embedded
from llmsim_lab.llm._embedded import wire
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.statechart import SocialConfig, SocialSimulation
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

__all__ = ["FULL", "QUICK", "WORLDS", "Plan", "main", "measure", "requests_of"]

_CONTEXT = 4096
_SETTINGS = LLMConfig(model="scripted", max_concurrency=1)
_NATIONS = ("United States", "Germany", "Japan")
_IN_WORDS = {
    "seed": 1,
    "start": "1979Q3",
    "moves_bp": None,
    "committee": "sequential",
    "economy": {"shock_scale": 0},
}
"""The contracts' prompts, whose order is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        turns: of each run, at least 2, since the first fills the cache.
    """

    turns: int


FULL = Plan(turns=4)
QUICK = Plan(turns=2)


# --- what the models would have answered ----------------------------------------------------------


def _answer(request: ChatRequest) -> dict[str, Any] | ChatReply:
    """Answer with words that differ from turn to turn and from agent to agent."""
    site = request.site
    assert site is not None
    turn, name = site.turn or 0, site.agent or "Everybody"
    if request.tools:
        return _tools_used(request, turn)
    fields = (request.schema or {}).get("properties", {})
    if "next_state" in fields:
        options = fields["next_state"]["enum"]
        return {"next_state": options[(turn + len(name)) % len(options)]}
    answers: dict[str, Any] = {
        "state_updates": {"global_vars": {"crisis_level": 50 + turn}},
        "events": [{"type": "naval", "description": f"Patrols were sighted in sector {turn}"}],
        "assessment": "The situation is tense.",
        "actions": f"{name} moves {3 + turn} ships and keeps the rest at home.",
        "communications": f"{name} asks all parties in week {turn} to hold back.",
        "action": f"Raise the interest rate of {name} by 0.{turn} percentage points",
        "new_interest_rate": 9.5 + (turn + len(name)) % 3 / 4,
        "is_valid": True,
        "reasoning": f"Inflation rises for {name}.",
        "confidence": 0.7,
        "text": f"{name} saw {turn} boats at the pier this morning.",
    }
    return {field: answers[field] for field in fields if field in answers}


def _tools_used(request: ChatRequest, turn: int) -> ChatReply:
    """Use a tool, once for each question."""
    if request.messages[-1].role == "tool":
        return ChatReply(text=f"Done, for the {turn}. time.")
    name = request.tools[0]["function"]["name"]
    arguments = {"series": "inflation"} if name == "past_values" else {"title": f"Buy {turn} eggs"}
    return ChatReply(text="", tool_calls=(ToolCall(name=name, arguments=arguments),))


def past_values(series: str) -> list[float]:
    """Look up a series in the four quarters before the simulation began, in percent."""
    return {"inflation": [7.1, 8.0, 8.4, 8.9]}.get(series, [])


def add_task(title: str, user_id: str) -> dict[str, Any]:
    """Add a task to the list."""
    return {"id": 1, "title": title, "user_id": user_id}


def list_tasks(user_id: str) -> dict[str, Any]:
    """List all tasks."""
    return {"tasks": [], "user_id": user_id}


# --- the worlds -----------------------------------------------------------------------------------


def moved(name: str, *blocks: str) -> Prompt:
    """Return a shipped prompt with blocks of its user message before its system message."""
    shipped = Prompt.load(name)
    user = shipped.user
    for block in blocks:
        assert block in user, f"{name} has no {block!r}"
        user = user.replace(block, "")
    return Prompt(user, system="\n\n".join([*blocks, shipped.system]), name=name)


def _economy(turns: int, client: LLMClient, prompts: Mapping[str, Prompt] | None = None) -> None:
    config = SimulationConfig(nations=_NATIONS, **_IN_WORDS, turns=turns)
    Simulation(config, llm_client=client, prompts=prompts).run()


def _economy_fixed_first(turns: int, client: LLMClient) -> None:
    steps = {
        name: Prompt.load(name).user.partition("Think step-by-step:")[2]
        for name in ("agent_policy", "engine_interest_rate")
    }
    agent, engine = (
        moved(name, f"Think step-by-step:{text}".rstrip()) for name, text in steps.items()
    )
    own = {f"agent:{nation}": agent for nation in _NATIONS}
    _economy(turns, client, {**own, "engine": engine})


def _lookup(turns: int, client: LLMClient) -> None:
    # One alone: the tools of several run at the same time, and their prompts then have no order.
    nation = _NATIONS[0]
    config = SimulationConfig(nations=(nation,), **_IN_WORDS, turns=turns)
    agent = ToolUsingNationAgent(nation, client, tools=FunctionTools(past_values))
    Simulation(config, llm_client=client, agents=[agent]).run()


def _crisis(turns: int, client: LLMClient, **order: Any) -> None:
    CrisisSimulation(CrisisConfig(scenario="strait", turns=turns, **order), llm_client=client).run()


def _crisis_usual(turns: int, client: LLMClient) -> None:
    _crisis(turns, client, stable_first=False)


def _social(turns: int, client: LLMClient, prompts: Mapping[str, Prompt] | None = None) -> None:
    config = SocialConfig(
        population=20,
        seed_posts=8,
        seed=1,
        turns=turns + 4,  # in the first rounds nobody has anything to decide
        reasoner={"kind": "llm"},
        writer={"kind": "llm"},
    )
    SocialSimulation(config, llm_client=client, prompts=prompts).run()


def _social_fixed_first(turns: int, client: LLMClient) -> None:
    form = "Respond with JSON only:\n{{ answer_form }}"
    _social(turns, client, {"reasoner": moved("social_reasoner", form)})


def _assistant(turns: int, client: LLMClient) -> None:
    async def talk() -> None:
        config = ChatConfig(user_id="ann", constitution=load_constitution())
        chat = Chat(config, llm_client=client, tools=FunctionTools(add_task, list_tasks))
        # As many more as it takes until the oldest messages are no longer shown.
        for number in range(turns + AgentEngineConfig().include_history_messages // 2):
            await chat.send(f"Add a task: buy {number} eggs for the cake")

    asyncio.run(talk())


WORLDS = {
    "economy": _economy,
    "economy, contract's fixed lines first": _economy_fixed_first,
    "economy with tools": _lookup,
    "crisis": _crisis,
    "crisis, usual order": _crisis_usual,
    "social": _social,
    "social, contract's fixed lines first": _social_fixed_first,
    "assistant": _assistant,
}


def requests_of(world: str, turns: int) -> list[ChatRequest]:
    """Return the requests of a run, as it would make them."""
    backend = ScriptedBackend(_answer)
    WORLDS[world](turns, LLMClient(_SETTINGS, backend))
    return list(backend.requests)


# --- what a server reads of them ------------------------------------------------------------------


@contextmanager
def counting(counts: list[tuple[int, int]]) -> Iterator[None]:
    """Note of each reply how many prompt tokens there were, and how many of them were cached."""
    decoded = wire.json_object

    def noting(content: bytes) -> dict[str, Any] | None:
        event = decoded(content)
        usage = (event or {}).get("usage") or {}
        if "prompt_tokens_details" in usage:
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            counts.append((usage["prompt_tokens"], cached))
        return event

    wire.json_object = noting
    try:
        yield
    finally:
        wire.json_object = decoded


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two prompts have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def rows_of(
    requests: Sequence[ChatRequest],
    tokens: Sequence[Sequence[int]],
    said: Sequence[tuple[int, int]],
) -> list[dict[str, Any]]:
    """Return what is read of each prompt by a server that keeps it all, and by one with one slot.

    Args:
        requests: one after another.
        tokens: of each one's prompt.
        said: by the embedded server: a prompt's tokens, and how many of them it had.
    """
    rows = []
    before: Sequence[int] = ()
    messages = 0
    for request, own, (prompt, cached) in zip(requests, tokens, said, strict=True):
        site = request.site
        assert site is not None
        # A conversation's turns are the user's messages, which have no number.
        messages += request.messages[-1].role == "user"
        # At least one token is always read: the reply begins with it.
        one_slot = min(shared(own, before), len(own) - 1)
        rows.append(
            {
                "turn": messages if site.turn is None else site.turn,
                "component": "lookup" if request.tools and site.agent else site.component,
                "prompt": prompt,
                "anew": prompt - cached,
                "anew_one_slot": len(own) - one_slot,
            }
        )
        before = own
    return rows


async def read_anew(client: LLMClient, requests: Sequence[ChatRequest]) -> list[dict[str, Any]]:
    """Send requests one after another; return what was read of each."""
    backend = client.backend
    assert isinstance(backend, embedded.EmbeddedBackend)
    counts: list[tuple[int, int]] = []
    tokens = []
    with counting(counts):
        for request in requests:
            options = {"num_ctx": _CONTEXT, "num_predict": 1, "temperature": 0}
            alone = replace(
                request, model=client.config.model, schema=None, options=options, timeout_s=600
            )
            await backend.chat(alone)
            tokens.append(await _tokens(backend, alone))
    return rows_of(requests, tokens, counts)


async def _tokens(backend: embedded.EmbeddedBackend, request: ChatRequest) -> list[int]:
    """Return a prompt's tokens as the model reads them."""
    child, _ = await backend._child(backend._server(), _CONTEXT)

    async def asked(route: str, **body: Any) -> dict[str, Any]:
        reply = await backend._client().post(**embedded._call(child, route), json=body)
        answer: dict[str, Any] = json.loads(reply.content)
        return answer

    messages = wire.outgoing(request).fields["messages"]
    prompt = (await asked("/apply-template", messages=messages))["prompt"]
    found: list[int] = (await asked("/tokenize", content=prompt))["tokens"]
    return found


# --- the figures ----------------------------------------------------------------------------------


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return calls and tokens of a turn by who asks, from the second turn on, and of all."""
    later = [row for row in rows if row["turn"] > 1]
    turns = len({row["turn"] for row in later})
    found = {}
    for part in [*sorted({row["component"] for row in later}), "all"]:
        own = [row for row in later if part in ("all", row["component"])]
        sums = {
            key: round(sum(row[key] for row in own) / turns, 1)
            for key in ("prompt", "anew", "anew_one_slot")
        }
        found[part] = {"calls": round(len(own) / turns, 1), **sums}
    return found


def measure(plan: Plan) -> dict[str, Any]:
    """Measure every world, each on a model that has just been started.

    Raises:
        ConfigError: the model is no embedded one, which alone says what it had in its cache.
    """
    model = os.environ.get("LLMSIM_MODEL", "embedded:smollm2-135m")
    if not model.startswith("embedded"):
        raise ConfigError(
            f"LLMSIM_MODEL={model!r} is no embedded model; set it to embedded:NAME, or unset it"
        )

    async def one(requests: Sequence[ChatRequest]) -> list[dict[str, Any]]:
        client = connect(model, config=LLMConfig(num_ctx=_CONTEXT, max_tokens=1), download=True)
        try:
            return await read_anew(client, requests)
        finally:
            await client.aclose()

    worlds = {world: summary(asyncio.run(one(requests_of(world, plan.turns)))) for world in WORLDS}
    return {"model": model, "turns": plan.turns, "tokens_a_turn": worlds}


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures."""
    shown = Table(
        *("world", "who", "calls", "prompt tokens", "read anew", "with one slot"),
        title="Prompts of a turn, turns 2 on",
    )
    for world, parts in figures["tokens_a_turn"].items():
        for part, row in parts.items():
            tokens = [f"{row[key]:.0f}" for key in ("prompt", "anew", "anew_one_slot")]
            shown.add_row(world, part, str(row["calls"]), *tokens, end_section=part == "all")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="prefix_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
