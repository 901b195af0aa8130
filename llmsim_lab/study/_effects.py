"""From one long table to effects with intervals: what was repeated, and what the result speaks of.

The table has a row for each value: ``arm``, a column for each factor, ``unit``, ``run``,
``wording``, ``replicate``, ``turn``, ``outcome``, ``value``. A unit is a run, or a recorded
situation that was asked again. Turns and replicates are averaged within their unit before anything
is inferred, so n never counts turns or calls. Nothing here knows of tapes or models.

How often each interval contains the true value is in ``benchmarks/coverage.json``, which
``benchmarks/coverage.py`` measures. Where it missed its level there is no interval but a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations, product
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special  # not stats, which takes a second to import

from llmsim_lab._util.html import table as html_table
from llmsim_lab._util.text import among, counted
from llmsim_lab.errors import ConfigError

SpeaksOf = Literal["new runs", "these situations", "new wordings", "new wordings and situations"]
_OF_NEW_RUNS = ("new runs", "new wordings and situations")
Numbers = NDArray[Any]
Tested = tuple["Effect", Numbers | None]
"""An effect, and the differences of runs where these are paired."""
Spread = tuple[float, float]
"""A variance, and its degrees of freedom."""
Strata = list[tuple[float, Numbers]]
"""Weights and groups, which have an element for each unit."""

ENOUGH_RUNS = 8
"""Pairs of runs from which on Romano-Wolf is used: with fewer it rejects less often than Holm."""
ENOUGH_FOR_SHARES = 5
"""Pairs of runs from which on a share has an interval; with two it contained the truth in 0.8."""
ALL_FLIPS, RANDOM_FLIPS = 13, 4_999
"""Up to so many pairs all sign flips are tried, 2^12 that differ; so many random ones above."""
_NOTHING = 1e-9
"""Spreads smaller than this share of the values are rounding."""
_MINUS = "\N{MINUS SIGN}"
_FIXED = ("arm", "unit", "run", "wording", "replicate", "turn", "outcome", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One contrast in one outcome, and how well it is known.

    Attributes:
        contrast: what is subtracted from what, such as "hawkish" minus "cautious".
        outcome: what is compared.
        estimate: the difference of means, or the energy distance of texts; None where nothing can
            be compared.
        low: of the interval; None where none is offered, and ``note`` says why.
        high: likewise.
        level: of the interval, for this contrast alone.
        p: two-sided, of no difference, for this contrast alone.
        p_family: adjusted for all contrasts and outcomes that were asked for together.
        p_equivalent: of a difference as large as the smallest effect of interest, or larger.
        verdict: what follows where a smallest effect of interest was named; "differs" is judged by
            ``p_family``, "no difference of ... or more" by ``p_equivalent``.
        n: how many units: pairs of runs, runs, situations or wordings; never calls or turns.
        df: degrees of freedom; None where the method has none.
        speaks_of: what the interval generalises to.
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
    p_equivalent: float | None = None
    verdict: str = ""
    n: int = 0
    df: float | None = None
    speaks_of: SpeaksOf = "new runs"
    method: str = "none"
    note: str = ""

    def __str__(self) -> str:
        n = counted(self.n, self.speaks_of.split()[1].removesuffix("s"))
        note = f"\n  note: {self.note}" * bool(self.note and self.estimate is not None)
        return f"{self.sentence()} ({self.outcome}, {n}){note}"

    def sentence(self, unit: str = "") -> str:
        """Return it as one reads it out, without its outcome: difference, interval, p-value.

        Args:
            unit: of the outcome.
        """
        if self.estimate is None:
            return f"{self.contrast}: not known ({self.note})"
        text = f": {self.estimate:+.2f} {unit}".rstrip()
        if self.low is not None:
            text += f", {100 * self.level:g} % {self.low:.2f} to {self.high:.2f}"
        if (p := self.p_family if self.p_family is not None else self.p) is not None:
            as_printed = "< .001" if p < 0.0005 else f"= {p:.3f}".replace("= 0", "= ")
            text += f", p {as_printed}" + " adjusted for all comparisons" * (p != self.p)
        text += f"; {self.verdict}" * bool(self.verdict)
        return self.contrast + re.sub(r"-(?=\d)", _MINUS, text)


class Effects(list[Effect]):
    """Effects in the order of contrasts and outcomes; ``label`` says what they are of."""

    label: str = ""

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each effect, with its attributes as columns."""
        return pd.DataFrame([asdict(effect) for effect in self])

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.label, *map(str, self or ["nothing to compare"])]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(str(it).split("\n")[0], it.speaks_of, it.method, it.note) for it in self]
        caption = self.label or "effects" if self else str(self)
        return str(html_table(("effect", "speaks of", "method", "note"), rows, caption=caption))


