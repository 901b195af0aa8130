"""A model's decisions beside people's: the difference with an interval from both sides.

Both sides vary: other people would have decided otherwise, and so would other runs of the model.
The unit of the model is a run, whose players may see one another; that of the people is a person,
as the study counts them. Where the model's probabilities are known its side does not vary, and an
interval is of the people alone. A difference that is not significant says nothing of likeness. Only
an interval that lies inside the margin does (Schuirmann 1987).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from llmsim_lab.people import PublishedFigure
from llmsim_lab.people.figures import LEAST_GROUPS, MARGIN
from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.family import holm
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, is_share
from llmsim_lab.study.estimates.paired import is_skewed
from llmsim_lab.study.estimates.parts import Spread
from llmsim_lab.study.estimates.student import Stratum, Student, spread_of, student

Near = Literal["near", "far", "undecided", "not judged"]

SPREAD_MARGIN = 2.0
"""The ratio of spreads that still counts as near; likewise its inverse."""
LEAST_FOR_SPREAD = 30
"""Below, spreads and distances are not judged. With 10 groups the ratio's interval covered .90 of
95 %, with 20 .93; with 5 draws from people their distance was "unlike" them in .12."""
ALPHA = 0.05
DRAWS = 10_000
"""Of random weights of the people: a p-value is known to .0001."""
HALVES = 500
"""Random halves of the people."""
_SEED = 61
_LEAST_VARIANCE = 1e-12
"""Of a difference of shares at its margin: the division is then by no 0."""

FEW_GROUPS = f"fewer than {LEAST_GROUPS} groups: no interval"
MEAN_ONLY = "mean only: the study gives neither people's values nor a count"
ALL_SAME = "all groups are equal, so that people's spread alone shows how others would vary"
ALIKE = "all people did the same, which does not show how others would vary: no interval"
SKEWED = "skewed: a mean's interval is too narrow then"
NOT_BOUNDED = (
    "skewed, and not all from 0 to 1: the interval is too narrow and shows no likeness; shares of "
    "what was at stake have one that holds"
)
EXACT = "exact probabilities: the interval is of the people alone"

Verdict = Literal["like people", "unlike people", "undecided", "not judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """What still counts as near.

    Attributes:
        mean: the difference of means, and the distance of distributions, in the measure's unit.
        spread: the ratio of standard deviations; likewise its inverse.
        level: of the intervals.
    """

    mean: float = MARGIN
    spread: float = SPREAD_MARGIN
    level: float = 0.95


class Closeness(NamedTuple):
    """A value with its interval, and what follows for a margin.

    Attributes:
        value: what is compared; None where it is not known.
        interval: of it.
        near: what follows.
        p_near: of the test that it is inside the margin; 1 where that is not shown, whatever
            the family of tests.
        p_far: of the test that it is outside, on either side; 0 where no chance is involved.
    """

    value: float | None
    interval: Interval | None
    near: Near
    p_near: float = 1.0
    p_far: float = 1.0


class Weighted(NamedTuple):
    """A model's decisions with the exact probability of each."""

    values: Numbers
    weights: Numbers

    @property
    def mean(self) -> float:
        """The expectation."""
        return float(self.weights @ self.values)

    @property
    def sd(self) -> float:
        """The standard deviation."""
        squares = (self.values - self.mean) ** 2
        return math.sqrt(float(self.weights @ squares))


class LimitDraws(NamedTuple):
    """Draws of two confidence limits: the quantiles of ``lower`` and of ``upper``."""

    lower: Numbers
    upper: Numbers


class LimitsOfPeople(NamedTuple):
    """The limits of all people's mean, and of their standard deviation."""

    mean: LimitDraws
    sd: LimitDraws


