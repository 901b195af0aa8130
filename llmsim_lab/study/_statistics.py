"""From numbers to effects with intervals: which unit was repeated, and what the result speaks of.

Frames of numbers in, ``Effect`` out; nothing here knows of runs, tapes or models. Two units:

- *runs*: independent simulations, one number each (``run_effects``);
- *situations*: recorded states asked again (``situation_effects``; ``exact_situation_effects``
  where each answer's probabilities are known). Consecutive turns of one run depend on each other,
  so they are one cluster: from one run the interval speaks of these situations only, from several
  runs it speaks of new ones. Where an arm was asked in several wordings, they are the units, and
  the interval speaks of new wordings.

How often each interval contains the true value is in ``benchmarks/coverage.json``, which
``benchmarks/coverage.py`` measures. Where it missed its level, there is no interval but a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim_lab._util.text import counted
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

Unit = Literal["runs", "situations"]
Distance = Literal["words", "labels"] | Callable[[Any, Any], float]
Numbers = NDArray[np.float64]

ENOUGH_RUNS = 8
"""Pairs of runs from which on Romano-Wolf is used; ``benchmarks/README.md`` says why."""
ALL_FLIPS = 13
"""Up to so many pairs all sign flips are tried, 2^12 that differ; ``RANDOM_FLIPS`` from then on."""
RANDOM_FLIPS = 4_999
ENOUGH_FOR_SHARES = 5
"""Runs of an arm from which on a share has an interval; with two it contained the truth in 0.8."""
_LEVEL = 0.95
_MINUS = "\N{MINUS SIGN}"
_KNOWN = "the chances are known, so these situations take no interval"
_LARGEST = 1e150
_NOTHING = 1e-9
"""Differences and spreads smaller than this share of the values are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How two arms differ in one outcome, and how well that is known.

    Attributes:
        contrast: what is subtracted from what, such as "hawkish" minus "cautious".
        outcome: what is compared.
        estimate: the difference of means; None where nothing can be compared.
        low: of the interval; None where none is offered, and ``note`` says why.
        high: likewise.
        level: of the interval, for this contrast alone.
        p: two-sided, of no difference, for this contrast alone.
        p_family: adjusted for all contrasts and outcomes that were asked for together.
        n: how many units, never calls or turns: pairs of runs, runs, or situations.
        unit: what is counted.
        runs: how many runs the situations are of; None where the unit is runs.
        wordings: how many wordings both arms have, where one has several.
        speaks_of: what the interval generalises to, in words.
        method: how interval and p-values were computed.
        note: why there is no interval, what was left out, what to keep in mind.
    """

    contrast: str
    outcome: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    p: float | None = None
    p_family: float | None = None
    n: int = 0
    unit: Unit = "runs"
    runs: int | None = None
    wordings: int | None = None
    speaks_of: str = ""
    method: str = "none"
    note: str = ""

    def __str__(self) -> str:
        what = f"{self.contrast}, {self.outcome}" if self.outcome else self.contrast
        if self.estimate is None:
            return f"{what}: not known ({self.note})"
        text = f"{what}: {self.estimate:+.2f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low:.2f}, {self.high:.2f}]"
        elif self.method != "exact":
            text += " (no interval)"
        if self.p is not None:
            text += f", p = {short_p(self.p)}".replace("= <", "<")
            if self.p_family is not None and short_p(self.p_family) != short_p(self.p):
                text += f" ({short_p(self.p_family)} in its family)"
        text += f", n = {counted(self.n, self.unit.removesuffix('s'))}"
        text += "" if self.runs is None else f" of {counted(self.runs, 'run')}"
        return text if self.wordings is None else f"{text}, {self.wordings} wordings"


def short_p(p: float) -> str:
    """Return a p-value as journals print it: .015, 1.000, < .001."""
    return "< .001" if p < 0.0005 else f"{p:.3f}".removeprefix("0")


# --- runs -----------------------------------------------------------------------------------------


def run_effects(
    values: pd.DataFrame,
    *,
    reference: str | None = None,
    contrasts: Sequence[tuple[str, str]] | None = None,
    level: float = 0.95,
    paired: bool = True,
) -> list[Effect]:
    """Return how arms differ over independent runs, each contrast in each outcome.

    Arms that share seeds are compared pair by pair: Student's t over the differences. Others by
    Welch's t (Welch 1947, "The generalization of 'Student's' problem when several different
    population variances are involved", Biometrika 34). All contrasts and outcomes are one family:
    p-values are adjusted by ``romano_wolf`` where all are paired and have ``ENOUGH_RUNS`` pairs, by
    ``holm`` otherwise. An adjusted p-value is never below the contrast's own.

    Args:
        values: a row for each run and outcome: arm, seed, outcome, value; the value of a run that
            failed is NaN.
        reference: the arm that is subtracted from each other one; the first if not given.
        contrasts: pairs of arms instead, the second is subtracted from the first.
        level: of the intervals.
        paired: False compares arms by Welch's t even if they share seeds.
    """
    table = _pivot(values, ["seed"])
    if not table.arms:
        return []
    wild = _taken_out(table)
    found = []
    for one, other in _contrasts(table.arms, reference, contrasts):
        a, b = table.of(one), table.of(other)
        rows = table.there(one), table.there(other)
        if paired and (rows[0] & rows[1]).any():
            found.append(_paired(a, b, level, asked=rows[0] | rows[1]))
        else:
            found.append(_welch(a, b, level))
        found[-1].contrast = f"{one} {_MINUS} {other}"
        _leave_open(found[-1], wild[one] | wild[other])
    return _effects(found, table.outcomes, level)


def _taken_out(table: _Table) -> dict[str, NDArray[np.bool_]]:
    """Make NaN of values that have no mean, infinite or so large that their square is.

    Returns by arm which outcomes have such values.
    """
    wild = np.abs(table.array) > _LARGEST
    table.array[wild] = np.nan
    there = np.asarray(wild.any(axis=tuple(range(1, wild.ndim - 1))))
    return {arm: np.asarray(there[place]) for place, arm in enumerate(table.arms)}


def _leave_open(found: _Found, wild: NDArray[np.bool_]) -> None:
    """Take back what cannot be said of outcomes with infinite values, and say why.

    To leave such runs out, as those that failed, would make the others' mean look like the arm's.
    """
    for place in np.flatnonzero(wild):
        for numbers in (found.estimate, found.low, found.high, found.p):
            numbers[place] = np.nan
        if found.differences is not None:
            found.differences[:, place] = np.nan
        found.method[place] = "none"
        found.notes[place] = [f"some values are infinite or beyond {_LARGEST:g}"]


@dataclass(slots=True)
class _Found:
    """One contrast in all outcomes: arrays with an element for each outcome."""

    estimate: Numbers
    low: Numbers
    high: Numbers
    p: Numbers
    n: NDArray[np.int64]
    method: list[str]
    notes: list[list[str]]
    unit: Unit = "runs"
    runs: NDArray[np.int64] | None = None
    wordings: NDArray[np.int64] | None = None
    speaks_of: str = "new runs of this design"
    contrast: str = ""
    differences: Numbers | None = None
    """Of pairs of runs (rows), for sign flips; NaN where a run failed."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Values by arm (first axis), one or more keys, and outcome (last axis)."""

    arms: list[str]
    outcomes: list[str]
    keys: list[list[Any]]
    array: Numbers
    rows: NDArray[np.bool_]
    """Which places have a row, also one whose value is NaN."""

    def of(self, arm: str) -> Numbers:
        return np.asarray(self.array[self.arms.index(arm)])

    def there(self, arm: str) -> NDArray[np.bool_]:
        return np.asarray(self.rows[self.arms.index(arm)])