# --- from the table -------------------------------------------------------------------------------


def effects(
    table: pd.DataFrame,
    formula: str | None = None,
    *,
    contrasts: Sequence[tuple[str, str]] | None = None,
    reference: str | None = None,
    speaks_of: SpeaksOf = "new runs",
    level: float = 0.95,
    sesoi: float | Mapping[str, float] | None = None,
) -> Effects:
    """Return how arms differ, or a factorial's main effects and interactions.

    All contrasts and outcomes are one family: p-values are adjusted by ``romano_wolf`` where all
    are of pairs of runs and there are ``ENOUGH_RUNS``, by ``holm`` otherwise. An adjusted p-value
    is never below the contrast's own. Texts are compared by ``energy``.

    Args:
        table: a row for each value; the value of a run that failed is NaN.
        formula: such as ``"coins ~ factor * prompt"``: main effects and interactions of a full
            factorial. What stands left of ``~`` names the outcome; all outcomes if nothing does.
        contrasts: pairs of arms, the second is subtracted from the first.
        reference: the arm that is subtracted from each other one; the first if not given.
        speaks_of: what the intervals generalise to.
        level: of the intervals.
        sesoi: the smallest effect of interest, or one for each outcome: adds a verdict by two
            one-sided tests (Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15).
    """
    if (table := table.reset_index(drop=True)).empty:
        return Effects()
    if left := (formula or "").partition("~")[0].strip():
        _place("outcome", left, table["outcome"])
        table = table[table["outcome"] == left]
    values, (arms, *_, outcomes) = cube(table, "arm", "wording", "unit", "replicate", "outcome")
    run_of = pd.factorize(table.drop_duplicates("unit")["run"])[0]
    sizes = table.groupby("arm", sort=False)["wording"].nunique().to_numpy()
    texts = set(table.loc[[isinstance(value, str) for value in table["value"]], "outcome"])
    if formula is None:
        base, weights = arms[0 if reference is None else _place("arm", reference, arms)], {}
        for one, other in contrasts or [(arm, base) for arm in arms if arm != base]:
            a, b = (np.eye(len(arms))[_place("arm", arm, arms)] for arm in (one, other))
            weights[f"{one} {_MINUS} {other}"] = a - b
    else:
        factors = [name for name in table if name not in _FIXED]
        weights = factorial_weights(table.drop_duplicates("arm")[factors], formula)
    kinds = {it: cube(table, "arm", "unit", "replicate", of=of_kinds(table, it))[0] for it in texts}
    family: list[Tested] = []
    for (label, w), (k, outcome) in product(weights.items(), enumerate(outcomes)):
        effect = Effect(contrast=label, outcome=str(outcome), level=level, speaks_of=speaks_of)
        how, its = (energy, kinds[outcome]) if outcome in kinds else (compare, values[..., k])
        family.append(how(its, sizes, run_of, w, effect))
    margins = sesoi if isinstance(sesoi, Mapping) else dict.fromkeys(outcomes, sesoi)
    return Effects(_verdict(effect, margins.get(effect.outcome)) for effect in _adjusted(family))


def _place(what: str, name: Any, names: Iterable[Any]) -> int:
    """Return where a name stands among names; one that does not is an error."""
    if name not in (known := list(dict.fromkeys(names))):
        raise ConfigError(f"{what}={name!r} is unknown{among(name, map(str, known))}")
    return known.index(name)


