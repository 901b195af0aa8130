"""Pairs of runs with the same seed: the typical difference, which few extreme runs do not move."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, known
from llmsim_lab.study.estimates.pairs import pairs_of
from llmsim_lab.study.estimates.parts import Parts, Sample
from llmsim_lab.study.estimates.student import ALL_EQUAL, ALL_ZERO, NO_VALUES


def typical_difference(sample: Sample, level: float) -> Parts:
    """Return the pseudo-median of the differences of runs with the same seed.

    That is the median of the means of all two differences, and of each with itself (Hodges and
    Lehmann 1963, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34;
    the means: Walsh 1949, the same journal, 20). It is no difference of medians. The interval ends
    at the k-th smallest and k-th largest of these means and holds at least at its level, whatever
    the distribution, if it is symmetric around the pseudo-median; p is that of all sign flips of
    the differences' ranks (Wilcoxon 1945, Biometrics Bulletin 1).
    """
    pairs = pairs_of(sample)
    differences = known(pairs.differences)
    n = len(differences)
    parts = Parts(
        kind="typical difference",
        n=n,
        notes=pairs.notes,
    )
    if not n:
        return parts.with_note(NO_VALUES)
    means = walsh_averages(differences)
    value = float(np.median(means))
    parts = replace(
        parts,
        value=value,
        method="Hodges-Lehmann",
    )
    if n < 2:
        return parts.with_note("one run: an interval takes several runs, not situations")
    # The means are in order.
    spread = means[-1] - means[0]
    largest = np.abs(means).max()
    if spread <= ROUNDING * largest:
        return parts.with_note(ALL_EQUAL if value else ALL_ZERO)
    ranks = signed_ranks(pairs.differences)
    parts = replace(
        parts,
        method="Hodges-Lehmann, Walsh averages, flips of ranks",
        p=signed_rank_p(known(ranks)),
        p_beyond=partial(typical_p_beyond, differences),
        # Of the ranks, so that the family's flips are those of this p-value.
        pairs=ranks,
    )
    interval = walsh_interval(means, n, level)
    if interval is None:
        needed = fewest_runs(level)
        return parts.with_note(f"{n} runs: at a level of {level:g} this interval takes {needed}")
    return replace(parts, interval=interval)


def walsh_averages(differences: Numbers) -> Numbers:
    """Return the means of all two differences, and of each with itself, in order."""
    # The places of a triangle name each two once, and each with itself.
    first, second = np.triu_indices(len(differences))
    sums = differences[first] + differences[second]
    return np.sort(sums / 2)


def walsh_interval(
    means: Numbers,
    n: int,
    level: float,
) -> Interval | None:
    """Return the interval of the pseudo-median; None where n is too small for the level."""
    ranks = np.arange(1, n + 1)
    at_most = np.cumsum(rank_sum_law(ranks))
    # Of n pairs, W is at most k - 1 with a probability of up to half of what is left to err.
    half_error = (1 - level) / 2
    k = int(
        np.searchsorted(
            at_most,
            half_error,
            side="right",
        )
    )
    if k == 0:
        return None
    lowest = float(means[k - 1])
    highest = float(means[-k])
    return Interval(lowest, highest)


def fewest_runs(level: float) -> int:
    """Return with how many runs an interval of this level begins: 2 / 2^n may err."""
    n = 1 - np.log2(1 - level)
    return int(np.ceil(n))


def rank_sum_law(ranks: Numbers | NDArray[np.int64]) -> Numbers:
    """Return how probable each sum of ranks is where each counts or not by a coin.

    Args:
        ranks: whole numbers.
    """
    # Not scipy's, whose wilcoxon has the exact law for untied ranks alone.
    largest_sum = int(ranks.sum())
    law = np.zeros(largest_sum + 1)
    law[0] = 1.0
    for rank in ranks.astype(int):
        # Half of the time the rank counts, and the sum is larger by it.
        with_rank = law[: len(law) - rank]
        summed = law.copy()
        summed[rank:] += with_rank
        law = summed / 2
    return law


def signed_ranks(differences: Numbers) -> Numbers:
    """Return the rank of each difference's size, with its sign; NaN stays.

    Equal sizes share their mean rank, and zeros are 0 but have ranks (Pratt 1959, Journal of the
    American Statistical Association 54).
    """
    sizes = np.abs(known(differences))
    _, place, count = np.unique(
        sizes,
        return_inverse=True,
        return_counts=True,
    )
    # Equal sizes take the ranks up to this one together.
    last = np.cumsum(count)
    mean_rank = last - (count - 1) / 2
    ranks = np.full(len(differences), np.nan)
    ranks[~np.isnan(differences)] = mean_rank[place]
    # The sign of 0 is 0: such a pair has a rank and counts for neither side.
    return ranks * np.sign(differences)


def signed_rank_p(ranks: Numbers) -> float:
    """Return the two-sided p-value of all sign flips of signed ranks."""
    placed = _placed(ranks)
    largest = len(placed.law) - 1
    # The law is symmetric, so that both tails are as long.
    smaller = min(placed.positive, largest - placed.positive)
    one_tail = placed.law[: smaller + 1].sum()
    # Where both tails meet in the middle, the middle is in both.
    return min(1.0, float(2 * one_tail))


def typical_p_beyond(differences: Numbers, margin: float) -> float:
    """Return the larger p of two one-sided rank tests: the difference is ``margin`` or more."""
    above_margin = _p_below(signed_ranks(differences - margin))
    below_minus_margin = _p_below(-signed_ranks(differences + margin))
    return max(above_margin, below_minus_margin)


def _p_below(ranks: Numbers) -> float:
    """Return the p-value of the middle not being below 0."""
    placed = _placed(ranks)
    lower_tail = placed.law[: placed.positive + 1]
    return float(lower_tail.sum())


class _PlacedSum(NamedTuple):
    """The law of the sum of positive ranks, and the sum that was found; both of doubled ranks."""

    law: Numbers
    positive: int


def _placed(ranks: Numbers) -> _PlacedSum:
    """Return where the sum of the positive ranks stands among what it may be by chance."""
    # Doubled, since mean ranks have halves, and a law is of whole numbers.
    doubled = np.rint(2 * np.abs(ranks))
    positive = 2 * ranks[ranks > 0].sum()
    return _PlacedSum(
        rank_sum_law(doubled),
        int(np.rint(positive)),
    )