def _pivot(values: pd.DataFrame, keys: Sequence[str]) -> _Table:
    """Return a frame's values as an array with an axis for the arm, each key and the outcome."""
    import pandas as pd

    axes = ["arm", *keys, "outcome"]
    if missing := [name for name in [*axes, "value"] if name not in values.columns]:
        raise ConfigError(
            f"columns {', '.join(missing)} are missing; there are {', '.join(values.columns)}"
        )
    codes, levels = [], []
    for name in axes:
        code, level = pd.factorize(values[name])
        codes.append(code)
        levels.append(list(level))
    shape = tuple(len(level) for level in levels)
    array, rows = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    rows[tuple(codes)] = True
    if int(rows.sum()) != len(values):
        twice = values[values.duplicated(axes)].iloc[0]
        where = ", ".join(f"{name}={twice[name]}" for name in axes)
        raise ConfigError(f"two values for {where}: each needs one")
    array[tuple(codes)] = values["value"].to_numpy(dtype=float)
    return _Table(levels[0], levels[-1], levels[1:-1], array, rows)


def _contrasts(
    arms: Sequence[str], reference: str | None, contrasts: Sequence[tuple[str, str]] | None
) -> list[tuple[str, str]]:
    if contrasts is None:
        base = arms[0] if reference is None else reference
        contrasts = [(arm, base) for arm in arms if arm != base]
        named = [base]
    else:
        named = [arm for pair in contrasts for arm in pair]
    if unknown := [arm for arm in named if arm not in arms]:
        raise ConfigError(
            f"arm={unknown[0]!r} has no values; there are {', '.join(map(str, arms))}"
        )
    return list(contrasts)


def _two_valued(values: Numbers) -> NDArray[np.bool_]:
    """Return which outcomes (last axis) have no value between their smallest and their largest."""
    flat = values.reshape(-1, values.shape[-1])
    low, high = np.nanmin(flat, axis=0, initial=np.inf), np.nanmax(flat, axis=0, initial=-np.inf)
    near = _NOTHING * np.maximum(np.abs(low), np.abs(high))
    return ~np.asarray(((flat > low + near) & (flat < high - near)).any(axis=0))


def _paired(a: Numbers, b: Numbers, level: float, *, asked: NDArray[np.bool_]) -> _Found:
    """Return Student's t over the differences of pairs (rows), for each outcome (column).

    ``asked`` is where either arm has a run, also one that failed.
    """
    differences = _without_rounding(a - b, a, b)
    known = ~np.isnan(differences)
    n = known.sum(axis=0)
    mean, variance = _moments(differences, 0)
    low, high, p = _t_interval(mean, variance / np.maximum(n, 1), n - 1.0, level)
    methods = ["paired t over run means"] * len(n)
    found = _Found(mean, low, high, p, n, methods, [[] for _ in n], differences=differences)
    both = asked.sum(axis=0)
    for place in np.flatnonzero(both > n):
        found.notes[place].append(
            f"{both[place] - n[place]} of {both[place]} pairs left out: "
            "a run failed, has no value or has no partner"
        )
    yes_or_no = _yes_or_no(a, b) & (n > 1)
    _check_spread(
        found,
        variance,
        ~yes_or_no & (_two_valued(np.concatenate([a, b])) | (n > 2) & _two_valued(differences)),
        few="{n} pair of runs: an interval takes two",
        equal="all pairs differ by the same, which says nothing of pairs that would not",
    )
    _agresti(found, yes_or_no, differences, level)
    return found


def _welch(a: Numbers, b: Numbers, level: float) -> _Found:
    """Return Welch's t of two groups of runs (rows), for each outcome (column)."""
    sizes = [(~np.isnan(group)).sum(axis=0) for group in (a, b)]
    moments = [_moments(group, 0) for group in (a, b)]
    parts = np.array(
        [variance / np.maximum(n, 1) for (_, variance), n in zip(moments, sizes, strict=True)]
    )
    freedom = _satterthwaite(parts, np.array(sizes) - 1.0)
    mean = _without_rounding(moments[0][0] - moments[1][0], a, b)
    low, high, p = _t_interval(mean, parts.sum(axis=0), freedom, level)
    methods = [f"Welch over {x} and {y} run means" for x, y in zip(*sizes, strict=True)]
    found = _Found(mean, low, high, p, sizes[0] + sizes[1], methods, [[] for _ in methods])
    # The larger of both: that one arm never varies is no fault as long as the other does.
    spread = np.where(np.minimum(*sizes) > 1, np.maximum(moments[0][1], moments[1][1]), np.nan)
    yes_or_no = _yes_or_no(a, b) & (np.minimum(*sizes) > 1)
    _check_spread(
        found,
        spread,
        ~yes_or_no & _two_valued(np.concatenate([a, b])),
        few="an interval takes two runs of each arm",
        equal="all runs of an arm are alike, which says nothing of runs that would not be",
    )
    _caffo(found, yes_or_no, a, b, level)
    return found


