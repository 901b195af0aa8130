"""Measure the economic gate's intervals: how often each contains the true value, and who passes.

``python benchmarks/coverage_gate.py --out coverage_gate.json`` draws, from a pool of situations
made as the gate's are, as many pairs as the gate has, lets players of known behaviour answer, and
counts. The true value of an interval is that of the whole pool. The players have noise of their
own, which a situation and its mirror partly share. Everything follows from one seed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import erf, inf, isfinite, sqrt
from statistics import fmean
from typing import Any

from command import command
from rich.table import Table

from llmsim_lab.study import _gate
from llmsim_lab.study._gate import Criterion, GateAnswer, Situation

__all__ = ["FULL", "QUICK", "Plan", "main", "measure"]

_SEED = 17
_MOVES = _gate.GATE_MOVES_BP


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        pool: pairs of situations that replications draw from.
        replications: of each cell.
    """

    pool: int
    replications: int


FULL = Plan(pool=400, replications=1_000)
QUICK = Plan(pool=60, replications=20)

Player = Callable[[Situation, float, float], dict[int, float]]
"""Takes a situation, and noise of the pair and of the situation; returns the moves' chances."""


def around(wanted: float, *, spread: float) -> dict[int, float]:
    """Return the chance of each move: that of being the nearest one to a normal variable."""
    ends = [-inf, *((a + b) / 200 for a, b in pairwise(_MOVES)), inf]

    def below(end: float) -> float:
        if not isfinite(end):
            return float(end > 0)
        return 0.5 * (1 + erf((end - wanted) / spread / sqrt(2)))

    return {
        move: below(high) - below(low)
        for move, (low, high) in zip(_MOVES, pairwise(ends), strict=True)
    }


def follows(weight: float, *, noise: float, spread: float) -> Player:
    """Return a player who wants a share of the Taylor move, with noise."""

    def play(one: Situation, shared: float, own: float) -> dict[int, float]:
        return around(weight * one.move + noise * (0.6 * shared + 0.8 * own), spread=spread)

    return play


def mixed(right: float) -> Player:
    """Return a player who gets this share of directions right, pairs differing."""

    def play(one: Situation, shared: float, own: float) -> dict[int, float]:
        cut = _normal_quantile(right)
        good = 0.6 * shared + 0.8 * own < cut
        size = 75 if (one.move > 0) == good else -75
        return {move: float(move == size) for move in _MOVES}

    return play


def _normal_quantile(chance: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(chance)


PLAYERS: dict[str, Player] = {
    "Taylor rule": follows(1.0, noise=0.0, spread=0.01),
    "Taylor rule, inertia 0.8": follows(0.2, noise=0.0, spread=0.01),
    "Taylor rule with noise": follows(1.0, noise=1.0, spread=0.5),
    "a fifth of it with noise": follows(0.2, noise=0.5, spread=0.5),
    "a third of it, drawn widely": follows(0.33, noise=0.0, spread=0.8),
    "right in 0.80": mixed(0.8),
    "right in 0.90": mixed(0.9),
    "right in 0.97": mixed(0.97),
    "draws at random": lambda *_: dict.fromkeys(_MOVES, 1 / len(_MOVES)),
}


def answer(player: Player, one: Situation, shared: float, rng: random.Random) -> GateAnswer:
    """Return what a player answers, in two orders that differ a little."""
    own = rng.gauss(0, 1)
    orders = tuple(player(one, shared, own + 0.1 * rng.gauss(0, 1)) for _ in range(2))
    chances = {move: fmean(order[move] for order in orders) for move in _MOVES}
    return GateAnswer(chances=chances, orders=orders, mass=1.0, method="script")


def asked_of(
    player: Player, pairs: Sequence[tuple[Situation, Situation]], rng: random.Random
) -> list[tuple[Situation, GateAnswer]]:
    """Return a player's answers; a pair that is drawn twice counts as two."""
    found = []
    for place, pair in enumerate(pairs):
        shared = rng.gauss(0, 1)
        for one in pair:
            named = replace(one, pair=f"{'AB'[place % 2]}{place}")
            found.append((named, answer(player, one, shared, rng)))
    return found


def measure(plan: Plan) -> dict[str, Any]:
    """Return, for each player and criterion, coverage and how often it passes or fails."""
    rng = random.Random(_SEED)
    both = _gate.drawn_situations(rng, "P", plan.pool)
    pool = list(zip(both[::2], both[1::2], strict=True))
    rows = []
    for name, player in PLAYERS.items():
        # Noise is drawn anew several times, so that the true value is of the noise's mean.
        whole = asked_of(player, pool * 4, rng)
        judge = (_gate.direction, _gate.response, _gate.state)
        truth = {one.name: one.value for one in (check(whole, "sample") for check in judge)}
        counts: dict[str, list[Criterion]] = defaultdict(list)
        for _ in range(plan.replications):
            asked = asked_of(player, rng.choices(pool, k=2 * _gate.PAIRS), rng)
            for check in judge:
                one = check(asked, "sample")
                counts[one.name].append(one)
        for criterion, found in counts.items():
            true = truth[criterion]
            rows.append({"player": name, "criterion": criterion, "true": true} | _row(found, true))
    rows += _names(plan, rng)
    return {"pool": plan.pool, "replications": plan.replications, "cells": rows}


def _row(found: Sequence[Criterion], true: float | None) -> dict[str, Any]:
    """Return a cell's counts; an interval without bounds contains everything."""
    inside = None
    if true is not None:
        inside = fmean(
            (one.low is None or one.low <= true + 1e-9)
            and (one.high is None or one.high >= true - 1e-9)
            for one in found
        )
    shares = {
        verdict: fmean(one.verdict == verdict for one in found)
        for verdict in ("pass", "fail", "undecided")
    }
    return {"coverage": inside} | shares


def _names(plan: Plan, rng: random.Random) -> list[dict[str, Any]]:
    """Return the cells of changes with names: many small ones, and a large one now and then."""
    both = _gate.drawn_situations(rng, "P", _gate.NAMED_PAIRS)
    cells: dict[str, Callable[[], float]] = {
        "changes by 10 in the mean": lambda: abs(rng.gauss(0, 12.533)),
        "by 100 in one of ten": lambda: 100.0 * (rng.random() < 0.1),
        "by 20 in the mean": lambda: abs(rng.gauss(0, 25.066)),
    }
    true = {
        "changes by 10 in the mean": 10.0,
        "by 100 in one of ten": 10.0,
        "by 20 in the mean": 20.0,
    }
    rows = []
    for name, change in cells.items():
        found = []
        for _ in range(plan.replications):
            asked, named = [], {}
            for one in both:
                by = change() / 400
                asked.append((one, GateAnswer(chances={-200: 0.5, 200: 0.5})))
                named[one.name] = GateAnswer(chances={-200: 0.5 - by, 200: 0.5 + by})
            found.append(_gate.names(asked, named, "sample"))
        rows.append(
            {"player": name, "criterion": "names", "true": true[name]} | _row(found, true[name])
        )
    return rows


def shown(figures: dict[str, Any]) -> Table:
    """Return the cells as a table."""
    heads = ("player", "criterion", "true", "coverage", "pass", "fail", "undecided")
    table = Table(*heads, title=f"{figures['replications']:,} replications")
    for row in figures["cells"]:
        cells = ["" if row[head] is None else f"{row[head]:.3f}" for head in heads[2:]]
        table.add_row(row["player"], row["criterion"], *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    command(
        arguments,
        doc=__doc__,
        out="coverage_gate.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=shown,
    )


if __name__ == "__main__":
    main()
