"""What a study still takes: the turns that are left, their costs, and what differences it can see.

This module imports scipy, so that ``Study`` imports it only when a plan is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmsim_lab._util.text import duration, roughly
from llmsim_lab.study._prices import Prices
from llmsim_lab.study._results import StudyResults
from llmsim_lab.study._running import jobs_left
from llmsim_lab.study._setup import StudySetup
from llmsim_lab.study.estimates.choice import Wanted
from llmsim_lab.study.estimates.effects import Compared, compared
from llmsim_lab.study.estimates.power import NOT_YET, Detectable, Sizes, detectable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is left to play, and what it takes, as far as is known.

    Attributes:
        left: how many runs, or situations in an arm, are left.
        done: how many are done.
        turns: how many turns that is, samples and wordings included.
        units: how many seeds or situations each arm has.
        calls: model calls; None where nothing tells.
        tokens: of prompts and replies; likewise.
        hours: of playing one run after another; likewise.
        detectable: by outcome, the smallest true difference from the reference that ``effects``
            sees with power .8, at the upper 80 % limit of the pilot's spread, with its units and
            family.
        based_on: what the estimates are made from, in words.
    """

    left: int
    done: int
    turns: int
    units: int
    calls: float | None = None
    tokens: float | None = None
    hours: float | None = None
    detectable: Mapping[str, Detectable]
    based_on: str = ""

    @property
    def smallest(self) -> dict[str, float | None]:
        """By outcome, the smallest difference that is seen; None where nothing tells."""
        return {outcome: seen.value for outcome, seen in self.detectable.items()}

    def __str__(self) -> str:
        # Rounded to two digits: an estimate from a pilot is not known to the token.
        costs = []
        if self.calls is not None:
            costs.append(f"{roughly(self.calls):,} calls")
        if self.tokens is not None:
            costs.append(f"{roughly(self.tokens):,} tokens")
        if self.hours is not None:
            costs.append(f"{duration(3600 * self.hours)} one run after another")
        line = f"{self.left} runs to play"
        if self.done:
            line += f" ({self.done} done already)"
        line += f", {self.turns:,} turns in all"
        if costs and self.left:
            line += f": about {', '.join(costs)}"
        if self.left:
            # Also without costs: it says then why they are not known.
            line += f" ({self.based_on})"
        lines = [f"{line}."]
        for outcome, seen in self.detectable.items():
            lines.append(f"Smallest detectable difference in {outcome}: {seen}.")
        return "\n".join(lines)

    __repr__ = __str__


def plan_of(results: StudyResults, pilot: StudyResults) -> StudyPlan:
    """Return what is left to play of a study, by the costs and the spread of a pilot."""
    setup = results.setup
    jobs = setup.files.jobs
    left = jobs_left(setup, jobs)
    prices = Prices(setup.files, setup.source)
    turns = prices.turns_left(left)
    costs, based_on = prices.of_turns(
        turns,
        Prices(pilot.setup.files, pilot.setup.source),
    )
    return StudyPlan(
        left=len(left),
        done=len(jobs) - len(left),
        turns=turns.total(),
        units=len(setup.units),
        calls=_number_or_none(costs.calls),
        tokens=_number_or_none(costs.tokens),
        hours=_number_or_none(costs.seconds / 3600),
        detectable=_detectable(setup, pilot),
        based_on=based_on,
    )


def _detectable(setup: StudySetup, pilot: StudyResults) -> dict[str, Detectable]:
    """Return by outcome what difference from the reference a study sees, from a pilot."""
    table = pilot.compared()
    # Another reference would have another spread, and other differences from it.
    if setup.reference not in pilot.setup.arms:
        note = f"not known: the pilot has no arm {setup.reference!r}, the reference"
        return dict.fromkeys(setup.outcomes, Detectable(note=note))
    # As many as effects() adjusts for, with those that the pilot did not play.
    contrast_count = len(setup.arms) - 1
    comparison_count = contrast_count * len(setup.outcomes)
    if comparison_count == 0:
        return dict.fromkeys(setup.outcomes, Detectable(note=NOT_YET))
    comparisons: list[Compared] = []
    # The pilot's reference may not have been played yet.
    if setup.reference in set(table["arm"]):
        comparisons = compared(
            table,
            contrasts=_contrasts_of_conditions(pilot.setup, table),
            reference=setup.reference,
            generalises_to=pilot.setup.generalises_to,
            wanted=Wanted(paired=setup.is_paired(None)),
        )
    detectable_by_outcome = {}
    for name in setup.outcomes:
        of_outcome = [comparison for comparison in comparisons if comparison.outcome == name]
        detectable_by_outcome[name] = detectable(
            of_outcome,
            pilot_sizes=_sizes(pilot.setup),
            planned=_sizes(setup),
            comparisons=comparison_count,
        )
    return detectable_by_outcome


def _contrasts_of_conditions(setup: StudySetup, table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return each arm of a table and the reference, without arms that only draw it again.

    Two draws of one arm differ by chance alone, which is less than arms do.
    """
    world = setup.world
    reference = world.name_without(setup.arms[setup.reference], "replicate")
    return [
        (name, setup.reference)
        for name in table["arm"].unique()
        if world.name_without(setup.arms[name], "replicate") != reference
    ]


def _sizes(setup: StudySetup) -> Sizes:
    """Return how much is repeated."""
    return Sizes(
        runs=setup.run_count,
        situations=len(setup.units),
        samples=setup.samples,
        wordings=setup.most_wordings,
    )


def _number_or_none(number: float) -> float | None:
    """Return a number, None for NaN."""
    return None if math.isnan(number) else number
