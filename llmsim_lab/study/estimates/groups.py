"""Comparisons of groups that share nothing; arms are not paired and may differ in size."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

import numpy as np

from llmsim_lab.study.estimates.numeric import (
    Numbers,
    by_run,
    is_share,
    is_two_valued,
    known,
)
from llmsim_lab.study.estimates.paired import ENOUGH_FOR_SHARES, is_skewed
from llmsim_lab.study.estimates.parts import Parts, Sample, Spread
from llmsim_lab.study.estimates.shares import cut
from llmsim_lab.study.estimates.student import (
    TOO_COARSE,
    Stratum,
    Student,
    spread_of,
    with_student,
)

_FEW = 5
"""Runs in each arm from which on Welch's interval keeps its level, whatever the other's size."""
SKEWED_GROUP = "skewed: a mean's interval is too narrow then"


def group_means(sample: Sample, level: float) -> Parts:
    """Return Welch's t over the runs of each arm.

    For two arms this is ``scipy.stats.ttest_ind(equal_var=False)``: Welch (1947), "The
    generalization of Student's problem when several different population variances are involved",
    Biometrika 34.
    Differs: fewer degrees of freedom where one arm has fewer than five runs and another more.
    """
    groups = _groups_of(sample)
    strata = []
    for weight, group in zip(sample.weights, groups, strict=True):
        strata.append(Stratum(float(weight), group))
    sizes = [len(group) for group in groups]
    method = f"Welch's t over {' and '.join(map(str, sizes))} runs"
    spread = spread_of([strata])
    smallest = min(sizes)
    largest = max(sizes)
    if smallest < _FEW and smallest < largest:
        # Welch's are too many where the small arm happens to vary little: with 2 and 10 runs .89
        # of the intervals covered the truth, with 3 and 20 .92; with these it is .945 or more
        # (benchmarks/coverage.py, "few groups").
        most_df = (smallest - 1) * (1 + smallest / largest)
        fewer_df = min(spread.df, most_df)
        spread = Spread(spread.variance, fewer_df)
        method = f"{method}, at most {most_df:.2g} df"
    parts = Parts(
        kind="mean difference",
        n=sum(sizes),
        method=method,
    )
    few = ""
    if smallest < 2:
        few = "an arm has one run: an interval takes two in each"
    coarse = ""
    if is_two_valued(np.concatenate(groups)):
        coarse = TOO_COARSE
    parts = with_student(
        parts,
        strata,
        [spread],
        level,
        few=few,
        coarse=coarse,
    )
    if parts.interval is None:
        return parts
    # For plan(), which needs the spread with other numbers of runs.
    of_one_run = []
    for weight, values in strata:
        of_values = float(values.var(ddof=1))
        variance = weight**2 * of_values
        df = len(values) - 1
        of_one_run.append(Spread(variance, df))
    parts = replace(parts, groups=tuple(of_one_run))
    if any(is_skewed(group) for group in groups):
        return parts.with_note(SKEWED_GROUP)
    return parts


def are_group_shares(sample: Sample) -> bool:
    """Return True if two arms are compared whose runs are all 0 or 1."""
    # A main effect of four such arms is a mean of means, and is compared as means are.
    if sorted(sample.weights) != [-1.0, 1.0]:
        return False
    groups = _groups_of(sample)
    return all(len(group) and is_share(group) for group in groups)


def group_shares(sample: Sample, level: float) -> Parts:
    """Return the interval and p-value of a difference of two groups' shares.

    One 0 and one 1 are added to each group: Agresti and Caffo (2000), "Simple and effective
    confidence intervals for proportions and differences of proportions result from adding two
    successes and two
    failures", The American Statistician 54; the interval is cut at ±1. p is Fisher's exact p-value.
    """
    from scipy.stats import fisher_exact  # here, since stats takes a second to import

    groups = _groups_of(sample)
    down, up = groups
    if sample.weights[0] > 0:
        up, down = groups
    counts = []
    for group in (up, down):
        ones = int(group.sum())
        counts.append([ones, len(group) - ones])
    parts = Parts(
        kind="share difference",
        n=len(up) + len(down),
        value=float(up.mean() - down.mean()),
        p=float(fisher_exact(counts).pvalue),
        method=f"shares (Agresti and Caffo), Fisher's exact test, {len(down)} and {len(up)} runs",
    )
    fewest = min(len(up), len(down))
    if fewest < ENOUGH_FOR_SHARES:
        return parts.with_note(
            f"{fewest} runs: an interval of a 0 or 1 takes {ENOUGH_FOR_SHARES}",
        )
    t = agresti_caffo(up, down)
    return replace(
        parts,
        interval=cut(t.interval(level)),
        p_beyond=t.p_beyond,
    )


def smallest_difference_of_group_shares(
    n: int,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float | None:
    """Return the smallest difference of shares that two groups show, in hundredths, or None.

    The result is exact: the p-value is Fisher's, and the numbers of ones are binomial. It needs no
    pilot, since the two shares are taken around .5, where a difference is hardest to see.

    Args:
        n: how many runs there will be in each arm.
        alpha: the level of the test.
        power: how often the test is to find the difference.
    """
    from scipy.stats import binom, hypergeom  # here, since stats takes a second to import

    ones = np.arange(n + 1)
    is_found = np.zeros(
        (n + 1, n + 1),
        dtype=bool,
    )
    for total in range(2 * n + 1):
        # The possible numbers of ones in the upper arm, if both arms together have ``total``.
        fewest_up = max(0, total - n)
        most_up = min(n, total)
        up = ones[fewest_up : most_up + 1]
        chances = hypergeom.pmf(up, 2 * n, n, total)
        # As in scipy's fisher_exact: all tables that are at most as probable, up to rounding.
        limits = chances * (1 + 1e-7)
        no_likelier = chances <= limits[:, None]
        p_values = (no_likelier * chances).sum(axis=1)
        is_found[up, total - up] = p_values <= alpha

    def is_seen(hundredths: int) -> bool:
        # Half of the difference is above .5, half below.
        half = hundredths / 200
        upper = binom.pmf(ones, n, 0.5 + half)
        lower = binom.pmf(ones, n, 0.5 - half)
        return float(upper @ is_found @ lower) >= power

    if not is_seen(100):
        return None
    # ``is_seen`` is False below the smallest difference that is seen, and True from it on.
    seen = bisect_left(
        range(1, 101),
        True,
        key=is_seen,
    )
    return (seen + 1) / 100


def agresti_caffo(up: Numbers, down: Numbers) -> Student:
    """Return centre and standard error of a difference of shares, a 0 and a 1 added to each."""
    centre = 0.0
    variance = 0.0
    for sign, group in ((1, up), (-1, down)):
        count = len(group) + 2
        share = (group.sum() + 1) / count
        centre += sign * share
        variance += share * (1 - share) / count
    # Infinite degrees of freedom, since the source takes normal quantiles.
    return Student(
        float(centre),
        math.sqrt(variance),
        math.inf,
    )


def _groups_of(sample: Sample) -> list[Numbers]:
    """Return the runs of each arm, without runs in which only other arms have values."""
    of_units = sample.unit_means()
    of_runs = by_run(of_units, sample.run_of)
    return [known(arm) for arm in of_runs]