def _yes_or_no(a: Numbers, b: Numbers) -> NDArray[np.bool_]:
    """Return which outcomes are 0 or 1 in all runs, as of whether something happened."""
    both = np.concatenate([a, b])
    return np.asarray(np.isin(both, (0.0, 1.0)).sum(axis=0) == (~np.isnan(both)).sum(axis=0))


def _agresti(found: _Found, where: NDArray[np.bool_], differences: Numbers, level: float) -> None:
    """Put intervals for paired outcomes of 0 and 1, with a pair of each sign added.

    Source: Bonett and Price (2012), "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", Journal of Educational and Behavioral Statistics 37. The
    p-value is from sign flips, which for 0 and 1 is McNemar's exact test.
    """
    from scipy.special import ndtri

    for place in np.flatnonzero(where):
        known = differences[~np.isnan(differences[:, place]), place]
        n = len(known) + 2
        mean, changed = known.sum() / n, (np.count_nonzero(known) + 2) / n
        reach = ndtri((1 + level) / 2) * math.sqrt((changed - mean**2) / n)
        _put_shares(found, int(place), mean, reach, len(known))
        found.p[place] = _flipped(known[:, None])[0] if known.any() else 1.0
        found.method[place] = "paired shares (Bonett and Price), sign flips"


def _caffo(found: _Found, where: NDArray[np.bool_], a: Numbers, b: Numbers, level: float) -> None:
    """Put intervals for outcomes of 0 and 1, with a 0 and a 1 added to each arm.

    Source: Agresti and Caffo (2000), "Simple and effective confidence intervals for proportions and
    differences of proportions result from adding two successes and two failures", The American
    Statistician 54. The p-value is Fisher's exact one.
    """
    from scipy.special import ndtri

    for place in np.flatnonzero(where):
        counts = [[int((group[:, place] == value).sum()) for value in (1, 0)] for group in (a, b)]
        shares = [(ones + 1) / (ones + zeros + 2) for ones, zeros in counts]
        error = math.sqrt(
            sum(p * (1 - p) / (sum(count) + 2) for p, count in zip(shares, counts, strict=True))
        )
        middle, reach = shares[0] - shares[1], ndtri((1 + level) / 2) * error
        _put_shares(found, int(place), middle, reach, min(map(sum, counts)))
        found.p[place] = _fisher(*counts[0], *counts[1])
        found.method[place] = "shares (Agresti and Caffo), Fisher's exact test"


@lru_cache(10_000)
def _fisher(a: int, b: int, c: int, d: int) -> float:
    from scipy.stats import fisher_exact

    return float(fisher_exact([[a, b], [c, d]]).pvalue)


def _put_shares(found: _Found, place: int, middle: float, reach: float, runs: int) -> None:
    found.low[place], found.high[place] = middle - reach, middle + reach
    # What was said of a spread was said of Student's t.
    found.notes[place] = [note for note in found.notes[place] if "left out" in note]
    if runs < ENOUGH_FOR_SHARES:
        found.low[place] = found.high[place] = np.nan
        found.notes[place].append(
            f"{runs} runs: an interval of an outcome of 0 and 1 takes {ENOUGH_FOR_SHARES}"
        )


def _without_rounding(differences: Numbers, *values: Numbers) -> Numbers:
    """Return differences, those that are rounding as exactly 0; each outcome has its own size."""
    sizes = [
        np.where(np.isfinite(value), np.abs(value), 0.0).max(axis=tuple(range(value.ndim - 1)))
        for value in values
    ]
    return np.where(np.abs(differences) <= 1e-12 * np.max(sizes, axis=0), 0.0, differences)


def _moments(values: Numbers, axis: int) -> tuple[Numbers, Numbers]:
    """Return mean and variance (n - 1) of what is not NaN; NaN where there is too little."""
    known = ~np.isnan(values)
    n = known.sum(axis=axis)
    filled = np.where(known, values, 0.0)
    mean = np.where(n > 0, filled.sum(axis=axis) / np.maximum(n, 1), np.nan)
    off = np.where(known, values - np.expand_dims(mean, axis), 0.0)
    variance = np.where(n > 1, (off**2).sum(axis=axis) / np.maximum(n - 1, 1), np.nan)
    return mean, variance


def _satterthwaite(parts: Numbers, freedoms: Numbers) -> Numbers:
    """Return the degrees of freedom of a sum of variances along the first axis.

    Source: Satterthwaite (1946), "An approximate distribution of estimates of variance components",
    Biometrics Bulletin 2. Parts that are 0, or without degrees of freedom, do not count.
    """
    known = (parts > 0) & (freedoms > 0)
    squares = np.where(known, parts**2 / np.where(known, freedoms, 1.0), 0.0).sum(axis=0)
    whole = np.nansum(parts, axis=0) ** 2
    return np.where(squares > 0, whole / np.where(squares > 0, squares, 1.0), np.nan)


def _t_interval(
    mean: Numbers, variance: Numbers, freedom: Numbers, level: float
) -> tuple[Numbers, Numbers, Numbers]:
    """Return Student's intervals and p-values of means with these variances; NaN where unknown."""
    from scipy.special import stdtr, stdtrit

    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(variance)
        known = np.where((freedom > 0) & (error > 0), freedom, np.nan)
        reach = stdtrit(known, (1 + level) / 2) * error
        p = 2 * stdtr(known, -np.abs(mean / error))
    return mean - reach, mean + reach, p