def factorial_weights(arms: pd.DataFrame, formula: str) -> dict[str, Numbers]:
    """Return a weight for each arm, for each main effect and interaction of a full factorial.

    A main effect is a level minus the first one, averaged over all other factors; an interaction
    the difference of such differences. Each is one number a unit, so that units may have slopes of
    their own and no sphericity is assumed.

    Args:
        arms: a row for each arm, a column for each factor.
        formula: ``a * b`` is both factors and their interaction, ``a : b`` the interaction alone.
    """
    levels = {str(name): list(arms[name].unique()) for name in arms}
    terms: set[tuple[int, ...]] = set()
    for part in formula.rpartition("~")[2].split("+"):
        names = map(str.strip, re.split("[*:]", part))
        term = sorted({_place(f"{formula}: factor", name, levels) for name in names})
        least = range(len(term) if ":" in part else 1, len(term) + 1)
        terms |= {some for size in least for some in combinations(term, size)}
    if len(arms) != math.prod(map(len, levels.values())) or arms.duplicated().any():
        raise ConfigError(f"{len(arms)} arms are not all combinations of {', '.join(levels)}")
    weights = {}
    for places in sorted(terms, key=lambda places: (len(places), places)):
        sizes = [len(its) if k in places else 0 for k, its in enumerate(levels.values())]
        for chosen in product(*(range(1, size) if size else range(1) for size in sizes)):
            w, sides = np.ones(len(arms)), []
            for k, (name, its) in zip(chosen, levels.items(), strict=True):
                w *= 1.0 * (arms[name] == its[k]) - (arms[name] == its[0]) if k else 1 / len(its)
                sides += [f"{name}={its[k]} {_MINUS} {name}={its[0]}"] * (k > 0)
            label = " \N{MULTIPLICATION SIGN} ".join(f"({side})" for side in sides)
            weights[label if len(sides) > 1 else sides[0]] = w
    return weights


def cube(table: pd.DataFrame, *keys: str, of: Any = None) -> tuple[Numbers, list[list[Any]]]:
    """Return means by the keys, NaN where there is no number or one is infinite; and levels."""
    numbers = pd.to_numeric(table["value"], errors="coerce") if of is None else of
    levels = [list(table[key].unique()) for key in keys]
    numbers = numbers.astype(float).mask(numbers.abs() > 1e150, np.inf)  # as its square is
    means = numbers.groupby([table[key] for key in keys], sort=False).mean()
    whole = means.where(means < np.inf).reindex(pd.MultiIndex.from_product(levels)).to_numpy()
    return whole.reshape(*map(len, levels), *whole.shape[1:]), levels


# --- one contrast in one outcome ------------------------------------------------------------------


def compare(values: Numbers, sizes: Numbers, run_of: Numbers, w: Numbers, effect: Effect) -> Tested:
    """Return the effect with its estimate, and the differences of runs where these are paired.

    Args:
        values: arms x wordings x units x replicates; NaN where there is none.
        sizes: how many wordings each arm has.
        run_of: the number of each unit's run.
        w: a weight for each arm; the estimate is the sum of weighted means.
        effect: with its names, level and what it speaks of.
    """
    values, several, w = values[w != 0], sizes[w != 0].max(initial=0) > 1, w[w != 0]
    new = effect.speaks_of in _OF_NEW_RUNS
    if several and "wordings" in effect.speaks_of:
        return _of_wordings(values, run_of if new else None, w, effect), None
    if new:
        return _of_runs(values, run_of, w, replace(effect, speaks_of="new runs"))
    return _of_these(values, w, replace(effect, speaks_of="these situations")), None


