"""Play A/A studies: how often does a study find a difference between an arm and the same arm?

``nice python benchmarks/aa.py --out benchmarks/aa.json`` plays 1,000 studies of a fair coin that is
asked for its probabilities (``decide="sample"``), each with ten seeds of its own and
``vary={"replicate": [0, 1]}``, and counts the p-values. They should be uniform.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from command import command
from rich.table import Table
from scipy import stats

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, ScriptedBackend, State
from llmsim_lab.llm import ChatReply
from llmsim_lab.study import Study

__all__ = ["FULL", "QUICK", "Council", "Plan", "main", "measure"]

SEEDS, TURNS = 10, 10
FAIR = (("A", math.log(0.5)), ("B", math.log(0.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many studies are played."""

    studies: int


FULL = Plan(studies=1_000)
QUICK = Plan(studies=3)


class Vote(Reply):
    """One side or the other."""

    side: Literal["raise", "hold"]


class Board(State):
    """What was voted."""

    raised: int = 0


class Council(Run[Board]):
    """One member votes each turn."""

    async def turn(self, state: Board, ask: Ask) -> Board:
        """Ask for a vote, whatever was voted before."""
        vote = await ask("Ann", Vote, "You are {{ name }}.", decide="sample")
        return Board(raised=int(vote.side == "raise"))


def measure(plan: Plan) -> dict[str, Any]:
    """Return how the p-values of studies without any effect are spread."""
    backend = ScriptedBackend(lambda _: ChatReply(text="A", top_logprobs=FAIR))
    coin = LLMClient(LLMConfig(model="coin"), backend)
    found = []
    for number in range(plan.studies):
        seeds = range(number * SEEDS, (number + 1) * SEEDS)
        study = Study(
            Council,
            {"replicate": [0, 1]},
            seeds=seeds,
            turns=TURNS,
            outcome="raised",
            llm_client=coin,
        )
        [effect] = study.run(progress=False).effects()
        found.append(effect.p)
    p = np.array(found)
    tenths, _ = np.histogram(p, bins=10, range=(0, 1))
    return {
        "studies": plan.studies,
        "below .05": round(float((p < 0.05).mean()), 4),
        "in each tenth": tenths.tolist(),
        "chi-square test of uniform tenths, p": round(float(stats.chisquare(tenths).pvalue), 4),
    }


def as_table(figures: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    table = Table("figure", "value", title="A/A studies of a fair coin")
    for name, value in figures.items():
        table.add_row(name, str(value))
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    how: dict[str, Any] = {"measure": measure, "quick": QUICK, "full": FULL, "table": as_table}
    command(arguments, doc=__doc__, out="aa.json", **how)


if __name__ == "__main__":
    main()
