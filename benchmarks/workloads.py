"""What is measured: whole runs on a stub of a model, and a bare loop to compare them with."""

from __future__ import annotations

import asyncio
import time

from pydantic import BaseModel

from llmsim_lab.llm import LLMClient
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, ModelInfo

__all__ = [
    "CALLS_PER_AGENT_TURN",
    "IN_FLIGHT",
    "BareReply",
    "StubBackend",
    "bare_loop",
    "make_simulation",
    "scripted_reply",
    "time_bare",
    "time_turns",
]

CALLS_PER_AGENT_TURN = 3
"""One each of agent, validator and engine."""

IN_FLIGHT = 16

_REPLIES = {
    "agent": '"action": "Raise the interest rate by 25 basis points", "confidence": 0.8, ',
    "validator": '"is_valid": true, "confidence": 0.9, ',
    "engine": '"new_interest_rate": 4.0, "confidence": 0.75, ',
}


def _reply(component: str, number: int) -> str:
    reasoning = f"Inflation is above its target in case {number}."
    return f'{{{_REPLIES[component]}"reasoning": "{reasoning}"}}'


def scripted_reply(request: ChatRequest) -> str:
    """Answer by the component that asks."""
    return _reply(request.site.component if request.site else "agent", 0)


class StubBackend:
    """A model that answers by the component that asks, each time with a text of its own.

    Args:
        delay_s: how long an answer takes; at 0 it comes at the event loop's next turn.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._calls = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        await asyncio.sleep(self._delay_s)
        self._calls += 1
        component = request.site.component if request.site else "agent"
        return ChatReply(text=_reply(component, self._calls), prompt_tokens=250, reply_tokens=40)

    async def model_info(self) -> ModelInfo:
        """Say that a stub answers."""
        return ModelInfo(name="stub", backend="stub")

    async def aclose(self) -> None:
        """Nothing to let go of."""


class BareReply(BaseModel):
    """What the bare loop validates replies with."""

    action: str
    reasoning: str
    confidence: float


async def bare_loop(calls: int, delay_s: float = 0.0) -> list[tuple[str, BareReply]]:
    """Do the least anybody must: ask all at once, 16 in flight, and validate each reply."""
    limiter = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number: int) -> tuple[str, BareReply]:
        prompt = f"You advise nation {number}. Inflation: {4.25:.2f}%. Propose one action."
        async with limiter:
            await asyncio.sleep(delay_s)
            text = _reply("agent", number)
        return prompt, BareReply.model_validate_json(text)

    return await asyncio.gather(*[ask(number) for number in range(calls)])


def make_simulation(agents: int, backend: ChatBackend | None) -> Simulation:
    """Return a run of so many nations; without a backend they follow the Taylor rule."""
    config = SimulationConfig.model_validate(
        {
            "nations": [
                {"name": f"Nation {number}", "kind": "llm" if backend else "taylor"}
                for number in range(agents)
            ],
            "validator": {"kind": "llm" if backend else "always_valid"},
            "llm": {"model": "stub", "max_concurrency": IN_FLIGHT},
            "moves_bp": None,  # else the engine would ask nothing
            "committee": "sequential",
            "economy": {"shock_scale": 0},
        }
    )
    client = LLMClient(config.llm, backend=backend) if backend else None
    return Simulation(config, llm_client=client)


async def time_turns(agents: int, turns: int, backend: ChatBackend | None) -> list[float]:
    """Play a run and return the CPU time of each turn, microseconds per agent."""
    simulation = make_simulation(agents, backend)
    times = []
    for _ in range(turns):
        began = time.process_time()
        await simulation.step()
        times.append((time.process_time() - began) / agents * 1e6)
    return times


async def time_bare(calls: int) -> float:
    """Return the bare loop's CPU time, microseconds per call."""
    began = time.process_time()
    await bare_loop(calls)
    return (time.process_time() - began) / calls * 1e6
