"""What a study will see, from a pilot: the same unit, spread and family as its effects have."""

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
    kinds = {comparison.parts.kind for comparison in pilot}
    if "text distance" in kinds:
        return Detectable(note="not known: texts have a distance, which no size of sample promises")
    if "share difference" in kinds:
        return _detectable_share(pilot, planned, comparisons=comparisons)
    # Contrasts may have units of their own, such as wordings and runs.
    by_unit: dict[Unit, list[Compared]] = {}
    notes: list[str] = []
    for comparison in pilot:
        notes += comparison.parts.notes
        if comparison.parts.spreads:
            of_unit = by_unit.setdefault(comparison.contrast.unit, [])
            of_unit.append(comparison)
    if not by_unit:
        # More seeds of the pilot would not help where nothing varies, so that is another answer.
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
    # The promise is for every comparison, so that the one which sees least decides.
    return max(limits, key=lambda limit: limit.value or 0.0)


def _pooled_spreads(
    comparisons: Sequence[Compared],
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
) -> list[Spread]:
    """Return the planned spreads of comparisons of one unit, source by source of chance."""
    of_comparisons = []
    for comparison in comparisons:
        spreads = _planned(
            comparison,
            pilot_sizes=pilot_sizes,
            planned=planned,
        )
        of_comparisons.append(spreads)
    # Not strict: an arm with one wording has fewer sources of chance than others.
    by_source = zip(*of_comparisons, strict=False)
    return [_pooled(of_source) for of_source in by_source]


def _planned_count(
    comparisons: Sequence[Compared],
    pilot_sizes: Sizes,
    planned: Sizes,
) -> int:
    """Return how many units a planned study has, as the estimates of one unit count them."""
    first = comparisons[0]
    if first.contrast.unit == "wording":
        # Those of both arms; what is planned differs from the pilot in the arm that has most.
        of_arms = max(comparison.parts.n for comparison in comparisons)
        return of_arms + planned.wordings - pilot_sizes.wordings
    if first.parts.groups:
        # Those of both arms, which share none.
        return len(first.contrast.weights) * planned.runs
    return planned_units(first.contrast.unit, planned)


def _detectable_share(
    pilot: Sequence[Compared],
    planned: Sizes,
    *,
    comparisons: int,
) -> Detectable:
    """Return what difference of shares a planned study sees, in pairs of runs or in groups."""
    alpha = ALPHA / comparisons
    pairs = [comparison.parts.pairs for comparison in pilot]
    columns = [known(differences) for differences in pairs if differences is not None]
    if columns:
        n = planned.runs
        # The arm whose pairs differ most from the reference's sees least.
        most = max(columns, key=_mean_size)
        value = smallest_share_difference(most, n, alpha=alpha)
    else:
        # Groups: those of both arms count.
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
    """Return how many units a planned study has of a kind."""
    if unit == "wording":
        return planned.wordings
    if unit == "run":
        return planned.runs
    return planned.situations


def _pooled(spreads: Sequence[Spread]) -> Spread:
    """Return the mean of comparisons' variances."""
    total = sum(spread.variance for spread in spreads)
    # They share the reference, so that degrees of freedom do not add up.
    fewest_df = min(spread.df for spread in spreads)
    return Spread(total / len(spreads), fewest_df)


def _planned(
    comparison: Compared,
    *,
    pilot_sizes: Sizes,
    planned: Sizes,
) -> list[Spread]:
    """Return what a comparison's variance will consist of in the planned study."""
    parts = comparison.parts
    # Last, since a wording's own spread comes before that of the runs.
    of_runs = parts.spreads[-1]
    if parts.groups:
        return [_planned_groups(parts.groups, planned.runs)]
    if comparison.contrast.unit == "run":
        return [_resized(of_runs, parts.n, planned.runs)]
    if comparison.contrast.unit == "situation":
        answers_before = parts.n * pilot_sizes.samples
        answers_after = planned.situations * planned.samples
        limited = at_upper_limit(of_runs)
        # Each situation takes one degree of freedom for its own mean.
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
    # n counts wordings here; how many runs there were is known by the degrees of freedom.
    runs_before = round(of_runs.df) + 1
    of_new_runs = _resized(of_runs, runs_before, planned.runs)
    return [resized, of_new_runs]


def _planned_groups(
    groups: Sequence[Spread],
    runs: int,
) -> Spread:
    """Return how a difference of groups will vary with so many runs in each (Welch 1947)."""
    of_one_run = np.array([group.variance for group in groups])
    pilot_dfs = np.array([group.df for group in groups])
    variances = of_one_run / runs
    total = float(variances.sum())
    squares = variances**2
    terms = squares / pilot_dfs
    # How surely the pilot knows the sum, and how surely the study will (Satterthwaite's for both).
    df_before = total**2 / float(terms.sum())
    df_after = total**2 * (runs - 1) / float(squares.sum())
    limited = at_upper_limit(Spread(total, df_before))
    return Spread(limited.variance, df_after)


def _resized(
    spread: Spread,
    before: int,
    after: int,
) -> Spread:
    """Return the spread of a mean of so many units more or fewer than the pilot had."""
    limited = at_upper_limit(spread)
    return Spread(
        variance=limited.variance * before / after,
        df=after - 1.0,
    )