def _of_runs(values: Numbers, run_of: Numbers, w: Numbers, effect: Effect) -> Tested:
    """Return Student's t over pairs of runs, and their differences."""
    units = _mean(_mean(values, 3), 1)
    differences, runs = _rounded(w @ units, units), _by_run(units, run_of)
    pairs = _by_run(differences, run_of)
    n, share = len(known := _known(pairs)), _is_share(runs)
    effect = _left_out(effect, np.isnan(differences).sum(), len(differences))
    effect = replace(effect, n=n, method="paired t over run means")
    if share and sorted(w) == [-1.0, 1.0] and n > 1:
        return _shares(effect, known), pairs
    few = "one run: an interval takes several runs, not situations" * (n < 2)
    coarse = (_two_valued(runs) and not share) or (n > 2 and _two_valued(known))
    effect = _student(effect, [(1.0, known)], few, coarse)
    error = math.sqrt(6 * n * (n - 1) / (n - 2) / (n + 1) / (n + 3)) if n > 2 else math.inf
    skewness: Any = pd.Series(known).skew()
    if effect.low is not None and abs(skewness) > 2 * error:
        effect = _noted(effect, "skewed: with 5 to 50 runs 83 to 94 % of intervals held the truth")
    if effect.p is None and n > 1:  # needs no normal distribution
        effect = replace(effect, p=float(romano_wolf(pairs[:, None])[0]), method="sign flips")
    return effect, pairs


def _of_these(values: Numbers, w: Numbers, effect: Effect) -> Effect:
    """Return a stratified sample's t: only the answers are random, situations stay as they are.

    Answers of the same situation and replicate are paired, since they have the same sampling seed
    in each arm. Where some situations have two such pairs or more, those with one are left out.
    """
    answers = _mean(values, 1)
    groups = [_known(row) for row in _rounded(np.tensordot(w, answers, 1), answers)]
    used = [group for group in groups if len(group) > 1] or [row for row in groups if len(row)]
    few = "one answer a situation: an interval takes two" * (max(map(len, groups)) < 2)
    coarse = _two_valued(answers) and not _is_share(answers)
    effect = _left_out(effect, len(groups) - len(used), len(groups))
    effect = replace(effect, n=len(used), method="stratified by situation, paired answers")
    return _student(effect, [(1 / len(used), group) for group in used], few, coarse)


def _of_wordings(values: Numbers, run_of: Numbers | None, w: Numbers, effect: Effect) -> Effect:
    """Return Student's t over wordings, a random factor nested in arms.

    An arm with one wording stays as it is: only its answers are random. The degrees of freedom are
    those of the arm that has the fewest: Welch's would be too many where arms have different
    numbers of wordings (Mickey and Brown 1966, Annals of Mathematical Statistics 37). With new
    situations, where ``run_of`` is given, the variance of the runs' means is added (Cornfield and
    Tukey 1956, the same journal, 27) and nothing subtracted, so that noise counts twice.
    """
    used: Any = np.isfinite(_mean(_mean(values, 3), 1)).all(axis=0)
    effect = _left_out(effect, (~used).sum(), len(used))
    values, blocks, floor = values[:, :, used], [], 0.0
    means = [_known(_mean(_mean(arm, 2), 1)) for arm in values]
    n = [len(mean) for mean in means]
    how = f"t over {' and '.join(map(str, n))} wordings"
    for arm, weight, mean in zip(values, w, means, strict=True):
        # Of a single wording the runs' spread has the answers' already.
        single = len(mean) < 2 and run_of is None
        groups = [_known(row) for row in _mean(arm, 0)] if single else [mean]
        blocks.append([(weight / len(groups), group) for group in groups])
        if _is_share(values):  # a 0 and a 1 more: answers that are all alike have no spread
            share = (np.nansum(arm) + 1) / (count := np.isfinite(arm).sum() + 2)
            floor += weight**2 * share * (1 - share) / count
    spread, df = _spread(*(block for block in blocks if run_of is None or len(block[0][1]) > 1))
    few = "an arm's only wording takes two answers a situation" * math.isnan(spread)
    spreads = [(max(spread, floor), df)]
    if run_of is not None:
        runs = _known(_by_run(w @ _mean(_mean(values, 3), 1), run_of[used]))
        how, spreads = f"{how} and {len(runs)} runs", [*spreads, _spread([(1.0, runs)])]
        few = "one run: its situations say nothing of new ones" * (len(runs) < 2)
    if 2 in n:
        few = "two wordings of an arm: new ones take three"
    return _student(replace(effect, n=sum(n), method=how), [*chain(*blocks)], few, False, *spreads)


