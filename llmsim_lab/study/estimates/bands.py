"""Differences by turn, with a band that holds the whole curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmsim_lab.errors import ConfigError
from llmsim_lab.study.estimates.estimate import Generality, Unit
from llmsim_lab.study.estimates.numeric import (
    ROUNDING,
    Numbers,
    mean_of_known,
    without_rounding,
)
from llmsim_lab.study.estimates.samples import Layout, cube, place_of

DRAWS = 10_000
"""Of sets of curves; with 500 a seed's luck moves the probability by .01."""
_MOST_NUMBERS = 10_000_000
"""Drawn for one band: spreads of many long curves are drawn fewer times, and used again."""
_FEWEST_SPREADS = 500


class Ends(NamedTuple):
    """Both ends of a band, by turn."""

    low: Numbers
    high: Numbers


class Group(NamedTuple):
    """Curves of units of one kind.

    Attributes:
        weight: that their mean has in the difference.
        curves: units x turns, without NaN.
    """

    weight: float
    curves: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """What a difference by turn consists of.

    Attributes:
        turns: the turns.
        mean: the difference, by turn.
        groups: what varies by chance; the variances of the groups' means add up.
        n: how many units.
        unit: what a unit is.
    """

    turns: list[int]
    mean: Numbers
    groups: list[Group]
    n: int
    unit: Unit


def by_turn(
    table: pd.DataFrame,
    one: str,
    other: str,
    *,
    level: float = 0.95,
    generalises_to: Generality = "new runs",
    paired: bool = True,
) -> pd.DataFrame:
    """Return the difference of each turn with a band that holds for all turns at once.

    The units are those of ``effects``: pairs of runs; wordings, and runs, where an arm has several
    wordings; the runs of each arm where they are not paired.

    Args:
        table: rows of one outcome.
        one: an arm.
        other: the arm that is subtracted.
        level: of the band, for the whole curve.
        generalises_to: what the band holds for.
        paired: whether runs with the same seed are pairs.

    Returns:
        Columns turn, estimate, low, high, n, unit; n counts units that have a value at every turn.
    """
    # Stable, so that arms and runs keep the order of the design.
    table = table.sort_values("turn", kind="stable")
    arms = list(table["arm"].unique())
    for name in (one, other):
        place_of("arm", name, arms)
    is_compared = table["arm"].isin([one, other])
    table = table[is_compared]
    # Of the two arms: another one may have several wordings.
    wording_counts = table.groupby("arm")["wording"].nunique()
    has_wordings = wording_counts.max() > 1
    if has_wordings and "wordings" in generalises_to:
        curves = _curves_of_wordings(table, one, other, generalises_to)
    elif paired:
        curves = _curves_of_pairs(table, one, other)
    else:
        curves = _curves_of_groups(table, one, other)
    low, high = band(curves, level)
    return pd.DataFrame(
        {
            "turn": curves.turns,
            "estimate": curves.mean,
            "low": low,
            "high": high,
            "n": curves.n,
            "unit": curves.unit,
        }
    )


def _curves_of_pairs(
    table: pd.DataFrame,
    one: str,
    other: str,
) -> Curves:
    """Return the differences of runs with the same seed."""
    values, (arms, _, turns) = cube(
        table,
        "arm",
        "run",
        "turn",
    )
    upper = values[arms.index(one)]
    lower = values[arms.index(other)]
    differences = without_rounding(upper - lower, values)
    complete = _complete(differences)
    if not len(complete):
        raise ConfigError(f"no pair of runs has numbers of {one!r} and {other!r} at every turn")
    return Curves(
        turns=turns,
        mean=mean_of_known(complete, 0),
        groups=[Group(1.0, complete)],
        n=len(complete),
        unit="run",
    )


def _complete(curves: Numbers) -> Numbers:
    """Return the curves that have a number at every turn."""
    # A run that ended early has no curve to its last turn, and would bend the mean there.
    is_complete = np.isfinite(curves).all(axis=1)
    return curves[is_complete]


def _curves_of_groups(
    table: pd.DataFrame,
    one: str,
    other: str,
) -> Curves:
    """Return the runs of each arm, which share nothing."""
    values, (arms, _, turns) = cube(
        table,
        "arm",
        "run",
        "turn",
    )
    # The variances of the arms' means add up, whatever their signs; see ``band``.
    groups = []
    for sign, arm in ((1.0, one), (-1.0, other)):
        complete = _complete(values[arms.index(arm)])
        if not len(complete):
            raise ConfigError(f"no run of {arm!r} has numbers at every turn")
        groups.append(Group(sign, complete))
    upper, lower = groups
    upper_mean = upper.curves.mean(axis=0)
    lower_mean = lower.curves.mean(axis=0)
    n = sum(len(group.curves) for group in groups)
    return Curves(
        turns=turns,
        mean=upper_mean - lower_mean,
        groups=groups,
        n=n,
        unit="run",
    )


