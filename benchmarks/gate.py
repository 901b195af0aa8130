"""Measure the economic gate's error rates: how often do players of known behaviour pass and fail?

``nice python benchmarks/gate.py --out benchmarks/gate.json`` lets each player answer 500 cards, one
whose response is exactly one for one 2,000, and judges them as the gate does: 24 pairs of
situations, 12 of them again with names, then as many again where these do not decide. Each card
draws its pairs from 4,800 situations, which are those of 100 cards of the gate. Of the first 100
cards it is counted, too, whether they say that the player stabilises the economy.

Then the demonstration: as many recordings of a model that draws its moves, whatever the economy
does; each player is judged by what it would do in their quarters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import inf
from typing import Any
from zlib import crc32

import numpy as np
from command import command
from numpy.typing import NDArray
from rich.table import Table

from llmsim_lab import data_path, load
from llmsim_lab.economy import RudebuschSvensson, TaylorRule, initial_state, response_of
from llmsim_lab.economy.macro import DEMAND_STD, STEADY_STATE, SUPPLY_STD
from llmsim_lab.economy.response import PolicyResponse
from llmsim_lab.simulation.demonstration import FAR
from llmsim_lab.simulation.gate import (
    DRAWS,
    GATE_MOVES_BP,
    NAMED,
    NAMES,
    PAIRS,
    room_at,
    situations,
)

__all__ = ["FULL", "PLAYERS", "QUICK", "Plan", "main", "measure", "pool"]

SEED = 20_380_000
"""Of the pool's cards, one after the other; no gate was designed with them."""
MOVES = np.array(sorted(GATE_MOVES_BP, key=abs)) / 100
"""Of two moves that are equally near the smaller is first."""
DEMO, SEEDS = load(data_path("tapes/demo.tape.gz"), 1).config, 8
"""How the demonstration was recorded, and for how many seeds."""
CALLS = 2 * (PAIRS + NAMED) * len(GATE_MOVES_BP)

Numbers = NDArray[np.float64]
Player = Callable[[Numbers, "int | None", np.random.Generator], Numbers]
"""Takes deviations of inflation, output gap and rate, which name is told, and random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        cards: of each player.
        null_cards: of the one whose response is exactly one for one.
        roots: of how many of them the largest root is told, which takes longer.
        pool: of how many cards the situations are.
    """

    cards: int
    null_cards: int
    roots: int
    pool: int


QUICK = Plan(cards=5, null_cards=5, roots=2, pool=2)
FULL = Plan(cards=500, null_cards=2_000, roots=100, pool=100)


def pool(cards: int, target: float = 2.0) -> Numbers:
    """Return the situations of so many cards: inflation, output gap and rate as deviations."""
    rest, room = STEADY_STATE, room_at(target)
    latest = (path[-1] for seed in range(SEED, SEED + cards) for path in situations(seed, room))
    return np.array(
        [
            (it.inflation - rest.inflation, it.output_gap, it.interest_rate - rest.interest_rate)
            for it in latest
        ]
    )


# --- players --------------------------------------------------------------------------------------


def nearest(wanted: Numbers) -> Numbers:
    """Return the moves on offer that are nearest."""
    return MOVES[np.abs(wanted[:, None] - MOVES).round(9).argmin(1)]


def rule(
    inertia: float, inflation: float = 1.5, gap: float = 0.5, *, always: float = 0.0
) -> Player:
    """Return a Taylor rule on the moves on offer, with something that it always adds."""
    slopes = (1 - inertia) * np.array([inflation, gap, -1])
    return lambda x, name, rng: nearest(x @ slopes + always)


def aiming(
    target: float, inertia: float, neutral: float = 2.0, *, told: float | None = None
) -> Player:
    """Return a Taylor rule with a target; it is told the same, or another."""
    mandate = target if told is None else told
    bank = TaylorRule(
        inflation_target=target, inertia=inertia, neutral_real_rate=neutral, lower_bound=-inf
    )

    def player(x: Numbers, name: int | None, rng: np.random.Generator) -> Numbers:
        inflation, gap, rate = (x + np.array([mandate, 0.0, mandate + 2.0])).T
        asked = [
            bank.rate(inflation=p, output_gap=y, previous_rate=i)
            for p, y, i in zip(inflation, gap, rate, strict=True)
        ]
        return nearest(np.array(asked) - rate)

    return player