def _spread(*blocks: Strata) -> Spread:
    """Return the variance of the sum of weights times means; NaN if there are too few units.

    With it, the degrees of freedom: of each block Satterthwaite's (1946, Biometrics Bulletin 2),
    of which the fewest count.
    """
    variance, df = 0.0, math.inf
    for block in blocks:
        if (fewest := min((len(group) for _, group in block), default=0)) < 2:
            return math.nan, 0.0
        parts = np.array([w**2 * group.var(ddof=1) / len(group) for w, group in block])
        squares = (parts**2 / [len(group) - 1 for _, group in block]).sum()
        df = min(df, float(parts.sum() ** 2 / squares) if squares else fewest - 1)
        variance += float(parts.sum())
    return variance, df


def _student(effect: Effect, strata: Strata, few: str, coarse: bool, *spreads: Spread) -> Effect:
    """Return the effect with Student's t, or with the reason why it has none.

    Args:
        effect: without an estimate, which is the sum of weights times means of groups.
        strata: the groups.
        few: why there are too few units for an interval; empty if there are enough.
        coarse: whether values take two values only.
        spreads: of the groups, and what is added to it; of ``strata`` if not given.
    """
    if not strata or not all(len(group) for _, group in strata):
        return _noted(effect, "an arm has no values")
    variances, dfs = zip(*(spreads or [_spread(strata)]), strict=True)
    scale = max(np.abs(group).max() for _, group in strata)
    estimate = float(sum(w * group.mean() for w, group in strata))
    effect = replace(effect, estimate=estimate if abs(estimate) > 1e-12 * scale else 0.0)
    if not few and math.sqrt(variances[0]) <= _NOTHING * scale:
        few = "all differ by the same, which says nothing of new ones"
        if not effect.estimate:
            return _noted(effect, "all differences are exactly 0", p=1.0)
    if few or coarse:
        return _noted(effect, few or "takes two values only: too coarse for an interval")
    return _with_t(effect, estimate, math.sqrt(sum(variances)), min(dfs))


def _noted(effect: Effect, text: str, **known: Any) -> Effect:
    return replace(effect, note="; ".join(filter(None, [effect.note, text])), **known)


def _left_out(effect: Effect, count: Any, n: int) -> Effect:
    why = "failed, not played or without a value; if that depends on the arm, no interval shows it"
    return _noted(effect, f"{count} of {n} units left out: {why}" * bool(count))


def _with_t(effect: Effect, middle: float, error: float, df: float) -> Effect:
    """Return the effect with its interval, and the p-value unless it has one."""
    reach = float(special.stdtrit(df, (1 + effect.level) / 2)) * error
    p = float(2 * special.stdtr(df, -abs(middle) / error)) if effect.p is None else effect.p
    low, high = middle - reach, middle + reach
    return replace(effect, low=low, high=high, p=p, df=df if math.isfinite(df) else None)


def _shares(effect: Effect, pairs: Numbers) -> Effect:
    """Return the interval and the p-value of paired outcomes of 0 and 1.

    A pair of each sign is added (Bonett and Price 2012, Journal of Educational and Behavioral
    Statistics 37). With all sign flips p is that of McNemar's exact test.
    """
    p, n, how = romano_wolf(pairs[:, None])[0], len(pairs), "shares (Bonett and Price), sign flips"
    effect = replace(effect, estimate=float(pairs.mean()), p=float(p), method=how)
    if n < ENOUGH_FOR_SHARES:
        return _noted(effect, f"{n} runs: an interval of a 0 or 1 takes {ENOUGH_FOR_SHARES}")
    more = np.append(pairs, (1.0, -1.0))
    return _with_t(effect, float(more.mean()), float(more.std()) / math.sqrt(n + 2), math.inf)


def _known(values: Numbers) -> Numbers:
    return values[~np.isnan(values)]


def _mean(values: Numbers, axis: int) -> Numbers:
    """Return the mean of what is not NaN; NaN where there is nothing."""
    count = (~np.isnan(values)).sum(axis=axis)
    return np.asarray(np.nansum(values, axis=axis) / np.where(count, count, np.nan))


