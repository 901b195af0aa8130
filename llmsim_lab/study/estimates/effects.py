"""Estimates of all contrasts and outcomes of one long table, as one family.

How often each interval covers the truth is in ``benchmarks/coverage.json``, measured by
``benchmarks/coverage.py``. Where an interval missed its level, there is a note instead of it.
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

from llmsim_lab._util.checks import item_count, items_of
from llmsim_lab._util.text import brief, clip, contrast_name
from llmsim_lab.errors import ConfigError
from llmsim_lab.study.estimates.choice import Wanted, estimate_numbers, estimate_texts
from llmsim_lab.study.estimates.estimate import Contrast, Effects, Estimate, Generality
from llmsim_lab.study.estimates.family import adjusted, holm
from llmsim_lab.study.estimates.numeric import Numbers, is_share
from llmsim_lab.study.estimates.parts import Parts
from llmsim_lab.study.estimates.samples import Layout, OutcomeValues, outcomes_of, place_of

_FIXED = ("arm", "unit", "run", "wording", "replicate", "turn", "outcome", "value")
_PAIRS = (
    "a list of pairs of arms, of which the second is subtracted from the first: [('hawkish', "
    "'cautious')]"
)
_TIMES = " \N{MULTIPLICATION SIGN} "


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A contrast in an outcome, with an estimator's result."""

    contrast: Contrast
    outcome: str
    parts: Parts
    is_noise: bool = False
    are_shares: bool = False
    """Whether all values of the outcome are 0 or 1."""


class Tally(NamedTuple):
    """A number of an arm's runs or answers, and their total."""

    number: int
    total: int


class Remark(NamedTuple):
    """A note on the arms of a contrast that is shown if a number in it is above 0."""

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
    """Return the differences of arms, or a factorial's main effects and interactions.

    All contrasts and outcomes are one family. Their p-values are adjusted by ``romano_wolf`` if all
    compare pairs of runs and there are ``ENOUGH_RUNS``, otherwise by ``holm``; p-values of
    equivalence by ``holm``. An adjusted p-value is never below the contrast's own.

    Args:
        table: one row for each value; the value of a failed run is NaN.
        formula: main effects and interactions of a full factorial, such as
            ``"coins ~ factor * prompt"``. The name left of ``~`` is the outcome; all outcomes if
            there is none.
        contrasts: pairs of arms; the second is subtracted from the first.
        reference: the arm that is subtracted from each other arm; the first if not given.
        generalises_to: what the intervals hold for.
        level: of the intervals.
        sesoi: the smallest effect of interest, one number or one for each outcome. It adds a
            verdict by two one-sided tests. One number does not judge shares beside outcomes in
            other units.
        paired: whether runs with the same seed are pairs.
        typical: use the typical difference, not the mean, where runs are paired.
        noise: add what chance alone gives: the same contrasts between two draws of each arm.
        remarks: notes to add to those of the estimators.
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
    """Return the smallest effect of interest by outcome; None where there is none."""
    all_are_shares = all(comparison.are_shares for comparison in comparisons)
    margins: dict[str, float | None] = {}
    for comparison in comparisons:
        outcome = comparison.outcome
        if isinstance(sesoi, Mapping):
            margins[outcome] = sesoi.get(outcome)
        elif comparison.are_shares and not all_are_shares:
            # Shares have no unit and differ by 1 at most: a number meant for coins does not apply.
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
    """Return the estimators' results for each contrast and outcome, as for ``effects``."""
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
            # A distance of texts has no sign, and chance alone makes it larger than 0.
            are_numbers = outcome.kinds is None and not outcome.mixed
            if noise and are_numbers:
                contrast = layout.contrast(name, of_arms)
                by_chance = _noise(layout, contrast, outcome, wanted)
                noises.append(by_chance)
    # Last, since claimed effects come first.
    return [*comparisons, *noises]


