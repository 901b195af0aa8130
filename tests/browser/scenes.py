"""What the notebooks of the browser tests import: runs on a model that waits or fails when told."""

from __future__ import annotations

import asyncio
from typing import Any

from builders import answer, make_client, policy, rate_update

from llmsim_lab import Simulation, SimulationConfig
from llmsim_lab.calls import ChatRequest
from llmsim_lab.llm import LLMClient

__all__ = ["Model", "make_run"]

BOLD = "Raise the interest rate as far as it goes"


class Model:
    """Answers a run's requests as ``builders.answer`` does; a bold advisor gets a higher rate.

    An advisor is bold whose prompt says so.

    Attributes:
        waiting: while true, no answer comes.
        broken: while true, every request times out.
        asked: how many requests came.
    """

    def __init__(self) -> None:
        self.waiting = False
        self.broken = False
        self.asked = 0

    async def __call__(self, request: ChatRequest) -> Any:
        self.asked += 1
        while self.waiting:  # noqa: ASYNC110 - a switch for any thread
            await asyncio.sleep(0.01)
        if self.broken:
            raise TimeoutError("the model gave no answer in time")
        return _bolder(request) or answer(request)

    def set(self, **switches: bool) -> str:
        """Turn switches, as an expression."""
        vars(self).update(switches)
        return "done"

    def client(self) -> LLMClient:
        return make_client(self)


def _bolder(request: ChatRequest) -> Any:
    assert request.site is not None
    component = request.site.component
    if component == "agent" and "bold" in request.prompt:
        return policy(BOLD)
    if component == "engine" and BOLD in request.prompt:
        assert request.schema is not None
        return rate_update(max(request.schema["properties"]["new_interest_rate"]["enum"]))
    return None


def make_run(model: Model, *names: str, **config: Any) -> Simulation:
    """Two nations from 1979Q3, unless told otherwise."""
    nations = names or ("Aland", "Borduria")
    config = {"name": "scripted", "seed": 7, "start": "1979Q3"} | config
    return Simulation(SimulationConfig(nations=nations, **config), llm_client=model.client())