def _by_run(of_units: Numbers, run_of: Numbers) -> Numbers:
    """Return means over each run's units, which are the last axis."""
    return np.array([_mean(of_units[..., run_of == run], -1) for run in pd.unique(run_of)]).T


def _rounded(differences: Numbers, values: Numbers) -> Numbers:
    """Return differences, those that are rounding as exactly 0."""
    size = np.abs(_known(values)).max(initial=0.0)
    return np.where(np.abs(differences) <= 1e-12 * size, 0.0, differences)


def _two_valued(values: Numbers) -> bool:
    """Return True if no value lies between the smallest and the largest."""
    apart = np.diff(known := np.sort(_known(values))) > _NOTHING * np.abs(known).max(initial=0.0)
    return int(apart.sum()) < 2


def _is_share(values: Numbers) -> bool:
    return bool(np.isin(_known(values), (0, 1)).all())


# --- a family of contrasts and outcomes -----------------------------------------------------------


def _adjusted(family: Sequence[Tested]) -> Iterator[Effect]:
    """Yield the effects with their p-values adjusted for all of them together."""
    own = [effect.p for effect, _ in family if effect.p is not None]
    pairs = [d for e, d in family if e.p is not None and d is not None and e.n >= ENOUGH_RUNS]
    how, adjusted = f"; Holm over {len(own)}", holm(own)
    if len(pairs) == len(own) > 1:
        how = f"; Romano-Wolf over {len(own)}, {len(_signs(len(pairs[0]))):,} sign flips"
        adjusted = romano_wolf(np.column_stack(pairs)).tolist()
    for effect, _ in family:
        if effect.p is not None:  # sign flips may find less than Student's t does
            p, method = max(adjusted.pop(0), effect.p), effect.method + how * (len(own) > 1)
            effect = replace(effect, p_family=p, method=method)
        yield effect


def _verdict(effect: Effect, margin: float | None) -> Effect:
    """Return the effect with the verdict of two one-sided tests, where it has an interval."""
    if margin is None or effect.low is None or effect.high is None or effect.p_family is None:
        return effect
    df, alpha, middle = effect.df or math.inf, 1 - effect.level, abs(effect.high + effect.low) / 2
    error = (effect.high - effect.low) / 2 / special.stdtrit(df, 1 - alpha / 2) or 1e-300
    p, differs = float(special.stdtr(df, (middle - margin) / error)), effect.p_family < alpha
    verdict = "differs" if differs else "undecided"
    if p < alpha:
        verdict = "differs by less than {:g}" if differs else "no difference of {:g} or more"
    elif differs and (effect.low > margin or effect.high < -margin):
        verdict = "differs by more than {:g}"
    return replace(effect, p_equivalent=p, verdict=verdict.format(margin))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method.

    The i-th smallest of m becomes the largest of (m - j + 1) · p_(j) over j ≤ i, at most 1. Source:
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6. scipy has no such function: ``false_discovery_control`` controls another rate.
    """
    p, order = np.array(p_values), np.argsort(p_values)
    p[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return [float(one) for one in p]


def _signs(n: int) -> Numbers:
    """Return sign flips of n pairs, the first of them none: all that differ, or random ones."""
    if n <= ALL_FLIPS:
        # A flip and its opposite give the same |t|, so the last sign never changes.
        return 1.0 - 2.0 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1)
    drawn = np.random.default_rng(n).choice((1.0, -1.0), (RANDOM_FLIPS + 1, n))
    return np.vstack([np.ones(n), drawn[1:]])


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
        differences: pairs of runs x hypotheses; NaN where a run failed.
    """
    filled = np.nan_to_num(differences)
    n, squares = (~np.isnan(differences)).sum(axis=0)[:, None], (filled**2).sum(axis=0)[:, None]
    # The sum of squares is the same for all flips, so t follows from the sum alone.
    # Contiguous, since otherwise the rest takes ten times as long.
    sums = np.abs(np.ascontiguousarray((_signs(len(filled)) @ filled).T))
    # Below 1: where all pairs differ equally t would be infinite, and infinities are all alike.
    share = np.minimum(sums / np.sqrt(np.where(squares > 0, n * squares, 1.0)), 1 - 1e-12)
    t = share * np.sqrt(np.maximum(n - 1, 0) / (1 - share**2))
    order, adjusted = np.argsort(-t[:, 0], kind="stable"), np.empty(len(t))
    # For each flip, the largest from this hypothesis on.
    largest = np.maximum.accumulate(t[order[::-1]], axis=0)[::-1]
    # As large but for rounding counts as large: sums in another order differ in their last bits.
    steps = (largest >= t[order, :1] * (1 - _NOTHING)).mean(axis=1)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


