"""A model's decisions beside people's: the difference with an interval from both sides.

Both sides vary: other people would have decided otherwise, and so would other runs of the model.
The unit of the model is a run, whose players may see one another; that of the people is a person,
as the study counts them. A difference that is not significant says nothing of likeness. Only an
interval that lies inside the margin does (Schuirmann 1987).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from llmsim_lab.people import PublishedFigure
from llmsim_lab.people.figures import LEAST_GROUPS, MARGIN
from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, is_share
from llmsim_lab.study.estimates.paired import is_skewed
from llmsim_lab.study.estimates.parts import Spread
from llmsim_lab.study.estimates.student import Stratum, Student, spread_of, student

Near = Literal["near", "far", "undecided", "not judged"]

SPREAD_MARGIN = 2.0
"""The ratio of spreads that still counts as near; likewise its inverse."""
LEAST_FOR_SPREAD = 30
"""Below, the ratio of spreads has none: with 10 groups it covered .90 of 95 %, with 20 .93."""
ALPHA = 0.05
HALVES = 500
"""Random halves of the people."""
_SEED = 61

FEW_GROUPS = f"fewer than {LEAST_GROUPS} groups: no interval"
MEAN_ONLY = "mean only: the study gives neither people's values nor a count"
ALL_SAME = "all groups are equal, so that people's spread alone shows how others would vary"
SKEWED = "skewed: a mean's interval is too narrow then"


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
    """A value with its interval, and what follows for a margin."""

    value: float | None
    interval: Interval | None
    near: Near


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
    verdict: str = ""
    notes: tuple[str, ...] = ()


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
    means = np.array([group.mean() for group in groups])
    of_shares = figure.count is not None and is_share(decisions)
    notes: tuple[str, ...] = ()
    value = float(means.mean() - figure.mean)
    difference = Closeness(value, None, "not judged")
    if len(groups) < LEAST_GROUPS:
        notes = (FEW_GROUPS,)
    elif figure.is_mean_only:
        notes = (MEAN_ONLY,)
    else:
        t = _difference(groups, figure)
        difference = _closeness(value, t, margins.mean, margins.level)
        if means.std() <= ROUNDING and not of_shares:
            notes = (ALL_SAME,)
        elif not of_shares and is_skewed(means):
            notes = (SKEWED,)
    if figure.note:
        notes = (*notes, figure.note)
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
        parts = _with_distance(parts, decisions, figure, margins)
    elif of_shares:
        parts = replace(parts, distance=Closeness(abs(value), None, "not judged"))
    return replace(parts, verdict=_verdict(parts))


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
    count = len(means)
    players = float(np.mean([len(group) for group in groups]))
    squares = (count - 1) * float(means.var(ddof=1)) + 2 * sd**2 / players
    model = Spread(squares / (count + 1) / count, count - 1)
    people = Spread(sd**2 / figure.n, figure.n - 1)
    return student(float(means.mean()) - figure.mean, [model, people])


def _difference_of_shares(means: Numbers, count: float, n: int) -> Student:
    """Return Student's t where people's side is a count.

    A 0 and a 1 more on each side, as Agresti and Caffo (2000) have it; differs: of runs with
    several decisions each the mean's own variance counts, and a printed percentage need be no whole
    number of people.
    """
    share = (count + 1) / (n + 2)
    people = Spread(share * (1 - share) / (n + 2), math.inf)
    if is_share(means):
        runs = len(means) + 2
        centre = (float(means.sum()) + 1) / runs
        model = Spread(centre * (1 - centre) / runs, math.inf)
        return student(centre - share, [model, people])
    model = spread_of([[Stratum(1.0, means)]])
    return student(float(means.mean()) - share, [model, people])


def _welch(centre: float, model: Spread, people: Spread) -> Student:
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
    interval = t.interval(level)
    near: Near = "undecided"
    if t.p_beyond(margin) < ALPHA:
        near = "near"
    elif interval.low > margin or interval.high < -margin:
        near = "far"
    return Closeness(value, interval, near)


def _spread(groups: list[Numbers], figure: PublishedFigure, margins: Margins) -> Closeness:
    """Return the ratio of spreads, with an interval where people's values are known.

    The interval is that of the jackknifed log variance: Miller (1968), "Jackknifing variances",
    Annals of Mathematical Statistics 39; differs: of the model a whole run is left out at a time.
    """
    decisions = np.concatenate(groups)
    sd = float(decisions.std(ddof=1)) if len(decisions) > 1 else 0.0
    ratio = sd / figure.sd if figure.sd else math.inf
    if len(groups) < LEAST_GROUPS or not figure.values or not figure.sd:
        return Closeness(ratio, None, "not judged")
    if sd <= ROUNDING:
        return Closeness(0.0, None, "far")
    if len(groups) < LEAST_FOR_SPREAD:
        return Closeness(ratio, None, "undecided")
    model = _pseudo_values(groups)
    people = _pseudo_values([np.array([value]) for value in figure.values])
    if model is None or people is None:  # but for one run all are equal
        return Closeness(ratio, None, "far")
    of_model = spread_of([[Stratum(1.0, model)]])
    of_people = spread_of([[Stratum(1.0, people)]])
    t = _welch(float(model.mean() - people.mean()), of_model, of_people)
    of_log = _closeness(math.log(ratio), t, math.log(margins.spread), margins.level)
    interval = None
    if of_log.interval is not None:
        interval = Interval(math.exp(of_log.interval.low), math.exp(of_log.interval.high))
    return Closeness(ratio, interval, of_log.near)


def _pseudo_values(groups: list[Numbers]) -> Numbers | None:
    """Return the jackknife's pseudo-values of the log standard deviation, a group left out each.

    None where nothing varies without one of them.
    """
    count = len(groups)
    sizes = np.array([len(group) for group in groups])
    sums = np.array([group.sum() for group in groups])
    squares = np.array([(group**2).sum() for group in groups])
    left = sizes.sum() - sizes
    total = sums.sum() - sums
    variances = (squares.sum() - squares - total**2 / left) / (left - 1)
    if variances.min() <= ROUNDING**2:
        return None
    whole = math.log(np.concatenate(groups).std(ddof=1))
    return np.asarray(count * whole - (count - 1) * 0.5 * np.log(variances))


def _with_distance(
    parts: PeopleParts,
    decisions: Numbers,
    figure: PublishedFigure,
    margins: Margins,
) -> PeopleParts:
    """Return parts with the distance of distributions, and what halves of the people have."""
    from scipy.stats import wasserstein_distance  # here, since stats takes a second to import

    value = float(wasserstein_distance(decisions, figure.values))
    halves = halves_of(figure.values)
    # People's own halves are that far apart by chance.
    near: Near = "far" if value > max(margins.mean, halves.high) else "near"
    return replace(parts, distance=Closeness(value, None, near), halves=halves)


@lru_cache(maxsize=64)  # the same people stand beside each arm
def halves_of(people: tuple[float, ...]) -> Halves:
    """Return how far apart random halves of the people are: no model can be asked for more."""
    from scipy.stats import wasserstein_distance  # here, since stats takes a second to import

    rng = np.random.default_rng(_SEED)
    half = len(people) // 2
    distances = []
    for _ in range(HALVES):
        shuffled = rng.permutation(people)
        distances.append(wasserstein_distance(shuffled[:half], shuffled[half:]))
    return Halves(float(np.median(distances)), float(np.quantile(distances, 0.95)))


def _verdict(parts: PeopleParts) -> str:
    """Return what follows from all that is judged: likeness has to be shown, not assumed."""
    if parts.difference.near == "not judged":
        return "not judged"
    judged = [parts.difference.near, parts.spread.near, parts.distance.near]
    if "far" in judged:
        return "unlike people"
    if "undecided" in judged:
        return "undecided"
    return "like people"


def groups_for(figure: PublishedFigure, margin: float, *, power: float = 0.8) -> int | None:
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
    reach = float(norm.ppf(1 - ALPHA) + norm.ppf((1 + power) / 2))
    left = (margin / reach) ** 2 - variance / figure.n
    if left <= 0:
        return None
    least = LEAST_FOR_SPREAD if figure.values else LEAST_GROUPS
    return max(least, math.ceil(variance / left))
