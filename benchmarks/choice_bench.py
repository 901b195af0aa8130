"""Measure a social run that asks by situations, not by users: calls, CPU and memory a turn.

``python benchmarks/choice_bench.py --out choice_bench.json`` plays runs of 1,000, 10,000 and
100,000 users, each in a process of its own, whose reasoner asks once for the probability of each
option and draws for each user; and 1,000 users who are each asked. The model is a script that
answers at once, so that what is measured is this package. The first turns, in which everybody is at
the beginning, are left out.
"""

from __future__ import annotations

import asyncio
import gc
import math
import multiprocessing
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.llm import ChatReply, ChatRequest, LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.statechart import SocialConfig, SocialSimulation

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_WARM_UP = 5
"""Turns after which most users are somewhere else than at the beginning."""
_KB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        shared: numbers of users of the runs that ask by situations.
        each: the number of users who are asked one by one.
        turns: that are measured.
    """

    shared: tuple[int, ...]
    each: int
    turns: int


FULL = Plan(shared=(1_000, 10_000, 100_000), each=1_000, turns=5)
QUICK = Plan(shared=(20, 40), each=20, turns=2)


def answer(request: ChatRequest) -> ChatReply | dict[str, str]:
    """Answer with even probabilities, or with the first state that the schema allows."""
    if request.schema is not None:
        return {"next_state": request.schema["properties"]["next_state"]["enum"][0]}
    letters = re.findall(r"^([A-Z]): ", request.messages[-1].content, re.MULTILINE)
    chance = math.log(0.9 / len(letters))
    return ChatReply(text="A", top_logprobs=tuple((letter, chance) for letter in letters))


def play(users: int, turns: int, decide: str | None) -> dict[str, float]:
    """Return what a turn of a run costs."""
    config = SocialConfig(
        population=users,
        seed_posts=25,
        seed=1,
        writer={"kind": "rule"},
        reasoner={"decide": decide},
    )
    client = LLMClient(LLMConfig(model="scripted"), ScriptedBackend(answer))
    client.backend.requests = _Forgetful()  # type: ignore[attr-defined]  # else they fill the memory
    run = SocialSimulation(config, llm_client=client)

    async def steps(count: int) -> None:
        for _ in range(count):
            await run.step()

    asyncio.run(steps(_WARM_UP))
    gc.collect()
    memory, began = _peak_kb(), time.process_time()
    asyncio.run(steps(turns))
    seconds = time.process_time() - began
    played = run.turns[-turns:]
    decided = sum(turn.asked for turn in played)
    calls = sum(len(turn.calls) for turn in played)
    return {
        "decisions": decided / turns,
        "calls": calls / turns,
        "cpu_s": seconds / turns,
        "us_per_user": seconds / turns / users * 1e6,
        "memory_mb": (_peak_kb() - memory) / turns / _KB,
        "peak_mb": _peak_kb() / _KB,
    }


class _Forgetful(list[Any]):
    def append(self, _: Any) -> None:
        """Keep nothing."""


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything; each run has a process of its own, whose peak of memory is its own."""
    runs = [(users, plan.turns, "sample") for users in plan.shared]
    work: list[tuple[int, int, str | None]] = [(plan.each, plan.turns, None), *runs]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        figures = pool.starmap(play, work, chunksize=1)
    return {
        "a_turn": [
            {"users": users, "asked": "by situation" if decide else "each user", **found}
            for (users, _, decide), found in zip(work, figures, strict=True)
        ]
    }


def table(figures: dict[str, Any]) -> Table:
    """Return the figures, a row a run."""
    heads = ["users", "asked", "decisions", "calls", "CPU s", "µs a user", "MB a turn", "peak MB"]
    shown = Table(*heads, title="A turn of the social simulation")
    for row in figures["a_turn"]:
        numbers = [row["decisions"], row["calls"], row["cpu_s"], row["us_per_user"]]
        numbers += [row["memory_mb"], row["peak_mb"]]
        shown.add_row(f"{row['users']:,}", row["asked"], *(f"{number:,.4g}" for number in numbers))
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show them."""
    command(
        arguments,
        doc=__doc__,
        out="choice_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
