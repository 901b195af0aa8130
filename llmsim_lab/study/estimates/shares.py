"""Differences of shares in pairs of runs whose values are 0 or 1."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.family import sign_flip_p
from llmsim_lab.study.estimates.numeric import Numbers, is_share, known
from llmsim_lab.study.estimates.paired import ENOUGH_FOR_SHARES
from llmsim_lab.study.estimates.pairs import pairs_of
from llmsim_lab.study.estimates.parts import Parts, Sample
from llmsim_lab.study.estimates.student import Student


def are_paired_shares(sample: Sample) -> bool:
    """Return True if the runs of two arms are all 0 or 1, with at least two pairs."""
    if sorted(sample.weights) != [-1.0, 1.0]:
        return False
    pairs = pairs_of(sample)
    return is_share(pairs.means) and len(known(pairs.differences)) > 1


def paired_shares(sample: Sample, level: float) -> Parts:
    """Return the interval and p-value of paired outcomes of 0 and 1.

    One pair of each sign is added (Bonett and Price 2012, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data", Journal of Educational and Behavioral
    Statistics 37). The interval is cut at ±1, since no difference of shares is beyond it. With all
    sign flips, p is that of McNemar's exact test.
    """
    pairs = pairs_of(sample)
    differences = known(pairs.differences)
    n = len(differences)
    parts = Parts(
        kind="share difference",
        n=n,
        value=float(differences.mean()),
        p=sign_flip_p(differences),
        method="shares (Bonett and Price), sign flips",
        notes=pairs.notes,
        pairs=pairs.differences,
    )
    if n < ENOUGH_FOR_SHARES:
        return parts.with_note(f"{n} runs: an interval of a 0 or 1 takes {ENOUGH_FOR_SHARES}")
    t = bonett_price(differences)
    return replace(
        parts,
        interval=cut(t.interval(level)),
        p_beyond=t.p_beyond,
    )


def bonett_price(differences: Numbers) -> Student:
    """Return centre and standard error of differences of -1, 0 and 1, a pair of each sign added."""
    padded = np.append(differences, (1.0, -1.0))
    # Divided by n, not n - 1, as in the source.
    deviation = float(padded.std())
    # Infinite degrees of freedom, since the source takes normal quantiles.
    return Student(
        float(padded.mean()),
        deviation / math.sqrt(len(padded)),
        math.inf,
    )


def cut(interval: Interval) -> Interval:
    """Return an interval of a difference of shares, cut at ±1."""
    low = max(interval.low, -1.0)
    high = min(interval.high, 1.0)
    return Interval(low, high)


def smallest_share_difference(
    differences: Numbers,
    n: int,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float | None:
    """Return the smallest difference of shares that n pairs show, in hundredths, or None.

    The result is exact: the p-value is McNemar's, and the number of differing pairs is binomial.
    The share of differing pairs is the pilot's, at its upper 80 % limit (Clopper and Pearson 1934,
    Biometrika 26), plus that due to the effect.

    Args:
        differences: the pilot's differences, each -1, 0 or 1.
        n: how many pairs there will be.
        alpha: the level of the test.
        power: how often the test is to find the difference.
    """
    count = len(differences)
    differing = np.abs(differences).sum()
    discordant = 1.0
    if differing < count:
        # Clopper and Pearson's limit is a quantile of the beta distribution; of all it is 1.
        discordant = float(
            special.betaincinv(
                differing + 1,
                count - differing,
                0.8,
            )
        )

    def is_seen(hundredths: int) -> bool:
        size = hundredths / 100
        # More pairs differ the larger the effect is. In arms that are independent, of which the
        # reference has a share p, they are size * |1 - 2p| more, so at most the whole size: what
        # the pilot's share alone promised with power .8 had .63 (p = .1, 20 pairs, then 30).
        most_discordant = min(1.0, discordant + size)
        return _power_of_mcnemar(n, most_discordant, size, alpha) >= power

    if not is_seen(100):
        return None
    # False up to the smallest that is seen, True from there on.
    seen = bisect_left(
        range(1, 101),
        True,
        key=is_seen,
    )
    return (seen + 1) / 100


def _power_of_mcnemar(
    n: int,
    discordant: float,
    difference: float,
    alpha: float,
) -> float:
    """Return how often McNemar's exact test finds a difference.

    Args:
        n: pairs.
        discordant: the share of pairs that differ.
        difference: the share that differ in one direction minus that in the other.
        alpha: of the test, two-sided.
    """
    # Of pairs that differ, the share that differ upwards.
    up = (1 + difference / discordant) / 2
    counts = np.arange(n + 1)
    chance_of_count = _binomial(counts, n, discordant)
    total = 0.0
    for count in counts[1:]:
        ups = np.arange(count + 1)
        fewer = np.minimum(ups, count - ups)
        # McNemar's exact test is a sign test of the pairs that differ.
        one_tail = special.bdtr(fewer, count, 0.5)
        p = np.minimum(1.0, 2 * one_tail)
        chances = _binomial(ups, count, up)
        power = chances[p <= alpha].sum()
        total += float(chance_of_count[count] * power)
    return total


def _binomial(
    successes: NDArray[np.intp],
    n: int,
    p: float,
) -> Numbers:
    # By logarithms, since n over k is infinite from some 1,030 on; stats takes a second to import.
    logs = (
        special.gammaln(n + 1)
        - special.gammaln(successes + 1)
        - special.gammaln(n - successes + 1)
        + special.xlogy(successes, p)
        + special.xlog1py(n - successes, -p)
    )
    return np.asarray(np.exp(logs))
