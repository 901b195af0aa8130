"""From one long table to estimates: all contrasts and outcomes are one family.

How often each interval holds the truth is in ``benchmarks/coverage.json``, which
``benchmarks/coverage.py`` measures. Where it missed its level there is no interval but a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from llmsim_lab._util.text import contrast_name
from llmsim_lab.errors import ConfigError
from llmsim_lab.study.estimates.choice import Wanted, estimate_numbers, estimate_texts
from llmsim_lab.study.estimates.estimate import Contrast, Effects, Estimate, Generality
from llmsim_lab.study.estimates.family import adjusted, holm
from llmsim_lab.study.estimates.numeric import Numbers, is_share
from llmsim_lab.study.estimates.parts import Parts
from llmsim_lab.study.estimates.samples import Layout, OutcomeValues, outcomes_of, place_of

_FIXED = ("arm", "unit", "run", "wording", "replicate", "turn", "outcome", "value")
_TIMES = " \N{MULTIPLICATION SIGN} "


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A contrast in an outcome, and what an estimator found."""

    contrast: Contrast
    outcome: str
    parts: Parts
    is_noise: bool = False
    are_shares: bool = False
    """Whether all values of the outcome are 0 or 1."""


class Tally(NamedTuple):
    """How many of an arm's runs or answers something is true of, and how many there are."""

    number: int
    total: int


class Remark(NamedTuple):
    """What a note says of the arms of a contrast, if it is true of any run or answer."""

    words: str
    by_arm: Mapping[str, Tally]


def effects(
    table: pd.DataFrame,
    formula: str | None = None,
    *,
    contrasts: Sequence[tuple[str, str]] | None = None,
    reference: str | None = None,
    generalises_to: Generality = "new runs",
    level: float = 0.95,
    sesoi: float | Mapping[str, float] | None = None,
    paired: bool = True,
    typical: bool = False,
    noise: bool = False,
    remarks: Sequence[Remark] = (),
) -> Effects:
    """Return how arms differ, or a factorial's main effects and interactions.

    All contrasts and outcomes are one family: p-values are adjusted by ``romano_wolf`` where all
    are of pairs of runs and there are ``ENOUGH_RUNS``, by ``holm`` otherwise; those of equivalence
    by ``holm``. An adjusted p-value is never below the contrast's own.

    Args:
        table: a row for each value; the value of a run that failed is NaN.
        formula: such as ``"coins ~ factor * prompt"``: main effects and interactions of a full
            factorial. What stands left of ``~`` names the outcome; all outcomes if nothing does.
        contrasts: pairs of arms, the second is subtracted from the first.
        reference: the arm that is subtracted from each other one; the first if not given.
        generalises_to: what the intervals hold for.
        level: of the intervals.
        sesoi: the smallest effect of interest, or one for each outcome: adds a verdict by two
            one-sided tests. One number does not judge shares beside outcomes in other units.
        paired: whether runs with the same seed are pairs.
        typical: compare by the typical difference, not the mean, where runs are paired.
        noise: add what chance alone gives: the same contrasts between two draws of each arm.
        remarks: what the notes say beside what the estimators found.
    """
    wanted = Wanted(
        paired=paired,
        typical=typical,
        level=level,
    )
    comparisons = compared(
        table,
        formula,
        contrasts=contrasts,
        reference=reference,
        generalises_to=generalises_to,
        wanted=wanted,
        noise=noise,
    )
    margins = _margins(comparisons, sesoi)
    estimates = _estimates(comparisons, margins, level)
    noted = []
    for estimate, comparison in zip(estimates, comparisons, strict=True):
        notes = [estimate.note]
        is_one_for_all = sesoi is not None and not isinstance(sesoi, Mapping)
        if is_one_for_all and margins[comparison.outcome] is None:
            notes.append(
                f"a share, which sesoi={sesoi:g} of outcomes in another unit does not judge; name "
                f"its own: sesoi={{{comparison.outcome!r}: 0.1}}"
            )
        notes += [_note_of(remark, comparison.contrast) for remark in remarks]
        note = "; ".join(filter(None, notes))
        noted.append(replace(estimate, note=note))
    return Effects(noted)


def _margins(
    comparisons: Sequence[Compared],
    sesoi: float | Mapping[str, float] | None,
) -> dict[str, float | None]:
    """Return the smallest effect of interest of each outcome; None where there is none."""
    all_are_shares = all(comparison.are_shares for comparison in comparisons)
    margins: dict[str, float | None] = {}
    for comparison in comparisons:
        outcome = comparison.outcome
        if isinstance(sesoi, Mapping):
            margins[outcome] = sesoi.get(outcome)
        elif comparison.are_shares and not all_are_shares:
            # Shares have no unit, and differ by 1 at most: a number meant for coins says nothing.
            margins[outcome] = None
        else:
            margins[outcome] = sesoi
    return margins