def soft(inertia: float, spread: float, draws: int = 0) -> Player:
    """Return a rule that is unsure: the mean of its probabilities, or of draws from them."""
    slopes = (1 - inertia) * np.array([1.5, 0.5, -1])

    def player(x: Numbers, name: int | None, rng: np.random.Generator) -> Numbers:
        chances = np.exp(-np.abs((x @ slopes)[:, None] - MOVES) / spread)
        chances /= chances.sum(1, keepdims=True)
        if not draws:
            return chances @ MOVES
        drawn = rng.random((draws, len(x), 1)) > chances.cumsum(1)
        return MOVES[drawn.sum(2).clip(0, len(MOVES) - 1)].mean(0)

    return player


def at_random(draws: int) -> Player:
    """Return the mean of draws, each move equally likely."""
    return lambda x, name, rng: rng.choice(MOVES, (draws, len(x))).mean(0)


def sometimes(share: float, usual: Player, other: Player) -> Player:
    """Return a player that is another in some of its draws; the mean of ten."""

    def player(x: Numbers, name: int | None, rng: np.random.Generator) -> Numbers:
        first, second = usual(x, name, rng), np.stack([other(x, name, rng) for _ in range(DRAWS)])
        return np.where(rng.random(second.shape) < share, first, second).mean(0)

    return player


def by_name(usual: Player, size: float) -> Player:
    """Return a player that raises for one name and cuts for the other."""

    def player(x: Numbers, name: int | None, rng: np.random.Generator) -> Numbers:
        moves = usual(x, name, rng)
        return moves if name is None else nearest(moves + (size if name == 0 else -size))

    return player


def by_side(x: Numbers, name: int | None, rng: np.random.Generator) -> Numbers:
    """Raise by 25 basis points above the target, and cut by as much below it."""
    return np.where(x[:, 0] > 0, 0.25, -0.25)


HOLD = rule(1.0)
LOW_TARGET = 1.0
"""Its rates are nearer to the lower bound, so that its situations are others."""
NULL = "long run exactly 1, inertia .8"
PLAYERS: Mapping[str, tuple[Player, str]] = {
    "Taylor rule": (rule(0), "passes"),
    "Taylor rule, inertia .5": (rule(0.5), "passes"),
    "Taylor rule, inertia .8": (rule(0.8), "passes"),
    "Taylor rule, inertia .9": (rule(0.9), "passes"),
    "Taylor rule, inertia .95": (rule(0.95), ""),
    **{
        f"target {target:g}, inertia {inertia:g}": (aiming(target, inertia), "passes")
        for target in (LOW_TARGET, 2.0, 3.0)
        for inertia in (0.0, 0.5, 0.85)
    },
    **{
        f"neutral rate {neutral:g}, inertia {inertia:g}": (aiming(2, inertia, neutral), "fails")
        for neutral in (1.5, 2.5)
        for inertia in (0.0, 0.5, 0.85)
    },
    "aims at 3, told 2, inertia .5": (aiming(3, 0.5, told=2), "fails"),
    "25 up or down by inflation's side": (by_side, ""),
    "4 for inflation, 3 for the gap": (rule(0, 4, 3), ""),
    "inflation alone, inertia .8": (rule(0.8, gap=0), ""),
    "twice the gap, inertia .8": (rule(0.8, gap=1), ""),
    NULL: (rule(0.8, 1.0), "at the limit"),
    "long run .8, inertia .8": (rule(0.8, 0.8), "fails"),
    "long run .8": (rule(0, 0.8), "fails"),
    "long run .5, inertia .8": (rule(0.8, 0.5), "fails"),
    "the gap's sign flipped, inertia .8": (rule(0.8, gap=-0.5), ""),
    "equal probabilities": (lambda x, name, rng: np.full(len(x), MOVES.mean()), "fails"),
    "no change": (HOLD, "fails"),
    "always +75": (rule(1.0, always=0.75), "fails"),
    "always +25": (rule(1.0, always=0.25), "fails"),
    "all signs flipped": (lambda x, name, rng: rule(0)(-x, name, rng), "fails"),
    "by name, 75": (by_name(HOLD, 0.75), "fails"),
    "inertia .8, and 75 by name": (by_name(rule(0.8), 0.75), "fails"),
    "inertia .8, and 25 by name": (by_name(rule(0.8), 0.25), ""),
    "inertia .8, and always +25": (rule(0.8, always=0.25), ""),
    "inertia .8, and always +75": (rule(0.8, always=0.75), "fails"),
    "random moves, one draw": (at_random(1), "never passes"),
    "random moves, ten draws": (at_random(DRAWS), "never passes"),
    "inertia .5 in .9 of ten draws": (sometimes(0.9, rule(0.5), at_random(1)), ""),
    "inertia .5 in .7 of ten draws": (sometimes(0.7, rule(0.5), at_random(1)), ""),
    "unsure, inertia .5: probabilities": (soft(0.5, 0.5), ""),
    "unsure, inertia .5: ten draws": (soft(0.5, 0.5, DRAWS), ""),
    "unsure, inertia .5: one draw": (soft(0.5, 0.5, 1), ""),
    "unsure, inertia .8: probabilities": (soft(0.8, 0.25), ""),
    "unsure, inertia .8: ten draws": (soft(0.8, 0.25, DRAWS), ""),
    "unsure, inertia .9: ten draws": (soft(0.9, 0.25, DRAWS), ""),
}
"""By name: what it does, and what the gate has to say of it, if anything."""


