"""The smallest difference that a study will see, from a pilot with the same units and family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmsim_lab._util.text import counted
from llmsim_lab.study.estimates.effects import Compared
from llmsim_lab.study.estimates.estimate import Unit
from llmsim_lab.study.estimates.groups import smallest_difference_of_group_shares
from llmsim_lab.study.estimates.numeric import Numbers, known
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
        runs: how many seeds or recorded runs.
        situations: how many situations are asked; as many as runs in a study of new runs.
        samples: how often each situation is asked.
        wordings: the largest number of wordings of an arm.
    """

    runs: int
    situations: int
    samples: int
    wordings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest true difference that a study sees.

    Attributes:
        value: for one comparison, with power .8; None where it is not known, and ``note`` says why.
        n: how many units the study will have.
        unit: what a unit is.
        comparisons: how many p-values are adjusted for each other.
        note: why the value is not known.
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
    """Return the smallest difference that a planned study sees in one outcome, from a pilot.

    Each comparison is tested at .05 / comparisons, which is Holm's first step; Romano-Wolf sees a
    little more. The spread is that of all the pilot's arms, at its upper 80 % limit.

    Args:
        pilot: the pilot's comparisons in this outcome.
        pilot_sizes: how much the pilot repeated.
        planned: how much the study will repeat.
        comparisons: how many comparisons the study will make: contrasts times outcomes.
    """
    if not pilot:
        return Detectable(note=NOT_YET)
    kinds = {comparison.parts.kind for comparison in pilot}
    if "text distance" in kinds:
        return Detectable(note="not known: texts have a distance, which no size of sample promises")
    if "share difference" in kinds:
        return _detectable_share(pilot, planned, comparisons=comparisons)
    # Contrasts may have different units, such as wordings and runs.
    by_unit: dict[Unit, list[Compared]] = {}
    notes: list[str] = []
    for comparison in pilot:
        notes += comparison.parts.notes
        if comparison.parts.spreads:
            of_unit = by_unit.setdefault(comparison.contrast.unit, [])
            of_unit.append(comparison)
    if not by_unit:
        # Another note than for too few units: where nothing varies, more seeds would not help.
        if ALL_ZERO in notes or ALL_EQUAL in notes:
            return Detectable(note=f"not known: {notes[-1]}")
        return Detectable(note=NOT_YET)
    limits = []
    for unit, of_unit in by_unit.items():
        spreads = _pooled_spreads(
            of_unit,
            pilot_sizes=pilot_sizes,
            planned=planned,
        )
        if min(spread.df for spread in spreads) < 1:
            return Detectable(note=NOT_YET)
        limit = Detectable(
            value=smallest_detectable(spreads, alpha=ALPHA / comparisons),
            n=_planned_count(of_unit, pilot_sizes, planned),
            unit=unit,
            comparisons=comparisons,
        )
        limits.append(limit)
    # The value must hold for every comparison, so that the least sensitive one decides.
    return max(limits, key=lambda limit: limit.value or 0.0)


def _pooled_spreads(
    comparisons: Sequence[Compared],
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
) -> list[Spread]:
    """Return the planned spreads of comparisons with the same unit, by source of chance."""
    of_comparisons = []
    for comparison in comparisons:
        spreads = _planned(
            comparison,
            pilot_sizes=pilot_sizes,
            planned=planned,
        )
        of_comparisons.append(spreads)
    # Not strict, since an arm with one wording has fewer sources of chance than others.
    by_source = zip(*of_comparisons, strict=False)
    return [_pooled(of_source) for of_source in by_source]


def _planned_count(
    comparisons: Sequence[Compared],
    pilot_sizes: Sizes,
    planned: Sizes,
) -> int:
    """Return how many units a planned study has, counted as the estimates count them."""
    first = comparisons[0]
    if first.contrast.unit == "wording":
        # The units of both arms; the plan changes those of the arm that has most.
        of_arms = max(comparison.parts.n for comparison in comparisons)
        return of_arms + planned.wordings - pilot_sizes.wordings
    if first.parts.groups:
        # The units of both arms, which share none.
        return len(first.contrast.weights) * planned.runs
    return planned_units(first.contrast.unit, planned)