class Halves(NamedTuple):
    """The distance of one random half of the people from the other: its median, and 95 %."""

    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleParts:
    """What is found of one measure.

    Attributes:
        difference: the model's mean minus the people's.
        spread: the model's standard deviation over the people's; of shares it says nothing more.
        distance: of the two distributions, the mean distance that a value would have to be moved
            (Wasserstein); of shares the difference. None without people's values.
        halves: how far apart halves of the people are; None without people's values.
        verdict: what follows from all that is judged.
        notes: a sentence each.
    """

    difference: Closeness
    spread: Closeness
    distance: Closeness
    halves: Halves | None = None
    verdict: Verdict = "not judged"
    notes: tuple[str, ...] = ()

    @property
    def p_like(self) -> float:
        """P-value of likeness: that of the worst of its parts, all of which have to be shown."""
        if self.distance.near == "far":
            return 1.0
        parts = (self.difference, self.spread)
        p_values = [part.p_near for part in parts if part.near != "not judged"]
        return max(p_values, default=1.0)

    @property
    def p_unlike(self) -> float:
        """P-value of unlikeness: that of the best of its parts, one of which is enough."""
        if self.distance.near == "far":
            return 0.0
        return min(1.0, 2 * min(self.difference.p_far, self.spread.p_far))


def compare_numbers(
    groups: list[Numbers],
    figure: PublishedFigure,
    margins: Margins,
) -> PeopleParts:
    """Return how a model's decisions compare with people's.

    Args:
        groups: the decisions of each run.
        figure: what people did.
        margins: what counts as near.
    """
    decisions = np.concatenate(groups)
    # Players of a run may see one another, so that a run is one unit, by its mean.
    means = np.array([group.mean() for group in groups])
    of_shares = figure.count is not None and is_share(decisions)
    notes: tuple[str, ...] = ()
    value = float(means.mean() - figure.mean)
    difference = Closeness(value, None, "not judged")
    if figure.is_mean_only:
        notes = (MEAN_ONLY,)
    elif len(groups) < LEAST_GROUPS:
        notes = (FEW_GROUPS,)
    else:
        t = _difference(groups, figure)
        difference = _closeness(value, t, margins.mean, margins.level)
        if figure.count is not None and is_share(means):
            difference = _judged_by_score(difference, means, figure, margins)
        # Of shares the 0 and the 1 more in their interval stand for what equal runs do not show.
        if difference.interval is None:
            notes = (ALIKE,)
        elif means.std() <= ROUNDING and not of_shares:
            notes = (ALL_SAME,)
        elif not of_shares and is_skewed(means):
            notes = (SKEWED,)
    if figure.note:
        notes = (*notes, figure.note)
    # A share's spread follows from the share.
    spread = Closeness(None, None, "not judged")
    if figure.sd is not None and not of_shares:
        spread = _spread(groups, figure, margins)
    parts = PeopleParts(
        difference=difference,
        spread=spread,
        distance=Closeness(None, None, "not judged"),
        notes=notes,
    )
    if figure.values:
        even = np.full(len(decisions), 1 / len(decisions))
        parts = _with_distance(parts, Weighted(decisions, even), figure, margins)
        if len(groups) < LEAST_FOR_SPREAD:
            # A few draws from people lie further from them by chance than their own halves do.
            undecided = parts.distance._replace(near="undecided")
            parts = replace(parts, distance=undecided)
    elif of_shares:
        parts = replace(
            parts,
            distance=Closeness(abs(value), None, "not judged"),
        )
    return replace(parts, verdict=_verdict(parts))


def compare_law(
    model: Weighted,
    figure: PublishedFigure,
    margins: Margins,
) -> PeopleParts:
    """Return how a model's exact probabilities compare with what people did.

    Args:
        model: its decisions with their probabilities.
        figure: what people did.
        margins: what counts as near.
    """
    of_shares = figure.count is not None and is_share(model.values)
    value = model.mean - figure.mean
    difference = Closeness(value, None, "not judged")
    notes: tuple[str, ...] = (EXACT,)
    # A mean alone does not tell how much other people's would vary, however well ours is known.
    if figure.is_mean_only:
        notes = (MEAN_ONLY,)
    elif figure.count is not None:
        difference = _share_of_law(
            model.mean,
            figure.count,
            figure.n,
            margins,
        )
    elif _is_bounded(figure.values):
        difference = _mean_of_law(model.mean, figure, margins)
    else:
        sd = figure.sd or 0.0
        t = student(value, [Spread(sd**2 / figure.n, figure.n - 1)])
        difference = _closeness(value, t, margins.mean, margins.level)
        if difference.interval is None:
            notes = (*notes, ALIKE)
        elif figure.values and is_skewed(np.array(figure.values)):
            notes = (*notes, NOT_BOUNDED)
            difference = _never_near(difference)
    if figure.note:
        notes = (*notes, figure.note)
    spread = Closeness(None, None, "not judged")
    if figure.sd is not None and not of_shares:
        spread = _spread_of_law(model, figure, margins)
    if NOT_BOUNDED in notes:
        spread = _never_near(spread)
    parts = PeopleParts(
        difference=difference,
        spread=spread,
        distance=Closeness(None, None, "not judged"),
        notes=notes,
    )
    if figure.values:
        parts = _with_distance(parts, model, figure, margins)
    elif of_shares:
        parts = replace(
            parts,
            distance=Closeness(abs(value), None, "not judged"),
        )
    return replace(parts, verdict=_verdict(parts))


