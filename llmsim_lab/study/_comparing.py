"""What comes out of a study: how its arms differ, with what a reader has to know beside it.

The formulas are in ``estimates``. This module decides which table, pairs and remarks they get. It
imports scipy, so that ``Study`` imports it only when effects are asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from llmsim_lab._util.checks import known_names, real_number, text_argument, yes_or_no
from llmsim_lab._util.text import among, brief, counted, roughly
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._prices import Prices
from llmsim_lab.study._results import StudyResults
from llmsim_lab.study._setup import StudySetup
from llmsim_lab.study.estimates.bands import by_turn
from llmsim_lab.study.estimates.choice import Wanted
from llmsim_lab.study.estimates.effects import (
    Compared,
    Remark,
    Tally,
    check_formula,
    checked_contrasts,
    compared,
    effects,
)
from llmsim_lab.study.estimates.estimate import Effects

if TYPE_CHECKING:
    import pandas as pd

_LEAST_LEVEL = 0.5
_MOST_LEVEL = 0.9999


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectOptions:
    """Which effects a caller wants; ``Study.effects`` explains each option."""

    formula: str | None = None
    contrasts: Sequence[tuple[str, str]] | None = None
    level: float = 0.95
    sesoi: float | Mapping[str, float] | None = None
    paired: bool | None = None
    typical: bool = False
    noise: bool = False

    def __post_init__(self) -> None:
        if self.formula is not None:
            text_argument("formula", self.formula)
        if self.contrasts is not None:
            object.__setattr__(self, "contrasts", checked_contrasts(self.contrasts))
        if self.paired is not None:
            yes_or_no("paired", self.paired)
        yes_or_no("typical", self.typical)
        yes_or_no("noise", self.noise)


class _Draws(NamedTuple):
    """A table of results in which an arm's replicates are draws of it, and its reference."""

    table: pd.DataFrame
    reference: str


def effects_of(results: StudyResults, options: EffectOptions) -> Effects:
    """Return how arms differ from the reference; see ``Study.effects``."""
    setup = results.setup
    # A study that is played for its tapes alone may have no outcome.
    if not setup.outcomes:
        column = "a column"
        if setup.series:
            column = setup.series[0].column
        raise ConfigError(f"say what is compared: outcome={column!r}, or a function of the run")
    _check_options(setup, options)
    draws = _draws(results, noise=options.noise)
    has_reference = draws.reference in set(draws.table["arm"])
    subtracts_reference = options.formula is None and not options.contrasts
    if subtracts_reference and not has_reference:
        # The reference was not played yet, or no group of it had people.
        estimates = Effects()
    else:
        estimates = effects(
            draws.table,
            options.formula,
            contrasts=options.contrasts,
            reference=draws.reference,
            generalises_to=setup.generalises_to,
            level=options.level,
            sesoi=options.sesoi,
            paired=setup.is_paired(options.paired),
            typical=options.typical,
            noise=options.noise,
            remarks=remarks_of(results),
        )
    estimates.label = label_of_effects(results, options.paired)
    return estimates


def compared_arms(
    results: StudyResults,
    contrasts: Sequence[tuple[str, str]],
    outcome: str,
) -> list[Compared]:
    """Return how pairs of arms differ in one outcome; see ``Study.compared``."""
    setup = results.setup
    known_names("outcome", [outcome], setup.outcomes)
    pairs = checked_contrasts(contrasts)
    _check_pairs(pairs)
    table = results.compared()
    return compared(
        table[table["outcome"] == outcome],
        contrasts=pairs,
        generalises_to=setup.generalises_to,
        wanted=Wanted(paired=setup.is_paired(None)),
    )