def compared(
    table: pd.DataFrame,
    formula: str | None = None,
    *,
    contrasts: Sequence[tuple[str, str]] | None = None,
    reference: str | None = None,
    generalises_to: Generality = "new runs",
    wanted: Wanted | None = None,
    noise: bool = False,
) -> list[Compared]:
    """Return what estimators find of each contrast and outcome, as for ``effects``."""
    wanted = wanted or Wanted()
    table = table.reset_index(drop=True)
    if table.empty:
        return []
    left, tilde, _ = (formula or "").partition("~")
    left = left.strip()
    if left and tilde:
        place_of("outcome", left, table["outcome"])
        is_named = table["outcome"] == left
        table = table[is_named].reset_index(drop=True)
    layout = Layout.of(table, generalises_to)
    weights = _weights(
        table,
        layout.arms,
        formula,
        contrasts,
        reference,
    )
    comparisons = []
    noises = []
    outcomes = outcomes_of(table)
    for name, of_arms in weights.items():
        for outcome in outcomes:
            comparisons += _compared(layout, name, of_arms, outcome, wanted)
            # A distance of texts has no sign, and is above 0 by chance too.
            are_numbers = outcome.kinds is None and not outcome.mixed
            if noise and are_numbers:
                contrast = layout.contrast(name, of_arms)
                by_chance = _noise(layout, contrast, outcome, wanted)
                noises.append(by_chance)
    # Last, so that what is claimed stands first.
    return [*comparisons, *noises]


def _compared(
    layout: Layout,
    name: str,
    weights: Numbers,
    outcome: OutcomeValues,
    wanted: Wanted,
) -> list[Compared]:
    """Return a contrast in an outcome; of texts their lengths too."""
    if outcome.kinds is not None:
        return _compared_texts(layout, name, weights, outcome, wanted)
    contrast = layout.contrast(name, weights)
    if outcome.mixed:
        parts = Parts(kind="mean difference").with_note(outcome.mixed)
        return [
            Compared(
                contrast=contrast,
                outcome=outcome.name,
                parts=parts,
            )
        ]
    sample = layout.sample(contrast, outcome)
    parts = estimate_numbers(contrast, sample, wanted)
    if not wanted.paired:
        # Where runs are pairs, the pairs say themselves which of them are left out.
        notes = layout.runs_left_out(contrast, outcome)
        parts = replace(parts, notes=(*notes, *parts.notes))
    return [
        Compared(
            contrast=contrast,
            outcome=outcome.name,
            parts=parts,
            are_shares=is_share(outcome.numbers),
        )
    ]


def _compared_texts(
    layout: Layout,
    name: str,
    weights: Numbers,
    outcome: OutcomeValues,
    wanted: Wanted,
) -> list[Compared]:
    """Return a contrast in an outcome of texts: their distance, and of words their lengths too."""
    # A distance of texts holds for these wordings, whatever the numbers' intervals hold for.
    contrast = layout.contrast_of_texts(name, weights)
    sample = layout.text_sample(contrast, outcome)
    distance = Compared(
        contrast=contrast,
        outcome=outcome.name,
        parts=estimate_texts(contrast, sample, wanted),
    )
    if not outcome.are_words or distance.parts.value is None:
        return [distance]
    # Verbosity is not meaning, but the distance of words sees it.
    # A mean number of words is what its sentence says.
    of_means = replace(wanted, typical=False)
    by_length = estimate_numbers(contrast, sample.lengths, of_means)
    length = Compared(
        contrast=contrast,
        outcome=outcome.name,
        parts=replace(
            by_length,
            kind="length difference",
            # It is there to read the distance by, and no claim of the family.
            p=None,
            p_beyond=None,
            typical=None,
        ),
    )
    return [distance, length]


def _noise(
    layout: Layout,
    contrast: Contrast,
    outcome: OutcomeValues,
    wanted: Wanted,
) -> Compared:
    """Return what chance alone gives of a contrast: half of each arm's draws minus the others."""
    sample = layout.sample(contrast, outcome).halves()
    parts = estimate_numbers(contrast, sample, wanted)
    return Compared(
        contrast=contrast,
        outcome=outcome.name,
        parts=parts,
        is_noise=True,
        are_shares=is_share(outcome.numbers),
    )


