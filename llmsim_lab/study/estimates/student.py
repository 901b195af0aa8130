"""Student's t over units, from means and variances of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special  # scipy.stats takes a second to import

from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers
from llmsim_lab.study.estimates.parts import Parts, Spread

NO_VALUES = "an arm has no values"
TOO_COARSE = "takes two values only: too coarse for an interval"
ALL_ZERO = "all differences are exactly 0, so nothing shows how new ones would vary"
ALL_EQUAL = "all differences are equal, so nothing shows how new ones would vary"


class Stratum(NamedTuple):
    """A group of units, and the weight of its mean in an estimate."""

    weight: float
    values: Numbers


def weighted_mean(strata: Sequence[Stratum]) -> float | None:
    """Return the sum of weighted means; None where a group is empty."""
    smallest = min((len(stratum.values) for stratum in strata), default=0)
    if smallest == 0:
        return None
    total = 0.0
    for stratum in strata:
        total += stratum.weight * float(stratum.values.mean())
    # Weights such as 1 / 3 leave rounding where arms are equal, and 0 would be shown with a sign.
    if abs(total) <= 1e-12 * _scale(strata):
        return 0.0
    return total


def _scale(strata: Sequence[Stratum]) -> float:
    """Return the largest absolute value in the groups."""
    largest = [np.abs(stratum.values).max() for stratum in strata]
    return float(max(largest))


def spread_of(blocks: Sequence[Sequence[Stratum]]) -> Spread:
    """Return the variance of the sum of weighted means; NaN if a group has fewer than two units.

    The degrees of freedom are those of the block with the fewest. Within a block they are
    Satterthwaite's (1946), "An approximate distribution of estimates of variance components",
    Biometrics Bulletin 2. Across blocks of very different sizes his are too many: Mickey and Brown
    (1966),
    "Bounds on the distribution functions of the Behrens-Fisher statistic", Annals of Mathematical
    Statistics 37.
    """
    variance = 0.0
    df = math.inf
    for block in blocks:
        smallest = min((len(stratum.values) for stratum in block), default=0)
        if smallest < 2:
            return Spread(math.nan, 0.0)
        variances = np.array([_variance_of_mean(stratum) for stratum in block])
        dfs = np.array([len(stratum.values) - 1 for stratum in block])
        total = variances.sum()
        terms = variances**2 / dfs
        # Where nothing varies, Satterthwaite's formula is 0 / 0.
        block_df = float(smallest - 1)
        if terms.sum():
            block_df = float(total**2 / terms.sum())
        df = min(df, block_df)
        variance += float(total)
    return Spread(variance, df)


def _variance_of_mean(stratum: Stratum) -> float:
    """Return the variance of a group's weighted mean."""
    of_values = stratum.values.var(ddof=1)
    weighted = stratum.weight**2 * of_values
    return float(weighted / len(stratum.values))


def has_no_spread(spread: Spread, strata: Sequence[Stratum]) -> bool:
    """Return True if all differences are equal up to rounding."""
    error = math.sqrt(spread.variance)
    return error <= ROUNDING * _scale(strata)


class Student(NamedTuple):
    """Student's t: the centre of an interval, its standard error and degrees of freedom."""

    centre: float
    error: float
    df: float

    def interval(self, level: float) -> Interval:
        """Return centre ± quantile · error."""
        probability = (1 + level) / 2
        quantile = float(special.stdtrit(self.df, probability))
        reach = quantile * self.error
        return Interval(self.centre - reach, self.centre + reach)

    def p(self) -> float:
        """Return the two-sided p-value of no difference."""
        t = abs(self.centre) / self.error
        one_tail = special.stdtr(self.df, -t)
        return float(2 * one_tail)

    def p_beyond(self, margin: float) -> float:
        """Return the larger p-value of two one-sided tests of a difference of ``margin`` or more.

        Source: Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15.
        """
        # The test against the nearer margin has the larger p-value.
        distance = abs(self.centre) - margin
        t = distance / self.error
        return float(special.stdtr(self.df, t))

    def known_df(self) -> float | None:
        """The degrees of freedom; None for a normal distribution."""
        return self.df if math.isfinite(self.df) else None