def _never_near(part: Closeness) -> Closeness:
    """Return a part that shows no likeness: Student's t of few and skewed people is too narrow."""
    near = part.near
    if near == "near":
        near = "undecided"
    return part._replace(near=near, p_near=1.0)


def _is_bounded(values: tuple[float, ...]) -> bool:
    """Return True for values of people who could give all or nothing, 0 to 1."""
    # From the values, as no study prints its bounds: what is a share here is one in every world.
    return bool(values) and min(values) >= 0 and max(values) <= 1


@lru_cache(maxsize=64)  # the same people stand beside each arm
def limits_of(people: tuple[float, ...]) -> LimitsOfPeople:
    """Return limits of what all people do, of whom these are some; all do something from 0 to 1.

    One person more is put among them, the extreme one whom chance may have left out, and each has
    a random weight. Of the mean, with a person at 0 or 1, these are the limits of Gaffke (2005),
    "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
    variable", Mathematical Methods of Statistics 14; see Learned-Miller and Thomas (2019), "A new
    confidence interval for the mean of a bounded random variable", arXiv 1905.06208. Of shares they
    are those of Clopper and Pearson; for other distributions the level is proven in special cases
    only, and no exception is known. Of the standard deviation, which is ours and measured, the one
    more is at the farther end, or at the mean. Student's t and the jackknife, used before, covered
    .917 and .858 of 95 % beside 24 people of whom 17 did the same.
    """
    rng = np.random.default_rng(_SEED)
    mean = float(np.mean(people))
    # Weights that sum to 1 are exponential numbers over their sum; of equal people to a gamma.
    totals = np.zeros(DRAWS)
    sums = np.zeros(DRAWS)
    squares = np.zeros(DRAWS)
    for value, count in sorted(Counter(people).items()):
        weights = rng.standard_gamma(count, DRAWS)
        totals += weights
        sums += weights * value
        squares += weights * value**2
    one_more = rng.standard_exponential(DRAWS)
    totals += one_more

    def means(extreme: float) -> Numbers:
        return np.asarray((sums + one_more * extreme) / totals)

    def sds(extreme: float) -> Numbers:
        variances = (squares + one_more * extreme**2) / totals - means(extreme) ** 2
        # Weights that vary leave that much of the variance out, on average.
        missing = (len(people) + 1) / len(people)
        return np.sqrt(variances.clip(min=0) * missing)

    farther = 1.0 if mean < 0.5 else 0.0
    return LimitsOfPeople(
        mean=LimitDraws(lower=means(0.0), upper=means(1.0)),
        sd=LimitDraws(lower=sds(mean), upper=sds(farther)),
    )


class _Location(NamedTuple):
    """Where a figure of all people lies: its interval, and what follows for two bounds."""

    interval: Interval
    near: Near
    p_near: float
    p_far: float


def _location_of(
    limits: LimitDraws,
    least: float,
    most: float,
    level: float,
) -> _Location:
    """Return where a figure lies, and whether it is shown to be within two bounds.

    Args:
        limits: of the figure.
        least: what is near.
        most: likewise.
        level: of the interval.
    """
    reach = (1 - level) / 2
    # Near takes both bounds, far one of them: both are one-sided tests.
    p_near = max(_share_of(limits.lower <= least), _share_of(limits.upper >= most))
    p_far = min(_share_of(limits.upper >= least), _share_of(limits.lower <= most))
    near: Near = "undecided"
    if p_near < ALPHA:
        near = "near"
    elif p_far < reach:
        near = "far"
    # Each side has its own draws: the one more stands at the other end.
    low = float(np.quantile(limits.lower, reach))
    high = float(np.quantile(limits.upper, 1 - reach))
    return _Location(Interval(low, high), near, p_near, p_far)


