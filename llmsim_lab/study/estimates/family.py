"""P-values of several contrasts and outcomes, adjusted for their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, known, known_counts

ENOUGH_RUNS = 8
"""Least number of pairs for Romano-Wolf: with fewer it rejects less often than Holm."""
ALL_FLIPS = 13
"""Up to so many pairs all sign flips are tried (2^12 different ones), above that random flips."""
RANDOM_FLIPS = 4_999


class Adjusted(NamedTuple):
    """P-values of a family, and the method that adjusted them; empty for a single one."""

    p_values: list[float]
    method: str


def adjusted(
    p_values: Sequence[float],
    pairs: Sequence[Numbers | None],
) -> Adjusted:
    """Return p-values adjusted for the whole family; none becomes smaller.

    Args:
        p_values: one for each comparison.
        pairs: for each comparison, the differences of paired runs, if it has any.
    """
    count = len(p_values)
    if count < 2:
        return Adjusted(list(p_values), "")
    columns = [column for column in pairs if column is not None]
    are_all_pairs = len(columns) == count
    run_counts = [len(known(column)) for column in columns]
    if are_all_pairs and min(run_counts) >= ENOUGH_RUNS:
        differences = np.column_stack(columns)
        of_family = romano_wolf(differences).tolist()
        flip_count = len(sign_flips(len(differences)))
        method = f"Romano-Wolf over {count}, {flip_count:,} sign flips"
    else:
        # Flips exchange the arms of a pair, and groups, situations and wordings have no pairs.
        of_family = holm(p_values)
        method = f"Holm over {count}"
    larger = []
    # Sign flips may give a smaller p-value than Student's t, but an adjustment may not.
    for adjusted_p, p in zip(of_family, p_values, strict=True):
        larger.append(max(adjusted_p, p))
    return Adjusted(larger, method)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method.

    The i-th smallest of m becomes the largest of (m - j + 1) · p_(j) over j ≤ i, at most 1. Source:
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6. scipy has no such function: ``false_discovery_control`` controls another rate.
    """
    p = np.array(p_values)
    smallest_first = np.argsort(p)
    # The smallest is multiplied by their number, the next by one less, and so on.
    hypotheses_left = 1 + np.arange(len(p))[::-1]
    multiplied = p[smallest_first] * hypotheses_left
    steps = np.minimum(1.0, multiplied)
    # A hypothesis is rejected only after all that have a smaller p-value.
    p[smallest_first] = np.maximum.accumulate(steps)
    return [float(adjusted_p) for adjusted_p in p]


def sign_flips(n: int) -> Numbers:
    """Return sign flips of n pairs, all different ones or random ones; the first flips nothing."""
    if n <= ALL_FLIPS:
        # A flip and its opposite give the same |t|, so that the last sign can stay.
        flip_count = 2 ** (n - 1)
        numbers = np.arange(flip_count)
        # The bits of a flip's number say which signs change.
        bits = numbers[:, None] >> np.arange(n) & 1
        return np.asarray(1.0 - 2.0 * bits)
    # Seeded by n, so that the same table gives the same p-value on every machine.
    rng = np.random.default_rng(n)
    shape = (RANDOM_FLIPS + 1, n)
    drawn = rng.choice((1.0, -1.0), shape)
    # The observed signs are one of the flips; without them p could be 0.
    drawn[0] = 1.0
    return np.asarray(drawn)


def sign_flip_p(differences: Numbers) -> float:
    """Return the p-value of one column of differences by sign flips."""
    one_column = differences[:, None]
    [p] = romano_wolf(one_column)
    return float(p)


def romano_wolf(differences: Numbers) -> Numbers:
    """Return p-values of paired differences, adjusted for all columns together.

    The largest |t| of the hypotheses not yet rejected is compared with its distribution over sign
    flips. A pair of runs has the same sign in all hypotheses, which keeps the outcomes'
    correlation. Source: Romano and Wolf (2005), "Exact and approximate stepdown
    methods for multiple hypothesis testing", Journal of the American Statistical Association 100;
    p-values as in their 2016 note in Statistics & Probability Letters 113. All flips are tried with
    up to ``ALL_FLIPS`` pairs, else ``RANDOM_FLIPS`` from a fixed seed; p = (1 + b) / (1 + B). Exact
    where the differences are symmetric around 0.

    Args:
        differences: pairs of runs x hypotheses; NaN where a run failed.
    """
    t = flipped_t(differences)
    observed = t[:, 0]
    largest_first = np.argsort(-observed, kind="stable")
    smallest_first = largest_first[::-1]
    # For each flip, the largest |t| of this and all later hypotheses: earlier ones are rejected.
    from_the_last = np.maximum.accumulate(
        t[smallest_first],
        axis=0,
    )
    largest_left = from_the_last[::-1]
    # Equal up to rounding counts as equal, since sums in another order differ in their last bits.
    limits = observed[largest_first] * (1 - ROUNDING)
    is_as_large = largest_left >= limits[:, None]
    steps = is_as_large.mean(axis=1)
    p_values = np.empty(len(t))
    # A hypothesis is rejected only after all that have a larger |t|.
    p_values[largest_first] = np.maximum.accumulate(steps)
    return p_values


def flipped_t(differences: Numbers) -> Numbers:
    """Return |t| of each column (as rows) under each sign flip; the first flips nothing."""
    # A missing pair adds 0 to each sum, and is not counted in n.
    filled = np.nan_to_num(differences)
    counts = known_counts(differences, axis=0)
    squares = filled**2
    # From here on, rows are hypotheses and columns are flips.
    n = counts[:, None]
    sums_of_squares = squares.sum(axis=0)[:, None]
    # The sum of squares is the same for all flips, so that t follows from the sum alone.
    sums = (sign_flips(len(filled)) @ filled).T
    # Contiguous, since the rest takes ten times as long otherwise.
    sizes = np.abs(np.ascontiguousarray(sums))
    # The largest possible sum (Cauchy and Schwarz); 1 where all are 0, to avoid 0 / 0.
    most = np.sqrt(
        np.where(
            sums_of_squares > 0,
            n * sums_of_squares,
            1.0,
        )
    )
    # Below 1, since equal differences would give an infinite t, and infinities cannot be ranked.
    share = np.minimum(sizes / most, 1 - 1e-12)
    df = np.maximum(n - 1, 0)
    # t = mean / standard error; both follow from the share.
    return np.asarray(share * np.sqrt(df / (1 - share**2)))
