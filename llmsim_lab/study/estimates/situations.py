"""Student's t for recorded situations that are asked again: only the answers are random."""

from __future__ import annotations

import numpy as np

from llmsim_lab.study.estimates.numeric import (
    is_share,
    is_two_valued,
    known,
    mean_of_known,
    without_rounding,
)
from llmsim_lab.study.estimates.parts import Parts, Sample, left_out
from llmsim_lab.study.estimates.student import TOO_COARSE, Stratum, spread_of, with_student


def situation_means(sample: Sample, level: float) -> Parts:
    """Return a stratified sample's t over answers, with situations as strata.

    Answers of the same situation and replicate are paired, since they have the same sampling seed
    in each arm. Where some situations have two such pairs or more, those with one are left out.
    """
    answers = mean_of_known(sample.values, 1)
    # The weighted sum over arms, for each situation and replicate.
    summed = np.tensordot(sample.weights, answers, 1)
    differences = without_rounding(summed, answers)
    groups = [known(of_situation) for of_situation in differences]
    # A situation with one pair has no spread; the others tell how answers vary.
    used = [group for group in groups if len(group) > 1]
    has_pairs = bool(used)
    if not has_pairs:
        used = [group for group in groups if len(group)]
    missing = len(groups) - len(used)
    notes = left_out(missing, len(groups))
    # All situations have the same weight, however many answers they have.
    strata = [Stratum(1 / len(used), group) for group in used]
    parts = Parts(
        kind="mean difference",
        n=len(used),
        method="stratified by situation, paired answers",
        notes=notes,
    )
    few = ""
    if not has_pairs:
        few = "one answer a situation: an interval takes two"
    coarse = ""
    if is_two_valued(answers) and not is_share(answers):
        coarse = TOO_COARSE
    return with_student(
        parts,
        strata,
        [spread_of([strata])],
        level,
        few=few,
        coarse=coarse,
    )