def _share_of(draws: NDArray[np.bool_]) -> float:
    # One draw more, so that no p-value is 0.
    return float(draws.sum() + 1) / (len(draws) + 1)


def _mean_of_law(
    mean: float,
    figure: PublishedFigure,
    margins: Margins,
) -> Closeness:
    """Return a known mean minus people's, whose values are shares of what was at stake."""
    people = _location_of(
        limits_of(figure.values).mean,
        mean - margins.mean,
        mean + margins.mean,
        margins.level,
    )
    interval = Interval(mean - people.interval.high, mean - people.interval.low)
    return Closeness(mean - figure.mean, interval, people.near, people.p_near, people.p_far)


def _share_of_law(
    mean: float,
    count: float,
    n: int,
    margins: Margins,
) -> Closeness:
    """Return a known share minus people's, whose binomial count alone varies by chance.

    Interval and tests are exact: Clopper and Pearson (1934), "The use of confidence or fiducial
    limits illustrated in the case of the binomial", Biometrika 26. An approximation with the
    observed variance called a share at the margin near in .09 in place of .05, where it is small.
    """
    reach = (1 - margins.level) / 2
    # Where nobody did it, or all, the beta distribution has no such quantile.
    lowest = 0.0
    if count > 0:
        lowest = float(special.betaincinv(count, n - count + 1, reach))
    highest = 1.0
    if count < n:
        highest = float(special.betaincinv(count + 1, n - count, 1 - reach))
    least = mean - margins.mean
    most = mean + margins.mean
    # That people's true share is below what is near, or above.
    p_near = max(_p_at_least(count, n, least), _p_at_most(count, n, most))
    p_far = min(_p_at_most(count, n, least), _p_at_least(count, n, most))
    near: Near = "undecided"
    if p_near < ALPHA:
        near = "near"
    elif p_far < reach:
        near = "far"
    interval = Interval(mean - highest, mean - lowest)
    return Closeness(mean - count / n, interval, near, p_near, p_far)


def _p_at_least(
    count: float,
    n: int,
    share: float,
) -> float:
    """Return how likely as many or more of n people do what a share of all people does.

    A count may be of a printed percentage, and no whole number.
    """
    if share <= 0:
        return 0.0
    if share >= 1 or count <= 0:
        return 1.0
    return float(
        special.betainc(
            count,
            n - count + 1,
            share,
        )
    )


def _p_at_most(
    count: float,
    n: int,
    share: float,
) -> float:
    """Return how likely as many or fewer of n people do what a share of all people does."""
    return _p_at_least(n - count, n, 1 - share)


def _judged_by_score(
    difference: Closeness,
    means: Numbers,
    figure: PublishedFigure,
    margins: Margins,
) -> Closeness:
    """Return a difference of two shares, near or not by the score test of each margin.

    Its variance is that of the shares most likely at the margin: Farrington and Manning (1990),
    "Test statistics and sample size formulae for comparative binomial trials with null hypothesis
    of non-zero risk difference or non-unity relative risk", Statistics in Medicine 9. With the
    observed variance as much as .067 of shares at the margin were called near, of .05.
    """
    value = float(means.mean()) - figure.mean
    below = (value - margins.mean) / _error_at(margins.mean, means, figure)
    above = (value + margins.mean) / _error_at(-margins.mean, means, figure)
    p_near = float(max(special.ndtr(below), special.ndtr(-above)))
    near = difference.near
    if p_near < ALPHA:
        near = "near"
    elif near == "near":
        near = "undecided"
    return difference._replace(near=near, p_near=p_near)