def student(
    centre: float,
    spreads: Sequence[Spread],
) -> Student:
    """Return Student's t of an estimate with several sources of chance; the smallest df counts."""
    summed = _summed(spreads)
    error = math.sqrt(summed.variance)
    return Student(centre, error, summed.df)


def _summed(spreads: Sequence[Spread]) -> Spread:
    """Return the sum of several sources of chance."""
    variance = sum(spread.variance for spread in spreads)
    # Satterthwaite's degrees of freedom over all sources would be too many; see spread_of().
    fewest_df = min(spread.df for spread in spreads)
    return Spread(variance, fewest_df)


def with_student(
    parts: Parts,
    strata: Sequence[Stratum],
    spreads: Sequence[Spread],
    level: float,
    *,
    few: str = "",
    coarse: str = "",
) -> Parts:
    """Return parts with the weighted mean and Student's interval, or a note why there is none.

    Args:
        parts: with kind, n, method and notes.
        strata: the groups whose weighted means add up to the estimate.
        spreads: the sources of chance in the estimate.
        level: of the interval.
        few: the note if there are too few units for an interval; empty if there are enough.
        coarse: the note if values are too coarse for an interval; empty if they are not.
    """
    value = weighted_mean(strata)
    if value is None:
        without = replace(parts, method="none")
        return without.with_note(NO_VALUES)
    parts = replace(parts, value=value)
    # One reason is enough: coarse values do not matter where all values are equal.
    if few:
        return parts.with_note(few)
    if all(has_no_spread(spread, strata) for spread in spreads):
        return parts.with_note(ALL_EQUAL if value else ALL_ZERO)
    if coarse:
        return parts.with_note(coarse)
    t = student(value, spreads)
    return replace(
        parts,
        interval=t.interval(level),
        p=t.p(),
        df=t.known_df(),
        spreads=tuple(spreads),
        p_beyond=t.p_beyond,
    )


def smallest_detectable(
    spreads: Sequence[Spread],
    *,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Return the smallest true difference that a two-sided test detects.

    With one source of chance the result is exact, by the noncentral t. With several it is
    simulated: each variance is drawn with its own degrees of freedom, and the test uses the
    smallest of them.

    Args:
        spreads: the sources of variance of the planned estimate.
        alpha: the level of the test.
        power: how often the test is to detect the difference.
    """
    summed = _summed(spreads)
    error = math.sqrt(summed.variance)
    probability = 1 - alpha / 2
    critical_t = float(special.stdtrit(summed.df, probability))
    if len(spreads) == 1:
        # At this power the other tail has a probability of 1e-6 or less.
        noncentrality = special.nctdtrinc(
            summed.df,
            1 - power,
            critical_t,
        )
        return error * float(noncentrality)
    # Without a closed form: each draw tells how large an effect its test would have missed. The
    # seed is fixed, so that a plan is the same each time.
    rng = np.random.default_rng(0)
    draws = 40_000
    drawn_variance = np.zeros(draws)
    for spread in spreads:
        # An estimated variance is distributed as chi-squared divided by its degrees of freedom.
        scaled = rng.chisquare(spread.df, draws) / spread.df
        drawn_variance += spread.variance * scaled
    reach = critical_t * np.sqrt(drawn_variance)
    missed_by = reach + error * rng.standard_normal(draws)
    return float(np.quantile(missed_by, power))


def at_upper_limit(spread: Spread) -> Spread:
    """Return a pilot's spread at its upper 80 % limit, since half of all pilots vary too little."""
    # chdtri takes the upper tail: .8 of pilots have a variance above this share of the true one.
    low_quantile = float(special.chdtri(spread.df, 0.8))
    factor = spread.df / low_quantile
    return Spread(spread.variance * factor, spread.df)