def _weights(
    table: pd.DataFrame,
    arms: Sequence[str],
    formula: str | None,
    contrasts: Sequence[tuple[str, str]] | None,
    reference: str | None,
) -> dict[str, Numbers]:
    """Return a weight for each arm, by the name of the contrast."""
    if formula is not None:
        factors = [name for name in table if name not in _FIXED]
        return factorial_weights(table.drop_duplicates("arm")[factors], formula)
    base = arms[0]
    if reference is not None:
        base = arms[place_of("arm", reference, arms)]
    if not contrasts:
        contrasts = [(arm, base) for arm in arms if arm != base]
    weights = {}
    for upper, lower in contrasts:
        of_arms = np.zeros(len(arms))
        of_arms[place_of("arm", upper, arms)] += 1
        # Not set to -1: an arm minus itself is 0.
        of_arms[place_of("arm", lower, arms)] -= 1
        weights[contrast_name(upper, lower)] = of_arms
    return weights


def factorial_weights(
    arms: pd.DataFrame,
    formula: str,
) -> dict[str, Numbers]:
    """Return a weight for each arm, for each main effect and interaction of a full factorial.

    A main effect is a level minus the first one, averaged over all other factors; an interaction
    the difference of such differences. Each is one number a unit, so that units may have slopes of
    their own and no sphericity is assumed.

    Args:
        arms: a row for each arm, a column for each factor.
        formula: ``a * b`` is both factors and their interaction, ``a : b`` the interaction alone.
    """
    levels: dict[str, list[object]] = {}
    for column in arms:
        levels[str(column)] = list(arms[column].unique())
    # First, since a name that is wrong is the nearer fault.
    terms = _terms(formula, levels)
    combination_count = math.prod(map(len, levels.values()))
    # With a missing combination a main effect would be mixed with an interaction.
    if len(arms) != combination_count or arms.duplicated().any():
        raise ConfigError(f"{len(arms)} arms are not all combinations of {', '.join(levels)}")
    weights = {}
    for term in terms:
        later_levels = [levels[name][1:] for name in term]
        # Each level but the first of each factor in the term, in all combinations.
        for chosen in product(*later_levels):
            of_arms = np.ones(len(arms))
            sides = []
            for name, level in zip(term, chosen, strict=True):
                first = levels[name][0]
                is_level = (arms[name] == level).to_numpy()
                is_first = (arms[name] == first).to_numpy()
                # 1, -1 or 0; the product over a term's factors is a difference of differences.
                of_arms *= 1.0 * is_level - is_first
                side = contrast_name(f"{name}={level}", f"{name}={first}")
                sides.append(side)
            # Averaged over all other factors, whose levels count alike.
            for name, of_factor in levels.items():
                if name not in term:
                    of_arms *= 1 / len(of_factor)
            label = sides[0]
            if len(sides) > 1:
                label = _TIMES.join(f"({side})" for side in sides)
            weights[label] = of_arms
    return weights


def check_formula(formula: str, factors: Iterable[str]) -> None:
    """Raise ConfigError for a formula that does not say where its factors begin."""
    if "~" not in formula:
        outcome = formula.strip() or "y"
        raise ConfigError(
            f"formula {formula!r} has no ~ between what is compared and the factors; write "
            f"'{outcome} ~ {' * '.join(factors)}'"
        )


def _terms(
    formula: str,
    levels: Mapping[str, object],
) -> list[tuple[str, ...]]:
    """Return the factors of each main effect and interaction, main effects first.

    Raises:
        ConfigError: the formula names no factors, or one that is unknown.
    """
    check_formula(formula, levels)
    # By places, not names: terms are sorted in the order of the design.
    places_of_terms: set[tuple[int, ...]] = set()
    _, _, right = formula.rpartition("~")
    for part in right.split("+"):
        places: set[int] = set()
        for name in re.split("[*:]", part):
            place = place_of(f"{formula}: factor", name.strip(), levels)
            places.add(place)
        # An interaction alone has all of its factors; a * b has each of them alone too.
        fewest = len(places) if ":" in part else 1
        for size in range(fewest, len(places) + 1):
            places_of_terms.update(combinations(sorted(places), size))
    factors = list(levels)
    in_order = sorted(places_of_terms, key=_main_effects_first)
    return [tuple(map(factors.__getitem__, places_of_term)) for places_of_term in in_order]


