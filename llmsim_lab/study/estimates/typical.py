"""The typical difference of runs with the same seed, which a few extreme runs do not move."""

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

    This is the median of the means of all pairs of differences, each with itself included (Hodges
    and Lehmann 1963, "Estimates of location based on rank tests", Annals of Mathematical Statistics
    34; the means: Walsh 1949, the same journal, 20). It is not a difference of medians. The
    interval ends at the k-th smallest and k-th largest of these means. It has at least its level
    for every distribution that is symmetric around the pseudo-median. p comes from all sign flips
    of the differences' ranks (Wilcoxon 1945, Biometrics Bulletin 1).
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
    # The means are sorted.
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
        # The ranks, so that the family's flips are those of this p-value.
        pairs=ranks,
    )
    interval = walsh_interval(means, n, level)
    if interval is None:
        needed = fewest_runs(level)
        return parts.with_note(f"{n} runs: at a level of {level:g} this interval takes {needed}")
    return replace(parts, interval=interval)


def walsh_averages(differences: Numbers) -> Numbers:
    """Return the sorted means of all pairs of differences, each with itself included."""
    # The upper triangle has each pair once, and each difference with itself.
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
    # k is the largest number for which P(W <= k - 1) is at most half of 1 - level.
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
    """Return the least number of runs for an interval of this level: 2 / 2^n <= 1 - level."""
    n = 1 - np.log2(1 - level)
    return int(np.ceil(n))


def rank_sum_law(ranks: Numbers | NDArray[np.int64]) -> Numbers:
    """Return the probability of each sum of ranks if a coin decides whether each rank counts.

    Args:
        ranks: whole numbers.
    """
    # scipy's wilcoxon has the exact distribution only for ranks without ties.
    largest_sum = int(ranks.sum())
    law = np.zeros(largest_sum + 1)
    law[0] = 1.0
    for rank in ranks.astype(int):
        # With probability 1/2 the rank counts, and adds to the sum.
        with_rank = law[: len(law) - rank]
        summed = law.copy()
        summed[rank:] += with_rank
        law = summed / 2
    return law


def signed_ranks(differences: Numbers) -> Numbers:
    """Return the rank of each difference's absolute value, with its sign; NaN stays.

    Equal values share their mean rank. Zeros take part in the ranking, and then become 0 (Pratt
    1959, Journal of the American Statistical Association 54).
    """
    sizes = np.abs(known(differences))
    _, place, count = np.unique(
        sizes,
        return_inverse=True,
        return_counts=True,
    )
    # Equal values together have the ranks up to this one.
    last = np.cumsum(count)
    mean_rank = last - (count - 1) / 2
    ranks = np.full(len(differences), np.nan)
    ranks[~np.isnan(differences)] = mean_rank[place]
    # The sign of 0 is 0, so that a difference of 0 counts for neither side.
    return ranks * np.sign(differences)


def signed_rank_p(ranks: Numbers) -> float:
    """Return the two-sided p-value of all sign flips of signed ranks."""
    placed = _placed(ranks)
    largest = len(placed.law) - 1
    # The distribution is symmetric, so that both tails are equally probable.
    smaller = min(placed.positive, largest - placed.positive)
    one_tail = placed.law[: smaller + 1].sum()
    # Both tails may include the middle, and their sum may be above 1.
    return min(1.0, float(2 * one_tail))


def typical_p_beyond(differences: Numbers, margin: float) -> float:
    """Return the larger p-value of two one-sided rank tests of a difference of ``margin``."""
    above_margin = _p_below(signed_ranks(differences - margin))
    below_minus_margin = _p_below(-signed_ranks(differences + margin))
    return max(above_margin, below_minus_margin)


def _p_below(ranks: Numbers) -> float:
    """Return the p-value of the hypothesis that the middle is not below 0."""
    placed = _placed(ranks)
    lower_tail = placed.law[: placed.positive + 1]
    return float(lower_tail.sum())


class _PlacedSum(NamedTuple):
    """The observed sum of positive ranks, and its distribution; both of doubled ranks."""

    law: Numbers
    positive: int


def _placed(ranks: Numbers) -> _PlacedSum:
    """Return the sum of the positive ranks, and its distribution by chance."""
    # Doubled, since mean ranks have halves, and the distribution is over whole numbers.
    doubled = np.rint(2 * np.abs(ranks))
    positive = 2 * ranks[ranks > 0].sum()
    return _PlacedSum(
        rank_sum_law(doubled),
        int(np.rint(positive)),
    )