def _detectable_share(
    pilot: Sequence[Compared],
    planned: Sizes,
    *,
    comparisons: int,
) -> Detectable:
    """Return the smallest difference of shares that a planned study sees, in pairs or groups."""
    alpha = ALPHA / comparisons
    pairs = [comparison.parts.pairs for comparison in pilot]
    columns = [known(differences) for differences in pairs if differences is not None]
    if columns:
        n = planned.runs
        # The arm with the most differing pairs is the least sensitive.
        most = max(columns, key=_mean_size)
        value = smallest_share_difference(most, n, alpha=alpha)
    else:
        # Groups: the runs of both arms are units.
        arm_count = len(pilot[0].contrast.weights)
        n = arm_count * planned.runs
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


def _mean_size(differences: Numbers) -> float:
    return float(np.abs(differences).mean())


def planned_units(unit: Unit, planned: Sizes) -> int:
    """Return how many units of a kind a planned study has."""
    if unit == "wording":
        return planned.wordings
    if unit == "run":
        return planned.runs
    return planned.situations


def _pooled(spreads: Sequence[Spread]) -> Spread:
    """Return the mean of several comparisons' variances."""
    total = sum(spread.variance for spread in spreads)
    # All comparisons share the reference, so that degrees of freedom do not add up.
    fewest_df = min(spread.df for spread in spreads)
    return Spread(total / len(spreads), fewest_df)


def _planned(
    comparison: Compared,
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
) -> list[Spread]:
    """Return a comparison's sources of variance as they will be in the planned study."""
    parts = comparison.parts
    # The spread of the runs comes last, after that of the wordings.
    of_runs = parts.spreads[-1]
    if parts.groups:
        return [_planned_groups(parts.groups, planned.runs)]
    if comparison.contrast.unit == "run":
        return [_resized(of_runs, parts.n, planned.runs)]
    if comparison.contrast.unit == "situation":
        answers_before = parts.n * pilot_sizes.samples
        answers_after = planned.situations * planned.samples
        limited = at_upper_limit(of_runs)
        # Each situation's mean takes one degree of freedom.
        df_before = max(1, answers_before - parts.n)
        df_after = answers_after - planned.situations
        return [
            Spread(
                variance=limited.variance * answers_before / answers_after,
                df=of_runs.df * df_after / df_before,
            )
        ]
    of_wordings = at_upper_limit(parts.spreads[0])
    resized = Spread(
        variance=of_wordings.variance * pilot_sizes.wordings / planned.wordings,
        df=of_wordings.df + planned.wordings - pilot_sizes.wordings,
    )
    if len(parts.spreads) == 1:
        return [resized]
    # n counts wordings here; the degrees of freedom tell the number of runs.
    runs_before = round(of_runs.df) + 1
    of_new_runs = _resized(of_runs, runs_before, planned.runs)
    return [resized, of_new_runs]


def _planned_groups(
    groups: Sequence[Spread],
    runs: int,
) -> Spread:
    """Return the spread of a difference of groups with so many runs in each (Welch 1947)."""
    of_one_run = np.array([group.variance for group in groups])
    pilot_dfs = np.array([group.df for group in groups])
    variances = of_one_run / runs
    total = float(variances.sum())
    squares = variances**2
    terms = squares / pilot_dfs
    # Satterthwaite's degrees of freedom, of the pilot and of the study.
    df_before = total**2 / float(terms.sum())
    df_after = total**2 * (runs - 1) / float(squares.sum())
    limited = at_upper_limit(Spread(total, df_before))
    return Spread(limited.variance, df_after)


def _resized(
    spread: Spread,
    before: int,
    after: int,
) -> Spread:
    """Return the pilot's spread of a mean, changed to another number of units."""
    limited = at_upper_limit(spread)
    return Spread(
        variance=limited.variance * before / after,
        df=after - 1.0,
    )