def _compared(
    layout: Layout,
    name: str,
    weights: Numbers,
    outcome: OutcomeValues,
    wanted: Wanted,
) -> list[Compared]:
    """Return a contrast in an outcome; for texts also that of their lengths."""
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
        # The estimators of pairs note themselves which pairs are left out.
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
    """Return a contrast in an outcome of texts: their distance, and for words their lengths."""
    # A distance of texts holds for these wordings only, whatever intervals of numbers hold for.
    contrast = layout.contrast_of_texts(name, weights)
    sample = layout.text_sample(contrast, outcome)
    distance = Compared(
        contrast=contrast,
        outcome=outcome.name,
        parts=estimate_texts(contrast, sample, wanted),
    )
    if not outcome.are_words or distance.parts.value is None:
        return [distance]
    # A distance of words also grows with verbosity, so that the lengths are shown beside it.
    # As means, since the sentence names a mean number of words.
    of_means = replace(wanted, typical=False)
    by_length = estimate_numbers(contrast, sample.lengths, of_means)
    length = Compared(
        contrast=contrast,
        outcome=outcome.name,
        parts=replace(
            by_length,
            kind="length difference",
            # It explains the distance, and is not a claim of the family.
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
    """Return a contrast by chance alone: half of each arm's draws minus the other half."""
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
    """Return the weights of the arms, by the name of the contrast."""
    if formula is not None:
        factors = [name for name in table if name not in _FIXED]
        return factorial_weights(table.drop_duplicates("arm")[factors], formula)
    base = arms[0]
    if reference is not None:
        base = arms[place_of("arm", reference, arms)]
    if not contrasts:
        contrasts = [(arm, base) for arm in arms if arm != base]
    weights = {}
    for upper, lower in checked_contrasts(contrasts):
        of_arms = np.zeros(len(arms))
        of_arms[place_of("arm", upper, arms)] += 1
        # Subtracted, not set to -1, so that an arm minus itself is 0.
        of_arms[place_of("arm", lower, arms)] -= 1
        weights[contrast_name(upper, lower)] = of_arms
    return weights


def checked_contrasts(contrasts: object) -> list[tuple[str, str]]:
    """Return contrasts as pairs of names; raise ConfigError for what is not a list of such."""
    pairs = []
    for pair in items_of("contrasts", contrasts, object, _PAIRS):
        # A text of two letters has two parts as well.
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and item_count(pair) == 2
        if not is_pair or not all(isinstance(arm, str) for arm in pair):
            raise ConfigError(f"contrasts has {brief(pair, 120)} in it; it must be {_PAIRS}")
        pairs.append((pair[0], pair[1]))
    return pairs


def factorial_weights(
    arms: pd.DataFrame,
    formula: str,
) -> dict[str, Numbers]:
    """Return the weights of the arms for each main effect and interaction of a full factorial.

    A main effect is a level minus the first level, averaged over all other factors. An interaction
    is a difference of such differences. Each is one number for each unit, so that units may have
    slopes of their own and no sphericity is assumed.

    Args:
        arms: one row for each arm, one column for each factor.
        formula: ``a * b`` is both factors and their interaction, ``a : b`` the interaction alone.
    """
    levels: dict[str, list[object]] = {}
    for column in arms:
        levels[str(column)] = list(arms[column].unique())
    # First, since a wrong name is the more likely mistake.
    terms = _terms(formula, levels)
    combination_count = math.prod(map(len, levels.values()))
    # If a combination is missing, main effects and interactions cannot be separated.
    if len(arms) != combination_count or arms.duplicated().any():
        raise ConfigError(f"{len(arms)} arms are not all combinations of {', '.join(levels)}")
    weights = {}
    for term in terms:
        later_levels = [levels[name][1:] for name in term]
        # All combinations of levels of the term's factors, each without its first level.
        for chosen in product(*later_levels):
            of_arms = np.ones(len(arms))
            sides = []
            for name, level in zip(term, chosen, strict=True):
                first = levels[name][0]
                is_level = (arms[name] == level).to_numpy()
                is_first = (arms[name] == first).to_numpy()
                # 1, -1 or 0. The product over a term's factors gives a difference of differences.
                of_arms *= 1.0 * is_level - is_first
                side = contrast_name(f"{name}={level}", f"{name}={first}")
                sides.append(side)
            # Averaged over the levels of all other factors, with equal weights.
            for name, of_factor in levels.items():
                if name not in term:
                    of_arms *= 1 / len(of_factor)
            label = sides[0]
            if len(sides) > 1:
                label = _TIMES.join(f"({side})" for side in sides)
            weights[label] = of_arms
    return weights


def check_formula(formula: str, factors: Iterable[str]) -> None:
    """Raise ConfigError for a formula without ``~``, which begins the factors."""
    if "~" not in formula:
        outcome = clip(formula, 60) or "y"
        raise ConfigError(
            f"formula {brief(formula, 200)} has no ~ between what is compared and the factors; "
            f"write '{outcome} ~ {' * '.join(factors)}'"
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
    # As places, so that terms can be sorted in the order of the design.
    places_of_terms: set[tuple[int, ...]] = set()
    _, _, right = formula.rpartition("~")
    for part in right.split("+"):
        places: set[int] = set()
        for name in re.split("[*:]", part):
            place = place_of(f"{formula}: factor", name.strip(), levels)
            places.add(place)
        # a : b is the interaction alone; a * b has each factor alone too.
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
    """Return estimates with p-values adjusted for all comparisons except noise."""
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
    """Adjusted p-values of no difference, by the place of the comparison."""

    p_values: dict[int, float]
    method: str


def _differences_of_family(comparisons: Sequence[Compared]) -> _Family:
    """Return the tests of no difference, of all comparisons with a p-value."""
    places = []
    own_p = []
    pairs = []
    for place, comparison in enumerate(comparisons):
        parts = comparison.parts
        # What chance alone gives is not a claim, so that nothing is adjusted for it.
        if parts.p is None or comparison.is_noise:
            continue
        places.append(place)
        own_p.append(parts.p)
        pairs.append(parts.pairs)
    family = adjusted(own_p, pairs)
    by_place = zip(places, family.p_values, strict=True)
    return _Family(dict(by_place), family.method)


class _Equivalence(NamedTuple):
    """A test of the hypothesis that the difference is at least a margin."""

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
        # A verdict needs an interval, since the two must not contradict each other.
        if parts.interval is not None and parts.p_beyond is not None:
            tested[place] = margin
            own_p.append(parts.p_beyond(margin))
    # Claims of no difference are a family of their own.
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
    """Return the estimate of a comparison; all estimates are made here."""
    low = high = None
    if parts.interval is not None:
        low, high = parts.interval
    typical = None
    # Added where differences are skewed and the interval of the mean is too narrow.
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
    """Return a remark on the arms of a contrast; empty where all of its numbers are 0."""
    counts = []
    is_true_of_any = False
    for arm in contrast.weights:
        tally = remark.by_arm.get(arm)
        # Without "0 of 0".
        if tally is not None and tally.total:
            counts.append(f"{tally.number} of {tally.total} in {arm}")
            is_true_of_any |= tally.number > 0
    if not is_true_of_any:
        return ""
    return f"{remark.words}: {', '.join(counts)}"


def _verdict(estimate: Estimate, margin: float) -> str:
    """Return the verdict of two one-sided tests and of the test of a difference, both adjusted."""
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
    # Without a test of its own: the whole interval lies beyond the margin.
    is_beyond = estimate.low > margin or estimate.high < -margin
    return f"differs by more than {margin:g}" if is_beyond else "differs"