def _check_spread(
    found: _Found,
    variance: Numbers,
    two_valued: NDArray[np.bool_],
    *,
    few: str,
    equal: str,
    zero: NDArray[np.bool_] | None = None,
) -> None:
    """Take intervals back where the units' spread cannot be known, and say why.

    Args:
        found: what is changed.
        variance: of the units; NaN where there are too few.
        two_valued: which outcomes take two values only, whose spread luck alone decides.
        few: what to say where there are too few; ``{n}`` becomes how many.
        equal: what to say where all units are equal, but not 0.
        zero: where all differences are exactly 0; where the estimate is, if not given.
    """
    with np.errstate(invalid="ignore"):
        flat = variance <= (_NOTHING * np.abs(found.estimate)) ** 2
    zero = flat & (found.estimate == 0 if zero is None else zero)
    for place in np.flatnonzero(np.isnan(variance) | flat | two_valued):
        end, p = np.nan, np.nan
        if np.isnan(variance[place]):
            note = few.format(n=found.n[place])
        elif zero[place]:
            note, p = "all differences are exactly 0", 1.0
            end = 0.0 if found.unit == "runs" else np.nan
        else:
            note = equal if flat[place] else "takes two values only: too coarse for an interval"
            if found.differences is not None:
                # Flipping signs needs no normal distribution.
                p = float(_flipped(found.differences[:, [place]])[0])
                found.method[place] = "sign flips"
        found.low[place] = found.high[place] = end
        found.p[place] = p
        found.notes[place].append(note)


# --- a family of contrasts and outcomes -----------------------------------------------------------


def _effects(
    found: Sequence[_Found], outcomes: Sequence[str], level: float, *, adjust: bool = True
) -> list[Effect]:
    """Return the effects of all contrasts and outcomes, with p-values adjusted as one family."""
    if not found:
        return []
    family = np.concatenate([one.p for one in found])
    pairs = [one.differences for one in found]
    counts = np.concatenate([one.n for one in found])
    tested = ~np.isnan(family)
    how = f"Holm over {tested.sum()}"
    if tested.sum() <= 1:
        adjusted, how = family, ""
    elif adjust and all(p is not None for p in pairs) and counts[tested].min() >= ENOUGH_RUNS:
        matrix = np.concatenate([p for p in pairs if p is not None], axis=1)
        adjusted = np.full(len(family), np.nan)
        adjusted[tested] = romano_wolf(matrix[:, tested])
        how = f"Romano-Wolf over {tested.sum()}, {len(_signs(len(matrix))):,} sign flips"
    else:
        adjusted = np.array(holm([_or_none(p) for p in family]), dtype=float)  # None becomes NaN
    # Sign flips may find less than Student's t does.
    adjusted = np.fmax(adjusted, family)
    effects = []
    for place, one in enumerate(found):
        for at, outcome in enumerate(outcomes):
            p_family = _or_none(adjusted[place * len(outcomes) + at])
            method = one.method[at] + (f"; {how}" if how and p_family is not None else "")
            effects.append(
                Effect(
                    contrast=one.contrast,
                    outcome=outcome,
                    estimate=_or_none(one.estimate[at]),
                    low=_or_none(one.low[at]),
                    high=_or_none(one.high[at]),
                    level=level,
                    p=_or_none(one.p[at]),
                    p_family=p_family,
                    n=int(one.n[at]),
                    unit=one.unit,
                    runs=None if one.runs is None else int(one.runs[at]),
                    wordings=None if one.wordings is None else int(one.wordings[at]),
                    speaks_of=one.speaks_of,
                    method=method,
                    note="; ".join(one.notes[at]),
                )
            )
    return effects


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted by Holm's step-down method; None stays None and does not count.

    The i-th smallest of m becomes the largest of (m - j + 1) · p_(j) over j ≤ i, at most 1. Source:
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6. scipy has no such function: ``false_discovery_control`` controls another rate.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


@cache
def _signs(n: int) -> Numbers:
    """Return sign flips of n pairs, the first of them none: all that differ, or random ones."""
    if n <= ALL_FLIPS:
        # A flip and its opposite give the same |t|, so the first sign never changes.
        bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1
        return np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])
    drawn = np.random.default_rng(n).integers(0, 2, (RANDOM_FLIPS + 1, n))
    drawn[0] = 0
    return np.where(drawn, -1.0, 1.0)


def _flipped_t(differences: Numbers) -> Numbers:
    """Return |t| of each hypothesis (row) for each sign flip (column) of the pairs."""
    known = ~np.isnan(differences)
    filled = np.where(known, differences, 0.0)
    n, squares = known.sum(axis=0)[:, None], (filled**2).sum(axis=0)[:, None]
    # The sum of squares is the same for all flips, so t follows from the sum alone.
    # Contiguous, since otherwise the product takes ten times as long.
    sums = np.abs(np.ascontiguousarray(_signs(len(filled)) @ np.ascontiguousarray(filled)).T)
    # Below 1: where all pairs differ equally t would be infinite, and infinities are all alike.
    share = np.minimum(sums / np.sqrt(np.where(squares > 0, n * squares, 1.0)), 1 - 1e-12)
    return np.asarray(share * np.sqrt(np.maximum(n - 1, 0) / (1 - share**2)))


def _flipped(differences: Numbers) -> Numbers:
    """Return each hypothesis' own p-value from sign flips."""
    t = _flipped_t(differences)
    # As large but for rounding counts as large: sums in another order differ in their last bits.
    return np.asarray((t >= t[:, :1] * (1 - _NOTHING)).mean(axis=1))


