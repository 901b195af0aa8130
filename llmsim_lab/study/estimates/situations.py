"""Recorded situations asked again: only the answers are random, the situations stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmsim_lab.study.estimates.numeric import (
    is_share,
    is_two_valued,
    known,
    mean_of_known,
    without_rounding,
)
from llmsim_lab.study.estimates.parts import Parts, Sample, left_out
from llmsim_lab.study.estimates.student import (
    ALL_EQUAL,
    ALL_ZERO,
    NO_VALUES,
    TOO_COARSE,
    Stratum,
    has_no_spread,
    spread_of,
    student,
    weighted_mean,
)


def situation_means(sample: Sample, level: float) -> Parts:
    """Return a stratified sample's t over answers, with situations as strata.

    Answers of the same situation and replicate are paired, since they have the same sampling seed
    in each arm. Where some situations have two such pairs or more, those with one are left out.
    """
    answers = mean_of_known(sample.values, 1)
    differences = without_rounding(np.tensordot(sample.weights, answers, 1), answers)
    groups = [known(of_situation) for of_situation in differences]
    used = [group for group in groups if len(group) > 1]
    has_pairs = bool(used)
    if not has_pairs:
        used = [group for group in groups if len(group)]
    notes = left_out(len(groups) - len(used), len(groups))
    strata = [Stratum(1 / len(used), group) for group in used]
    value = weighted_mean(strata)
    parts = Parts(
        kind="mean difference",
        n=len(used),
        value=value,
        method="stratified by situation, paired answers",
        notes=notes,
    )
    if value is None:
        return replace(parts, method="none", notes=(*notes, NO_VALUES))
    if not has_pairs:
        few = "one answer a situation: an interval takes two"
        return replace(parts, notes=(*notes, few))
    spread = spread_of([strata])
    if has_no_spread(spread, strata):
        equal = ALL_EQUAL if value else ALL_ZERO
        return replace(parts, notes=(*notes, equal))
    if is_two_valued(answers) and not is_share(answers):
        return replace(parts, notes=(*notes, TOO_COARSE))
    t = student(value, [spread])
    return replace(
        parts,
        interval=t.interval(level),
        p=t.p(),
        df=t.known_df(),
        spreads=(spread,),
        p_beyond=t.p_beyond,
    )