# --- texts ----------------------------------------------------------------------------------------


def of_kinds(table: pd.DataFrame, outcome: str) -> pd.DataFrame:
    """Return a row of length 1 for each text: which category it is, or which words it has.

    Words are taken where more than half of the outcome's texts are different ones; texts without
    words are then alike.
    """
    texts = table.loc[table["outcome"] == outcome, "value"].dropna().map(str)
    kinds = pd.get_dummies(texts)
    if texts.nunique() > len(texts) / 2:
        words = texts.str.casefold().str.findall(r"\w+").str.join(" ")
        kinds = words.str.get_dummies(" ").assign(**{"": words.eq("")})
    return kinds.div(np.sqrt(kinds.sum(axis=1)), axis=0)


def energy(values: Any, sizes: Numbers, run_of: Numbers, w: Numbers, effect: Effect) -> Tested:
    """Return how far apart arms' texts are, and the p-value of sign flips.

    The estimate is the energy distance 2 E d(x, y) - E d(x, x') - E d(y, y'): Székely and Rizzo
    (2013), "Energy statistics: a class of statistics based on distances", Journal of Statistical
    Planning and Inference 143. With d = 1 minus the cosine, which for categories is 1 for two
    different ones, that is the squared distance of the arms' means. It is 0 if both arms have the
    same categories, or each word, as often; which words stand together is not compared. By chance
    it is above 0 also where nothing differs, the more so the fewer pairs there are. Arms are
    exchanged in pairs, by all sign flips or random ones: pairs of runs, or of answers of the same
    situation and replicate, so that situations may differ as they like. All pairs count alike. Arms
    that have different numbers of wordings cannot be exchanged, since a mean of many texts varies
    less than one text.

    Args:
        values: arms x units x replicates x kinds, of ``of_kinds``; NaN where there is no answer.
        sizes: how many wordings each arm has.
        run_of: the number of each unit's run.
        w: a weight for each arm.
        effect: with its names, and what it is to speak of; of wordings it speaks of these only.
    """
    pairs: Any = np.tensordot(w[w != 0], values[w != 0], 1)
    new = effect.speaks_of in _OF_NEW_RUNS
    effect = _left_out(effect, np.isnan(pairs).any(axis=2).all(axis=1).sum(), len(pairs))
    if new:
        pairs = _by_run(_mean(pairs, 1).T, run_of).T[:, None]
    known = ~np.isnan(pairs).any(axis=2)
    speaks_of: SpeaksOf = "new runs" if new else "these situations"
    effect = replace(effect, n=int(known.any(axis=1).sum()), speaks_of=speaks_of)
    if not effect.n:
        return _noted(effect, "there are no answers of both arms"), None
    distance = ((_signs(known.sum()) @ pairs[known] / known.sum()) ** 2).sum(axis=1)
    p, estimate = (distance >= distance[0] - _NOTHING).mean(), round(float(distance[0]), 12)
    effect = replace(effect, estimate=estimate, p=float(p), method="energy distance, sign flips")
    if len({*sizes[w != 0]}) > 1:
        effect = _noted(effect, "no p-value: arms have different numbers of wordings", p=None)
    return effect, None


# --- turns ----------------------------------------------------------------------------------------


