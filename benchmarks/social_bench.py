"""Measure the social simulation without a model: rounds per second, growth, who needs a decision.

``python benchmarks/social_bench.py --out social_bench.json`` plays runs by rule with 500 and with
5,000 users and a long one. CPU is this process's own time, so that other work on the machine hardly
matters; the first rounds, in which everybody is still at the beginning, are left out.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.statechart import SocialConfig, SocialSimulation

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_WARM_UP = 8
"""Rounds after which the shares of states have settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        few: users of the small runs.
        many: users of the large one.
        rounds: of the runs that compare the numbers of users.
        long: rounds of the long run.
    """

    few: int
    many: int
    rounds: int
    long: int


FULL = Plan(few=500, many=5000, rounds=20, long=200)
QUICK = Plan(few=10, many=20, rounds=10, long=20)


async def play(users: int, rounds: int) -> tuple[SocialSimulation, list[float]]:
    """Return a run by rule, and the CPU seconds of each of its rounds after the first few."""
    simulation = SocialSimulation(
        SocialConfig(population=users, seed_posts=25, reasoner={"kind": "rule"}, seed=1)
    )
    times = []
    gc.collect()
    for _ in range(_WARM_UP + rounds):
        began = time.process_time()
        await simulation.step()
        times.append(time.process_time() - began)
    return simulation, times[_WARM_UP:]


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything and return the figures with what is needed to read them."""
    asyncio.run(play(plan.few, 2))
    seconds: dict[str, float] = {}
    shares: dict[str, float] = {}
    for users in (plan.few, plan.many):
        simulation, times = asyncio.run(play(users, plan.rounds))
        seconds[str(users)] = median(times)
        turns = simulation.turns[_WARM_UP + 1 :]
        asked = sum(turn.asked for turn in turns)
        shares[str(users)] = round(asked / sum(len(turn.moves) for turn in turns), 3)
    _, times = asyncio.run(play(plan.few, plan.long))
    tenth = max(1, plan.long // 10)
    few, many = seconds[str(plan.few)], seconds[str(plan.many)]
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "rounds_per_cpu_second": {users: round(1 / value, 1) for users, value in seconds.items()},
        "us_per_user_round": {
            users: round(value / int(users) * 1e6, 1) for users, value in seconds.items()
        },
        "growth_with_users": round(many / few / (plan.many / plan.few), 2),
        "growth_with_rounds": round(median(times[-tenth:]) / median(times[:tenth]), 2),
        "share_of_moves_that_need_a_decision": shares,
    }


def table(figures: dict[str, Any]) -> Table:
    """Return the main figures beside what they should be."""
    shown = Table("figure", "measured", "target", title="The social simulation by rule")
    for users, rate in figures["rounds_per_cpu_second"].items():
        micros = figures["us_per_user_round"][users]
        shown.add_row(f"rounds per CPU second, {users} users", f"{rate} ({micros} µs a user)", "")
    shown.add_row(
        "cost per user, many users against few",
        str(figures["growth_with_users"]),
        "<= 1.3",
    )
    shown.add_row(
        "cost per round, last tenth of the rounds against the first",
        str(figures["growth_with_rounds"]),
        "<= 1.1",
    )
    for users, share in figures["share_of_moves_that_need_a_decision"].items():
        shown.add_row(f"moves that need a decision, {users} users", f"{share:.1%}", "")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the figures as JSON and show the main ones."""
    command(
        arguments,
        doc=__doc__,
        out="social_bench.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=table,
    )


if __name__ == "__main__":
    main()