def difference_by_turn(
    results: StudyResults,
    column: str,
    arm: str,
    reference: str,
    *,
    level: float,
    paired: bool | None,
) -> pd.DataFrame:
    """Return by turn how an arm differs from another; see ``Study.by_turn``."""
    setup = results.setup
    level = _checked_level(level)
    for name, value in (("column", column), ("arm", arm), ("reference", reference)):
        text_argument(name, value)
    if paired is not None:
        yes_or_no("paired", paired)
    reference = reference or setup.reference
    other_arms = [name for name in setup.arms if name != reference]
    # The curve is of one arm; which one is not guessed.
    if not arm and len(other_arms) != 1:
        if not other_arms:
            raise ConfigError(f"there is no arm to compare with {reference!r}")
        raise ConfigError(
            f"say which arm: by_turn({column!r}, {other_arms[0]!r}); there are "
            f"{', '.join(other_arms)}"
        )
    arm = arm or other_arms[0]
    if arm == reference:
        raise ConfigError(f"by_turn: arm {arm!r} is compared with itself; name another arm")
    table = results.values_by_turn(column)
    for name in (arm, reference):
        if name in setup.arms and name not in set(table["arm"]):
            raise ConfigError(f"arm {name!r} has no run with {column!r} yet; study.run() plays")
    return by_turn(
        table,
        arm,
        reference,
        level=level,
        generalises_to=setup.generalises_to,
        paired=setup.is_paired(paired),
    )


# --- checks --------------------------------------------------------------------------------------


def _check_options(setup: StudySetup, options: EffectOptions) -> None:
    if options.formula is not None:
        check_formula(options.formula, setup.factors)
    _checked_level(options.level)
    _check_sesoi(setup, options.sesoi)
    _check_pairs(options.contrasts or ())
    _check_units(setup, options)


def _check_pairs(contrasts: Sequence[tuple[str, str]]) -> None:
    for upper, lower in contrasts:
        if upper == lower:
            raise ConfigError(f"contrasts: {upper!r} is compared with itself")


def _checked_level(level: float) -> float:
    return real_number(
        "level",
        level,
        least=_LEAST_LEVEL,
        most=_MOST_LEVEL,
    )


def _check_sesoi(setup: StudySetup, sesoi: float | Mapping[str, float] | None) -> None:
    if not isinstance(sesoi, Mapping):
        if sesoi is not None:
            real_number("sesoi", sesoi, least=0)
        return
    for name in sesoi:
        if name not in setup.outcomes:
            raise ConfigError(
                f"sesoi: outcome {brief(name)} is unknown{among(name, setup.outcomes)}"
            )
    for margin in sesoi.values():
        # An outcome without a smallest effect of interest has None.
        if margin is not None:
            real_number("sesoi", margin, least=0)


def _check_units(setup: StudySetup, options: EffectOptions) -> None:
    """Raise ConfigError for ``typical`` and ``paired`` where the study has no such units."""
    typical = options.typical
    paired = options.paired
    if setup.generalises_to != "new runs" and (typical or paired is False):
        option = "typical=True" if typical else "paired=False"
        raise ConfigError(
            f"{option} compares runs, and this study's effects hold for "
            f"{setup.generalises_to}; leave it out"
        )
    if not typical or setup.is_paired(paired):
        return
    if paired is None:
        raise ConfigError(
            "typical=True takes pairs of runs, and people play these; leave it out, or say "
            "paired=True if the same people played one seed in every arm"
        )
    raise ConfigError("typical=True takes pairs of runs; leave out paired=False")


# --- chance alone --------------------------------------------------------------------------------


def _draws(results: StudyResults, *, noise: bool) -> _Draws:
    """Return what is compared; for ``noise`` each run needs two draws or more.

    Draws are the samples of a situation, or the levels of ``replicate``.

    Raises:
        ConfigError: each run was drawn once.
    """
    setup = results.setup
    table = results.compared()
    if not noise:
        return _Draws(table, setup.reference)
    replicates = setup.world.factors.get("replicate", {})
    # One level is one draw; samples of a situation are draws as they are.
    if len(replicates) < 2:
        if setup.samples > 1:
            return _Draws(table, setup.reference)
        raise ConfigError(_price_of_noise(setup))
    if len(setup.world.factors) == 1:
        raise ConfigError(
            "noise=True: only replicate is varied here, so effects() shows chance alone already"
        )
    # Arms that differ in ``replicate`` alone become one arm, whose replicates are its levels.
    names = {}
    for name, arm in setup.arms.items():
        names[name] = setup.world.name_without(arm, "replicate")
    column = "factor replicate"
    drawn = table.assign(
        arm=table["arm"].map(names),
        replicate=table[column],
    )
    return _Draws(
        drawn.drop(columns=column),
        names[setup.reference],
    )