def _error_at(
    margin: float,
    means: Numbers,
    figure: PublishedFigure,
) -> float:
    """Return the standard error of a difference of shares if the true one is the margin.

    The likeliest shares at that difference are the root of a cubic, as Farrington and Manning have
    it in their appendix.
    """
    runs = len(means)
    share = float(means.mean())
    ratio = figure.n / runs
    cubic = 1 + ratio
    square = -(1 + ratio + share + ratio * figure.mean + margin * (ratio + 2))
    linear = margin**2 + margin * (2 * share + ratio + 1) + share + ratio * figure.mean
    constant = -share * margin * (1 + margin)
    centre = square / (3 * cubic)
    turning = centre**3 - square * linear / (6 * cubic**2) + constant / (2 * cubic)
    # Rounding may leave a square a little below 0, and a cosine a little beyond 1.
    squared = max(0.0, centre**2 - linear / (3 * cubic))
    radius = math.copysign(math.sqrt(squared), turning)
    angle = 0.0
    if radius:
        angle = math.acos(min(1.0, max(-1.0, turning / radius**3)))
    root = 2 * radius * math.cos((math.pi + angle) / 3) - centre
    of_model = min(1.0, max(0.0, root))
    of_people = min(1.0, max(0.0, root - margin))
    variance_of_model = of_model * (1 - of_model) / runs
    variance_of_people = of_people * (1 - of_people) / figure.n
    return math.sqrt(max(variance_of_model + variance_of_people, _LEAST_VARIANCE))


def _spread_of_law(
    model: Weighted,
    figure: PublishedFigure,
    margins: Margins,
) -> Closeness:
    """Return the ratio of spreads, with an interval where people's values are known."""
    ratio = model.sd / figure.sd if figure.sd else math.inf
    if not figure.values or not figure.sd:
        return Closeness(ratio, None, "not judged")
    # One answer whatever happens: no logarithm, and no chance in it either.
    if model.sd <= ROUNDING:
        return Closeness(0.0, None, "far", p_far=0.0)
    if _is_bounded(figure.values):
        people = _location_of(
            limits_of(figure.values).sd,
            model.sd / margins.spread,
            model.sd * margins.spread,
            margins.level,
        )
        # The more people vary, the smaller the ratio.
        low = model.sd / people.interval.high
        high = model.sd / people.interval.low
        interval = Interval(low, high)
        return Closeness(ratio, interval, people.near, people.p_near, people.p_far)
    jackknifed = _pseudo_values([np.array([value]) for value in figure.values])
    if jackknifed is None:
        return Closeness(ratio, None, "far", p_far=0.0)
    of_people = spread_of([[Stratum(1.0, jackknifed)]])
    t = student(math.log(model.sd) - float(jackknifed.mean()), [of_people])
    return _ratio(ratio, t, margins)


def _difference(groups: list[Numbers], figure: PublishedFigure) -> Student:
    """Return Student's t of the difference of means, with both sides' chance; the fewest df count.

    The model's variance is that of its runs and of two more with people's spread, as shares have a
    0 and a 1 more: offers gather at a few amounts, so that five runs are often all equal by chance
    (the plain variance covered .88 to .92 of 95 % there, this one .97 and more).
    """
    means = np.array([group.mean() for group in groups])
    if figure.count is not None:
        return _difference_of_shares(means, figure.count, figure.n)
    sd = figure.sd or 0.0
    # Two more runs of as many players as there are in one, whose mean varies the less.
    count = len(means)
    players = float(np.mean([len(group) for group in groups]))
    of_runs = (count - 1) * float(means.var(ddof=1))
    squares = of_runs + 2 * sd**2 / players
    model = Spread(squares / (count + 1) / count, count - 1)
    people = Spread(sd**2 / figure.n, figure.n - 1)
    return student(float(means.mean()) - figure.mean, [model, people])


def _difference_of_shares(
    means: Numbers,
    count: float,
    n: int,
) -> Student:
    """Return Student's t where people's side is a count.

    A 0 and a 1 more on each side, as Agresti and Caffo (2000) have it; differs: of runs with
    several decisions each the mean's own variance counts, and a printed percentage need be no whole
    number of people.
    """
    share = (count + 1) / (n + 2)
    people = Spread(share * (1 - share) / (n + 2), math.inf)
    # One decision a run: its mean is the decision, and the count is binomial.
    if is_share(means):
        runs = len(means) + 2
        centre = (float(means.sum()) + 1) / runs
        model = Spread(centre * (1 - centre) / runs, math.inf)
        return student(centre - share, [model, people])
    model = spread_of([[Stratum(1.0, means)]])
    return student(float(means.mean()) - share, [model, people])


