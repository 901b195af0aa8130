"""Pairs of runs with the same seed: Student's t over their differences."""

from __future__ import annotations

import math
from dataclasses import replace

from llmsim_lab.study.estimates.family import sign_flip_p
from llmsim_lab.study.estimates.numeric import (
    Numbers,
    is_share,
    is_two_valued,
    known,
    skewness,
)
from llmsim_lab.study.estimates.pairs import pairs_of
from llmsim_lab.study.estimates.parts import Parts, Sample
from llmsim_lab.study.estimates.student import TOO_COARSE, Stratum, spread_of, with_student
from llmsim_lab.study.estimates.typical import typical_difference

ENOUGH_FOR_SHARES = 5
"""Least number of pairs for an interval of shares; with two pairs it covered the truth in .8."""
SKEWED = (
    "skewed: a mean's interval is too narrow then (in trials 86 to 94 % of them held the truth); "
    "the typical difference stands beside it"
)


def paired_means(sample: Sample, level: float) -> Parts:
    """Return Student's t over the differences of runs with the same seed.

    For two arms this is ``scipy.stats.ttest_rel``. A main effect or an interaction is one number
    for each seed too, so that seeds may react differently and no sphericity is assumed.
    """
    pairs = pairs_of(sample)
    differences = known(pairs.differences)
    n = len(differences)
    strata = [Stratum(1.0, differences)]
    parts = Parts(
        kind="mean difference",
        n=n,
        notes=pairs.notes,
        method="paired t over run means",
        pairs=pairs.differences,
    )
    few = ""
    if n < 2:
        few = "one run: an interval takes several runs, not situations"
    # Coarse values make coarse differences, even if these have more than two values.
    coarse = _why_no_interval(pairs.means, differences)
    parts = with_student(
        parts,
        strata,
        [spread_of([strata])],
        level,
        few=few,
        coarse=coarse,
    )
    if coarse and coarse in parts.notes:
        # Sign flips do not assume a normal distribution.
        return replace(
            parts,
            p=sign_flip_p(pairs.differences),
            method="sign flips",
        )
    if parts.interval is not None and is_skewed(differences):
        typical = typical_difference(sample, level)
        return replace(
            parts,
            notes=(*pairs.notes, SKEWED),
            typical=typical,
        )
    return parts


def _why_no_interval(means: Numbers, differences: Numbers) -> str:
    n = len(differences)
    if is_share(means):
        if n < ENOUGH_FOR_SHARES:
            return f"{n} runs: an interval of a 0 or 1 takes {ENOUGH_FOR_SHARES}"
    elif is_two_valued(means):
        return TOO_COARSE
    # Two differences always have at most two values.
    if n > 2 and is_two_valued(differences):
        return TOO_COARSE
    return ""


def is_skewed(differences: Numbers) -> bool:
    """Return True if the skewness is more than two standard errors of a normal sample's."""
    n = len(differences)
    if n < 3:
        return False
    # Source of the standard error: Cramér (1946), "Mathematical Methods of Statistics".
    variance = 6 * n * (n - 1) / (n - 2) / (n + 1) / (n + 3)
    error = math.sqrt(variance)
    return abs(skewness(differences)) > 2 * error