# --- measuring ------------------------------------------------------------------------------------


def judged(player: Player, x: Numbers, rng: np.random.Generator) -> tuple[PolicyResponse, int]:
    """Return what the gate finds of a player in 48 pairs, and in how many looks."""
    pairs = np.arange(len(x))
    plain, turned = player(x, None, rng), player(-x, None, rng)
    changes = np.stack(
        [
            (player(x, name, rng) + player(-x, name, rng) - plain - turned) / 2
            for name in range(len(NAMES))
        ]
    )
    for looks in (1, 2):
        first = pairs[: PAIRS * looks]
        again = first[first % PAIRS < NAMED]
        names = {
            name: changes[at, again[again % len(NAMES) == at]] for at, name in enumerate(NAMES)
        }
        found = response_of(
            np.concatenate([x[first], -x[first]]),
            np.concatenate([plain[first], turned[first]]),
            groups=np.tile(first, 2),
            names=names,
        )
        if found.outcome != "undecided":
            break
    return found, looks


def measure_player(
    name: str, cards: int, situation_pool: Numbers, *, roots: int = 0
) -> dict[str, Any]:
    """Return how often a player passes and fails, and how much has to be asked for it."""
    player, wanted = PLAYERS[name]
    rng = np.random.default_rng([SEED, crc32(name.encode())])
    outcomes, looks, failed = Counter[str](), Counter[int](), Counter[str]()
    stable = Counter[str]()
    for card in range(cards):
        drawn = rng.choice(len(situation_pool), 2 * PAIRS, replace=False)
        found, looked = judged(player, situation_pool[drawn], rng)
        outcomes[found.outcome] += 1
        looks[looked] += 1
        failed.update(it.name for it in found.criteria if it.verdict == "fail")
        if card < roots and found.largest_root is not None:
            stable[found.stability.partition(" this economy")[0]] += 1
    shares = {it: round(outcomes[it] / cards, 4) for it in ("pass", "fail", "undecided")}
    return {
        "player": name,
        "wanted": wanted,
        "cards": cards,
        **shares,
        "second_stage": round(looks[2] / cards, 4),
        "mean_calls": round(CALLS * (1 + looks[2] / cards)),
        "as_wanted": as_wanted(wanted, **shares),
        "fails_by": {name: round(count / cards, 4) for name, count in failed.most_common()},
        "says": {words: round(count / roots, 4) for words, count in stable.most_common()},
    }


def recordings(count: int, rng: np.random.Generator) -> Numbers:
    """Return the quarters of recordings of one who draws: a row each of inflation, gap and rate.

    Returns:
        Deviations; recordings, both worlds, quarters, seeds, the three.
    """
    rest, width, model = STEADY_STATE, count * SEEDS, RudebuschSvensson()
    inflation, gap, rates = map(np.array, astuple(initial_state(DEMO.start_at).global_state.lags))
    hits = rng.standard_normal((2, DEMO.turns, width))
    supply, demand = hits[0] * SUPPLY_STD, hits[1] * DEMAND_STD
    low, high = -rest.interest_rate, 25 - rest.interest_rate
    worlds = []
    for sign in (1, -1):
        p, y, i = (
            sign * np.repeat(start[:, None], width, axis=1)
            for start in (inflation - rest.inflation, gap, rates - rest.interest_rate)
        )
        quarters = []
        for turn in range(DEMO.turns):
            quarters.append(np.stack([p.mean(0), y[0], i[0]], axis=-1))
            after = np.clip(i[0] + rng.choice(MOVES, width), low, high)
            prices = model.inflation_lags @ p + model.gap_to_inflation * y[0]
            output = model.gap_lags @ y - model.real_rate_to_gap * (i.mean(0) - p.mean(0))
            p = np.vstack([prices + sign * supply[turn], p[:3]])
            y = np.vstack([output + sign * demand[turn], y[:1]])
            i = np.vstack([after, i[:3]])
        worlds.append(np.stack(quarters))
    whole = np.stack(worlds).reshape(2, DEMO.turns, count, SEEDS, 3)
    return whole.transpose(2, 0, 1, 3, 4)


