"""Runs to look at: with repaired and failed calls, with rules, with hostile texts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from builders import answer, in_words, make_client, policy

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import ChatRequest

__all__ = ["HOSTILE", "bumpy", "hostile_run", "played", "taped", "turn_over"]

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> </style></pre></textarea>\x1b[31m "
    "\u202ereversed {{ slot }} " + "long " * 20_000
)


def played(replies: Any = answer, *, turns: int = 2, names: Any = ("Aland", "Borduria")) -> Any:
    """Return a run in memory that has been played."""
    simulation = Simulation(in_words(nations=names), llm_client=make_client(replies))
    simulation.run(turns)
    return simulation


def taped(path: Path, *, turns: int = 3, names: Any = ("Aland", "Borduria")) -> Simulation:
    """Return a run on a tape."""
    config = in_words(nations=names, name="taped")
    simulation = Simulation(config, llm_client=make_client(), tape=path)
    simulation.run(turns)
    return simulation


async def turn_over() -> None:
    """Let the event loop run what is scheduled."""
    for _ in range(3):
        await asyncio.sleep(0)


class Bumpy:
    """Answers sensibly, except that one agent's first attempt is nonsense and the engine fails."""

    def __init__(self) -> None:
        self.engine_works = False

    def __call__(self, request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        if (site.component, site.agent, request.attempt) == ("agent", "Borduria", 1):
            return "no JSON at all"
        if site.component == "engine" and site.turn == 2 and not self.engine_works:
            raise TimeoutError
        return answer(request)


def bumpy(path: Path, *, repaired: bool = True) -> Simulation:
    """Return a run on a tape whose second turn failed at first; ``repaired``: then continued."""
    replies = Bumpy()
    config = in_words(nations=("Aland", "Borduria"), name="bumpy")
    simulation = Simulation(config, llm_client=make_client(replies), tape=path)
    simulation.run(1)
    try:
        asyncio.run(simulation.step())
    except LLMFailureException:
        replies.engine_works = True
    else:
        raise AssertionError("the engine was to fail")
    if repaired:
        simulation.run(2)
    return simulation


def hostile_run() -> Simulation:
    """Return a run whose agents' replies are full of markup that a page might execute."""

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            return policy(action=f"Raise the rate {HOSTILE[:300]}", reasoning=HOSTILE)
        return answer(request)

    config = in_words(nations=("<b>Aland</b>",))
    client = make_client(reply, num_ctx=100_000)
    simulation = Simulation(config, llm_client=client)
    simulation.run(2)
    return simulation