def by_turn(table: pd.DataFrame, one: str, other: str, *, level: float = 0.95) -> pd.DataFrame:
    """Return the paired difference of each turn with a band that holds for all turns at once.

    Args:
        table: rows of one outcome.
        one: an arm.
        other: the arm that is subtracted, with the same seeds.
        level: of the band, for the whole curve.

    Returns:
        Columns turn, estimate, low, high and n, the pairs that have a value at every turn.
    """
    values, (arms, _, turns) = cube(table.sort_values("turn"), "arm", "run", "turn")
    places = [_place("arm", arm, arms) for arm in (one, other)]
    curves = _rounded(values[places[0]] - values[places[1]], values[places])
    if not len(curves := curves[np.isfinite(curves).all(axis=1)]):
        raise ConfigError(f"no pair of runs has numbers of {one!r} and {other!r} at every turn")
    mean, low, high = sup_t_band(curves, level)
    return pd.DataFrame({"turn": turns}).assign(estimate=mean, low=low, high=high, n=len(curves))


def sup_t_band(curves: Numbers, level: float, draws: int = 10_000, seed: int = 0) -> Numbers:
    """Return the mean of paired curves and a band that contains the whole true curve.

    The band is mean ± c · standard error at each turn, with the same c, so that with probability
    ``level`` it contains the true mean at all turns at once (Montiel Olea and Plagborg-Møller 2019,
    "Simultaneous confidence bands: theory, implementation, and an application to SVARs", Journal of
    Applied Econometrics 34). c is the quantile of the largest |t| of ``draws`` sets of as many
    normal curves. Differs from the source: their correlation is the sample's, shrunk towards none,
    since with few curves the sample's looks stronger than it is.

    Args:
        curves: pairs of runs x turns, without NaN.
        level: of the band.
        draws: of sets of curves; with 500 a seed's luck moves the probability by .01.
        seed: of the draws.

    Returns:
        Mean, low and high. Ends are NaN with fewer than two curves; where all curves are equal at a
        turn, as before a shock, both are the mean.
    """
    n, mean = len(curves), _mean(curves, 0)
    if n < 2:
        return np.array([mean, mean * np.nan, mean * np.nan])
    error = curves.std(axis=0, ddof=1) / math.sqrt(n)
    moves = error > _NOTHING * np.abs(mean)
    correlation = np.atleast_2d(np.corrcoef(curves[:, moves], rowvar=False))
    shrunk = correlation + 1 / n * (np.eye(len(correlation)) - correlation)
    # Single precision is enough: a quantile of random draws is known less exactly.
    mix = np.linalg.cholesky(shrunk).T.astype(np.float32)
    rng = np.random.default_rng(seed)
    # The mean of n normal curves, and, independent of it, their variances with n - 1.
    drawn = rng.standard_normal((draws, n, len(mix)), dtype=np.float32) @ mix
    spread = np.einsum("dnh,dnh->dh", drawn[:, 1:], drawn[:, 1:]) / (n - 1)
    largest = np.abs(drawn[:, 0] / np.sqrt(spread)).max(axis=1, initial=0.0)
    # Weibull's quantile is k / (draws + 1), as a permutation test counts, and rather too large.
    reach = np.quantile(largest, level, method="weibull") * error * moves
    return np.array([mean, mean - reach, mean + reach])


# --- how much can be seen -------------------------------------------------------------------------


def smallest_effect(sd: float, n: int, *, pilot: int | None = None) -> float | None:
    """Return the smallest true difference that n pairs show with power .8; None with one pair.

    Args:
        sd: standard deviation of the pairs' differences.
        n: pairs.
        pilot: how many pairs ``sd`` comes from: its 80 % upper limit is taken then, since a pilot's
            own is too small in half of all cases.
    """
    if n < 2 or (pilot is not None and pilot < 2):
        return None
    upper = math.sqrt((pilot - 1) / special.chdtri(pilot - 1, 0.8)) if pilot is not None else 1.0
    # At this power next to nothing, 1e-6 and less, is on the far side.
    shift = special.nctdtrinc(n - 1, 0.2, special.stdtrit(n - 1, 0.975))
    return float(sd * upper * shift / math.sqrt(n))
