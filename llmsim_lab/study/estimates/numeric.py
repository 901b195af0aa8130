"""Means and checks of arrays in which NaN stands for an unknown value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ROUNDING = 1e-9
"""A spread below this share of the values is due to rounding."""


def known(values: Numbers) -> Numbers:
    """Return the values that are not NaN."""
    is_known = ~np.isnan(values)
    return values[is_known]


def known_counts(values: Numbers, axis: int) -> NDArray[np.intp]:
    """Return the number of values along an axis that are not NaN."""
    is_known = ~np.isnan(values)
    return np.asarray(is_known.sum(axis=axis))


def mean_of_known(values: Numbers, axis: int) -> Numbers:
    """Return the mean of the values that are not NaN; NaN where there are none."""
    counts = known_counts(values, axis)
    # nanmean would warn where there are none.
    divisors = np.where(counts, counts, np.nan)
    totals = np.nansum(values, axis=axis)
    return np.asarray(totals / divisors)


def by_run(
    of_units: Numbers,
    run_of: NDArray[np.intp],
) -> Numbers:
    """Return means over the units of each run; the last axis is units before and runs after.

    Args:
        of_units: values by unit.
        run_of: the number of each unit's run.
    """
    numbers, first_places = np.unique(
        run_of,
        return_index=True,
    )
    # In the order of appearance, since unique() sorts: each seed keeps its place.
    in_order = numbers[np.argsort(first_places)]
    unit_count = of_units.shape[-1]
    if len(in_order) == unit_count:
        # Each run has one unit, as in a study of seeds.
        return of_units
    means = []
    for number in in_order:
        of_run = of_units[..., run_of == number]
        means.append(mean_of_known(of_run, -1))
    return np.stack(means, axis=-1)


def without_rounding(differences: Numbers, values: Numbers) -> Numbers:
    """Return differences, with those due to rounding set to exactly 0."""
    largest = _largest(known(values))
    # Such as 0.1 + 0.2 minus 0.3, which would get an interval that leaves out 0.
    is_rounding = np.abs(differences) <= 1e-12 * largest
    return np.where(is_rounding, 0.0, differences)


def _largest(values: Numbers) -> float:
    """Return the largest absolute value; 0 of an empty array, for which numpy's max raises."""
    return float(np.abs(values).max(initial=0.0))


def is_two_valued(values: Numbers) -> bool:
    """Return True if no value lies between the smallest and the largest."""
    in_order = np.sort(known(values))
    # Two values have one step between them.
    is_step = np.diff(in_order) > ROUNDING * _largest(in_order)
    return int(is_step.sum()) < 2


def is_share(values: Numbers) -> bool:
    """Return True if all values are 0 or 1."""
    is_zero_or_one = np.isin(known(values), (0, 1))
    return bool(is_zero_or_one.all())


def skewness(values: Numbers) -> float:
    """Return the sample skewness G1, as pandas computes it; 0 for fewer than three values.

    Source: Joanes and Gill (1998), "Comparing measures of sample skewness and kurtosis", The
    Statistician 47.
    """
    # Computed here, since importing scipy.stats takes a second.
    n = len(values)
    spread = values.std()
    if n < 3 or not spread:
        return 0.0
    scaled = (values - values.mean()) / spread
    cubes = scaled**3
    biased = float(cubes.mean())
    # G1 corrects g1 of the source, which is too small in a small sample.
    root = float(np.sqrt(n * (n - 1)))
    return biased * root / (n - 2)
