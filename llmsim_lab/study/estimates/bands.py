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
"""How many sets of curves are drawn; with 500, another seed moves the probability by .01."""
_MOST_NUMBERS = 10_000_000
"""Most numbers drawn for one band; with many long curves, spreads are drawn less and reused."""
_FEWEST_SPREADS = 500


class Ends(NamedTuple):
    """The lower and the upper end of a band, by turn."""

    low: Numbers
    high: Numbers


class Group(NamedTuple):
    """The curves of several units of one kind.

    Attributes:
        weight: the weight of their mean in the difference.
        curves: units x turns, without NaN.
    """

    weight: float
    curves: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A difference by turn, and the curves that it consists of.

    Attributes:
        turns: the turns.
        mean: the difference, by turn.
        groups: the curves that vary by chance; the variances of the groups' means add up.
        n: how many units there are.
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

    The units are those of ``effects``: pairs of runs; wordings and runs where an arm has several
    wordings; the runs of each arm if they are not paired.

    Args:
        table: rows of one outcome.
        one: an arm.
        other: the arm that is subtracted from it.
        level: of the band, for the whole curve.
        generalises_to: what the band holds for.
        paired: whether runs with the same seed are pairs.

    Returns:
        Columns turn, estimate, low, high, n, unit; n counts units with a value at every turn.
    """
    # A stable sort, so that arms and runs keep the order of the design.
    table = table.sort_values("turn", kind="stable")
    arms = list(table["arm"].unique())
    for name in (one, other):
        place_of("arm", name, arms)
    is_compared = table["arm"].isin([one, other])
    table = table[is_compared]
    # Among these two arms: a third may have several wordings.
    wording_counts = table.groupby("arm")["wording"].nunique()
    has_wordings = wording_counts.max() > 1
    if has_wordings and "wordings" in generalises_to:
        curves = _curves_of_wordings(table, one, other, generalises_to)
    else:
        curves = _curves_of_runs(table, one, other, paired=paired)
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


def _curves_of_runs(
    table: pd.DataFrame,
    one: str,
    other: str,
    *,
    paired: bool,
) -> Curves:
    """Return the differences of runs with the same seed; the runs of each arm if not paired."""
    values, (arms, _, turns) = cube(
        table,
        "arm",
        "run",
        "turn",
    )
    upper = values[arms.index(one)]
    lower = values[arms.index(other)]
    if paired:
        complete = _complete(without_rounding(upper - lower, values))
        if not len(complete):
            raise ConfigError(f"no pair of runs has numbers of {one!r} and {other!r} at every turn")
        groups = [Group(1.0, complete)]
    else:
        groups = []
        for weight, arm, runs in ((1.0, one, upper), (-1.0, other, lower)):
            complete = _complete(runs)
            if not len(complete):
                raise ConfigError(f"no run of {arm!r} has numbers at every turn")
            groups.append(Group(weight, complete))
    means = [group.weight * group.curves.mean(axis=0) for group in groups]
    return Curves(
        turns=turns,
        mean=np.sum(means, axis=0),
        groups=groups,
        n=sum(len(group.curves) for group in groups),
        unit="run",
    )


def _complete(curves: Numbers) -> Numbers:
    """Return the curves that have a number at every turn."""
    # A run that ended early would bend the mean of the later turns.
    is_complete = np.isfinite(curves).all(axis=1)
    return curves[is_complete]


def _curves_of_wordings(
    table: pd.DataFrame,
    one: str,
    other: str,
    generalises_to: Generality,
) -> Curves:
    """Return the means of wordings, and of runs if the band is to hold for new runs."""
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
    # The difference of each run, over the wordings; further below that of each wording.
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
        # If both arms ask the same wordings, these are differences, wording by wording.
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
        # Runs and wordings both vary by chance, and the variances of their means add up.
        groups.append(Group(1.0, of_runs))
    elif len(groups) < len(np.unique(layout.wording_sets)):
        # An arm with one wording does not show how answers vary with the wording.
        groups = []
    if 2 in layout.wording_counts:
        # With two wordings, t has one degree of freedom; ``effects`` gives no interval either.
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

    The band is mean ± c · standard error at each turn. The same c is used at all turns, so that the
    band contains the true mean at all turns at once with probability ``level`` (Montiel Olea and
    Plagborg-Møller 2019,
    "Simultaneous confidence bands: theory, implementation, and an application to SVARs", Journal of
    Applied Econometrics 34). c is the quantile of the largest |t| in ``draws`` sets of normal
    curves, each as many as in the sample. Differs from the source: the curves' correlation is the
    sample's, shrunk towards 0, since a sample of few curves overstates it.

    Args:
        curves: the difference and its units.
        level: of the band.
        draws: how many sets of curves are drawn.
        seed: of the draws.

    Returns:
        NaN where a group has fewer than two units. Where all curves are equal at a turn, as before
        a shock, both ends are the mean.
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
    # A turn without variation has no t: the division would be by 0.
    moves = error > ROUNDING * np.abs(mean)
    if not moves.any():
        return Ends(mean, mean)
    moving = error[moves]
    of_moving = covariance[np.ix_(moves, moves)]
    correlation = of_moving / np.outer(moving, moving)
    independent = np.eye(len(correlation))
    shrunk = correlation + 1 / fewest * (independent - correlation)
    # The smallest group decides how precisely the standard errors are known.
    largest = _largest_t(shrunk, fewest, draws, seed)
    # Weibull's quantile is k / (draws + 1), as in permutation tests; it is rather too large.
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
    # np.cov would warn of a single curve, and return a scalar for a single turn.
    return np.asarray(centred.T @ centred / (n - 1) / n)


def _largest_t(
    correlation: Numbers,
    n: int,
    draws: int,
    seed: int,
) -> Numbers:
    """Return the largest |t| over turns in each set of n normal curves."""
    # Independent draws times the root of a correlation matrix have that correlation.
    # Single precision is more than a quantile of random draws needs.
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

    # One product of two matrices: thousands of small products take ten times as long.
    drawn = normal_curves(sets * n).reshape(sets, n, turns)
    # The mean of n normal curves; their variances with n - 1 are independent of it.
    means = drawn[:, 0]
    deviations = drawn[:, 1:]
    squares = np.einsum("dnh,dnh->dh", deviations, deviations)
    spread = np.sqrt(squares / (n - 1))
    t = np.abs(means / spread)
    largest = [t.max(axis=1)]
    # With long curves the same spreads serve further means, since drawing spreads takes long.
    for _ in range(sets, draws, sets):
        t = np.abs(normal_curves(sets) / spread)
        largest.append(t.max(axis=1))
    return np.concatenate(largest)
