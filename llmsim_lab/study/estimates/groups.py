"""Groups that share nothing, of people or of models: arms are not paired and may differ in size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llmsim_lab.study.estimates.numeric import (
    Numbers,
    by_run,
    is_share,
    is_two_valued,
    known,
    mean_of_known,
)
from llmsim_lab.study.estimates.paired import ENOUGH_FOR_SHARES, is_skewed
from llmsim_lab.study.estimates.parts import Parts, Sample
from llmsim_lab.study.estimates.shares import cut
from llmsim_lab.study.estimates.student import (
    NO_VALUES,
    TOO_COARSE,
    Stratum,
    Student,
    has_no_spread,
    spread_of,
    student,
    weighted_mean,
)

SKEWED_GROUP = "skewed: a mean's interval is too narrow then"


def group_means(sample: Sample, level: float) -> Parts:
    """Return Welch's t over the runs of each arm.

    It is ``scipy.stats.ttest_ind(equal_var=False)`` for two arms: Welch (1947), "The generalization
    of Student's problem when several different population variances are involved", Biometrika 34.
    """
    groups = _groups_of(sample)
    strata = _strata(sample.weights, groups)
    n = sum(len(group) for group in groups)
    value = weighted_mean(strata)
    parts = Parts(kind="mean difference", n=n, value=value, method=_method(groups))
    if value is None:
        return replace(parts, method="none", notes=(NO_VALUES,))
    if min(len(group) for group in groups) < 2:
        few = "an arm has one run: an interval takes two in each"
        return replace(parts, notes=(few,))
    spread = spread_of([strata])
    if has_no_spread(spread, strata):
        equal = "all runs of each arm are equal, so nothing shows how new ones would vary"
        return replace(parts, notes=(equal,))
    if is_two_valued(np.concatenate(groups)):
        return replace(parts, notes=(TOO_COARSE,))
    t = student(value, [spread])
    notes: tuple[str, ...] = ()
    if any(is_skewed(group) for group in groups):
        notes = (SKEWED_GROUP,)
    return replace(
        parts,
        interval=t.interval(level),
        p=t.p(),
        df=t.known_df(),
        spreads=(spread,),
        p_beyond=t.p_beyond,
        notes=notes,
    )


def are_group_shares(sample: Sample) -> bool:
    """Return True if the runs of two arms are 0 or 1 each."""
    groups = _groups_of(sample)
    has_two_arms = sorted(sample.weights) == [-1.0, 1.0]
    return has_two_arms and is_share(np.concatenate(groups)) and all(map(len, groups))


def group_shares(sample: Sample, level: float) -> Parts:
    """Return the interval and p-value of a difference of shares of two groups.

    A 0 and a 1 more in each: Agresti and Caffo (2000), "Simple and effective confidence intervals
    for proportions and differences of proportions result from adding two successes and two
    failures", The American Statistician 54; cut at ±1. p is Fisher's exact one.
    """
    from scipy.stats import fisher_exact  # here, since stats takes a second to import

    groups = _groups_of(sample)
    up, down = groups
    if sample.weights[0] < 0:
        up, down = down, up
    counts = [[int(group.sum()), int(len(group) - group.sum())] for group in (up, down)]
    parts = Parts(
        kind="share difference",
        n=len(up) + len(down),
        value=float(up.mean() - down.mean()),
        p=float(fisher_exact(counts).pvalue),
        method=f"shares (Agresti and Caffo), Fisher's exact test, {len(down)} and {len(up)} runs",
    )
    if min(len(up), len(down)) < ENOUGH_FOR_SHARES:
        few = f"{min(len(up), len(down))} runs: an interval of a 0 or 1 takes {ENOUGH_FOR_SHARES}"
        return replace(parts, notes=(few,))
    t = agresti_caffo(up, down)
    return replace(parts, interval=cut(t.interval(level)), p_beyond=t.p_beyond)


def agresti_caffo(up: Numbers, down: Numbers) -> Student:
    """Return centre and standard error of a difference of shares, with a 0 and a 1 more in each."""
    centre = 0.0
    variance = 0.0
    for sign, group in ((1, up), (-1, down)):
        count = len(group) + 2
        share = (group.sum() + 1) / count
        centre += sign * share
        variance += share * (1 - share) / count
    return Student(float(centre), math.sqrt(variance), math.inf)


def _groups_of(sample: Sample) -> list[Numbers]:
    """Return the runs of each arm; a run that it has no value of may be another arm's."""
    of_units = mean_of_known(mean_of_known(sample.values, 3), 1)
    of_runs = by_run(of_units, sample.run_of)
    return [known(arm) for arm in of_runs]


def _strata(weights: Numbers, groups: Sequence[Numbers]) -> list[Stratum]:
    return [Stratum(float(w), group) for w, group in zip(weights, groups, strict=True)]


def _method(groups: Sequence[Numbers]) -> str:
    sizes = " and ".join(str(len(group)) for group in groups)
    return f"Welch's t over {sizes} runs"
