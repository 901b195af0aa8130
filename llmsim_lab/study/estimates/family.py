"""Several contrasts and outcomes at once: p-values that count how many were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers

ENOUGH_RUNS = 8
"""Pairs of runs from which on Romano-Wolf is used: with fewer it rejects less often than Holm."""
ALL_FLIPS = 13
"""Up to so many pairs all sign flips are tried, 2^12 that differ; above that random ones."""
RANDOM_FLIPS = 4_999


class Adjusted(NamedTuple):
    """P-values of a family, and how they were adjusted; empty for one alone."""

    p_values: list[float]
    method: str


def adjusted(p_values: Sequence[float], pairs: Sequence[Numbers | None]) -> Adjusted:
    """Return p-values adjusted for all of them together; none is below its own.

    Args:
        p_values: of each comparison.
        pairs: the differences of runs of each, where these are paired.
    """
    count = len(p_values)
    if count < 2:
        return Adjusted(list(p_values), "")
    columns = [column for column in pairs if column is not None]
    if len(columns) == count and min(_known_count(column) for column in columns) >= ENOUGH_RUNS:
        family = romano_wolf(np.column_stack(columns)).tolist()
        flips = len(sign_flips(len(columns[0])))
        method = f"Romano-Wolf over {count}, {flips:,} sign flips"
    else:
        family = holm(p_values)
        method = f"Holm over {count}"
    # Sign flips may find less than Student's t does.
    return Adjusted([max(two) for two in zip(family, p_values, strict=True)], method)


def _known_count(column: Numbers) -> int:
    return int((~np.isnan(column)).sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method.

    The i-th smallest of m becomes the largest of (m - j + 1) · p_(j) over j ≤ i, at most 1. Source:
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6. scipy has no such function: ``false_discovery_control`` controls another rate.
    """
    p = np.array(p_values)
    order = np.argsort(p)
    steps = p[order] * np.arange(len(p), 0, -1)
    p[order] = np.maximum.accumulate(np.minimum(1.0, steps))
    return [float(one) for one in p]


def sign_flips(n: int) -> Numbers:
    """Return sign flips of n pairs, the first of them none: all that differ, or random ones."""
    if n <= ALL_FLIPS:
        # A flip and its opposite give the same |t|, so the last sign never changes.
        bits = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1
        return np.asarray(1.0 - 2.0 * bits)
    drawn = np.random.default_rng(n).choice((1.0, -1.0), (RANDOM_FLIPS + 1, n))
    return np.vstack([np.ones(n), drawn[1:]])


def sign_flip_p(differences: Numbers) -> float:
    """Return the p-value of one column of differences by sign flips."""
    return float(romano_wolf(differences[:, None])[0])


def romano_wolf(differences: Numbers) -> Numbers:
    """Return p-values of paired differences, adjusted for all columns together.

    The largest |t| of the hypotheses not yet rejected is compared with what it would be if the
    pairs' signs were drawn anew, with one sign for all hypotheses of a pair of runs, so that what
    outcomes have in common is kept. Source: Romano and Wolf (2005), "Exact and approximate stepdown
    methods for multiple hypothesis testing", Journal of the American Statistical Association 100;
    p-values as in their 2016 note in Statistics & Probability Letters 113. All flips are tried with
    up to ``ALL_FLIPS`` pairs, else ``RANDOM_FLIPS`` from a fixed seed; p = (1 + b) / (1 + B). Exact
    where the differences are symmetric around 0.

    Args:
        differences: pairs of runs x hypotheses; NaN where a run failed.
    """
    t = flipped_t(differences)
    order = np.argsort(-t[:, 0], kind="stable")
    # For each flip, the largest from this hypothesis on.
    largest = np.maximum.accumulate(t[order[::-1]], axis=0)[::-1]
    # As large but for rounding counts as large: sums in another order differ in their last bits.
    steps = (largest >= t[order, :1] * (1 - ROUNDING)).mean(axis=1)
    p_values = np.empty(len(t))
    p_values[order] = np.maximum.accumulate(steps)
    return p_values


def flipped_t(differences: Numbers) -> Numbers:
    """Return |t| of each column (the rows) under each sign flip; the first flip is none."""
    filled = np.nan_to_num(differences)
    n = (~np.isnan(differences)).sum(axis=0)[:, None]
    squares = (filled**2).sum(axis=0)[:, None]
    # The sum of squares is the same for all flips, so t follows from the sum alone.
    # Contiguous, since otherwise the rest takes ten times as long.
    sums = np.abs(np.ascontiguousarray((sign_flips(len(filled)) @ filled).T))
    # Below 1: where all pairs differ equally t would be infinite, and infinities are all alike.
    share = np.minimum(sums / np.sqrt(np.where(squares > 0, n * squares, 1.0)), 1 - 1e-12)
    return np.asarray(share * np.sqrt(np.maximum(n - 1, 0) / (1 - share**2)))