def romano_wolf(differences: Numbers) -> Numbers:
    """Return p-values of paired differences, adjusted for all columns together.

    The largest |t| of the hypotheses not yet rejected is compared with what it would be if the
    pairs' signs were drawn anew, with one sign for all hypotheses of a pair of runs, so that what
    outcomes have in common is kept. Source: Romano and Wolf (2005), "Exact and approximate stepdown
    methods for multiple hypothesis testing", Journal of the American Statistical Association 100;
    p-values as in their 2016 note in Statistics & Probability Letters 113. All flips are tried with
    up to ``ALL_FLIPS`` pairs, else ``RANDOM_FLIPS`` from a fixed seed; p = (1 + b) / (1 + B). Exact
    where the differences are symmetric around 0.

    Args:
        differences: pairs of runs by hypotheses; NaN where a run failed.
    """
    t = _flipped_t(differences)
    order = np.argsort(-t[:, 0], kind="stable")
    # For each flip, the largest from this hypothesis on.
    largest = np.maximum.accumulate(t[order[::-1]], axis=0)[::-1]
    steps = (largest >= t[order, :1] * (1 - _NOTHING)).mean(axis=1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


# --- situations -----------------------------------------------------------------------------------


def situation_effects(
    values: pd.DataFrame,
    *,
    contrasts: Sequence[tuple[str, str]] | None = None,
    speak_of: Literal["these", "new"] | None = None,
) -> list[Effect]:
    """Return how arms differ at recorded states that were asked again.

    The estimate is the mean over runs of the mean over a run's situations of the difference of the
    arms' mean answers. What the interval speaks of:

    - *these* situations: only the answers are random. The variance is that of a stratified sample,
      Σ w² s² / n over situations, with Satterthwaite's degrees of freedom. Where seeds recur in
      several situations, a lucky seed may be lucky in all, so the seeds are the units.
    - *new* situations: consecutive turns of a run depend on each other, so runs are the units:
      Student's t over the runs' means. Where seeds recur in several runs, these depend on each
      other, and there is no interval.
    - new *wordings*, where an arm has several: each is one draw, its mean over the situations.
      Student's t over both arms' wordings, which differ in number; an arm with one wording adds the
      variance of its answers, since the interval speaks of that one. With several runs the variance
      of their means is added, so that what is noise counts twice.

    Args:
        values: a row for each answer: arm, run, situation (unique within its run), replicate,
            outcome, value, which is NaN if the call failed. A column seed, if there is one, pairs
            the arms' answers of the same situation and seed; without it answers are independent. A
            column wording, if there is one, says in which words the arm asked; different wordings
            of an arm must have had different seeds, which those of one name in two arms may share.
        contrasts: pairs of arms, the second is subtracted from the first; each arm and the first
            one if not given.
        speak_of: "new" if not given and there are two runs or more.
    """
    if values.empty:
        return []
    asked = _asked(values)
    wild = _taken_out(asked.table)
    if speak_of is None:
        speak_of = "new" if len(set(asked.run_of)) > 1 else "these"
    found = []
    for one, other in _contrasts(asked.table.arms, None, contrasts):
        effect = _at_situations(asked, one, other, speak_of == "new")
        _leave_open(effect, wild[one] | wild[other])
        found.append(effect)
    return _effects(found, asked.table.outcomes, _LEVEL, adjust=False)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers by arm, situation, replicate or seed, and outcome.

    Attributes:
        table: keys are situations, and seeds or numbers of answers.
        run_of: the number of each situation's run.
        seeded: whether answers have seeds, which arms may share.
        crossed: whether a seed recurs in another situation.
        crossed_runs: whether a seed recurs in another run.
        wordings: by arm how many it has; of several, each is one answer in each situation, the
            mean of so many ``answers``.
        shares: which outcomes are 0 or 1.
    """

    table: _Table
    run_of: NDArray[np.int64]
    seeded: bool
    crossed: bool
    crossed_runs: bool
    wordings: Mapping[str, int]
    answers: float
    shares: NDArray[np.bool_]


def _asked(values: pd.DataFrame) -> _Answers:
    import pandas as pd

    seeded = "seed" in values.columns
    column = "seed" if seeded else "replicate"
    wordings: dict[Any, int] = {}
    answers = 1.0
    whole = values["value"].isna() | values["value"].isin((0.0, 1.0))
    shares = whole.groupby(values["outcome"], sort=False).all()
    if "wording" in values.columns:
        wordings = dict(values.groupby("arm", sort=False)["wording"].nunique().items())
    several = values["arm"].map(wordings).to_numpy() > 1
    alone = values[~several]
    crossed = seeded and _recurs(alone, ["run", "situation"])
    crossed_runs = seeded and _recurs(alone, ["run"])
    if several.any():
        keys = ["arm", "run", "situation", "wording", "outcome"]
        cells = values[several].groupby(keys, sort=False)["value"]
        means, answers = cells.mean().reset_index(), float(cells.size().mean())
        # Strings, so that no wording is taken for a seed.
        names = alone[column].map("answer {}".format)
        if not crossed:
            names = names + alone["run"].map(" {}".format) + alone["situation"].map(" {}".format)
        means = means.assign(**{column: means["wording"].map("wording {}".format)})
        values = pd.concat([alone.assign(**{column: names}), means], ignore_index=True)
    cell = values.groupby(["run", "situation"], sort=False).ngroup()
    frame = values.assign(cell=cell, answer=values[column])
    if not (crossed or several.any()):
        # Numbers within the situation, so that the array stays small.
        within = frame.groupby("cell")["answer"]
        frame["answer"] = within.transform(lambda group: pd.factorize(group)[0])
    table = _pivot(frame, ["cell", "answer"])
    runs = dict(zip(cell, pd.factorize(values["run"])[0], strict=True))
    run_of = np.array([runs[key] for key in table.keys[0]])
    happened = shares.loc[table.outcomes].to_numpy()
    return _Answers(table, run_of, seeded, crossed, crossed_runs, wordings, answers, happened)


def _recurs(values: pd.DataFrame, places: list[str]) -> bool:
    """Return True if a seed is used in more than one of these places."""
    return bool(values[["seed", *places]].drop_duplicates()["seed"].duplicated().any())


def _at_situations(asked: _Answers, one: str, other: str, new: bool) -> _Found:
    """Return one contrast at these situations, or at new ones, in each outcome."""
    a, b = asked.table.of(one), asked.table.of(other)
    paired = asked.seeded and bool((asked.table.there(one) & asked.table.there(other)).any())
    worded = [asked.wordings.get(arm, 1) > 1 for arm in (one, other)]
    paired = paired and not any(worded)
    # Each group is situations x answers x outcomes.
    groups = [_without_rounding(a - b, a, b)] if paired else [a, -b]
    counts = [(~np.isnan(group)).sum(axis=1) for group in groups]
    used = np.min(counts, axis=0) > 0
    difference = _without_rounding(np.sum([_moments(it, 1)[0] for it in groups], axis=0), a, b)
    difference = np.where(used, difference, 0.0)
    # Each run has the same weight, and so has each situation of a run.
    runs = (asked.run_of == np.arange(asked.run_of.max() + 1)[:, None]).astype(float)
    of_run = runs @ used
    run_count = (of_run > 0).sum(axis=0)
    weight = np.where(used, runs.T @ (1 / np.maximum(of_run, 1)), 0.0) / np.maximum(run_count, 1)
    estimate = np.where(run_count > 0, (weight * difference).sum(axis=0), np.nan)
    what = "answers paired by seed" if paired else "answers"
    n, zero = used.sum(axis=0), (difference == 0).all(axis=0)
    if new:
        means = np.where(of_run > 0, runs @ difference / np.maximum(of_run, 1), np.nan)
        spread = _moments(means, 0)[1]
        variance, freedom = spread / np.maximum(run_count, 1), run_count - 1.0
        methods = [f"t over {count} run means, {what}" for count in run_count]
        two_valued = (run_count > 2) & _two_valued(means)
        few = "one run: its turns say nothing of new situations; draw them from several runs"
        if asked.crossed_runs:
            few, spread = "seeds recur in several runs: give each run its own", spread * np.nan
        equal = "all runs differ by the same, which says nothing of runs that would not"
    else:
        variance, freedom, spread = _of_these(groups, weight, asked.crossed)
        two_valued = ~asked.shares & _two_valued(np.stack([a, b]))
        methods = [f"stratified by situation, {what}"] * len(n)
        if asked.crossed:
            methods = ["t over seeds, which recur in several situations"] * len(n)
        few = "one answer a situation: an interval takes two or more"
        equal = "all answers of a situation are alike"
    if any(worded):
        groups = [np.where(used[:, None], group, np.nan) for group in groups]
        part, degrees, of_wordings = _by_wording(asked, groups, worded, weight, new)
        # What is random from run to run is in both, so that the sum is rather too large.
        variance = variance + part if new else part
        freedom = np.minimum(freedom, degrees) if new else degrees
        # A wording without any answer says nothing.
        answered = [
            _answered(group).sum(axis=0) if it else n * 0 + 1
            for group, it in zip(groups, worded, strict=True)
        ]
        methods = [
            f"t over {a} and {b} wordings" + (f" and {it} runs" if new else "")
            for a, b, it in zip(*answered, run_count, strict=True)
        ]
        spread = np.where(freedom >= 1, spread if new else of_wordings, np.nan)
        if not (new and asked.crossed_runs):
            few = "an interval takes two wordings, of a single one two answers a situation"
            few += ", and two runs" if new else ""
        equal = "all runs or wordings differ by the same" if new else "all wordings are alike"
    low, high, p = _t_interval(estimate, variance, freedom, _LEVEL)
    found = _Found(estimate, low, high, p, n, methods, [[] for _ in n], unit="situations")
    found.contrast, found.runs = f"{one} {_MINUS} {other}", run_count
    if any(worded):
        found.wordings = np.sum(answered, axis=0)
        for arm, count in zip((one, other), answered, strict=True):
            for place in np.flatnonzero(count < asked.wordings[arm]):
                silent, of = asked.wordings[arm] - count[place], asked.wordings[arm]
                found.notes[place].append(f"{silent} of {of} wordings of {arm!r} have no answer")
    found.speaks_of = _in_words(len(asked.run_of), len(runs), new)
    found.speaks_of += _which_wordings(asked, one, other)
    for place in np.flatnonzero(n < len(used)):
        found.notes[place].append(
            f"{len(used) - n[place]} of {len(used)} situations left out: an arm has no answer"
        )
    _check_spread(
        found, np.where(n > 0, spread, np.nan), two_valued, few=few, equal=equal, zero=zero
    )
    return found


def _by_wording(
    asked: _Answers, groups: Sequence[Numbers], worded: Sequence[bool], weight: Numbers, new: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the variance that wordings make, its degrees of freedom, and the wordings' spread.

    The parts of both arms are added, with the degrees of freedom of the part that has the fewest:
    Welch's would be too many where arms have different numbers of wordings. Source: Mickey and
    Brown (1966), "Bounds on the distribution functions of the Behrens-Fisher statistic", Annals of
    Mathematical Statistics 37. Where each wording has one of its name in the other arm, the
    variance is at least that of their differences: seeds that they share may be lucky for one and
    unlucky for the other.
    """
    parts, freedoms, spreads = [], [], []
    for group, several in zip(groups, worded, strict=True):
        if new and not several:
            continue  # the spread of runs has it already
        part, freedom, spread = _of_these([group], weight, several or asked.crossed)
        each = asked.answers if several else 1.0
        parts.append(np.where(asked.shares, np.maximum(part, _of_share(group, each)), part))
        freedoms.append(_answered(group).sum(axis=0) - 1.0 if several else freedom)
        spreads.append(spread)
    variance = np.sum(parts, axis=0)
    if all(worded):
        twins = (_answered(groups[0]) == _answered(groups[1])).all(axis=0)
        of_twins = _of_these([groups[0] + groups[1]], weight, True)[0]
        variance = np.where(twins, np.fmax(variance, of_twins), variance)
    return variance, np.fmin.reduce(freedoms, axis=0), np.max(spreads, axis=0)


def _answered(group: Numbers) -> NDArray[np.bool_]:
    """Return which wordings have an answer, by outcome."""
    return np.asarray((~np.isnan(group)).any(axis=0))


def _of_share(group: Numbers, each: float) -> Numbers:
    """Return the variance of a share of ``each`` answers a value, with a 0 and a 1 added to them.

    Without these, answers that are all alike would have none.
    """
    count = each * (~np.isnan(group)).sum(axis=(0, 1)) + 2
    share = (each * np.abs(np.nansum(group, axis=(0, 1))) + 1) / count
    return np.asarray(share * (1 - share) / count)


def _of_these(
    groups: Sequence[Numbers], weight: Numbers, crossed: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Return variance and degrees of freedom of an estimate at these situations, and the answers'.

    Args:
        groups: situations by answers by outcomes, of both arms or of their differences.
        weight: of each situation in the estimate, 0 where it is left out.
        crossed: whether a seed is the same answer's number in all situations.
    """
    parts, freedoms, spreads = [], [], []
    for group in groups:
        known = ~np.isnan(group) & (weight > 0)[:, None]
        count = known.sum(axis=1)
        mean, squares = _moments(np.where(known, group, np.nan), 1)
        degrees = np.maximum(count - 1.0, 0.0)
        whole, squares = degrees.sum(axis=0), np.nan_to_num(squares)
        each = np.where(count > 0, weight**2 / np.maximum(count, 1), 0.0)
        alone = np.where(count == 1, each, 0.0).sum(axis=0)
        with np.errstate(invalid="ignore"):
            spreads.append((degrees * squares).sum(axis=0) / np.where(whole > 0, whole, np.nan))
        if crossed:
            # Deviations from a situation's mean, as large as if it had been left out (jackknife).
            share = np.where(count > 1, weight / np.maximum(degrees, 1.0), 0.0)[:, None]
            off = np.where(known, share * (group - mean[:, None]), 0.0).sum(axis=0)
            seeds = known.any(axis=0).sum(axis=0)
            several = np.maximum(each.sum(axis=0) - alone, 1e-300)
            # Situations with one answer have no deviations, and are taken to vary like the others.
            found = (off**2).sum(axis=0) * (1 - 1 / np.maximum(seeds, 1)) * (1 + alone / several)
            parts.append(found[None])
            # Fewer where answers are missing, since the seeds' weights then differ.
            there = known.sum(axis=(0, 1)) / np.maximum((count > 0).sum(axis=0) * seeds, 1)
            freedoms.append((np.maximum(seeds - 1.0, 0) * there)[None])
        else:
            # A situation with one answer gets the pooled variance of the others.
            share = degrees / np.where(whole > 0, whole, 1.0)
            parts.append(squares * (np.where(count > 1, each, 0.0) + alone * share))
            freedoms.append(degrees)
    stacked = np.concatenate(parts)
    variance, spread = stacked.sum(axis=0), np.max(spreads, axis=0)
    freedom = _satterthwaite(stacked, np.concatenate(freedoms))
    return variance, freedom, np.where((variance == 0) & ~np.isnan(spread), 0.0, spread)


def _which_wordings(asked: _Answers, one: str, other: str) -> str:
    """Return in words which wordings of two arms a contrast is about; empty if none are named."""
    several = {asked.wordings.get(arm, 1) > 1: arm for arm in (one, other)}
    if not asked.wordings:
        return ""
    if len(several) == 1:
        return ", new wordings of both" if True in several else ", this wording only"
    return f", new wordings of {several[True]!r} and this one of {several[False]!r}"


def _in_words(situations: int, runs: int, new: bool) -> str:
    of = f"{runs} runs" if runs > 1 else "one run"
    if new:
        return f"new situations of such runs, from {situations} of {of}"
    return f"these {situations} situations of {of}"


def exact_situation_effects(values: pd.DataFrame, *, reference: str | None = None) -> list[Effect]:
    """Return how arms differ at recorded states where the chance of each answer is known.

    At these situations the contrast is exact, so it has no interval. With two runs or more there
    is an interval for new situations, Student's t over the runs' means.

    Args:
        values: a row for each possible answer: arm, run, situation, outcome, value, and chance,
            which need not add up to 1. A situation whose chances are NaN was not answered.
        reference: the arm that is subtracted from each other one; the first if not given.
    """
    if values.empty:
        return []
    keys = ["arm", "run", "situation", "outcome"]
    weighted = values.assign(value=values["value"] * values["chance"])
    sums = weighted.groupby(keys, sort=False)[["value", "chance"]].sum(min_count=1)
    means = (sums["value"] / sums["chance"]).rename("value").reset_index().assign(replicate=0)
    asked = _asked(means)
    situations, runs = len(asked.run_of), len(set(asked.run_of))
    several = runs > 1
    found = []
    for one, other in _contrasts(asked.table.arms, reference, None):
        effect = _at_situations(asked, one, other, several)
        for place, estimate in enumerate(effect.estimate):
            if several:
                effect.method[place] = effect.method[place].removesuffix(", answers")
                effect.notes[place].append(
                    f"exactly {estimate:+.4g} at {_in_words(situations, runs, False)}"
                )
            else:
                effect.method[place] = "exact"
                effect.notes[place] = [_KNOWN]
        found.append(effect)
    return _effects(found, asked.table.outcomes, _LEVEL, adjust=False)


# --- texts and other answers ----------------------------------------------------------------------


def word_distance(one: str, other: str) -> float:
    """Return how much two texts' words differ: 0 for the same words, 1 for none in common.

    This is 1 minus the Jaccard index of the sets of words (Jaccard 1912, "The distribution of the
    flora in the alpine zone", New Phytologist 11), without regard to case. Differs from the source:
    two texts without words have a distance of 0.
    """
    a, b = (set(re.findall(r"\w+", text.casefold())) for text in (one, other))
    return 1 - len(a & b) / len(a | b) if a | b else 0.0


def energy_test(
    x: Sequence[Any],
    y: Sequence[Any],
    *,
    distance: Distance = "words",
    blocks: tuple[Sequence[object], Sequence[object]] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the energy statistic of two samples, and the permutation p-value of no difference.

    The statistic is 2 E d(x, y) - E d(x, x') - E d(y, y'): 0 if both have the same distribution.
    For labels it is the sum of the squared differences of their shares. Source: Szekely and Rizzo
    (2013), "Energy statistics: a class of statistics based on distances", Journal of Statistical
    Planning and Inference 143. p = (1 + b) / (1 + B), so it is never 0.

    Args:
        x: texts, labels or what the function takes.
        y: those of the other arm.
        distance: between two of them: ``word_distance``, 0 or 1 for labels, or a function.
        blocks: the situation of each of x and of y: answers are exchanged within it only. The test
            then adds up, in units of their spread over permutations, the statistic of all answers,
            which sees what arms do in every situation, and the sum of the situations' own, which
            sees opposite effects too.
        permutations: B.
        seed: of the permutations.
    """
    both = [*x, *y]
    if not len(x) or not len(y):
        raise ConfigError(f"{len(x)} and {len(y)} answers: the test takes one or more of each arm")
    apart = _distances(both, distance)
    in_x = np.arange(len(both)) < len(x)
    block = np.zeros(len(both), dtype=np.int64)
    if blocks is not None:
        block = _numbered([*blocks[0], *blocks[1]])
    rng = np.random.default_rng(seed)
    # Sorting by block and then by chance permutes within blocks.
    order = np.argsort(block + rng.random((permutations + 1, len(both))), axis=1)
    assigned = np.empty((permutations + 1, len(both)), dtype=bool)
    assigned[:, np.argsort(block, kind="stable")] = in_x[order]
    assigned[0] = in_x

    def energy(apart: Numbers, share_x: Numbers, share_y: Numbers) -> Numbers:
        # With shares as weights, those of y negative, all three means are one quadratic form.
        weight = np.where(assigned, share_x, -share_y)
        return np.asarray(-((weight @ apart) * weight).sum(axis=1))

    found = energy(apart, np.full(len(both), 1 / len(x)), np.full(len(both), 1 / len(y)))
    compared = found
    if blocks is not None:
        sizes = [np.bincount(block[part], minlength=block.max() + 1) for part in (in_x, ~in_x)]
        several = np.minimum(*sizes) >= 2
        shares = [np.where(several, 1 / np.maximum(size, 1), 0.0)[block] for size in sizes]
        within = energy(apart * (block[:, None] == block), *shares)
        compared = sum((one - one.mean()) / (one.std() or 1.0) for one in (found, within))
    reached = compared >= compared[0] - _NOTHING * max(1.0, float(np.abs(compared).max()))
    return float(found[0]), float(reached.mean())


def _numbered(items: Sequence[Any]) -> NDArray[np.int64]:
    """Return for each item the number of the first one that equals it, counted without repeats."""
    # Not ``np.unique``, which would make an axis of each pair, and sorts what has no order.
    known: dict[Any, int] = {}
    return np.array([known.setdefault(item, len(known)) for item in items])


def _distances(items: Sequence[Any], distance: Distance) -> Numbers:
    if distance == "labels":
        codes = _numbered(items)
        return np.asarray(codes[:, None] != codes, dtype=float)
    measure = word_distance if distance == "words" else distance
    found = np.zeros((len(items), len(items)))
    for place, item in enumerate(items):
        for other in range(place):
            found[place, other] = found[other, place] = measure(item, items[other])
    return found


# --- curves ---------------------------------------------------------------------------------------


def sup_t_band(
    curves: ArrayLike, *, level: float = 0.95, draws: int = 2_000, seed: int = 0
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the mean of paired curves and a band that contains the whole true curve.

    The band is mean ± c · standard error at each horizon, with the same c, so that with probability
    ``level`` it contains the true mean at all horizons at once (Montiel Olea and Plagborg-Moller
    2019, "Simultaneous confidence bands: theory, implementation, and an application to SVARs",
    Journal of Applied Econometrics 34). c is the quantile of the largest |t| of ``draws`` sets of
    as many normal curves. Differs from the source: their correlation is the sample's, shrunk
    towards none, since with few curves the sample's looks stronger than it is.

    Args:
        curves: a row for each pair of runs, a column for each horizon; rows with NaN are left out.
        level: of the band.
        draws: of sets of curves.
        seed: of the draws.

    Returns:
        Mean, low and high. Ends are NaN with fewer than two curves; where all curves are equal at a
        horizon, both are the mean.
    """
    rows = np.atleast_2d(np.asarray(curves, dtype=float))
    rows = rows[~np.isnan(rows).any(axis=1)]
    n = len(rows)
    if n < 2:
        mean = rows.mean(axis=0) if n else np.full(rows.shape[1], np.nan)
        none = np.full(rows.shape[1], np.nan)
        return mean, none, none.copy()
    mean, variance = _moments(rows, 0)
    error = np.sqrt(variance / n)
    moves = error > _NOTHING * np.abs(mean)
    if not moves.any():
        return mean, mean.copy(), mean.copy()
    correlation = np.atleast_2d(np.corrcoef(rows[:, moves], rowvar=False))
    correlation += 1 / n * (np.eye(len(correlation)) - correlation)
    values, vectors = np.linalg.eigh(correlation)
    # Single precision is enough: a quantile of random draws is known less exactly.
    mix = (vectors * np.sqrt(np.maximum(values, 0.0))).T.astype(np.float32)
    rng = np.random.default_rng(seed)
    # The mean of n normal curves, and, independent of it, their variances with n - 1.
    drawn = rng.standard_normal((draws, n, len(mix)), dtype=np.float32) @ mix
    spread = np.einsum("dnh,dnh->dh", drawn[:, 1:], drawn[:, 1:]) / (n - 1)
    largest = np.abs(drawn[:, 0] / np.sqrt(spread)).max(axis=1)
    # Weibull's quantile is k / (draws + 1), as a permutation test counts, and rather too large.
    reach = np.where(moves, np.quantile(largest, level, method="weibull") * error, 0.0)
    return mean, mean - reach, mean + reach


# --- how much can be seen -------------------------------------------------------------------------


def power(sd: float, n: int, effect: float) -> float:
    """Return the chance that a paired t test finds a true difference, at a two-sided alpha of .05.

    Args:
        sd: standard deviation of the pairs' differences.
        n: pairs.
        effect: the true difference, in the same unit.
    """
    from scipy.special import nctdtr, stdtrit

    if n < 2:
        return 0.0
    if sd == 0:
        return float(effect != 0)
    shift = abs(effect) / sd * math.sqrt(n)
    cut = stdtrit(n - 1, (1 + _LEVEL) / 2)
    # Where next to nothing is left below, as for the far side of a large shift, scipy gives NaN.
    below, far = (np.nan_to_num(nctdtr(n - 1, shift, end)) for end in (cut, -cut))
    return float(1 - below + far)


def smallest_effect(sd: float, n: int, *, wanted: float = 0.8) -> float | None:
    """Return the smallest true difference that is seen with power ``wanted``; None with one run.

    Args:
        sd: as in ``power``.
        n: likewise.
        wanted: power, at least .05.
    """
    from scipy.optimize import brentq

    if n < 2:
        return None
    if sd == 0:
        return 0.0
    # In units of the standard deviation, since power depends on their ratio alone.
    high = 1.0
    while power(1.0, n, high) < wanted:
        high *= 2
    return float(sd * brentq(lambda size: power(1.0, n, size) - wanted, 0.0, high))