def measure_recorded(name: str, recorded: Numbers) -> dict[str, Any]:
    """Return how often the demonstration passes and fails a player."""
    player, wanted = PLAYERS[name]
    rng = np.random.default_rng([SEED + 1, crc32(name.encode())])
    seeds = np.broadcast_to(np.arange(SEEDS), recorded.shape[1:-1]).ravel()
    outcomes = Counter[str]()
    for quarters in recorded.reshape(len(recorded), -1, 3):
        asked, rate = quarters @ [1.5, 0.5, 0], quarters[:, 2]
        free = (np.abs(asked) <= STEADY_STATE.interest_rate) & (np.abs(asked - rate) <= FAR)
        there = quarters[free]
        outcomes[response_of(there, player(there, None, rng), groups=seeds[free]).outcome] += 1
    shares = {it: round(outcomes[it] / len(recorded), 4) for it in ("pass", "fail", "undecided")}
    return {"player": name, "wanted": wanted, "recordings": len(recorded), **shares}


def as_wanted(wanted: str, **shares: float) -> bool | None:
    """Return whether shares are what a player's has to be; None where nothing is said of it."""
    passes, fails = shares["pass"], shares["fail"]
    return {
        "passes": passes >= 0.95,
        "at the limit": passes <= 0.06,
        "fails": passes <= 0.01 and fails >= 0.8,
        "never passes": passes == 0,
    }.get(wanted)


def measure(plan: Plan) -> dict[str, Any]:
    """Return all players' figures."""
    situation_pool, low_pool = pool(plan.pool), pool(plan.pool, LOW_TARGET)
    rows = []
    for name in PLAYERS:
        cards = plan.null_cards if name == NULL else plan.cards
        own_pool = low_pool if name.startswith(f"target {LOW_TARGET:g},") else situation_pool
        rows.append(measure_player(name, cards, own_pool, roots=plan.roots))
    recorded = recordings(plan.cards, np.random.default_rng([SEED, 1]))
    # The recording's target is 2, and no name is told in it.
    judged_there = [it for it in PLAYERS if "by name" not in it and not it.startswith("target")]
    shown = [measure_recorded(name, recorded) for name in judged_there]
    figures = {"seed": SEED, "situations": len(situation_pool), "players": rows}
    return {**figures, "demonstrations": shown}


def as_table(figures: Mapping[str, Any]) -> Table:
    """Return the players as a table."""
    titles = ("player", "wanted", "pass", "fail", "undecided", "48 pairs", "calls", "as wanted")
    titles += ("stabilises", "does not")
    table = Table(*titles, title=f"{figures['situations']:,} situations")
    for row in figures["players"]:
        shares = [f"{row[it]:.3f}" for it in ("pass", "fail", "undecided", "second_stage")]
        said = {True: "yes", False: "NO", None: ""}[row["as_wanted"]]
        stable = [
            f"{row['says'].get(it, 0):.2f}" for it in ("It stabilises", "It does not stabilise")
        ]
        table.add_row(
            row["player"], row["wanted"], *shares, f"{row['mean_calls']:,}", said, *stable
        )
    table.add_section()
    for row in figures["demonstrations"]:
        shares = [f"{row[it]:.3f}" for it in ("pass", "fail", "undecided")]
        table.add_row(f"{row['player']}, demonstration", "", *shares)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    how: dict[str, Any] = {"measure": measure, "quick": QUICK, "full": FULL, "table": as_table}
    command(arguments, doc=__doc__, out="gate.json", **how)


if __name__ == "__main__":
    main()
