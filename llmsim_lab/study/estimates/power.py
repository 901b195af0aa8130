"""What a study will see, from a pilot: the same unit, spread and family as its effects have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmsim_lab._util.text import counted
from llmsim_lab.study.estimates.effects import Compared
from llmsim_lab.study.estimates.estimate import Unit
from llmsim_lab.study.estimates.groups import smallest_difference_of_group_shares
from llmsim_lab.study.estimates.numeric import known
from llmsim_lab.study.estimates.parts import Spread
from llmsim_lab.study.estimates.shares import smallest_share_difference
from llmsim_lab.study.estimates.student import (
    ALL_EQUAL,
    ALL_ZERO,
    at_upper_limit,
    smallest_detectable,
)

ALPHA = 0.05
NOT_YET = "not yet known; run a few seeds of two arms first, here or in plan(pilot=study)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much a study repeats.

    Attributes:
        runs: with seeds of their own, or recorded ones.
        situations: that are asked; as many as runs where none are.
        samples: of each situation.
        wordings: of the arm that has most.
    """

    runs: int
    situations: int
    samples: int
    wordings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest true difference that a study sees.

    Attributes:
        value: of one comparison, with power .8; None where nothing tells, and ``note`` says why.
        n: how many units the study will have.
        unit: what a unit is.
        comparisons: how many p-values are adjusted for each other.
        note: why it is not known.
    """

    value: float | None = None
    n: int = 0
    unit: Unit = "run"
    comparisons: int = 1
    note: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return self.note
        family = ""
        if self.comparisons > 1:
            family = f", in a family of {self.comparisons} comparisons"
        return f"{self.value:.3g}, with {counted(self.n, self.unit)} and power .8{family}"


def detectable(
    pilot: Sequence[Compared],
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
    comparisons: int,
) -> Detectable:
    """Return what a planned study sees in one outcome, from a pilot's comparisons in it.

    Each of so many comparisons is tested at .05 / comparisons, as Holm does first; Romano-Wolf sees
    a little more. A pilot's spread counts at its upper 80 % limit, and is that of all its arms.

    Args:
        pilot: comparisons in the outcome.
        pilot_sizes: how much the pilot repeated.
        planned: how much the study will repeat.
        comparisons: of the study: contrasts times outcomes.
    """
    if not pilot:
        return Detectable(note=NOT_YET)
    alpha = ALPHA / comparisons
    parts = [comparison.parts for comparison in pilot]
    if any(seen.kind == "text distance" for seen in parts):
        return Detectable(note="not known: texts have a distance, which no size of sample promises")
    if any(seen.kind == "share difference" for seen in parts):
        return _detectable_share(pilot, planned, comparisons=comparisons)
    with_spread = [comparison for comparison in pilot if comparison.parts.spreads]
    if not with_spread:
        notes: list[str] = []
        for seen in parts:
            notes += seen.notes
        # More seeds of the pilot would not help where nothing varies, so that is another answer.
        if ALL_ZERO in notes or ALL_EQUAL in notes:
            return Detectable(note=f"not known: {notes[-1]}")
        return Detectable(note=NOT_YET)
    # Contrasts may have units of their own, such as wordings and runs; the one that sees least
    # counts.
    by_unit: dict[Unit, list[Compared]] = {}
    for comparison in with_spread:
        by_unit.setdefault(comparison.contrast.unit, []).append(comparison)
    limits = []
    for own_unit, of_unit in by_unit.items():
        planned_spreads = [
            _planned(comparison, pilot_sizes=pilot_sizes, planned=planned) for comparison in of_unit
        ]
        # Source by source: an arm with one wording has fewer sources than others.
        pooled = [_pooled(of_all_arms) for of_all_arms in zip(*planned_spreads, strict=False)]
        if min(spread.df for spread in pooled) < 1:
            return Detectable(note=NOT_YET)
        units = planned_units(own_unit, planned)
        if of_unit[0].parts.groups:
            # Those of both arms, as an estimate counts them.
            units = len(of_unit[0].contrast.weights) * planned.runs
        if own_unit == "wording":
            # Those of both arms; what is planned differs from the pilot in the arm that has most.
            of_arms = max(comparison.parts.n for comparison in of_unit)
            units = of_arms + planned.wordings - pilot_sizes.wordings
        value = smallest_detectable(pooled, alpha=alpha)
        limits.append(
            Detectable(
                value=value,
                n=units,
                unit=own_unit,
                comparisons=comparisons,
            )
        )
    # The promise is for every comparison, so that the one which sees least decides.
    return max(limits, key=lambda limit: limit.value or 0.0)


def _detectable_share(
    pilot: Sequence[Compared],
    planned: Sizes,
    *,
    comparisons: int,
) -> Detectable:
    """Return what difference of shares a planned study sees, in pairs of runs or in groups."""
    alpha = ALPHA / comparisons
    columns = [
        known(estimate.parts.pairs) for estimate in pilot if estimate.parts.pairs is not None
    ]
    if columns:
        n = planned.runs
        # The arm whose pairs differ most from the reference's sees least.
        most = max(
            columns,
            key=lambda column: np.abs(column).mean(),
        )
        value = smallest_share_difference(most, n, alpha=alpha)
    else:
        n = len(pilot[0].contrast.weights) * planned.runs
        value = smallest_difference_of_group_shares(planned.runs, alpha=alpha)
    if value is None:
        few = f"{counted(n, 'run')} are too few to see any difference of shares with power .8"
        return Detectable(note=few, comparisons=comparisons)
    return Detectable(
        value=value,
        n=n,
        unit="run",
        comparisons=comparisons,
    )


def planned_units(unit: Unit, planned: Sizes) -> int:
    """Return how many units a planned study has of a kind."""
    if unit == "wording":
        return planned.wordings
    return planned.runs if unit == "run" else planned.situations


def _pooled(spreads: Sequence[Spread]) -> Spread:
    """Return the mean of comparisons' variances; they share the reference, so df do not add up."""
    variance = sum(spread.variance for spread in spreads) / len(spreads)
    return Spread(variance, min(spread.df for spread in spreads))


