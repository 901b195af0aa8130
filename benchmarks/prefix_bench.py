"""Measure how many prompt tokens a server reads anew, with and without the stable parts first.

``python benchmarks/prefix_bench.py --out prefix_bench.json`` sends the prompts of a short crisis
run to an embedded model, one token of reply each, in the order in which a run sends them. What the
server had in its prefix cache it does not read again; it says how much that was. The agents'
answers and the engine's are canned, so that both orders meet the same world. The variable
``LLMSIM_MODEL`` chooses another embedded model than the smallest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.context import CrisisConfig, CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.llm._embedded import wire
from llmsim_lab.types import ChatRequest

__all__ = ["FULL", "QUICK", "Plan", "main", "measure", "requests_of"]

_ORDERS = {"usual": False, "stable_first": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        steps: of the run, at least 2, since the first fills the cache.
    """

    steps: int


FULL = Plan(steps=3)
QUICK = Plan(steps=2)


def canned(request: ChatRequest) -> dict[str, Any]:
    """Answer with words that differ from step to step and from agent to agent."""
    site = request.site
    assert site is not None
    turn = site.turn or 0
    if site.component == "engine":
        return {
            "state_updates": {"global_vars": {"crisis_level": 50 + turn}},
            "events": [{"type": "naval", "description": f"Patrols were sighted in sector {turn}"}],
            "reasoning": "Tension rises.",
        }
    return {
        "assessment": "The situation is tense.",
        "actions": f"{site.agent} moves {3 + turn} ships and keeps the rest at home.",
        "communications": f"{site.agent} asks all parties in week {turn} to hold back.",
    }


def requests_of(steps: int, *, stable_first: bool) -> list[ChatRequest]:
    """Return the requests of a run, as it would make them."""
    backend = ScriptedBackend(canned)
    config = CrisisConfig(scenario="strait", turns=steps, stable_first=stable_first)
    settings = LLMConfig(model="scripted", max_concurrency=1)
    CrisisSimulation(config, llm_client=LLMClient(settings, backend)).run()
    return list(backend.requests)


@contextmanager
def counting(counts: list[tuple[int, int]]) -> Iterator[None]:
    """Note of each reply how many prompt tokens there were, and how many of them were cached."""
    decoded = wire._decoded

    def noting(content: str) -> dict[str, Any]:
        event = decoded(content)
        usage = event.get("usage") or {}
        if "prompt_tokens_details" in usage:
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            counts.append((usage["prompt_tokens"], cached))
        return event

    wire._decoded = noting
    try:
        yield
    finally:
        wire._decoded = decoded


async def read_anew(client: LLMClient, requests: Sequence[ChatRequest]) -> list[dict[str, Any]]:
    """Send requests one after another; return what was read of each."""
    counts: list[tuple[int, int]] = []
    with counting(counts):
        for request in requests:
            options = {"num_ctx": 4096, "num_predict": 1, "temperature": 0}
            alone = replace(request, model=client.config.model, schema=None, options=options)
            await client.backend.chat(replace(alone, timeout_s=600))
    rows = []
    for request, (prompt, cached) in zip(requests, counts, strict=True):
        assert request.site is not None
        rows.append(
            {
                "turn": request.site.turn,
                "component": request.site.component,
                "prompt": prompt,
                "anew": prompt - cached,
            }
        )
    return rows


def measure(plan: Plan) -> dict[str, Any]:
    """Measure both orders, each on a model that has just been started.

    Raises:
        ConfigError: the model is no embedded one, which alone says what it had in its cache.
    """
    model, steps = os.environ.get("LLMSIM_MODEL", "embedded:smollm2-135m"), plan.steps
    if not model.startswith("embedded"):
        raise ConfigError(
            f"LLMSIM_MODEL={model!r} is no embedded model; set it to embedded:NAME, or unset it"
        )
    figures: dict[str, Any] = {"model": model, "steps": steps}

    async def one(stable_first: bool) -> list[dict[str, Any]]:
        client = connect(model, config=LLMConfig(num_ctx=4096, max_tokens=1), download=True)
        try:
            return await read_anew(client, requests_of(steps, stable_first=stable_first))
        finally:
            await client.aclose()

    for name, stable_first in _ORDERS.items():
        rows = asyncio.run(one(stable_first))
        agents = [row for row in rows if row["component"] == "agent" and row["turn"] > 1]
        figures[name] = {
            "agents_prompt_tokens_a_turn": sum(row["prompt"] for row in agents) / (steps - 1),
            "agents_anew_a_turn": sum(row["anew"] for row in agents) / (steps - 1),
            "all_prompt_tokens": sum(row["prompt"] for row in rows),
            "all_anew": sum(row["anew"] for row in rows),
        }
    usual, stable = figures["usual"], figures["stable_first"]
    figures["ratio"] = round(stable["agents_anew_a_turn"] / usual["agents_anew_a_turn"], 3)
    figures["ratio_all"] = round(stable["all_anew"] / usual["all_anew"], 3)
    return figures


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures."""
    shown = Table("order", "prompt tokens a turn", "read anew", title="Agents' prompts, turns 2 on")
    for name in _ORDERS:
        row = figures[name]
        shown.add_row(
            name, f"{row['agents_prompt_tokens_a_turn']:.0f}", f"{row['agents_anew_a_turn']:.0f}"
        )
    shown.add_row("ratio", "", f"{figures['ratio']}")
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
