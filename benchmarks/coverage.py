"""Measure the study's statistics: does each interval hold the truth as often as it says?

``nice python benchmarks/coverage.py --out benchmarks/coverage.json`` draws numbers whose true
differences are known, 5,000 times a cell, and counts. Every estimator of ``study.estimates``, the
adjustment for a family, equivalence, bands by turn, what ``plan()`` promises and the joint test of
``multiverse`` have their cells; all follow from one seed. Where an estimator may refuse after a
look at the numbers, the share is of the intervals that it offers. One check covers all judged
cells, so that none can be picked: the smallest binomial p-value of a cell that misses its level,
times the number of cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import sqrt
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from command import command
from numpy.typing import NDArray
from rich.table import Table
from scipy import special, stats

from llmsim_lab.study.estimates import bands, family
from llmsim_lab.study.estimates.bands import Curves, Group, band, by_turn
from llmsim_lab.study.estimates.choice import Wanted, estimate_numbers, estimate_texts
from llmsim_lab.study.estimates.effects import Compared, effects
from llmsim_lab.study.estimates.estimate import Contrast, Generality
from llmsim_lab.study.estimates.family import adjusted, holm
from llmsim_lab.study.estimates.groups import group_means
from llmsim_lab.study.estimates.joint import joint_test
from llmsim_lab.study.estimates.paired import paired_means
from llmsim_lab.study.estimates.parts import Parts, Sample, TextSample
from llmsim_lab.study.estimates.power import Sizes, detectable

__all__ = ["CELLS", "FULL", "QUICK", "Plan", "main", "measure", "measure_cell"]

SEED = 57
LEVEL = 0.95
ALPHA = 0.05
OVERALL = 0.01
"""The check fails below."""

Numbers = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, ...]], Numbers]
Rule = Literal["at least", "at most", "never offered"] | None


class Counts(NamedTuple):
    """How many intervals or tests did what is counted, of how many that were offered."""

    hits: int
    offered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: replications of each cell."""

    replications: int