def _planned(
    one: Compared,
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
) -> list[Spread]:
    """Return what a comparison's variance will consist of in the planned study."""
    of_runs = one.parts.spreads[-1]
    if one.parts.groups:
        return [_planned_groups(one.parts.groups, planned.runs)]
    if one.contrast.unit == "run":
        return [_resized(of_runs, one.parts.n, planned.runs)]
    if one.contrast.unit == "situation":
        before = one.parts.n * pilot_sizes.samples
        after = planned.situations * planned.samples
        limited = at_upper_limit(of_runs)
        # Each situation takes one degree of freedom for its own mean.
        df_before = max(1, before - one.parts.n)
        df_after = after - planned.situations
        variance = limited.variance * before / after
        return [Spread(variance, of_runs.df * df_after / df_before)]
    more_wordings = planned.wordings - pilot_sizes.wordings
    of_wordings = at_upper_limit(one.parts.spreads[0])
    resized = Spread(
        of_wordings.variance * pilot_sizes.wordings / planned.wordings,
        of_wordings.df + more_wordings,
    )
    if len(one.parts.spreads) == 1:
        return [resized]
    # n counts wordings here; how many runs there were is known by the degrees of freedom.
    runs_before = round(of_runs.df) + 1
    return [resized, _resized(of_runs, runs_before, planned.runs)]


def _planned_groups(groups: Sequence[Spread], runs: int) -> Spread:
    """Return how a difference of groups will vary with so many runs in each (Welch 1947)."""
    variances = np.array([group.variance for group in groups]) / runs
    total = float(variances.sum())
    squares = variances**2
    pilot_dfs = np.array([group.df for group in groups])
    # How surely the pilot knows the sum, and how surely the study will (Satterthwaite's for both).
    df_before = total**2 / float((squares / pilot_dfs).sum())
    df_after = total**2 * (runs - 1) / float(squares.sum())
    limited = at_upper_limit(Spread(total, df_before))
    return Spread(limited.variance, df_after)


def _resized(
    spread: Spread,
    before: int,
    after: int,
) -> Spread:
    limited = at_upper_limit(spread)
    return Spread(limited.variance * before / after, after - 1.0)