def _welch(
    centre: float,
    model: Spread,
    people: Spread,
) -> Student:
    """Return Student's t with Satterthwaite's degrees of freedom for both sides together."""
    variance = model.variance + people.variance
    squares = model.variance**2 / model.df
    if math.isfinite(people.df):
        squares += people.variance**2 / people.df
    df = variance**2 / squares if squares else people.df
    return Student(centre, math.sqrt(variance), df)


def _closeness(
    value: float,
    t: Student,
    margin: float,
    level: float,
) -> Closeness:
    """Return a difference with its interval; near if it is shown to be inside the margin."""
    # An interval without a width would claim to know what nobody has seen.
    if t.error == 0:
        return Closeness(value, None, "not judged")
    interval = t.interval(level)
    # The test has the level .05 whatever that of the interval, as ALPHA has it everywhere.
    p_near = t.p_beyond(margin)
    near: Near = "undecided"
    if p_near < ALPHA:
        near = "near"
    elif interval.low > margin or interval.high < -margin:
        near = "far"
    # The one-sided test of the side on which the value is, turned round.
    return Closeness(value, interval, near, p_near, 1 - p_near)


def _ratio(
    ratio: float,
    t: Student,
    margins: Margins,
) -> Closeness:
    """Return a ratio of spreads from Student's t of its logarithm."""
    of_log = _closeness(
        math.log(ratio),
        t,
        math.log(margins.spread),
        margins.level,
    )
    if of_log.interval is None:
        return of_log
    low, high = of_log.interval
    return of_log._replace(
        value=ratio,
        interval=Interval(math.exp(low), math.exp(high)),
    )


def _spread(
    groups: list[Numbers],
    figure: PublishedFigure,
    margins: Margins,
) -> Closeness:
    """Return the ratio of spreads, with an interval where people's values are known.

    The interval is that of the jackknifed log variance: Miller (1968), "Jackknifing variances",
    Annals of Mathematical Statistics 39; differs: of the model a whole run is left out at a time.
    """
    # All decisions together: how much groups differ is part of how much players do.
    decisions = np.concatenate(groups)
    sd = float(decisions.std(ddof=1)) if len(decisions) > 1 else 0.0
    ratio = sd / figure.sd if figure.sd else math.inf
    if len(groups) < LEAST_GROUPS or not figure.values or not figure.sd:
        return Closeness(ratio, None, "not judged")
    # Also of equal ones: of people of whom most decide alike, a few are often all equal.
    if len(groups) < LEAST_FOR_SPREAD:
        return Closeness(ratio, None, "undecided")
    if sd <= ROUNDING:
        return Closeness(0.0, None, "far", p_far=0.0)
    model = _pseudo_values(groups)
    people = _pseudo_values([np.array([value]) for value in figure.values])
    if model is None or people is None:  # but for one run all are equal
        return Closeness(ratio, None, "far", p_far=0.0)
    of_model = spread_of([[Stratum(1.0, model)]])
    of_people = spread_of([[Stratum(1.0, people)]])
    t = _welch(
        float(model.mean() - people.mean()),
        of_model,
        of_people,
    )
    return _ratio(ratio, t, margins)


def _pseudo_values(groups: list[Numbers]) -> Numbers | None:
    """Return the jackknife's pseudo-values of the log standard deviation, a group left out each.

    None where nothing varies without one of them.
    """
    count = len(groups)
    decisions = np.concatenate(groups)
    # From the median, so that squares of equal values cancel out: of 0.1 they leave rounding.
    from_median = [group - np.median(decisions) for group in groups]
    sizes = np.array([len(group) for group in groups])
    sums = np.array([group.sum() for group in from_median])
    squares = np.array([(group**2).sum() for group in from_median])
    # From sums, since leaving one of n groups out n times would read all decisions n times.
    left = sizes.sum() - sizes
    total = sums.sum() - sums
    variances = (squares.sum() - squares - total**2 / left) / (left - 1)
    if variances.min() <= ROUNDING**2:
        return None
    whole = math.log(decisions.std(ddof=1))
    return np.asarray(count * whole - (count - 1) * 0.5 * np.log(variances))


