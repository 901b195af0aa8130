"""Student's t over units, from means and variances of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special  # not stats, which takes a second to import

from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers
from llmsim_lab.study.estimates.parts import Parts, Spread

NO_VALUES = "an arm has no values"
TOO_COARSE = "takes two values only: too coarse for an interval"
ALL_ZERO = "all differences are exactly 0, so nothing shows how new ones would vary"
ALL_EQUAL = "all differences are equal, so nothing shows how new ones would vary"


class Stratum(NamedTuple):
    """A group of units, and the weight that its mean has in an estimate."""

    weight: float
    values: Numbers


def weighted_mean(strata: Sequence[Stratum]) -> float | None:
    """Return the sum of weighted means; None where a group is empty."""
    if not strata or not all(len(stratum.values) for stratum in strata):
        return None
    total = float(sum(stratum.weight * stratum.values.mean() for stratum in strata))
    # Weights such as 1 / 3 leave rounding where arms are equal, and "+0.00" would have a sign.
    if abs(total) <= 1e-12 * _scale(strata):
        return 0.0
    return total


def _scale(strata: Sequence[Stratum]) -> float:
    return float(max(np.abs(stratum.values).max() for stratum in strata))


def spread_of(blocks: Sequence[Sequence[Stratum]]) -> Spread:
    """Return the variance of the sum of weighted means; NaN if a group has fewer than two units.

    Degrees of freedom are those of the block that has the fewest: within a block Satterthwaite's
    (1946), "An approximate distribution of estimates of variance components", Biometrics Bulletin
    2. Over blocks his would be too many where their sizes differ much: Mickey and Brown (1966),
    "Bounds on the distribution functions of the Behrens-Fisher statistic", Annals of Mathematical
    Statistics 37.
    """
    variance = 0.0
    df = math.inf
    for block in blocks:
        sizes = np.array([len(stratum.values) for stratum in block])
        if sizes.min(initial=2) < 2 or not len(sizes):
            return Spread(math.nan, 0.0)
        parts = np.array([_variance_of_mean(stratum) for stratum in block])
        squares = (parts**2 / (sizes - 1)).sum()
        # Where nothing varies Satterthwaite's is 0 / 0.
        block_df = parts.sum() ** 2 / squares if squares else sizes.min() - 1
        df = min(df, float(block_df))
        variance += float(parts.sum())
    return Spread(variance, df)


def _variance_of_mean(stratum: Stratum) -> float:
    """Return the variance of a group's weighted mean."""
    of_values = stratum.values.var(ddof=1)
    return float(stratum.weight**2 * of_values / len(stratum.values))


def has_no_spread(spread: Spread, strata: Sequence[Stratum]) -> bool:
    """Return True if all differences are equal, but for rounding."""
    return math.sqrt(spread.variance) <= ROUNDING * _scale(strata)


class Student(NamedTuple):
    """Student's t: the centre of an interval, its standard error and degrees of freedom."""

    centre: float
    error: float
    df: float

    def interval(self, level: float) -> Interval:
        """Return centre ± quantile · error."""
        quantile = float(special.stdtrit(self.df, (1 + level) / 2))
        reach = quantile * self.error
        return Interval(self.centre - reach, self.centre + reach)

    def p(self) -> float:
        """Return the two-sided p-value of no difference."""
        t = abs(self.centre) / self.error
        return float(2 * special.stdtr(self.df, -t))

    def p_beyond(self, margin: float) -> float:
        """Return the larger p of two one-sided tests: the difference is ``margin`` or more.

        Source: Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15.
        """
        t = (abs(self.centre) - margin) / self.error
        return float(special.stdtr(self.df, t))

    def known_df(self) -> float | None:
        """Return the degrees of freedom; None for a normal distribution."""
        return self.df if math.isfinite(self.df) else None


def student(centre: float, spreads: Sequence[Spread]) -> Student:
    """Return Student's t of an estimate with several sources of chance; the fewest df count."""
    error = math.sqrt(sum(spread.variance for spread in spreads))
    # Satterthwaite's over all sources would be more; see spread_of.
    fewest_df = min(spread.df for spread in spreads)
    return Student(centre, error, fewest_df)


def with_student(
    parts: Parts,
    strata: Sequence[Stratum],
    spreads: Sequence[Spread],
    level: float,
    *,
    few: str = "",
    coarse: str = "",
) -> Parts:
    """Return parts with the weighted mean and Student's interval, or with the reason against one.

    Args:
        parts: with kind, n, method and notes.
        strata: whose weighted means are the estimate.
        spreads: of the estimate.
        level: of the interval.
        few: why there are too few units for an interval; empty if there are enough.
        coarse: why values are too coarse for one; empty if they are not.
    """
    value = weighted_mean(strata)
    if value is None:
        return replace(
            parts,
            method="none",
            notes=(*parts.notes, NO_VALUES),
        )
    parts = replace(parts, value=value)
    # The nearest reason alone: that values are coarse says nothing where all of them are equal.
    refusal = few
    if not few and all(has_no_spread(spread, strata) for spread in spreads):
        refusal = ALL_EQUAL if value else ALL_ZERO
    refusal = refusal or coarse
    if refusal:
        return replace(parts, notes=(*parts.notes, refusal))
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
    spreads: Sequence[Spread], *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Return the smallest true difference that a two-sided test at ``alpha`` finds.

    With one source of chance it is exact, by the noncentral t. With several it is simulated:
    each variance is drawn with its own degrees of freedom, and the test uses the fewest.

    Args:
        spreads: what the estimate's variance will consist of.
        alpha: of the test.
        power: how often it is found.
    """
    error = math.sqrt(sum(spread.variance for spread in spreads))
    df = min(spread.df for spread in spreads)
    reach = float(special.stdtrit(df, 1 - alpha / 2))
    if len(spreads) == 1:
        # At this power next to nothing, 1e-6 and less, is on the far side.
        noncentrality = float(special.nctdtrinc(df, 1 - power, reach))
        return error * noncentrality
    # No closed form: each draw says how large an effect its test would have missed.
    rng = np.random.default_rng(0)
    draws = 40_000
    variance = np.zeros(draws)
    for spread in spreads:
        scaled = rng.chisquare(spread.df, draws) / spread.df
        variance += spread.variance * scaled
    missed_by = reach * np.sqrt(variance) + error * rng.standard_normal(draws)
    return float(np.quantile(missed_by, power))


def at_upper_limit(spread: Spread) -> Spread:
    """Return a pilot's spread at its 80 % upper limit; its own is too small half of the time."""
    # chdtri takes the probability above: .8 of pilots have a variance above this share of the true.
    factor = spread.df / float(special.chdtri(spread.df, 0.8))
    return Spread(spread.variance * factor, spread.df)
