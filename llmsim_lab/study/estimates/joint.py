"""A joint test of all specifications of a finding, by flipping the signs of whole runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from llmsim_lab.study.estimates.family import flipped_t, sign_flips
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, known_counts


class JointTest(NamedTuple):
    """The result of a joint test.

    Attributes:
        p: the p-value of a median estimate at least as far from 0 as the observed one.
        same_sign: the share of specifications with the median's sign, averaged over flips.
        holds: the share of specifications whose interval is on that side of 0, likewise.
        flips: how many flips were tried.
    """

    p: float
    same_sign: float
    holds: float
    flips: int


def joint_test(differences: Numbers, level: float) -> JointTest:
    """Return what the specifications of a finding show together if only chance decides.

    Whole runs are flipped in all specifications at once, which keeps the specifications'
    correlation: the test of the median by Simonsohn, Simmons and Nelson (2020), "Specification
    curve analysis", Nature Human Behaviour 4. Differs: they resample cases with the effect removed;
    here arms are paired by seed, so that chance decides the sign of each pair's differences.

    Args:
        differences: pairs of runs x specifications; NaN where a run is missing.
        level: of the intervals.
    """
    signs = sign_flips(len(differences))
    # At least 1, to avoid 0 / 0 in a specification without runs.
    counts = np.maximum(known_counts(differences, axis=0), 1)
    filled = np.nan_to_num(differences)
    # One row for each flip; the first has the observed estimates.
    estimates = signs @ filled / counts
    medians = np.median(estimates, axis=1)
    # Equal up to rounding counts as equal, since sums in another order differ in their last bits.
    limit = abs(medians[0]) * (1 - ROUNDING)
    is_as_far = np.abs(medians) >= limit
    signs_of_medians = np.sign(medians)[:, None]
    is_same_sign = np.sign(estimates) == signs_of_medians
    # An estimate of 0 has no sign, even if the median is 0 too.
    is_same_sign &= estimates != 0
    # The interval leaves out 0 where |t| is above the quantile for the interval.
    df = np.maximum(counts - 1, 1)
    quantiles = special.stdtrit(df, (1 + level) / 2)
    leaves_out_zero = quantiles < flipped_t(differences).T
    # A single run has no interval.
    leaves_out_zero &= counts > 1
    holds = is_same_sign & leaves_out_zero
    return JointTest(
        p=float(is_as_far.mean()),
        same_sign=float(is_same_sign.mean()),
        holds=float(holds.mean()),
        flips=len(signs),
    )