FULL = Plan(replications=5_000)
QUICK = Plan(replications=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One condition.

    Attributes:
        group: of like cells.
        name: within the group.
        count: plays it so many times.
        wanted: the share that was promised.
        rule: in which direction missing it is a fault; None shows it for comparison.
        fewer: it is played so many times less often, since a replication takes long.
    """

    group: str
    name: str
    count: Callable[[Rng, int], Counts]
    wanted: float = LEVEL
    rule: Rule = "at least"
    fewer: int = 1


# --- numbers: all but the shares have a mean of 0 -------------------------------------------------


def normal(rng: Rng, shape: tuple[int, ...], sd: float = 1.0) -> Numbers:
    return sd * rng.standard_normal(shape)


def heavy(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    """Student's t with three degrees of freedom, scaled to a variance of 1."""
    return rng.standard_t(3, shape) / sqrt(3)


def exponential(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.exponential(size=shape) - 1


def disasters(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    """Lognormal with sigma 1.2: rare and large, as a spiral makes a loss."""
    sigma = 1.2
    mean = np.exp(sigma**2 / 2)
    return np.asarray(rng.lognormal(sigma=sigma, size=shape) - mean)


def on_grid(rng: Rng, shape: tuple[int, ...], sd: float) -> Numbers:
    """Policy rates in steps of 0.25 whose differences have at least this standard deviation."""
    return 0.25 * np.round((4 + sd / sqrt(2) * rng.standard_normal(shape)) / 0.25)


def moves(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return rng.choice([-0.25, 0.0, 0.25], shape, p=[0.05, 0.65, 0.3])


def share(rng: Rng, shape: tuple[int, ...], p: float) -> Numbers:
    return (rng.random(shape) < p).astype(float)


def zero(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return np.zeros(shape)


def sevens(rng: Rng, shape: tuple[int, ...]) -> Numbers:
    return np.full(shape, 7.0)


def ar1(rng: Rng, shape: tuple[int, ...], rho: float) -> Numbers:
    """Stationary AR(1) along the last axis, with variance 1."""
    values = rng.standard_normal(shape)
    for turn in range(1, shape[-1]):
        values[..., turn] = rho * values[..., turn - 1] + sqrt(1 - rho**2) * values[..., turn]
    return values


@cache
def pseudo_median(one: Draw, other: Draw) -> float:
    """Return the median of the means of two differences, of two million such means."""
    rng = np.random.default_rng(SEED)
    differences = one(rng, (2, 2_000_000)) - other(rng, (2, 2_000_000))
    return float(np.median(differences.mean(axis=0)))


# --- samples: arms x wordings x units x replicates ------------------------------------------------

NEW_RUNS = Contrast(name="b minus a", weights={}, unit="run", generalises_to="new runs")
THESE = Contrast(name="b minus a", weights={}, unit="situation", generalises_to="these situations")
NEW_WORDINGS = Contrast(name="b minus a", weights={}, unit="wording", generalises_to="new wordings")
NEW_BOTH = Contrast(
    name="b minus a", weights={}, unit="wording", generalises_to="new wordings and situations"
)
PAIR = np.array([-1.0, 1.0])
MAIN_EFFECT = np.array([-1, -1, -1, 1, 1, 1]) / 3
INTERACTION = np.array([1.0, -1.0, 0.0, -1.0, 1.0, 0.0])


def sample_of(
    values: Numbers, *, weights: Numbers = PAIR, turns: int = 1, crossed: bool = False
) -> Sample:
    """Return values as estimators take them.

    Args:
        values: arms x wordings x units x replicates.
        weights: of the arms.
        turns: how many units, in a row, are of one run.
        crossed: whether arms ask the same wordings.
    """
    arms = len(values)
    has_values = np.isfinite(values).any(axis=(2, 3))
    return Sample(
        values=values,
        weights=weights,
        run_of=np.arange(values.shape[2]) // turns,
        wording_counts=has_values.sum(axis=1),
        wording_sets=np.zeros(arms, int) if crossed else np.arange(arms),
    )


def missing(rng: Rng, values: Numbers, shares: Sequence[float]) -> Numbers:
    """Return values of which each arm misses a share."""
    for arm, lost in zip(values, shares, strict=True):
        arm[rng.random(arm.shape) < lost] = np.nan
    return values


def runs(
    rng: Rng,
    *,
    n: int,
    a: Draw = normal,
    b: Draw = normal,
    lost: tuple[float, float] = (0.0, 0.0),
) -> Sample:
    """Pairs of runs; what a seed decides would be in both, and is left out."""
    values = np.stack([a(rng, (n,)), b(rng, (n,))])[:, None, :, None]
    return sample_of(missing(rng, values, lost))


def groups(
    rng: Rng,
    *,
    sizes: tuple[int, int],
    a: Draw = normal,
    b: Draw = normal,
    effect: float = 0.0,
) -> Sample:
    """Runs of two arms that share no seed."""
    values = np.full((2, 1, sum(sizes), 1), np.nan)
    values[0, 0, : sizes[0], 0] = a(rng, (sizes[0],))
    values[1, 0, sizes[0] :, 0] = b(rng, (sizes[1],)) + effect
    return sample_of(values)


def share_groups(rng: Rng, *, n: int, effect: float = 0.0) -> Sample:
    """Groups that share no seed, of 0 and 1, with shares around a half."""
    lower = partial(share, p=0.5 - effect / 2)
    upper = partial(share, p=0.5 + effect / 2)
    return groups(rng, sizes=(n, n), a=lower, b=upper)


def groups_in_2x2(rng: Rng, *, sizes: tuple[int, ...]) -> Sample:
    """Runs of four arms that share no seed, two of which vary twice as much."""
    values = np.full((4, 1, sum(sizes), 1), np.nan)
    first = 0
    for arm, size in enumerate(sizes):
        spread = 1 + arm % 2
        values[arm, 0, first : first + size, 0] = spread * rng.standard_normal(size)
        first += size
    return sample_of(values, weights=np.array([-0.5, -0.5, 0.5, 0.5]))


def factorial(rng: Rng, *, n: int, weights: Numbers, p: float | None = None) -> Sample:
    """2 x 3 arms; units have a slope of their own, and arms different spreads."""
    if p is not None:
        values = share(rng, (6, n), p)
    else:
        spread = np.array([0.2, 1.0, 2.0] * 2)[:, None]
        slope = np.repeat([0.0, 0.7], 3)[:, None] * rng.standard_normal(n)
        values = slope + spread * rng.standard_normal((6, n))
    used = weights != 0
    return sample_of(values[used][:, None, :, None], weights=weights[used])


def situations(
    rng: Rng,
    *,
    of_runs: int,
    turns: int,
    answers: int,
    rho: float = 0.8,
    noise: float = 1.0,
    p: float | None = None,
    lost: float = 0.0,
    effect: float = 0.0,
) -> Sample:
    """Answers in turns of runs; of several runs, situations differ in their effect, by an AR(1)."""
    shape = (2, of_runs * turns, answers)
    values = noise * rng.standard_normal(shape) if p is None else share(rng, shape, p)
    values[1] += effect
    if of_runs > 1:
        values[1] += ar1(rng, (of_runs, turns), rho).reshape(-1, 1)
    return sample_of(missing(rng, values[:, None], (lost, lost)), turns=turns)


def as_runs(rng: Rng, *, situation: Callable[[Rng], Sample]) -> Sample:
    """Take each call for a run of its own."""
    return sample_of(situation(rng).values.reshape(2, 1, -1, 1))


def wordings(
    rng: Rng,
    *,
    counts: tuple[int, int],
    units: int = 4,
    sd: float = 0.5,
    by_run: float = 0.0,
    p: float | None = None,
    effect: float = 0.0,
) -> Sample:
    """Arms with wordings of their own, asked three times at units that differ in their effect."""
    values = np.full((2, sum(counts), units, 3), np.nan)
    of_units = by_run * rng.standard_normal((units, 1))
    begin = 0
    for arm, count in enumerate(counts):
        shape = (count, units, 3)
        of_wordings = np.zeros((count, 1, 1))
        if count > 1:
            of_wordings = sd * rng.standard_normal((count, 1, 1))
        numbers = of_wordings + arm * (of_units + effect) + normal(rng, shape)
        values[arm, begin : begin + count] = numbers if p is None else share(rng, shape, p)
        begin += count
    return sample_of(values)


def crossed_wordings(rng: Rng, *, count: int, units: int, sd: float, by_run: float = 0.0) -> Sample:
    """Two arms that ask the same wordings, which differ in their mean and in their effect."""
    shape = (2, count, units, 3)
    values = rng.standard_normal(shape) + rng.standard_normal((1, count, 1, 1))
    values[1] += sd * rng.standard_normal((count, 1, 1))
    values[1] += by_run * rng.standard_normal((1, units, 1))
    return sample_of(values, crossed=True)


# --- counting -------------------------------------------------------------------------------------

SampleOf = Callable[[Rng], Sample]


def has_no_warning(parts: Parts) -> bool:
    return not any("skewed" in note for note in parts.notes)


def has_warning(parts: Parts) -> bool:
    return not has_no_warning(parts)


def covered(
    rng: Rng,
    replications: int,
    *,
    sample: SampleOf,
    contrast: Contrast = NEW_RUNS,
    truth: float = 0.0,
    asked: Wanted | None = None,
    counted: Callable[[Parts], bool] | None = None,
) -> Counts:
    """Count the intervals that hold the truth, of those that are offered, or that are counted."""
    hits = 0
    offered = 0
    for _ in range(replications):
        parts = estimate_numbers(contrast, sample(rng), asked or Wanted())
        if parts.interval is None or (counted and not counted(parts)):
            continue
        offered += 1
        low, high = parts.interval
        hits += low <= truth + 1e-9 and high >= truth - 1e-9
    return Counts(hits, offered)


def typical_covered(rng: Rng, replications: int, *, sample: SampleOf, truth: float) -> Counts:
    """Count the intervals of typical differences, offered beside a skewed mean, with the truth."""
    hits = 0
    offered = 0
    for _ in range(replications):
        typical = estimate_numbers(NEW_RUNS, sample(rng), Wanted()).typical
        if typical is None or typical.interval is None:
            continue
        offered += 1
        hits += typical.interval.low <= truth <= typical.interval.high
    return Counts(hits, offered)


def found(
    rng: Rng,
    replications: int,
    *,
    sample: SampleOf,
    contrast: Contrast = NEW_RUNS,
    asked: Wanted | None = None,
) -> Counts:
    """Count the tests that find a difference."""
    hits = 0
    for _ in range(replications):
        parts = estimate_numbers(contrast, sample(rng), asked or Wanted())
        hits += parts.p is not None and parts.p < ALPHA
    return Counts(hits, replications)


def equivalent(
    rng: Rng,
    replications: int,
    *,
    sample: SampleOf,
    margin: float,
    asked: Wanted | None = None,
) -> Counts:
    """Count the tests that find a difference smaller than the margin."""
    hits = 0
    for _ in range(replications):
        parts = estimate_numbers(NEW_RUNS, sample(rng), asked or Wanted())
        hits += parts.p_beyond is not None and parts.p_beyond(margin) < ALPHA
    return Counts(hits, replications)


class FamilyDraw(NamedTuple):
    """Parts of all comparisons of a study, and which of them have no true effect."""

    parts: list[Parts]
    is_null: list[bool]


def family_of_nine(
    rng: Rng,
    *,
    n: int,
    draw: Draw = normal,
    effects_of: tuple[float, float, float] = (0.0, 0.0, 0.0),
    skewed_arm: bool = False,
) -> FamilyDraw:
    """Three arms and a reference in three outcomes that have a part in common."""
    common = 0.7 * draw(rng, (4, n, 1))
    values = draw(rng, (4, n, 3)) + common
    if skewed_arm:
        values[1] = disasters(rng, (n, 3)) + disasters(rng, (n, 1))
    parts = []
    is_null = []
    for arm, effect in enumerate(effects_of, 1):
        for outcome in range(3):
            pair = np.stack([values[0, :, outcome], values[arm, :, outcome] + effect])
            sample = sample_of(pair[:, None, :, None])
            parts.append(paired_means(sample, LEVEL))
            is_null.append(effect == 0)
    return FamilyDraw(parts, is_null)


def nine_of_groups(rng: Rng, *, sizes: tuple[int, int]) -> FamilyDraw:
    """Three arms and a reference of groups that share nothing, in three outcomes without effect."""
    reference, of_others = sizes
    values = [
        rng.standard_normal((size, 3)) + 0.7 * rng.standard_normal((size, 1))
        for size in (reference, of_others, of_others, of_others)
    ]
    parts = []
    for arm in values[1:]:
        for outcome in range(3):
            pair = np.full((2, 1, reference + of_others, 1), np.nan)
            pair[0, 0, :reference, 0] = values[0][:, outcome]
            pair[1, 0, reference:, 0] = arm[:, outcome]
            parts.append(group_means(sample_of(pair), LEVEL))
    return FamilyDraw(parts, [True] * len(parts))


def family_errors(
    rng: Rng,
    replications: int,
    *,
    nine: Callable[[Rng], FamilyDraw],
    each_alone: bool = False,
) -> Counts:
    """Count the families in which a difference is found where there is none."""
    hits = 0
    for _ in range(replications):
        parts, is_null = nine(rng)
        own = [one.p or 1.0 for one in parts]
        p_values = own
        if not each_alone:
            p_values = adjusted(own, [one.pairs for one in parts]).p_values
        hits += any(p < ALPHA for p, null in zip(p_values, is_null, strict=True) if null)
    return Counts(hits, replications)


def family_equivalences(
    rng: Rng,
    replications: int,
    *,
    nine: Callable[[Rng], FamilyDraw],
    margin: float,
    each_alone: bool = False,
) -> Counts:
    """Count the families, all exactly at the margin, with a false "no difference"."""
    hits = 0
    for _ in range(replications):
        beyond = [one.p_beyond(margin) for one in nine(rng).parts if one.p_beyond]
        hits += min(beyond if each_alone else holm(beyond)) < ALPHA
    return Counts(hits, replications)


def joint_errors(
    rng: Rng, replications: int, *, n: int, specifications: int, draw: Draw = normal
) -> Counts:
    """Count the multiverses that find a median where there is none.

    Specifications are played with the same seeds, so that they have .8 of their variance in common.
    """
    hits = 0
    for _ in range(replications):
        common = draw(rng, (n, 1))
        differences = sqrt(0.8) * common + sqrt(0.2) * draw(rng, (n, specifications))
        hits += joint_test(differences, LEVEL).p < ALPHA
    return Counts(hits, replications)


def looked(rng: Rng, replications: int, *, last: int) -> Counts:
    """Count the studies that stop at p < .05, looked at after each pair from the fifth on."""
    differences = rng.standard_normal((last, replications))
    smallest = np.ones(replications)
    for n in range(5, last + 1):
        seen = differences[:n]
        error = seen.std(axis=0, ddof=1) / sqrt(n)
        p = 2 * special.stdtr(n - 1, -np.abs(seen.mean(axis=0) / error))
        smallest = np.minimum(smallest, p)
    return Counts(int((smallest < ALPHA).sum()), replications)


# --- texts ----------------------------------------------------------------------------------------


def categories(
    rng: Rng, *, units: int, answers: int, sizes: tuple[int, int] | None = None
) -> TextSample:
    """Three categories, as often in both arms; units differ in how often.

    Args:
        rng: draws.
        units: how many; without ``sizes`` each is in both arms.
        answers: of a unit in an arm.
        sizes: how many units each arm has, where they share none.
    """
    borders = rng.dirichlet([1, 1, 1], units).cumsum(axis=1)[:, None]
    if sizes is not None:
        borders = np.broadcast_to([0.5, 0.8, 1.0], borders.shape)
    chosen = (rng.random((2, units, answers, 1)) > borders).sum(axis=-1)
    kinds = np.eye(4)[chosen]
    if sizes is not None:
        kinds[0, sizes[0] :] = np.nan
        kinds[1, : sizes[0]] = np.nan
    lengths = sample_of(np.ones((2, 1, units, answers)))
    return TextSample(kinds=kinds, lengths=lengths, are_words=False)


def found_in_texts(
    rng: Rng,
    replications: int,
    *,
    sample: Callable[[Rng], TextSample],
    contrast: Contrast = NEW_RUNS,
    paired: bool = True,
) -> Counts:
    """Count the tests of texts that find a difference where there is none."""
    hits = 0
    wanted = Wanted(paired=paired)
    for _ in range(replications):
        parts = estimate_texts(contrast, sample(rng), wanted)
        hits += parts.p is not None and parts.p < ALPHA
    return Counts(hits, replications)


# --- noise, bands, the whole way from a table -----------------------------------------------------


def noise_covered(rng: Rng, replications: int, *, n: int, answers: int, effect: float) -> Counts:
    """Count the intervals of what chance alone gives that hold 0, whatever the effect is."""
    hits = 0
    for _ in range(replications):
        values = rng.standard_normal((2, 1, n, answers)) + rng.standard_normal((1, 1, n, 1))
        values[1] += effect + rng.standard_normal((1, n, 1))
        parts = estimate_numbers(NEW_RUNS, sample_of(values).halves(), Wanted())
        assert parts.interval is not None
        hits += parts.interval.low <= 0 <= parts.interval.high
    return Counts(hits, replications)


def bands_covered(
    rng: Rng, replications: int, *, n: int, turns: int, pointwise: bool = False
) -> Counts:
    """Count the bands that hold the whole curve."""
    hits = 0
    for number in range(replications):
        curves = ar1(rng, (n, turns), 0.8)
        mean = curves.mean(axis=0)
        if pointwise:
            reach = special.stdtrit(n - 1, (1 + LEVEL) / 2) * curves.std(axis=0, ddof=1) / sqrt(n)
            low = mean - reach
            high = mean + reach
        else:
            difference = Curves(
                turns=list(range(turns)),
                mean=mean,
                groups=[Group(1.0, curves)],
                n=n,
                unit="run",
            )
            low, high = band(difference, LEVEL, draws=500, seed=number)
        hits += bool(((low <= 0) & (high >= 0)).all())
    return Counts(hits, replications)


def band_of_table(
    rng: Rng, replications: int, *, table: Callable[[Rng], pd.DataFrame], paired: bool = True
) -> Counts:
    """Count the bands of ``by_turn`` that hold the whole curve."""
    hits = 0
    for _ in range(replications):
        rows = table(rng)
        holds_for: Generality = "new runs"
        if rows["wording"].nunique() > 1:
            holds_for = "new wordings and situations"
        curve = by_turn(rows, "b", "a", generalises_to=holds_for, paired=paired)
        hits += bool(((curve["low"] <= 0) & (curve["high"] >= 0)).all())
    return Counts(hits, replications)


def curves_of_groups(rng: Rng, *, sizes: tuple[int, int], turns: int) -> pd.DataFrame:
    """Runs of two arms that share no seed, by turn; the second arm varies twice as much."""
    n = sum(sizes)
    values = ar1(rng, (n, turns), 0.8)
    values[sizes[0] :] *= 2
    names = pd.MultiIndex.from_product([range(n), range(turns)], names=["unit", "turn"])
    table = names.to_frame(index=False)
    arms = np.where(table["unit"] < sizes[0], "a", "b")
    return table.assign(arm=arms, run=table["unit"], wording="", replicate=1, value=values.ravel())


def curves_of_wordings(rng: Rng, *, count: int, units: int, turns: int) -> pd.DataFrame:
    """Two arms with wordings of their own at units of their own slope, by turn."""
    values = 0.5 * rng.standard_normal((2, count, units, turns))
    values += 0.5 * ar1(rng, (2, count, 1, turns), 0.8)
    values[1] += 0.5 * ar1(rng, (units, turns), 0.8)
    names = ["arm", "wording", "unit", "turn"]
    sizes = [["a", "b"], range(count), range(units), range(turns)]
    table = pd.MultiIndex.from_product(sizes, names=names).to_frame(index=False)
    wording = table["arm"] + table["wording"].astype(str)
    return table.assign(wording=wording, run=table["unit"], replicate=1, value=values.ravel())


def through_the_table(rng: Rng, replications: int, *, n: int, formula: str | None) -> Counts:
    """Count the intervals of ``effects`` from tables of 2 x 2 arms and three turns."""
    outcomes = min(replications, 250)
    names = ["factor", "prompt", "unit", "turn", "outcome"]
    sizes = [range(2), range(2), range(n), range(3), range(outcomes)]
    table = pd.MultiIndex.from_product(sizes, names=names).to_frame(index=False)
    table = table.assign(run=table["unit"], wording="", replicate=1)
    table["arm"] = table["factor"].astype(str) + table["prompt"].astype(str)
    contrasts = [("10", "00")] if formula is None else None
    hits = 0
    offered = 0
    for _ in range(replications // outcomes):
        shape = [len(size) for size in sizes]
        values = rng.standard_normal(shape) + rng.standard_normal([1, 1, n, 1, outcomes])
        values[1] += 0.5 + rng.standard_normal([1, n, 1, outcomes])
        for estimate in effects(table.assign(value=values.ravel()), formula, contrasts=contrasts):
            if estimate.low is None or estimate.high is None:
                continue
            truth = 0.5 if estimate.contrast.startswith(("factor", "10")) else 0.0
            offered += 1
            hits += estimate.low <= truth <= estimate.high
    return Counts(hits, offered)


# --- what plan() promises -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Reads from a pilot the smallest difference that ``plan()`` promises to see.

    Attributes:
        pilot: how much the pilot repeats.
        planned: and the study.
        contrast: what is compared.
        comparisons: of the study.
        asked: how it is compared.
    """

    pilot: Sizes
    planned: Sizes
    contrast: Contrast = NEW_RUNS
    comparisons: int = 1
    asked: Wanted = field(default_factory=Wanted)

    def of(self, sample: Sample) -> float | None:
        """Return what is promised; None where nothing tells."""
        parts = estimate_numbers(self.contrast, sample, self.asked)
        return detectable(
            [Compared(contrast=self.contrast, outcome="y", parts=parts)],
            pilot_sizes=self.pilot,
            planned=self.planned,
            comparisons=self.comparisons,
        ).value


@cache
def promise_of_shares(pilot: Sizes, planned: Sizes, differing: int) -> float | None:
    """Return the promise of a pilot of shares, which follows from how many pairs differ."""
    values = np.zeros((2, 1, pilot.runs, 1))
    values[1, 0, :differing, 0] = 1
    return Promise(pilot=pilot, planned=planned).of(sample_of(values))


def promised(
    rng: Rng,
    replications: int,
    *,
    sample: Callable[..., Sample],
    pilot: Mapping[str, Any],
    planned: Mapping[str, Any],
    promise: Promise,
    are_shares: bool = False,
) -> Counts:
    """Count the studies that find the difference that a pilot promised with power .8.

    Each replication draws a pilot, reads its promise, and plays a study with exactly this effect in
    its first comparison; the others have none, and p-values are adjusted for all of them.

    Args:
        rng: draws.
        replications: how many.
        sample: draws the numbers; ``effect`` is the true difference.
        pilot: arguments of ``sample`` for the pilot.
        planned: and for the study.
        promise: reads the pilot.
        are_shares: whether outcomes are 0 or 1.
    """
    hits = 0
    offered = 0
    for _ in range(replications):
        seen = sample(rng, **pilot)
        if are_shares:
            differing = int((seen.values[0] != seen.values[1]).sum())
            size = promise_of_shares(promise.pilot, promise.planned, differing)
        else:
            size = promise.of(seen)
        if size is None:
            continue
        offered += 1
        parts = []
        for number in range(promise.comparisons):
            drawn = sample(rng, effect=size if number == 0 else 0.0, **planned)
            parts.append(estimate_numbers(promise.contrast, drawn, promise.asked))
        own = [one.p or 1.0 for one in parts]
        hits += adjusted(own, [one.pairs for one in parts]).p_values[0] < ALPHA
    return Counts(hits, offered)


def run_sizes(n: int) -> Sizes:
    return Sizes(runs=n, situations=n, samples=1, wordings=1)


def runs_with_effect(rng: Rng, *, n: int, effect: float = 0.0) -> Sample:
    sample = runs(rng, n=n)
    sample.values[1] += effect
    return sample


def shares_with_effect(rng: Rng, *, n: int, base: float, effect: float = 0.0) -> Sample:
    """Pairs of shares whose second arm has the first one's and the effect, if that is below 1."""
    return runs(rng, n=n, a=partial(share, p=base), b=partial(share, p=min(1.0, base + effect)))


# --- cells ----------------------------------------------------------------------------------------


def _cell(
    group: str, name: str, rule: Rule = "at least", wanted: float = LEVEL, **options: Any
) -> Cell:
    return Cell(group=group, name=name, count=partial(covered, **options), wanted=wanted, rule=rule)


def _test_cell(
    group: str, name: str, count: Callable[[Rng, int], Counts], rule: Rule = "at most"
) -> Cell:
    return Cell(group=group, name=name, count=count, wanted=ALPHA, rule=rule)


def _cells_of_pairs() -> Iterator[Cell]:
    group = "pairs of runs"
    for n in (2, 3, 5, 10, 50):
        yield _cell(group, f"n={n}, normal", sample=partial(runs, n=n))
    for n in (5, 20):
        yield _cell(group, f"n={n}, t3", sample=partial(runs, n=n, b=heavy))
        thrice = partial(normal, sd=3)
        yield _cell(group, f"n={n}, spreads 1 and 3", sample=partial(runs, n=n, b=thrice))
        yield _cell(group, f"n={n}, 10 % lost", sample=partial(runs, n=n, lost=(0.1, 0.1)))
    for n in (8, 20):
        lost = partial(runs, n=n, lost=(0.0, 0.4))
        yield _cell(group, f"n={n}, 40 % of one arm lost", sample=lost)
    quiet = partial(normal, sd=0.3)
    for n in (5, 8, 20, 50):
        skewed = partial(runs, n=n, a=quiet, b=disasters)
        group = "pairs, one arm with disasters: mean"
        yield _cell(group, f"n={n}, all", None, sample=skewed)
        yield _cell(group, f"n={n}, warned", None, sample=skewed, counted=has_warning)
        yield _cell(group, f"n={n}, not warned", None, sample=skewed, counted=has_no_warning)
        yield Cell(
            group="pairs, one arm with disasters: typical difference beside a warned mean",
            name=f"n={n}",
            count=partial(typical_covered, sample=skewed, truth=pseudo_median(disasters, quiet)),
            rule=None,
        )
        both = partial(runs, n=n, a=disasters, b=disasters)
        yield _cell("pairs, both arms with disasters: mean", f"n={n}", sample=both)
    for n in (5, 10, 50):
        skewed = partial(runs, n=n, a=zero, b=exponential)
        yield _cell("pairs, exponential differences: mean", f"n={n}", None, sample=skewed)


def _cells_of_typical() -> Iterator[Cell]:
    group = "typical difference"
    typical = Wanted(typical=True)
    for n in (6, 8, 20):
        yield _cell(group, f"n={n}, normal", sample=partial(runs, n=n), asked=typical)
    for n in (8, 20):
        thrice = partial(normal, sd=3)
        like = {
            "t3": partial(runs, n=n, a=heavy, b=heavy),
            "spreads 1 and 3": partial(runs, n=n, b=thrice),
            "10 % lost": partial(runs, n=n, lost=(0.1, 0.1)),
            "25-bp grid": partial(
                runs, n=n, a=partial(on_grid, sd=0.25), b=partial(on_grid, sd=0.25)
            ),
            "disasters in both arms": partial(runs, n=n, a=disasters, b=disasters),
        }
        for name, sample in like.items():
            yield _cell(group, f"n={n}, {name}", sample=sample, asked=typical)
    for n in (8, 20, 50):
        for name, a, b in (
            ("disasters in one arm", normal, disasters),
            ("exponential differences", zero, exponential),
        ):
            yield _cell(
                "typical difference, skewed: pseudo-median",
                f"n={n}, {name}",
                wanted=0.93,
                sample=partial(runs, n=n, a=a, b=b),
                asked=typical,
                truth=pseudo_median(b, a),
            )
    for n in (6, 8, 20):
        count = partial(found, sample=partial(runs, n=n, a=heavy, b=heavy), asked=typical)
        yield _test_cell("typical difference, size", f"n={n}, t3", count)


def _cells_of_coarse() -> Iterator[Cell]:
    for n in (5, 10, 20, 50):
        for sd in (0.1, 0.25):
            rate = partial(on_grid, sd=sd)
            yield _cell("25-bp grid", f"n={n}, sd {sd}", sample=partial(runs, n=n, a=rate, b=rate))
        yield _cell(
            "25-bp grid, skewed",
            f"n={n}, moves of -25, 0, 25 bp with .05, .65, .3",
            None,
            sample=partial(runs, n=n, a=zero, b=moves),
            truth=0.0625,
        )
    for n in (5, 20, 50):
        for one, other in ((0.5, 0.5), (0.5, 0.9), (0.1, 0.1), (0.0, 0.1)):
            sample = partial(runs, n=n, a=partial(share, p=one), b=partial(share, p=other))
            name = f"n={n}, {one} and {other}"
            yield _cell("shares, pairs", name, sample=sample, truth=other - one)
    for n in (3, 5, 30):
        for name, weights in (("main effect", MAIN_EFFECT), ("interaction", INTERACTION)):
            sample = partial(factorial, n=n, weights=weights)
            yield _cell("factorial 2x3", f"{name}, n={n}", sample=sample)
    for n in (5, 20):
        sample = partial(factorial, n=n, weights=MAIN_EFFECT, p=0.1)
        yield _cell("factorial 2x3, shares", f"main effect, n={n}, .1", sample=sample)


def _cells_of_groups() -> Iterator[Cell]:
    unpaired = Wanted(paired=False)
    thrice = partial(normal, sd=3)
    for sizes in ((5, 5), (8, 20), (30, 6)):
        name = f"{sizes[0]} and {sizes[1]}"
        for words, a, b in (
            ("normal", normal, normal),
            ("spreads 1 and 3", normal, thrice),
            ("spreads 3 and 1", thrice, normal),
            ("t3", heavy, heavy),
        ):
            sample = partial(groups, sizes=sizes, a=a, b=b)
            yield _cell("groups", f"{name}, {words}", sample=sample, asked=unpaired)
        skewed = partial(groups, sizes=sizes, a=normal, b=disasters)
        group = "groups, one arm with disasters"
        yield _cell(group, name, None, sample=skewed, asked=unpaired)
    for sizes in ((3, 3), (3, 6), (2, 10), (3, 20), (4, 20)):
        # As in a class: a few groups of four people in each arm, not as many in both.
        third = partial(normal, sd=1 / 3)
        for words, b in (
            ("normal", normal),
            ("spreads 1 and 3", thrice),
            ("spreads 3 and 1", third),
        ):
            name = f"{sizes[0]} and {sizes[1]}, {words}"
            sample = partial(groups, sizes=sizes, b=b)
            yield _cell("few groups", name, sample=sample, asked=unpaired)
    for four in ((3, 3, 3, 3), (2, 3, 4, 6)):
        name = f"main effect of 2x2, {' and '.join(map(str, four))}, spreads 1 and 2"
        yield _cell("few groups", name, sample=partial(groups_in_2x2, sizes=four), asked=unpaired)
    for sizes in ((10, 10), (20, 8), (50, 50)):
        for one, other in ((0.5, 0.5), (0.2, 0.5), (0.05, 0.2), (0.02, 0.02)):
            sample = partial(
                groups, sizes=sizes, a=partial(share, p=one), b=partial(share, p=other)
            )
            name = f"{sizes[0]} and {sizes[1]}, {one} and {other}"
            truth = other - one
            yield _cell("groups, shares", name, sample=sample, asked=unpaired, truth=truth)
    half = partial(share, p=0.3)
    sample = partial(groups, sizes=(20, 20), a=half, b=half)
    count = partial(found, sample=sample, asked=unpaired)
    yield _test_cell("groups, shares, size of Fisher's test", "20 and 20, .3", count)


def _cells_of_refusals() -> Iterator[Cell]:
    half = partial(share, p=0.5)
    refused = {
        "one pair of runs": partial(runs, n=1),
        "shares, 4 pairs": partial(runs, n=4, a=half, b=half),
        "all differ by the same": partial(runs, n=5, a=zero, b=sevens),
        "5 pairs, 7 or 8": partial(runs, n=5, a=sevens, b=partial(seven_or_eight, p=0.5)),
        "20 situations of one run, for new runs": partial(
            situations, of_runs=1, turns=20, answers=5
        ),
    }
    group = "refused"
    for name, sample in refused.items():
        yield _cell(group, name, "never offered", wanted=0.0, sample=sample)
    one_answer = partial(situations, of_runs=1, turns=8, answers=1)
    two_wordings = partial(wordings, counts=(2, 2))
    for name, sample, contrast in (
        ("one answer a situation", one_answer, THESE),
        ("two wordings", two_wordings, NEW_WORDINGS),
    ):
        yield _cell(group, name, "never offered", wanted=0.0, sample=sample, contrast=contrast)
    sample = partial(runs, n=5)
    name = "typical difference, 5 pairs"
    typical = Wanted(typical=True)
    yield _cell(group, name, "never offered", wanted=0.0, sample=sample, asked=typical)
    sample = partial(groups, sizes=(1, 20))
    name = "groups, 1 and 20"
    unpaired = Wanted(paired=False)
    yield _cell(group, name, "never offered", wanted=0.0, sample=sample, asked=unpaired)


def seven_or_eight(rng: Rng, shape: tuple[int, ...], p: float) -> Numbers:
    return 7 + share(rng, shape, p)


def _cells_of_situations() -> Iterator[Cell]:
    for turns, answers in ((2, 5), (4, 4), (8, 2)):
        asked = partial(situations, of_runs=1, turns=turns, answers=answers)
        for words, sample in (
            ("", asked),
            (", 10 % lost", partial(asked, lost=0.1)),
            (", shares, .25", partial(asked, p=0.25)),
        ):
            name = f"{turns}x{answers}{words}"
            yield _cell("these situations", name, sample=sample, contrast=THESE)
    for count, rho in ((2, 0.8), (4, 0.8), (4, 0.95)):
        asked = partial(situations, of_runs=count, turns=8, answers=5, rho=rho, noise=0.3)
        name = f"{count} runs x 8 turns, AR(1) {rho}"
        yield _cell("new runs, from situations", name, sample=asked)
        if (count, rho) == (4, 0.8):
            calls = partial(as_runs, situation=asked)
            yield _cell("before: calls as units", name, None, sample=calls)


def _cells_of_wordings() -> Iterator[Cell]:
    for counts in ((3, 3), (3, 8), (8, 1)):
        for sd in (0.0, 0.5):
            name = f"{counts[0]} and {counts[1]}, sd {sd}"
            sample = partial(wordings, counts=counts, sd=sd)
            yield _cell("new wordings", name, sample=sample, contrast=NEW_WORDINGS)
        for units in (2, 4):
            sample = partial(wordings, counts=counts, units=units, by_run=0.5)
            name = f"{units} runs, {counts[0]} and {counts[1]}, sd 0.5"
            yield _cell(NEW_BOTH.generalises_to, name, sample=sample, contrast=NEW_BOTH)
    for counts in ((3, 3), (8, 1)):
        for p in (0.5, 0.05):
            name = f"{counts[0]} and {counts[1]}, shares, {p}"
            sample = partial(wordings, counts=counts, sd=0.0, p=p)
            yield _cell("new wordings", name, sample=sample, contrast=NEW_WORDINGS)
    for count in (3, 8):
        for sd in (0.0, 0.5):
            name = f"{count} the same, sd {sd}"
            sample = partial(crossed_wordings, count=count, units=4, sd=sd)
            yield _cell("new wordings, crossed", name, sample=sample, contrast=NEW_WORDINGS)
        sample = partial(crossed_wordings, count=count, units=4, sd=0.5, by_run=0.5)
        name = f"4 runs, {count} the same, sd 0.5"
        yield _cell("new wordings and situations, crossed", name, sample=sample, contrast=NEW_BOTH)


def _cells_of_texts() -> Iterator[Cell]:
    group = "texts, size"
    for units in (6, 10, 20):
        sample = partial(categories, units=units, answers=1)
        yield _test_cell(group, f"{units} pairs of runs", partial(found_in_texts, sample=sample))
    sample = partial(categories, units=6, answers=3)
    count = partial(found_in_texts, sample=sample, contrast=THESE)
    yield _test_cell(group, "6 situations x 3 answers", count)
    for sizes in ((8, 8), (20, 6)):
        sample = partial(categories, units=sum(sizes), answers=1, sizes=sizes)
        count = partial(found_in_texts, sample=sample, paired=False)
        yield _test_cell(group, f"groups of {sizes[0]} and {sizes[1]}", count)


def _cells_of_families() -> Iterator[Cell]:
    group = "family of nine, any false difference"
    for n in (5, 8, 20):
        nine = partial(family_of_nine, n=n)
        strong = partial(nine, effects_of=(2.0, 0.0, 0.0))
        yield _test_cell(group, f"n={n}, normal", partial(family_errors, nine=nine))
        yield _test_cell(group, f"n={n}, one strong", partial(family_errors, nine=strong))
    for n in (8, 20):
        nine = partial(family_of_nine, n=n, draw=heavy)
        yield _test_cell(group, f"n={n}, t3", partial(family_errors, nine=nine))
        nine = partial(family_of_nine, n=n, skewed_arm=True)
        count = partial(family_errors, nine=nine)
        yield _test_cell(f"{group}, an arm with disasters", f"n={n}", count, None)
    count = partial(family_errors, nine=partial(family_of_nine, n=20), each_alone=True)
    yield _test_cell("before: each for itself", "nine differences, n=20", count, None)
    group = 'family of nine at the margin, any false "no difference"'
    for n in (5, 8, 20):
        nine = partial(family_of_nine, n=n, effects_of=(3.0, 3.0, 3.0))
        count = partial(family_equivalences, nine=nine, margin=3.0)
        yield _test_cell(group, f"n={n}", count)
    count = partial(count, each_alone=True)
    yield _test_cell("before: each for itself", "nine at the margin, n=20", count, None)
    group = "joint test of a multiverse, size"
    for n in (5, 8, 20):
        count = partial(joint_errors, n=n, specifications=8)
        yield _test_cell(group, f"n={n}, 8 specifications, normal", count)
    count = partial(joint_errors, n=20, specifications=40, draw=heavy)
    yield _test_cell(group, "n=20, 40 specifications, t3", count)
    count = partial(joint_errors, n=20, specifications=8, draw=disasters)
    yield _test_cell(f"{group}, skewed", "n=20, 8 specifications, disasters", count, None)
    for last in (10, 20, 40):
        count = partial(looked, last=last)
        yield _test_cell("before: looking at each pair", f"5 to {last}", count, None)
    group = "equivalence, at the margin"
    for n in (5, 20, 50):
        shifted = partial(runs_with_effect, n=n, effect=0.5)
        count = partial(equivalent, sample=shifted, margin=0.5)
        yield _test_cell(group, f"n={n}, normal", count)
    for n in (20, 50):
        shifted = partial(shares_with_effect, n=n, base=0.3, effect=0.2)
        count = partial(equivalent, sample=shifted, margin=0.2)
        yield _test_cell(group, f"n={n}, shares .3 and .5", count)
    shifted = partial(runs_with_effect, n=20, effect=0.5)
    count = partial(equivalent, sample=shifted, margin=0.5, asked=Wanted(typical=True))
    yield _test_cell(group, "n=20, normal, typical difference", count)
    for sizes in ((6, 6), (8, 20)):
        shifted = partial(groups, sizes=sizes, effect=0.5)
        count = partial(equivalent, sample=shifted, margin=0.5, asked=Wanted(paired=False))
        yield _test_cell(group, f"groups of {sizes[0]} and {sizes[1]}", count)
    for sizes in ((4, 4), (8, 20)):
        nine = partial(nine_of_groups, sizes=sizes)
        count = partial(family_errors, nine=nine)
        name = f"groups of {sizes[0]} and {sizes[1]}, normal"
        yield _test_cell("family of nine, any false difference", name, count)


def _cells_of_promises() -> Iterator[Cell]:
    def cell(name: str, **options: Any) -> Cell:
        count = partial(promised, **options)
        return Cell(group="power .8 that a pilot promised", name=name, count=count, wanted=0.8)

    for n in (5, 8, 20):
        yield cell(
            f"{n} pairs, then 20",
            sample=runs_with_effect,
            pilot={"n": n},
            planned={"n": 20},
            promise=Promise(pilot=run_sizes(n), planned=run_sizes(20)),
        )
    yield cell(
        "8 pairs, then 20, first of a family of 12",
        sample=runs_with_effect,
        pilot={"n": 8},
        planned={"n": 20},
        promise=Promise(pilot=run_sizes(8), planned=run_sizes(20), comparisons=12),
    )
    for n in (10, 30):
        yield cell(
            f"shares, 20 pairs, then {n}",
            sample=partial(shares_with_effect, base=0.3),
            pilot={"n": 20},
            planned={"n": n},
            promise=Promise(pilot=run_sizes(20), planned=run_sizes(n)),
            are_shares=True,
        )
    unpaired = Wanted(paired=False)
    for sizes in ((6, 6), (4, 8)):
        yield cell(
            f"groups of {sizes[0]} and {sizes[1]}, spreads 1 and 2, then 12 and 12",
            sample=partial(groups, b=partial(normal, sd=2)),
            pilot={"sizes": sizes},
            planned={"sizes": (12, 12)},
            promise=Promise(pilot=run_sizes(6), planned=run_sizes(12), asked=unpaired),
        )
    yield cell(
        "shares, groups of 6 and 6, then 20 and 20",
        sample=share_groups,
        pilot={"n": 6},
        planned={"n": 20},
        promise=Promise(pilot=run_sizes(6), planned=run_sizes(20), asked=unpaired),
    )
    recorded = Sizes(runs=6, situations=60, samples=2, wordings=1)
    yield cell(
        "6 runs x 10 situations, the same again",
        sample=partial(situations, of_runs=6, turns=10, answers=2),
        pilot={},
        planned={},
        promise=Promise(pilot=recorded, planned=recorded),
    )
    yield cell(
        "8 situations of one run x 3 answers, then 5",
        sample=partial(situations, of_runs=1, turns=8),
        pilot={"answers": 3},
        planned={"answers": 5},
        promise=Promise(
            pilot=Sizes(runs=1, situations=8, samples=3, wordings=1),
            planned=Sizes(runs=1, situations=8, samples=5, wordings=1),
            contrast=THESE,
        ),
    )
    for contrast, name in ((NEW_WORDINGS, "new wordings"), (NEW_BOTH, "new wordings and runs")):
        yield cell(
            f"4 wordings each, then 8: {name}",
            sample=partial(wordings, units=6, by_run=0.5),
            pilot={"counts": (4, 4)},
            planned={"counts": (8, 8)},
            promise=Promise(
                pilot=Sizes(runs=6, situations=6, samples=3, wordings=4),
                planned=Sizes(runs=6, situations=6, samples=3, wordings=8),
                contrast=contrast,
            ),
        )


def _cells_of_curves() -> Iterator[Cell]:
    for n, turns in ((3, 8), (5, 8), (20, 8), (8, 20), (5, 40)):
        count = partial(bands_covered, n=n, turns=turns)
        yield Cell(group="band of a curve", name=f"{n} pairs, {turns} turns", count=count)
    for sizes in ((5, 5), (6, 15)):
        table = partial(curves_of_groups, sizes=sizes, turns=8)
        count = partial(band_of_table, table=table, paired=False)
        name = f"groups of {sizes[0]} and {sizes[1]}, spreads 1 and 2, 8 turns"
        yield Cell(group="band of a curve", name=name, count=count, fewer=5)
    table = partial(curves_of_wordings, count=4, units=5, turns=8)
    count = partial(band_of_table, table=table)
    name = "4 wordings an arm, 5 runs, 8 turns"
    yield Cell(group="band of a curve", name=name, count=count, fewer=5)
    count = partial(bands_covered, n=8, turns=20, pointwise=True)
    yield Cell(group="before: each turn for itself", name="n=8, 20 turns", count=count, rule=None)
    for n, formula in ((5, None), (10, "~ factor * prompt")):
        count = partial(through_the_table, n=n, formula=formula)
        name = f"n={n}, {formula or 'one contrast'}"
        yield Cell(group="through the table", name=name, count=count)
    for n, answers in ((5, 2), (20, 4)):
        count = partial(noise_covered, n=n, answers=answers, effect=1.0)
        yield Cell(group="noise beside an effect", name=f"{n} runs x {answers}", count=count)


CELLS: tuple[Cell, ...] = (
    *_cells_of_pairs(),
    *_cells_of_typical(),
    *_cells_of_coarse(),
    *_cells_of_groups(),
    *_cells_of_refusals(),
    *_cells_of_situations(),
    *_cells_of_wordings(),
    *_cells_of_texts(),
    *_cells_of_families(),
    *_cells_of_promises(),
    *_cells_of_curves(),
)


def measure_cell(
    cell: Cell,
    replications: int,
    *,
    seed: int = SEED,
) -> dict[str, Any]:
    """Return what was counted in a cell, and the binomial p-value of its missing what it says."""
    replications = max(1, replications // cell.fewer)
    # Its own seed, so that a cell's figures do not depend on which others are measured.
    rng = np.random.default_rng([seed, crc32(f"{cell.group}/{cell.name}".encode())])
    begun = time.process_time()
    hits, offered = cell.count(rng, replications)
    measured = hits / offered if offered else None
    return {
        "group": cell.group,
        "cell": cell.name,
        "wanted": round(cell.wanted, 3),
        "rule": cell.rule or "for comparison",
        "replications": replications,
        "measured": None if measured is None else round(measured, 4),
        "offered": round(min(1.0, offered / replications), 4),
        "p": _p_of_missing(cell, Counts(hits, offered)),
        "cpu_s": round(time.process_time() - begun, 1),
    }


def _p_of_missing(cell: Cell, counts: Counts) -> float | None:
    """Return how probable so bad a count is if the cell does what it says; None if not judged."""
    hits, offered = counts
    if cell.rule == "never offered":
        return float(offered == 0)
    if cell.rule is None or not offered:
        return None
    if cell.rule == "at least":
        return float(stats.binom.cdf(hits, offered, cell.wanted))
    return float(stats.binom.sf(hits - 1, offered, cell.wanted))


def measure(plan: Plan) -> dict[str, Any]:
    """Return all cells, and the one check of them all."""
    # Exact with any number of flips, and faster; a band's quantile of 500 sets is close enough.
    family.RANDOM_FLIPS = 199
    bands.DRAWS = 500
    rows = [measure_cell(cell, plan.replications) for cell in CELLS]
    return summarised(rows, plan.replications)


def summarised(
    rows: Sequence[Mapping[str, Any]],
    replications: int,
    *,
    seed: int = SEED,
) -> dict[str, Any]:
    """Return the cells with the one check of them all, and those that miss what they say."""
    judged = [row for row in rows if row["p"] is not None]
    smallest = min(row["p"] for row in judged)
    overall = min(1.0, len(judged) * smallest)
    misses = [row for row in judged if len(judged) * row["p"] < OVERALL]
    return {
        "seed": seed,
        "level": LEVEL,
        "replications": replications,
        "cells_judged": len(judged),
        "overall_p": overall,
        "misses": [f"{row['group']}: {row['cell']}" for row in misses],
        "cpu_s": round(sum(row["cpu_s"] for row in rows)),
        "cells": list(rows),
    }


def as_table(figures: Mapping[str, Any]) -> Table:
    """Return the cells as a table."""
    title = (
        f"{figures['replications']:,} replications; {figures['cells_judged']} cells judged, "
        f"overall p = {figures['overall_p']:.3f}"
    )
    table = Table("group", "cell", "wanted", "rule", "measured", "offered", "p", title=title)
    for row in figures["cells"]:
        numbers = [row[name] for name in ("measured", "offered", "p")]
        cells = ["" if number is None else f"{number:.3f}" for number in numbers]
        table.add_row(row["group"], row["cell"], f"{row['wanted']:.2f}", row["rule"], *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    command(
        arguments,
        doc=__doc__,
        out="coverage.json",
        measure=measure,
        quick=QUICK,
        full=FULL,
        table=as_table,
    )


if __name__ == "__main__":
    main()