def _main_effects_first(places: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return len(places), places


# --- a family -------------------------------------------------------------------------------------


def _estimates(
    comparisons: Sequence[Compared],
    margins: Mapping[str, float | None],
    level: float,
) -> list[Estimate]:
    """Return estimates with p-values that count all comparisons; noise is not among them."""
    family = _differences_of_family(comparisons)
    equivalences = _equivalences_of_family(comparisons, margins)
    estimates = []
    for place, comparison in enumerate(comparisons):
        estimate = estimate_of(
            comparison.contrast,
            comparison.outcome,
            comparison.parts,
            level,
        )
        estimate = replace(estimate, is_noise=comparison.is_noise)
        if place in family.p_values:
            estimate = replace(
                estimate,
                p_family=family.p_values[place],
                family=family.method,
            )
        equivalence = equivalences.get(place)
        if equivalence is not None:
            estimate = replace(
                estimate,
                margin=equivalence.margin,
                p_equivalent=equivalence.p,
                p_equivalent_family=equivalence.p_family,
            )
            estimate = replace(estimate, verdict=_verdict(estimate, equivalence.margin))
        estimates.append(estimate)
    return estimates


class _Family(NamedTuple):
    """P-values of no difference, adjusted for each other, by the place of the comparison."""

    p_values: dict[int, float]
    method: str


def _differences_of_family(comparisons: Sequence[Compared]) -> _Family:
    """Return the tests of no difference; what has no p-value is not among them."""
    places = []
    own_p = []
    pairs = []
    for place, comparison in enumerate(comparisons):
        parts = comparison.parts
        # What chance alone gives is no claim, and nothing is adjusted for it.
        if parts.p is None or comparison.is_noise:
            continue
        places.append(place)
        own_p.append(parts.p)
        pairs.append(parts.pairs)
    family = adjusted(own_p, pairs)
    by_place = zip(places, family.p_values, strict=True)
    return _Family(dict(by_place), family.method)


class _Equivalence(NamedTuple):
    """A test of a difference as large as a margin or larger."""

    margin: float
    p: float
    p_family: float


def _equivalences_of_family(
    comparisons: Sequence[Compared],
    margins: Mapping[str, float | None],
) -> dict[int, _Equivalence]:
    """Return the tests of equivalence, by the place of the comparison."""
    tested: dict[int, float] = {}
    own_p = []
    for place, comparison in enumerate(comparisons):
        parts = comparison.parts
        margin = margins[comparison.outcome]
        if margin is None or parts.p is None or comparison.is_noise:
            continue
        # Without an interval there is no verdict either: the two must not contradict each other.
        if parts.interval is not None and parts.p_beyond is not None:
            tested[place] = margin
            own_p.append(parts.p_beyond(margin))
    # Claims that there is no difference are a family of their own.
    of_family = holm(own_p)
    equivalences = {}
    for place, p, p_family in zip(tested, own_p, of_family, strict=True):
        equivalences[place] = _Equivalence(tested[place], p, p_family)
    return equivalences


def estimate_of(
    contrast: Contrast,
    outcome: str,
    parts: Parts,
    level: float,
) -> Estimate:
    """Return an estimate of what was found: the only place that makes one."""
    low = high = None
    if parts.interval is not None:
        low, high = parts.interval
    typical = None
    # Beside a mean of skewed differences, whose interval is too narrow.
    if parts.typical is not None:
        typical = estimate_of(contrast, outcome, parts.typical, level)
    return Estimate(
        contrast=contrast.name,
        outcome=outcome,
        kind=parts.kind,
        value=parts.value,
        low=low,
        high=high,
        level=level,
        p=parts.p,
        n=parts.n,
        unit=contrast.unit,
        df=parts.df,
        generalises_to=contrast.generalises_to,
        method=parts.method,
        note="; ".join(parts.notes),
        typical=typical,
    )


def _note_of(remark: Remark, contrast: Contrast) -> str:
    """Return a remark on the arms of a contrast; empty where it is true of none of them."""
    counts = []
    is_true_of_any = False
    for arm in contrast.weights:
        tally = remark.by_arm.get(arm)
        # "0 of 0" would say nothing.
        if tally is not None and tally.total:
            counts.append(f"{tally.number} of {tally.total} in {arm}")
            is_true_of_any |= tally.number > 0
    if not is_true_of_any:
        return ""
    return f"{remark.words}: {', '.join(counts)}"


def _verdict(estimate: Estimate, margin: float) -> str:
    """Return what two one-sided tests and the test of a difference say, both of the family."""
    assert estimate.low is not None
    assert estimate.high is not None
    alpha = 1 - estimate.level
    differs = estimate.p_family is not None and estimate.p_family < alpha
    is_within = estimate.p_equivalent_family is not None and estimate.p_equivalent_family < alpha
    if is_within and differs:
        return f"differs by less than {margin:g}"
    if is_within:
        return f"no difference of {margin:g} or more"
    if not differs:
        return "undecided"
    # Not by a test of its own: the whole interval lies beyond the margin.
    is_beyond = estimate.low > margin or estimate.high < -margin
    return f"differs by more than {margin:g}" if is_beyond else "differs"
