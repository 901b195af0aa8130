"""Paired differences between variants, with intervals, and the noise floor of each variant.

All functions take the frame of ``rows.samples_frame``. A sample that failed has no outcome: it is
left out of the numbers and counted in ``failed``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal, get_args

from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments.intervals import Interval, Pair, holm, mean_of, paired_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Difference",
    "Noise",
    "Outcome",
    "differences",
    "noise",
    "sample_values",
]

Outcome = Literal["interest_rate", "confidence", "accepted"]
"""Percent per year; 0 to 1; share of actions that the validator took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Interval):
    """How a variant differs from the reference, over pairs of the same turn, sample and seed.

    Attributes:
        outcome: what is compared.
        variant: this one less the reference.
        reference: the first variant.
        p_holm: the p-value adjusted for the number of variants (Holm 1979).
        failed: how many pairs were not used, since one of the two samples failed.
    """

    outcome: Outcome
    variant: str
    reference: str
    p_holm: float | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """By how much samples of one and the same prompt differ at one and the same state.

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

    outcome: Outcome
    variant: str
    floor: float | None
    sd_within: float | None
    samples: int
    failed: int
    turns: int
    note: str = ""


def sample_values(frame: pd.DataFrame, outcome: Outcome) -> pd.DataFrame:
    """Return the outcome by variant, turn and sample; NaN where a sample has none.

    A sample with several agents counts once: with the rate of the turn, and the mean of the agents'
    confidence or acceptance.
    """
    if outcome not in get_args(Outcome):
        raise ConfigError(f"outcome={outcome!r} is not one of {', '.join(get_args(Outcome))}")
    values = frame[["variant", "turn", "sample"]].assign(value=frame[outcome].astype(float))
    keys = ["variant", "turn", "sample"]
    return values.groupby(keys, sort=False)["value"].agg(_mean_or_nan).reset_index()


def _mean_or_nan(values: pd.Series[float]) -> float:
    return float(values.mean(skipna=False))


def differences(frame: pd.DataFrame, outcome: Outcome, variants: Sequence[str]) -> list[Difference]:
    """Return how each variant differs from the first.

    Pairs are of the same turn, sample and seed. Samples of a turn share its state, and samples of a
    seed share their chance: neither are independent evidence, as ``paired_interval`` says. With
    more than two variants, p-values are also given adjusted by Holm's step-down method (Holm 1979,
    "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6); the intervals are for each comparison by itself.

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
    reference = variants[0]
    found = []
    for variant in variants[1:]:
        interval, failed = Interval(note="no sample of both was played"), 0
        if {reference, variant} <= set(wide.columns):
            both = (wide[variant] - wide[reference]).dropna().reset_index(name="value")
            rows = zip(both["turn"], both["sample"], both["value"], strict=True)
            pairs = [Pair(turn=turn, seed=seeds[turn, k], value=value) for turn, k, value in rows]
            failed = _played_pairs(values, reference, variant) - len(pairs)
            interval = paired_interval(pairs, failed=failed)
        known = {field.name: getattr(interval, field.name) for field in fields(interval)}
        found.append(
            Difference(
                outcome=outcome, variant=variant, reference=reference, failed=failed, **known
            )
        )
    adjusted = holm([difference.p_value for difference in found])
    return [replace(d, p_holm=p) for d, p in zip(found, adjusted, strict=True)]


def _played_pairs(values: pd.DataFrame, reference: str, variant: str) -> int:
    """Return how many pairs were played, whether they came off or not."""
    places = [
        set(zip(group["turn"], group["sample"], strict=True))
        for name in (reference, variant)
        for group in [values[values["variant"] == name]]
    ]
    return len(places[0] & places[1])


def noise(frame: pd.DataFrame, outcome: Outcome, variants: Sequence[str]) -> list[Noise]:
    """Return each variant's noise floor; ``Noise`` has the formulas."""
    values = sample_values(frame, outcome)
    return [_noise_of(values[values["variant"] == name], outcome, name) for name in variants]


def _noise_of(values: pd.DataFrame, outcome: Outcome, variant: str) -> Noise:
    there = values.dropna(subset=["value"])
    groups = [list(map(float, group)) for _, group in there.groupby("turn")["value"]]
    repeated = [group for group in groups if len(group) > 1]
    floor = spread = None
    note = "two samples a turn are needed to tell noise from difference"
    if repeated:
        floor = mean_of([mean_of([abs(a - b) for a, b in combinations(g, 2)]) for g in repeated])
        squares = math.fsum((value - mean_of(g)) ** 2 for g in repeated for value in g)
        spread = math.sqrt(squares / sum(len(group) - 1 for group in repeated))
        note = "" if len(repeated) == len(groups) else "turns with one sample are left out"
        if floor == 0:
            note = "samples of a turn are all alike"
    return Noise(
        outcome=outcome,
        variant=variant,
        floor=floor,
        sd_within=spread,
        samples=len(there),
        failed=len(values) - len(there),
        turns=len(repeated),
        note=note,
    )