def _curves_of_wordings(
    table: pd.DataFrame,
    one: str,
    other: str,
    generalises_to: Generality,
) -> Curves:
    """Return the mean of each wording, and of each run where new runs are spoken of."""
    values, (arms, _, _, turns) = cube(
        table,
        "arm",
        "wording",
        "run",
        "turn",
    )
    layout = Layout.of(table, generalises_to)
    signs = np.where(
        np.array(arms) == one,
        1.0,
        -1.0,
    )
    # Each run's difference, over the wordings; and below each wording's, over the runs.
    of_arms = mean_of_known(values, 1)
    of_runs = np.tensordot(signs, of_arms, 1)
    complete = np.isfinite(of_runs).all(axis=1)
    if not complete.any():
        raise ConfigError(f"no run has numbers of {one!r} and {other!r} at every turn")
    of_runs = of_runs[complete]
    of_wordings = mean_of_known(values[:, :, complete], 2)
    groups = []
    n = 0
    for number in np.unique(layout.wording_sets):
        of_set = layout.wording_sets == number
        # Where both arms ask the same wordings that is their difference, wording by wording.
        summed = np.tensordot(
            signs[of_set],
            of_wordings[of_set],
            1,
        )
        curves = _complete(summed)
        n += len(curves)
        if len(curves) > 1:
            groups.append(Group(1.0, curves))
    if generalises_to == "new wordings and situations":
        # Both vary by chance: the variance of the runs' means is added to that of the wordings'.
        groups.append(Group(1.0, of_runs))
    elif len(groups) < len(np.unique(layout.wording_sets)):
        # An arm has one wording, and nothing shows how its answers vary in these runs.
        groups = []
    if 2 in layout.wording_counts:
        # With two its t has one degree of freedom, and effects offers no interval either.
        groups = []
    return Curves(
        turns=turns,
        mean=of_runs.mean(axis=0),
        groups=groups,
        n=n,
        unit="wording",
    )


def band(
    curves: Curves,
    level: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ends:
    """Return both ends of a band that contains the whole true curve.

    The band is mean ± c · standard error at each turn, with the same c, so that with probability
    ``level`` it contains the true mean at all turns at once (Montiel Olea and Plagborg-Møller 2019,
    "Simultaneous confidence bands: theory, implementation, and an application to SVARs", Journal of
    Applied Econometrics 34). c is the quantile of the largest |t| of ``draws`` sets of as many
    normal curves. Differs from the source: their correlation is the sample's, shrunk towards none,
    since with few curves the sample's looks stronger than it is.

    Args:
        curves: the difference, and what varies in it.
        level: of the band.
        draws: of sets of curves.
        seed: of the draws.

    Returns:
        Ends are NaN where a group has fewer than two units; where all curves are equal at a turn,
        as before a shock, both are the mean.
    """
    mean = curves.mean
    sizes = [len(group.curves) for group in curves.groups]
    fewest = min(sizes, default=0)
    if fewest < 2:
        nothing = np.full(len(mean), np.nan)
        return Ends(nothing, nothing)
    covariance = np.zeros((len(mean), len(mean)))
    for group in curves.groups:
        covariance += group.weight**2 * _covariance_of_mean(group.curves)
    error = np.sqrt(np.diag(covariance))
    # A turn in which nothing varies has no t, and would divide by 0.
    moves = error > ROUNDING * np.abs(mean)
    if not moves.any():
        return Ends(mean, mean)
    moving = error[moves]
    of_moving = covariance[np.ix_(moves, moves)]
    correlation = of_moving / np.outer(moving, moving)
    independent = np.eye(len(correlation))
    shrunk = correlation + 1 / fewest * (independent - correlation)
    # The group that has the fewest units says how surely the errors are known.
    largest = _largest_t(shrunk, fewest, draws, seed)
    # Weibull's quantile is k / (draws + 1), as a permutation test counts, and rather too large.
    c = np.quantile(
        largest,
        level,
        method="weibull",
    )
    reach = c * error * moves
    return Ends(mean - reach, mean + reach)


def _covariance_of_mean(curves: Numbers) -> Numbers:
    n = len(curves)
    centred = curves - curves.mean(axis=0)
    # Not np.cov, which warns of a single curve and squeezes a single turn.
    return np.asarray(centred.T @ centred / (n - 1) / n)


def _largest_t(
    correlation: Numbers,
    n: int,
    draws: int,
    seed: int,
) -> Numbers:
    """Return the largest |t| over turns of sets of n normal curves."""
    # Draws that are multiplied by the root of a correlation matrix have that correlation.
    # Single precision is enough: a quantile of random draws is known less exactly.
    mix = np.linalg.cholesky(correlation).T.astype(np.float32)
    turns = len(mix)
    rng = np.random.default_rng(seed)
    most_sets = max(_FEWEST_SPREADS, _MOST_NUMBERS // (n * turns))
    sets = min(draws, most_sets)

    def normal_curves(count: int) -> NDArray[np.float32]:
        independent = rng.standard_normal(
            (count, turns),
            dtype=np.float32,
        )
        return independent @ mix

    # One product of two matrices: as thousands of small ones it takes ten times as long.
    drawn = normal_curves(sets * n).reshape(sets, n, turns)
    # The mean of n normal curves, and, independent of it, their variances with n - 1.
    means = drawn[:, 0]
    deviations = drawn[:, 1:]
    squares = np.einsum("dnh,dnh->dh", deviations, deviations)
    spread = np.sqrt(squares / (n - 1))
    t = np.abs(means / spread)
    largest = [t.max(axis=1)]
    # Of long curves the same spreads serve further means: drawing them is what takes long.
    for _ in range(sets, draws, sets):
        t = np.abs(normal_curves(sets) / spread)
        largest.append(t.max(axis=1))
    return np.concatenate(largest)
