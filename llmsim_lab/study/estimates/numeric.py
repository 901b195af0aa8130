"""Means and checks of arrays in which NaN stands for what is not known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ROUNDING = 1e-9
"""Spreads smaller than this share of the values are rounding."""


def known(values: Numbers) -> Numbers:
    """Return the values that are not NaN."""
    return values[~np.isnan(values)]


def mean_of_known(values: Numbers, axis: int) -> Numbers:
    """Return the mean of what is not NaN; NaN where there is nothing."""
    count = (~np.isnan(values)).sum(axis=axis)
    return np.asarray(np.nansum(values, axis=axis) / np.where(count, count, np.nan))


def by_run(of_units: Numbers, run_of: NDArray[np.intp]) -> Numbers:
    """Return means over each run's units, which are the last axis; runs are the last axis then.

    Args:
        of_units: values by unit.
        run_of: the number of each unit's run.
    """
    numbers, first = np.unique(run_of, return_index=True)
    in_order = numbers[np.argsort(first)]
    if len(in_order) == of_units.shape[-1]:
        return of_units
    means = [mean_of_known(of_units[..., run_of == number], -1) for number in in_order]
    return np.stack(means, axis=-1)


def without_rounding(differences: Numbers, values: Numbers) -> Numbers:
    """Return differences, those that are rounding of the values as exactly 0."""
    size = np.abs(known(values)).max(initial=0.0)
    return np.where(np.abs(differences) <= 1e-12 * size, 0.0, differences)


def is_two_valued(values: Numbers) -> bool:
    """Return True if no value lies between the smallest and the largest."""
    in_order = np.sort(known(values))
    steps = np.diff(in_order) > ROUNDING * np.abs(in_order).max(initial=0.0)
    return int(steps.sum()) < 2


def is_share(values: Numbers) -> bool:
    """Return True if all values are 0 or 1."""
    return bool(np.isin(known(values), (0, 1)).all())


def skewness(values: Numbers) -> float:
    """Return the sample skewness G1, as pandas has it; 0 for fewer than three values.

    Source: Joanes and Gill (1998), "Comparing measures of sample skewness and kurtosis", The
    Statistician 47.
    """
    n = len(values)
    spread = values.std()
    if n < 3 or not spread:
        return 0.0
    biased = float((((values - values.mean()) / spread) ** 3).mean())
    return biased * float(np.sqrt(n * (n - 1))) / (n - 2)
