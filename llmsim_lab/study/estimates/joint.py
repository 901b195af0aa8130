"""One test of many specifications of one finding, and what chance alone gives in all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from llmsim_lab.study.estimates.family import flipped_t, sign_flips
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, known_counts


class JointTest(NamedTuple):
    """What whole runs, flipped, give in all specifications.

    Attributes:
        p: of a median estimate as far from 0 as the one that was found.
        same_sign: the share of specifications with the median's sign, in the mean over flips.
        holds: the share of those whose interval leaves out 0 on that side, likewise.
        flips: how many were tried.
    """

    p: float
    same_sign: float
    holds: float
    flips: int


def joint_test(differences: Numbers, level: float) -> JointTest:
    """Return what the specifications of a finding would show together if it were chance.

    Whole runs are flipped, in all specifications at once, so that what these share is kept: the
    test of the median by Simonsohn, Simmons and Nelson (2020), "Specification curve analysis",
    Nature Human Behaviour 4. Differs: they resample cases with the effect taken out; here arms are
    paired by seed, so that the sign of each pair's differences is what chance decides.

    Args:
        differences: pairs of runs x specifications; NaN where a run is missing.
        level: of the intervals that are to leave out 0.
    """
    signs = sign_flips(len(differences))
    # At least 1, so that a specification without runs divides nothing by 0.
    counts = np.maximum(known_counts(differences, axis=0), 1)
    filled = np.nan_to_num(differences)
    # A row for each flip, of which the first is what was found.
    estimates = signs @ filled / counts
    medians = np.median(estimates, axis=1)
    # As far but for rounding counts as far: sums in another order differ in their last bits.
    limit = abs(medians[0]) * (1 - ROUNDING)
    is_as_far = np.abs(medians) >= limit
    signs_of_medians = np.sign(medians)[:, None]
    is_same_sign = np.sign(estimates) == signs_of_medians
    # Where the median is 0 too, their signs are alike and say nothing.
    is_same_sign &= estimates != 0
    # An interval leaves out 0 where |t| is above the quantile that is its half width.
    df = np.maximum(counts - 1, 1)
    quantiles = special.stdtrit(df, (1 + level) / 2)
    leaves_out_zero = quantiles < flipped_t(differences).T
    # One run has no interval.
    leaves_out_zero &= counts > 1
    holds = is_same_sign & leaves_out_zero
    return JointTest(
        p=float(is_as_far.mean()),
        same_sign=float(is_same_sign.mean()),
        holds=float(holds.mean()),
        flips=len(signs),
    )
