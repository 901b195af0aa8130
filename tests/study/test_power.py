"""What a planned study sees, from a pilot's spreads: by hand for each unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from llmsim_lab.study.estimates.effects import Compared
from llmsim_lab.study.estimates.estimate import Contrast, Unit
from llmsim_lab.study.estimates.groups import smallest_difference_of_group_shares
from llmsim_lab.study.estimates.parts import Parts, Spread
from llmsim_lab.study.estimates.power import (
    NOT_YET,
    Detectable,
    Sizes,
    detectable,
    planned_units,
)
from llmsim_lab.study.estimates.shares import smallest_share_difference
from llmsim_lab.study.estimates.student import ALL_EQUAL, ALL_ZERO, smallest_detectable

PILOT = Sizes(runs=4, situations=6, samples=3, wordings=3)
PLANNED = Sizes(runs=20, situations=8, samples=10, wordings=7)


def found(unit: Unit = "run", **known: Any) -> Compared:
    """A comparison of two arms that a pilot made."""
    return Compared(
        contrast=Contrast(name="b - a", weights={"a": -1.0, "b": 1.0}, unit=unit),
        outcome="loss",
        parts=Parts(**{"kind": "mean difference", **known}),
    )


def seen(*pilot: Compared, comparisons: int = 1) -> Detectable:
    return detectable(pilot, pilot_sizes=PILOT, planned=PLANNED, comparisons=comparisons)


def limit(variance: float, df: float) -> float:
    """A variance at its upper 80 % limit."""
    return float(variance * df / stats.chi2.ppf(0.2, df))


RUNS = Spread(0.2, 3), Spread(0.4, 3)


@pytest.mark.parametrize(
    ("pilot", "planned", "n"),
    [
        # Four runs, then twenty: a mean of five times as many.
        ([found(n=4, spreads=RUNS[:1])], [Spread(limit(0.2, 3) / 5, 19)], 20),
        # The mean of two comparisons' variances, each at its limit.
        (
            [found(n=4, spreads=RUNS[:1]), found(n=4, spreads=RUNS[1:])],
            [Spread(limit(0.3, 3) / 5, 19)],
            20,
        ),
        # 18 answers to 6 situations, then 80 to 8: 12 degrees of freedom become 72.
        (
            [found("situation", n=6, spreads=(Spread(0.2, 10),))],
            [Spread(limit(0.2, 10) * 18 / 80, 10 * 72 / 12)],
            8,
        ),
        # Three wordings, then seven: those of both arms are 5 + 4.
        (
            [found("wording", n=n, spreads=(Spread(0.2, 3),)) for n in (4, 5)],
            [Spread(limit(0.2, 3) * 3 / 7, 7)],
            9,
        ),
        # And the spread of four runs, then twenty.
        (
            [found("wording", n=5, spreads=(Spread(0.2, 3), Spread(0.1, 3)))],
            [Spread(limit(0.2, 3) * 3 / 7, 7), Spread(limit(0.1, 3) / 5, 19)],
            9,
        ),
    ],
)
@pytest.mark.parametrize("comparisons", [1, 3])
def test_a_pilots_variances_are_those_of_as_many_units_as_are_planned(
    pilot: list[Compared], planned: list[Spread], n: int, comparisons: int
) -> None:
    value = smallest_detectable(planned, alpha=0.05 / comparisons)
    unit = pilot[0].contrast.unit
    expected = Detectable(value=pytest.approx(value), n=n, unit=unit, comparisons=comparisons)
    assert seen(*pilot, comparisons=comparisons) == expected


def test_groups_of_a_pilot_are_planned_with_welchs_degrees_of_freedom() -> None:
    groups = Spread(2.0, 4), Spread(0.5, 7)
    pilot = found(n=13, groups=groups, spreads=(Spread(0.3, 6),))
    variances = np.array([2.0, 0.5]) / 20
    df_before = variances.sum() ** 2 / (variances**2 / [4, 7]).sum()
    df_after = variances.sum() ** 2 / (variances**2 / 19).sum()
    value = smallest_detectable([Spread(limit(variances.sum(), df_before), df_after)])
    assert seen(pilot) == Detectable(value=pytest.approx(value), n=40)


def test_the_comparison_that_sees_least_decides() -> None:
    runs = found(n=4, spreads=(Spread(0.2, 3),))
    wordings = found("wording", n=5, spreads=(Spread(0.2, 3),))
    least = max(seen(runs).value or 0, seen(wordings).value or 0)
    assert seen(runs, wordings) == seen(wordings, runs)
    assert seen(runs, wordings).value == least
    # One answer a situation has a spread with one degree of freedom at least.
    thin = Sizes(runs=4, situations=6, samples=1, wordings=3)
    pilot = found("situation", n=6, spreads=(Spread(0.2, 1),))
    planned = detectable([pilot], pilot_sizes=thin, planned=PLANNED, comparisons=1)
    value = smallest_detectable([Spread(limit(0.2, 1) * 6 / 80, 72)])
    assert planned.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("pilot", "note"),
    [
        ([], NOT_YET),
        ([found()], NOT_YET),
        ([found(notes=(ALL_ZERO,))], f"not known: {ALL_ZERO}"),
        ([found(notes=("1 of 4 left out", ALL_EQUAL))], f"not known: {ALL_EQUAL}"),
        ([found("wording", n=5, spreads=(Spread(0.2, 3), Spread(0.1, 0.0)))], None),
        (
            [found(kind="text distance")],
            "not known: texts have a distance, which no size of sample promises",
        ),
    ],
)
def test_where_a_pilot_does_not_tell_a_plan_says_why(
    pilot: list[Compared], note: str | None
) -> None:
    if note is None:
        one_run = Sizes(runs=1, situations=8, samples=10, wordings=7)
        result = detectable(pilot, pilot_sizes=PILOT, planned=one_run, comparisons=2)
        assert result == Detectable(note=NOT_YET)
        return
    result = seen(*pilot, comparisons=2)
    assert result == Detectable(note=note)
    assert str(result) == note


SELDOM, OFTEN = np.array([1.0, 0, 0, 0, np.nan]), np.array([1.0, -1, 0, 0, 0])


def test_shares_are_planned_by_the_pairs_that_differ_most_or_by_groups() -> None:
    pilot = [found(kind="share difference", pairs=pairs) for pairs in (SELDOM, OFTEN)]
    value = smallest_share_difference(OFTEN, 20, alpha=0.05 / 2)
    expected = Detectable(value=value, n=20, comparisons=2)
    assert value is not None
    assert seen(*pilot, comparisons=2) == seen(*pilot[::-1], comparisons=2) == expected
    value = smallest_difference_of_group_shares(20, alpha=0.05 / 2)
    groups = found(kind="share difference")
    assert seen(groups, comparisons=2) == Detectable(value=value, n=40, comparisons=2)
    few = seen(*pilot, comparisons=1_000_000)
    note = "20 runs are too few to see any difference of shares with power .8"
    assert few == Detectable(note=note, comparisons=1_000_000)
    assert seen(groups, comparisons=10**12).note.startswith("40 runs are too few")


def test_what_is_seen_is_worded_with_its_units_and_its_family() -> None:
    assert str(Detectable(value=0.12345, n=1, unit="wording")) == (
        "0.123, with 1 wording and power .8"
    )
    assert str(Detectable(value=0.5, n=8, comparisons=2)) == (
        "0.5, with 8 runs and power .8, in a family of 2 comparisons"
    )
    units: list[Unit] = ["run", "situation", "wording"]
    assert [planned_units(unit, PLANNED) for unit in units] == [20, 8, 7]
