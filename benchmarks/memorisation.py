"""Measure how often ``memorisation`` flags players of whom it is known whether they recall history.

``python benchmarks/memorisation.py --out memorisation.json`` lets each answer the five ways of
asking at twenty starts, with other starts and twins in each replication. Those who recall should be
flagged, the others in 5 % of replications at most. All of it follows from the replication number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.economy import TaylorRule, load_us_macro
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.simulation._config import MOVES_BP
from llmsim_lab.study import memorisation
from llmsim_lab.study._memory import next_moves
from llmsim_lab.types import ChatRequest

__all__ = ["FULL", "QUICK", "Plan", "main", "measure", "recalls_dates", "recalls_figures"]

STARTS = 20
_MOVES = sorted({*MOVES_BP, *(-move for move in MOVES_BP)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        replications: of each player.
    """

    replications: int


FULL = Plan(replications=400)
QUICK = Plan(replications=5)

Answer = Callable[[ChatRequest], dict[str, Any]]


def scripted(answer: Answer) -> LLMClient:
    """Return a client that answers by a function of the request."""
    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(answer))


def _says(move: float) -> dict[str, Any]:
    return {
        "reasoning": "As I remember it.",
        "rate_change_bp": min(_MOVES, key=lambda one: abs(one - move)),
        "action": "Set the interest rate",
        "confidence": 1.0,
    }


def _rows(prompt: str) -> list[list[str]]:
    """Return the cells of a briefing's table; the first is the quarter's name."""
    return [line.split(" | ") for line in prompt.splitlines() if " | " in line]


def recalls_dates(request: ChatRequest) -> dict[str, Any]:
    """Answer what was done after the latest date in the prompt; without one, hold."""
    return _says(next_moves().get(_rows(request.prompt)[-1][0], 0.0))


@cache
def _by_figures() -> dict[tuple[str, ...], float]:
    table = load_us_macro()
    return {
        tuple(f"{row[name]:.2f}" for name in ("inflation", "unemployment", "interest_rate")): move
        for (_, row), move in zip(table.iterrows(), next_moves().values(), strict=True)
    }


def recalls_figures(request: ChatRequest) -> dict[str, Any]:
    """Answer what was done after a quarter with the latest figures in the prompt; else hold."""
    _, inflation, _, _, unemployment, rate, _ = _rows(request.prompt)[-1]
    return _says(_by_figures().get((inflation, unemployment, rate), 0.0))


def recalls_half(request: ChatRequest) -> dict[str, Any]:
    """Recall the dates of every other year; otherwise hold."""
    last = _rows(request.prompt)[-1][0]
    known = re.fullmatch(r"\d{3}[02468]Q\d", last)
    return recalls_dates(request) if known else _says(0)


def draws(seed: int) -> Answer:
    """Return an answer at random, anew for each question."""
    rng = random.Random(seed)
    return lambda request: _says(rng.choice(_MOVES))


def hold(*, inflation: float, output_gap: float, previous_rate: float) -> float:
    """Return the rate in force."""
    del inflation, output_gap
    return previous_rate


PLAYERS: dict[str, Callable[[int], Any]] = {
    "recalls dates": lambda _: scripted(recalls_dates),
    "recalls figures": lambda _: scripted(recalls_figures),
    "recalls the dates of every other year": lambda _: scripted(recalls_half),
    "Taylor rule": lambda _: TaylorRule(),
    "Taylor rule, inertia 0.8": lambda _: TaylorRule(inertia=0.8),
    "holds": lambda _: hold,
    "draws at random": lambda seed: scripted(draws(seed)),
}


def measure(plan: Plan) -> dict[str, Any]:
    """Return how often each player is flagged.

    Args:
        plan: how much to measure.
    """
    rows = []
    for name, player in PLAYERS.items():
        flags = 0
        for seed in range(plan.replications):
            flags += memorisation(player(seed), starts=STARTS, seed=seed, progress=False).flagged
        rows.append({"player": name, "flagged": flags / plan.replications})
    return {"starts": STARTS, "replications": plan.replications, "cells": rows}


def shown(figures: dict[str, Any]) -> Table:
    """Return the cells as a table."""
    title = f"{figures['replications']:,} replications of {figures['starts']} starts"
    table = Table("player", "flagged", title=title)
    for row in figures["cells"]:
        table.add_row(row["player"], f"{row['flagged']:.3f}")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    command(
        arguments,
        doc=__doc__,
        out="memorisation.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=shown,
    )


if __name__ == "__main__":
    main()
