"""How often intervals of a tournament's scores hold the true score: ``docs/lessons.md``.

Nine strategies play the repeated prisoner's dilemma. As in a run, what a seat draws follows from
seed and turn alone, so that matches of one seed share their luck. Takes a minute.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Bits = NDArray[np.bool_]
Numbers = NDArray[np.float64]

ROUNDS = 50
TOURNAMENTS = 4_000
TRUTH_SEEDS = 40_000


def returns(own: Bits, other: Bits, turn: int, luck: Numbers) -> Bits:
    """Begin with cooperating, then do what the other did."""
    return np.ones(len(luck), bool) if turn == 0 else other[:, turn - 1]


def grudges(own: Bits, other: Bits, turn: int, luck: Numbers) -> Bits:
    """Cooperate until the other defects."""
    return other[:, :turn].all(1)


STRATEGIES = {
    "returns": returns,
    "defects": lambda own, other, turn, luck: np.zeros(len(luck), bool),
    "cooperates": lambda own, other, turn, luck: np.ones(len(luck), bool),
    "returns, defects in .1": lambda *seen: returns(*seen) & (seen[3] >= 0.1),
    "half": lambda own, other, turn, luck: luck < 0.5,
    "cooperates in .9": lambda own, other, turn, luck: luck < 0.9,
    "returns, forgives .3": lambda *seen: returns(*seen) | (seen[3] < 0.3),
    "grudges": grudges,
    "grudges, slips in .01": lambda *seen: grudges(*seen) & (seen[3] >= 0.01),
}


def scores(seeds: int, rng: np.random.Generator) -> Numbers:
    """Return points a round: player x opponent x seed; NaN against itself."""
    luck = rng.random((2, seeds, ROUNDS))
    players = list(STRATEGIES.values())
    points = np.full((len(players), len(players), seeds), np.nan)
    for first in range(len(players)):
        for second in range(first + 1, len(players)):
            moves = np.zeros((2, seeds, ROUNDS), bool)
            for turn in range(ROUNDS):
                seen = luck[:, :, turn]
                one = players[first](moves[0], moves[1], turn, seen[0])
                other = players[second](moves[1], moves[0], turn, seen[1])
                moves[:, :, turn] = one, other
            for place, (own, theirs) in enumerate((moves, moves[::-1])):
                pair = (first, second) if place == 0 else (second, first)
                earned = np.where(own, 3.0 * theirs, np.where(theirs, 5.0, 1.0))
                points[pair] = earned.mean(1)
    return points


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def holds(values: Numbers, truth: float) -> float:
    """Return how often Student's 95 % interval of the last axis' mean holds the truth."""
    n = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(n)
    reach = stats.t.ppf(0.975, n - 1) * error
    return float((np.abs(values.mean(-1) - truth) <= reach).mean())


def main() -> None:
    """Print how often intervals hold the truth, by strategy and unit."""
    rng = np.random.default_rng(20261129)
    truth = np.nanmean(scores(TRUTH_SEEDS, rng), axis=(1, 2))
    best = int(truth.argmax())
    for seeds in (5, 20):
        points = scores(seeds * TOURNAMENTS, rng)
        points = points.reshape(*points.shape[:2], TOURNAMENTS, seeds)
        by_seed = np.nanmean(points, axis=1)
        say(f"{seeds} seeds: unit seed, unit match, difference from the first by seed")
        for place, name in enumerate(STRATEGIES):
            against = np.delete(points[place], place, axis=0)
            matches = against.transpose(1, 0, 2).reshape(TOURNAMENTS, -1)
            behind = ""
            if place != best:
                difference = by_seed[place] - by_seed[best]
                behind = f"{holds(difference, truth[place] - truth[best]):.3f}"
            of_seeds = holds(by_seed[place], truth[place])
            say(f"{name:24} {of_seeds:.3f} {holds(matches, truth[place]):.3f} {behind}")


if __name__ == "__main__":
    main()
