"""Paired differences between variants with their intervals, and the noise floor of each variant.

Samples share states (a turn's) and chance (a seed's), so they are not independent evidence; the
intervals are clustered accordingly. Frames are those of ``_results.samples_frame``. A sample that
failed has no outcome: it is left out of the numbers and counted in ``failed``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, get_args

from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

Outcome = Literal["interest_rate", "confidence", "accepted"]
"""Percent per year; 0 to 1; share of actions that the validator accepted."""

_LEVEL = 0.95
_NOTHING = 1e-9
"""Smaller differences are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean of paired differences and how well it is known.

    Attributes:
        estimate: mean of the turns' mean differences, each turn with the same weight; None where
            there are too few pairs.
        low: of the 95 % interval; None if it cannot be computed.
        high: likewise.
        p_value: two-sided, of no difference; None if it cannot be computed.
        method: which interval, and why.
        pairs: how many were used.
        turns: how many turns the pairs are of.
        note: what to keep in mind.
        outcome: what is compared; in an experiment an ``Outcome``.
        variant: the one of which the reference is subtracted.
        reference: the one that is subtracted; in an experiment the first variant.
        p_holm: the p-value adjusted for the number of variants (Holm 1979).
        failed: how many pairs were not used, since one of the two samples failed.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    method: str = "none"
    pairs: int = 0
    turns: int = 0
    note: str = ""
    outcome: str = ""
    variant: str = ""
    reference: str = ""
    p_holm: float | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much samples of the same prompt differ at the same state.

    Attributes:
        outcome: what is compared.
        variant: the prompt.
        floor: mean absolute difference of two samples (Gini's mean difference): the mean over all
            pairs of a turn's samples, then over turns; None with fewer than two samples a turn.
        sd_within: standard deviation within turns, pooled: the root of the sum of squares around
            the turns' means over the sum of their degrees of freedom.
        samples: how many were used.
        failed: how many were not, since they failed.
        turns: how many turns have two samples or more.
        note: what to keep in mind.
    """

    outcome: str
    variant: str
    floor: float | None
    sd_within: float | None
    samples: int
    failed: int
    turns: int
    note: str = ""


def paired_interval(
    values: Sequence[float], *, turns: Sequence[object], seeds: Sequence[object], failed: int = 0
) -> Difference:
    """Return the mean of paired differences with its 95 % interval, clustered by turn and by seed.

    The estimate is the mean of the K turns' means m_k. The interval depends on the data:

    - Seeds differ from turn to turn, two turns or more: Student's over the turns' means,
      mean ± t(0.975, K - 1) · s(m_k) / √K; with equally many samples a turn this is the
      cluster-robust interval (Cameron, Gelbach and Miller 2008, "Bootstrap-based improvements for
      inference with clustered errors", Review of Economics and Statistics 90). Differs from the
      source: turns are not resampled, however many, since a percentile interval of 20 to 40 turns'
      means contains the true value only some 93 to 94 times in 100.
    - The S seeds are the same at every turn: turns and seeds cross, and a lucky seed is lucky at
      all turns. The variance is V(turn) + V(seed) - V(pair) (Cameron, Gelbach and Miller 2011,
      "Robust inference with multiway clustering", Journal of Business & Economic Statistics 29);
      differs from the source: it is at least the larger of V(turn) and V(seed), with Student's t
      of min(K, S) - 1 degrees of freedom.
    - One turn: Student's over its samples, which covers the sampling noise at that state only.

    Args:
        values: the differences, in the outcome's unit.
        turns: the turn of each.
        seeds: the seed of each, which both of its samples share.
        failed: how many pairs are missing since one of the two samples failed.
    """
    pairs = list(zip(turns, seeds, values, strict=True))
    groups: dict[object, list[float]] = {}
    for turn, _, value in pairs:
        groups.setdefault(turn, []).append(value)
    counted = Difference(pairs=len(pairs), turns=len(groups), failed=failed)
    if len(pairs) < 2:
        return replace(counted, note=_too_few(len(pairs), failed))
    count = len(set(seeds))
    # With as many seeds as places, each turn has seeds of its own, and nothing crosses.
    crossed = len({(turn, seed) for turn, seed, _ in pairs}) > count > 1
    note = ""
    if len(groups) == 1:
        [units] = groups.values()
        what, method = "samples", "t over the samples of one turn"
        note = "one turn: the interval covers the sampling noise at that state only"
    else:
        # A turn is one piece of evidence, however many samples it has.
        units = [fmean(group) for group in groups.values()]
        what, method = "turn means", f"t over {len(groups)} turn means"
        if len(groups) == 2:
            note = "two turns: one degree of freedom, so that the interval is very wide"
        if count == 1:
            note = "one seed for all turns: the interval leaves out what another seed would do"
    if len(groups) > 1 and crossed:
        low, high, p_value = _crossed(pairs)
        method = f"t over {len(groups)} turns crossed with {count} seeds"
    else:
        error = stdev(units) / math.sqrt(len(units))
        low, high, p_value = _t_interval(fmean(units), error, len(units) - 1)
    if low == high:
        note = (
            f"all {what} differ by the same: the interval has no width and says nothing of others"
        )
    return replace(
        counted,
        estimate=fmean(units),
        low=low,
        high=high,
        p_value=p_value,
        method=method,
        note=note,
    )


def _too_few(pairs: int, failed: int) -> str:
    """Return why there is no interval, and what helps; if all pairs failed, more samples do not."""
    if not failed:
        return f"too few pairs for an interval: {pairs}; play at least two samples"
    if not pairs:
        had = "the only pair" if failed == 1 else f"all {failed} pairs"
        return f"{had} had a failed sample; see why in the frame's column detail"
    return (
        f"too few pairs for an interval: 1, since {failed} of {failed + 1} had a failed sample; "
        "see why in the frame's column detail"
    )


def _crossed(
    pairs: Sequence[tuple[object, object, float]],
) -> tuple[float, float, float | None]:
    """Return the interval and p-value where turns and seeds cross."""
    counts = Counter(turn for turn, _, _ in pairs)
    weights = [1 / (len(counts) * counts[turn]) for turn, _, _ in pairs]
    mean = math.fsum(w * value for w, (_, _, value) in zip(weights, pairs, strict=True))
    parts = [w * (value - mean) for w, (_, _, value) in zip(weights, pairs, strict=True)]

    def variance(clusters: Sequence[object]) -> tuple[float, int]:
        sums: dict[object, float] = {}
        for cluster, part in zip(clusters, parts, strict=True):
            sums[cluster] = sums.get(cluster, 0.0) + part
        count = len(sums)
        # count / (count - 1) corrects for the few clusters that the mean was estimated from.
        return math.fsum(x**2 for x in sums.values()) * count / (count - 1), count

    by_turn, turns = variance([turn for turn, _, _ in pairs])
    by_seed, seeds = variance([seed for _, seed, _ in pairs])
    by_pair, _ = variance(range(len(pairs)))
    # What two samples of one turn and seed share is counted in both, hence minus V(pair). With few
    # clusters that can leave less than either alone, or even less than nothing.
    whole = max(by_turn + by_seed - by_pair, by_turn, by_seed)
    return _t_interval(mean, math.sqrt(whole), min(turns, seeds) - 1)


def _t_interval(mean: float, error: float, freedom: int) -> tuple[float, float, float | None]:
    """Return interval and p-value from a standard error; where that is 0, the mean itself."""
    from scipy import stats  # here, since it takes long to import

    if error <= _NOTHING * max(1.0, abs(mean)):
        # Equal differences other than 0 would give p = 0, as if nothing could be more certain.
        return mean, mean, 1.0 if abs(mean) <= _NOTHING else None
    low, high = stats.t.interval(_LEVEL, freedom, loc=mean, scale=error)
    return float(low), float(high), float(2 * stats.t.sf(abs(mean) / error, freedom))


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


def sample_values(frame: pd.DataFrame, outcome: Outcome) -> pd.DataFrame:
    """Return the outcome by variant, turn and sample; NaN where a sample has none.

    A sample with several agents counts once: with the rate of the turn, and the mean of the agents'
    confidence or acceptance.
    """
    if outcome not in get_args(Outcome):
        raise ConfigError(f"outcome={outcome!r} is not one of {', '.join(get_args(Outcome))}")
    values = frame[["variant", "turn", "sample"]].assign(value=frame[outcome].astype(float))
    groups = values.groupby(["variant", "turn", "sample"], sort=False)["value"]
    # Not ``groups.mean()``, which would leave out an agent that has no answer.
    return groups.agg(lambda group: float(group.mean(skipna=False))).reset_index()


def differences(frame: pd.DataFrame, outcome: Outcome, variants: Sequence[str]) -> list[Difference]:
    """Return how each variant differs from the first, over pairs of the same turn, sample and seed.

    ``paired_interval`` has the formulas. With more than two variants, p-values are also given
    adjusted by Holm's method; the intervals are for each comparison by itself.

    Args:
        frame: the results.
        outcome: what is compared.
        variants: the reference, then the others.
    """
    values = sample_values(frame, outcome)
    wide = values.pivot_table(
        index=["turn", "sample"], columns="variant", values="value", dropna=False, sort=False
    )
    keys = zip(frame["turn"], frame["sample"], strict=True)
    seeds = dict(zip(keys, frame["seed"], strict=True))
    # Failed samples included, which in ``wide`` look like those that were not played.
    played = {
        name: set(zip(group["turn"], group["sample"], strict=True))
        for name, group in values.groupby("variant")
    }
    reference = variants[0]
    found = []
    for variant in variants[1:]:
        known = Difference(note="no sample of both was played")
        if {reference, variant} <= played.keys():
            both = (wide[variant] - wide[reference]).dropna()
            known = paired_interval(
                list(both),
                turns=[turn for turn, _ in both.index],
                seeds=[seeds[place] for place in both.index],
                failed=len(played[reference] & played[variant]) - len(both),
            )
        found.append(replace(known, outcome=outcome, variant=variant, reference=reference))
    adjusted = holm([difference.p_value for difference in found])
    return [replace(d, p_holm=p) for d, p in zip(found, adjusted, strict=True)]


def noise(frame: pd.DataFrame, outcome: Outcome, variants: Sequence[str]) -> list[Noise]:
    """Return each variant's noise floor; ``Noise`` has the formulas."""
    values = sample_values(frame, outcome)
    found = []
    for variant in variants:
        own = values.loc[values["variant"] == variant, ["turn", "value"]]
        known = own.dropna()
        groups = [list(map(float, group)) for _, group in known.groupby("turn")["value"]]
        repeated = [group for group in groups if len(group) > 1]
        floor = spread = None
        note = "two samples a turn are needed to tell noise from difference"
        if repeated:
            floor = fmean(fmean(abs(a - b) for a, b in combinations(g, 2)) for g in repeated)
            squares = math.fsum((value - fmean(g)) ** 2 for g in repeated for value in g)
            spread = math.sqrt(squares / sum(len(group) - 1 for group in repeated))
            note = "" if len(repeated) == len(groups) else "turns with one sample are left out"
            if floor == 0:
                note = "samples of a turn are all alike"
        found.append(
            Noise(
                outcome=outcome,
                variant=variant,
                floor=floor,
                sd_within=spread,
                samples=len(known),
                failed=len(own) - len(known),
                turns=len(repeated),
                note=note,
            )
        )
    return found