def _with_distance(
    parts: PeopleParts,
    model: Weighted,
    figure: PublishedFigure,
    margins: Margins,
) -> PeopleParts:
    """Return parts with the distance of distributions, and what halves of the people have."""
    from scipy.stats import wasserstein_distance  # here, since stats takes a second to import

    value = float(
        wasserstein_distance(
            model.values,
            figure.values,
            model.weights,
        )
    )
    halves = halves_of(figure.values)
    # People's own halves are that far apart by chance.
    near: Near = "far" if value > max(margins.mean, halves.high) else "near"
    return replace(
        parts,
        distance=Closeness(value, None, near),
        halves=halves,
    )


@lru_cache(maxsize=64)  # the same people stand beside each arm
def halves_of(people: tuple[float, ...]) -> Halves:
    """Return how far apart random halves of the people are: no model can be asked for more."""
    rng = np.random.default_rng(_SEED)
    half = len(people) // 2
    shuffled = rng.permuted(
        np.tile(people, (HALVES, 1)),
        axis=1,
    )
    # Of equally many values Wasserstein's distance is that of their order statistics; of an odd
    # number of people one is left out.
    first_halves = np.sort(shuffled[:, :half])
    second_halves = np.sort(shuffled[:, half : 2 * half])
    distances = np.abs(first_halves - second_halves).mean(axis=1)
    median = float(np.median(distances))
    high = float(np.quantile(distances, 0.95))
    return Halves(median, high)


def _verdict(parts: PeopleParts) -> Verdict:
    """Return what follows from all that is judged: likeness has to be shown, not assumed."""
    if parts.difference.near == "not judged":
        return "not judged"
    # Any one of the three is enough to be unlike people; likeness takes all that are judged.
    judged = [parts.difference.near, parts.spread.near, parts.distance.near]
    if "far" in judged:
        return "unlike people"
    if "undecided" in judged:
        return "undecided"
    return "like people"


def family_verdicts(family: Sequence[PeopleParts]) -> list[Verdict]:
    """Return the verdicts of measures that are judged together, adjusted by Holm for their number.

    So that of all measures of a card none is called like people, or unlike them, wrongly in more
    than one card of twenty; of each by itself it would be one measure of twenty.
    """
    judged = [place for place, parts in enumerate(family) if parts.verdict != "not judged"]
    # Two families: a card may claim likeness and unlikeness, and errs in each by itself.
    likes = holm([family[place].p_like for place in judged])
    unlikes = holm([family[place].p_unlike for place in judged])
    verdicts: list[Verdict] = ["not judged"] * len(family)
    for place, p_like, p_unlike in zip(judged, likes, unlikes, strict=True):
        verdict: Verdict = "undecided"
        if family[place].verdict == "unlike people" and p_unlike < ALPHA:
            verdict = "unlike people"
        elif family[place].verdict == "like people" and p_like < ALPHA:
            verdict = "like people"
        verdicts[place] = verdict
    return verdicts


def groups_for(
    figure: PublishedFigure,
    margin: float,
    *,
    power: float = 0.8,
) -> int | None:
    """Return how many one-decision runs show likeness with a power, if the model is like people.

    Args:
        figure: what people did.
        margin: of the difference of means.
        power: how often it is to be shown.

    Returns:
        The number of runs, at least five, and thirty where spreads are compared; None where the
        people are too few for this margin, or their spread is not known.
    """
    from scipy.stats import norm  # here, since stats takes a second to import

    if figure.is_mean_only:
        return None
    if figure.count is not None:
        variance = figure.mean * (1 - figure.mean)
    else:
        variance = (figure.sd or 0.0) ** 2
    # Two one-sided tests of no difference at all are both to be passed.
    of_test = float(norm.ppf(1 - ALPHA))
    of_power = float(norm.ppf((1 + power) / 2))
    reach = of_test + of_power
    # What of the margin people's own uncertainty leaves for the model's.
    left = (margin / reach) ** 2 - variance / figure.n
    if left <= 0:
        return None
    least = LEAST_FOR_SPREAD if figure.values else LEAST_GROUPS
    return max(least, math.ceil(variance / left))