def _price_of_noise(setup: StudySetup) -> str:
    """Return what it takes to draw each run a second time."""
    if setup.unit_name == "situation":
        option = "samples=2 or more"
    else:
        option = "vary={'replicate': [0, 1], ...}"
    jobs = setup.files.jobs
    # A second draw repeats every run of the study.
    turns = Counter[str]()
    for job in jobs.values():
        turns_of_play = job.end_turn - job.start_turn
        turns[job.arm] += len(job.plays) * turns_of_play
    # At this study's own prices: the study is its own pilot.
    prices = Prices(setup.files, setup.source)
    costs, _ = prices.of_turns(turns, prices)
    calls = ""
    if not math.isnan(costs.calls):
        calls = f", about {roughly(costs.calls):,} calls"
    return (
        "noise=True compares two draws of each run, and here each was drawn once; "
        f"{option} draws them again: {counted(len(jobs), 'more run')}{calls}"
    )


# --- what stands beside effects ------------------------------------------------------------------


def label_of_effects(results: StudyResults, paired: bool | None) -> str:
    """Return what a reader must know of all effects: how many runs there are, and who played."""
    setup = results.setup
    facts = []
    counts = setup.files.counts
    ended = counts["done"] + counts["failed"]
    run_count = len(setup.files.jobs)
    if ended < run_count:
        # Playing on until p < .05 finds differences that do not exist.
        facts.append(f"{ended} of {run_count} runs so far: do not stop as soon as p < .05")
    if setup.seats_of_people and not setup.is_paired(paired):
        facts.append("groups of people share nothing, so runs are not paired by seed")
    groups = results.groups()
    counted_groups = [group for group in groups if not group.is_without_people]
    decisions = sum(group.decisions for group in counted_groups)
    filled = sum(group.filled for group in counted_groups)
    if filled:
        facts.append(f"{filled} of {decisions} decisions of people were filled in")
    if len(counted_groups) < len(groups):
        facts.append(
            f"{len(groups) - len(counted_groups)} of {len(groups)} groups had no people, and "
            "are left out"
        )
    return "; ".join(facts)


def remarks_of(results: StudyResults) -> list[Remark]:
    """Return what the notes say of arms: answers of stand-ins, groups without people."""
    files = results.setup.files
    fallbacks = Counter[str]()
    answers = Counter[str]()
    for entry in files.entries.values():
        if entry.status != "done":
            continue
        for contents in files.contents(entry).values():
            for row in results.rows_that_count(contents.rows):
                # None on tapes of turns in which nothing was asked.
                fallbacks[entry.arm] += row.get("fallback") or 0
                answers[entry.arm] += row.get("calls") or 0
    decisions = Counter[str]()
    filled = Counter[str]()
    groups = Counter[str]()
    left_out = Counter[str]()
    for group in results.groups():
        groups[group.arm] += 1
        # A person's stand-in has a remark of its own, and does not count among those of models.
        fallbacks[group.arm] -= group.filled
        answers[group.arm] -= group.decisions
        if group.is_without_people:
            left_out[group.arm] += 1
        else:
            decisions[group.arm] += group.decisions
            filled[group.arm] += group.filled

    def tallies(
        numbers: Mapping[str, int],
        totals: Mapping[str, int],
    ) -> dict[str, Tally]:
        # All arms that have a total: a Counter has 0 for an arm without a number.
        return {arm: Tally(numbers[arm], totals[arm]) for arm in totals}

    return [
        Remark(
            "answers that stand in for invalid ones (fallback)",
            tallies(fallbacks, answers),
        ),
        Remark(
            "decisions of people that were filled in",
            {arm: Tally(filled[arm], decisions[arm]) for arm in groups},
        ),
        Remark(
            "groups without people, left out",
            tallies(left_out, groups),
        ),
    ]
