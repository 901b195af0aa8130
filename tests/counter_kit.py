"""A very small world: a model says what each adder adds to a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.types import ChatRequest

__all__ = ["Addition", "CounterSimulation", "Total", "answer", "counter_client", "make_counter"]

PROMPT = Prompt.parse(
    "Asks for a number.\n\n## System\nYou are {{ name }}.\n\n"
    "## User\nThe total is {{ state.value }}.\n",
    name="adder",
)


class Addition(Reply):
    """The model's answer."""

    add: int


class Total(State):
    value: int = 0
    history: tuple[int, ...] = ()


class CounterSimulation(Run[Total]):
    """Adds what the adders say to the total, turn by turn."""

    kind = "counter"
    defaults = {"name": "counter"}  # noqa: RUF012
    adders: tuple[str, ...] = ("Ann", "Bob")

    async def turn(self, state: Total, ask: Ask) -> Total:
        said = await ask.each(self.adders, Addition, PROMPT)
        value = state.value + sum(it.add for it in said.values())
        return Total(value=value, history=(*state.history, value))


def answer(request: ChatRequest) -> Any:
    """Add a number that follows from the request: the length of the adder's name, plus the turn."""
    assert request.site is not None
    return {
        "add": len(request.site.agent or "") + (request.site.turn or 0),
        "reasoning": f"{request.site.agent} saw: {request.prompt[-20:]}",
        "confidence": 0.5,
    }


def counter_client(replies: Any = answer) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(replies))


def make_counter(
    tape: Tape | str | Path | None = None, *, replies: Any = answer, **parameters: Any
) -> CounterSimulation:
    return CounterSimulation(**parameters, llm_client=counter_client(replies), tape=tape)
