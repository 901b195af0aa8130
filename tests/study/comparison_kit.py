"""For the tests of comparisons: a model whose policy follows from its prompt and its seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import in_words, policy, rate_update, verdict

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Comparison
from llmsim_lab.types import ChatRequest

__all__ = ["SEED", "hawk_of", "make_comparison", "make_run", "opinions", "seeded_client"]

SEED = 100
HAWK = "You are a hawk."


def opinions(request: ChatRequest) -> Any:
    """Answer: hawks ask for a point more than others, and an odd seed adds half a point."""
    assert request.site is not None
    odd = int(request.options.get("seed", 0)) % 2
    if request.site.component == "agent":
        points = (1.25 if HAWK in request.prompt else 0.25) + 0.5 * odd
        return policy(f"Raise the interest rate by {points:g}", confidence=0.5 + 0.1 * odd)
    if request.site.component == "validator":
        return verdict("strict" not in request.prompt)
    assert request.schema is not None
    offered = request.schema["properties"]["new_interest_rate"]["enum"]
    now = sum(offered) / len(offered)
    wanted = now + float(request.prompt.split("rate by ")[1].split('"')[0])
    return rate_update(min(offered, key=lambda rate: abs(rate - wanted)))


def seeded_client(replies: Any = opinions, **config: Any) -> LLMClient:
    values = {"model": "opinions", "seed": SEED, "retry_wait_s": 0} | config
    return LLMClient(LLMConfig(**values), ScriptedBackend(replies))


def make_run(
    *,
    turns: int = 3,
    tape: Path | Tape | None = None,
    client: LLMClient | None = None,
    **config: Any,
) -> Simulation:
    """Return a run of nations advised by a model; by default one nation, three turns."""
    values = {"nations": ["Aland"], "name": "run"} | config
    simulation = Simulation(in_words(**values), llm_client=client or seeded_client(), tape=tape)
    simulation.run(turns)
    return simulation


def hawk_of(simulation: Simulation) -> Prompt:
    prompt: Prompt = simulation.agents[0].prompt  # type: ignore[attr-defined]
    return prompt.replace("You are an economic policy advisor for a nation.", HAWK)


def make_comparison(simulation: Simulation | None = None, **arguments: Any) -> Comparison:
    """Return a comparison: the run's own prompt and a hawk's, two samples at every turn."""
    simulation = simulation or make_run()
    values: dict[str, Any] = {
        "prompt": {"as it was": None, "hawk": hawk_of(simulation)},
        "samples": 2,
    }
    return Comparison(simulation, **values | arguments)
