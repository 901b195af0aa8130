"""Student's t over wordings of an idea: a random factor, nested in arms or crossed with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from llmsim_lab.study.estimates.numeric import Numbers, by_run, is_share, known, mean_of_known
from llmsim_lab.study.estimates.parts import Parts, Sample, Spread, left_out
from llmsim_lab.study.estimates.student import Stratum, spread_of, with_student


def wording_means_of_these(sample: Sample, level: float) -> Parts:
    """Return Student's t over wordings, for these situations alone."""
    return _wording_means(sample, level, new_runs=False)


def wording_means_of_new(sample: Sample, level: float) -> Parts:
    """Return Student's t over wordings, with the variance of the runs' means added.

    Source: Cornfield and Tukey (1956), "Average values of mean squares in factorials", Annals of
    Mathematical Statistics 27. Differs: nothing is subtracted, so that noise counts twice.
    """
    return _wording_means(sample, level, new_runs=True)


def _wording_means(
    sample: Sample,
    level: float,
    *,
    new_runs: bool,
) -> Parts:
    """Return Student's t over wordings.

    Arms that ask the same wordings are crossed with them: each wording has one number, the weighted
    sum over these arms. Otherwise wordings are nested in their arm. In an arm with one wording only
    the answers are random.
    """
    of_units = sample.unit_means()
    # Situations that one arm lacks are left out, so that all means are over the same situations.
    complete = np.asarray(np.isfinite(of_units).all(axis=0))
    values = sample.values[:, :, complete]
    blocks = []
    for number in np.unique(sample.wording_sets):
        of_set = sample.wording_sets == number
        # For each wording and answer, the weighted sum over arms that ask the same wordings.
        summed = np.tensordot(
            sample.weights[of_set],
            values[of_set],
            1,
        )
        blocks.append(_block_of(summed, new_runs=new_runs))
    counts = [block.wordings for block in blocks]
    parts = Parts(
        kind="mean difference",
        n=sum(counts),
        method=f"t over {' and '.join(map(str, counts))} wordings",
        notes=left_out(len(complete) - int(complete.sum()), len(complete)),
    )
    wording_spread = spread_of([block.strata for block in blocks if block.is_random])
    least = _least_variance_of_shares(sample, values)
    # max() keeps a NaN that comes first; too few wordings are handled below.
    at_least = max(wording_spread.variance, least)
    spreads = [Spread(at_least, wording_spread.df)]
    few = ""
    if math.isnan(wording_spread.variance):
        few = "an arm's only wording takes two answers a situation"
    if new_runs:
        differences = sample.weights @ of_units[:, complete]
        of_runs = known(by_run(differences, sample.run_of[complete]))
        parts = replace(parts, method=f"{parts.method} and {len(of_runs)} runs")
        run_block = [Stratum(1.0, of_runs)]
        spreads.append(spread_of([run_block]))
        if len(of_runs) < 2:
            few = "one run: its situations say nothing of new ones"
    if 2 in counts:
        few = "two wordings of an arm: new ones take three"
    strata: list[Stratum] = []
    for block in blocks:
        strata += block.strata
    return with_student(
        parts,
        strata,
        spreads,
        level,
        few=few,
    )


class _Block(NamedTuple):
    """The part of an estimate from arms that ask the same wordings.

    Attributes:
        strata: the groups whose weighted means are added up.
        wordings: how many wordings there are.
        is_random: whether the strata's spread is part of the estimate's spread.
    """

    strata: list[Stratum]
    wordings: int
    is_random: bool


def _block_of(
    summed: Numbers,
    *,
    new_runs: bool,
) -> _Block:
    """Return the block of a set of wordings: wordings x situations x answers."""
    of_situations = mean_of_known(summed, 2)
    of_wordings = known(mean_of_known(of_situations, 1))
    count = len(of_wordings)
    if count > 1:
        return _Block([Stratum(1.0, of_wordings)], count, is_random=True)
    if new_runs:
        # The spread of the runs' means includes the chance in a single wording's answers.
        return _Block([Stratum(1.0, of_wordings)], count, is_random=False)
    # The only wording is not random; its answers are.
    answers = mean_of_known(summed, 0)
    weight = 1 / len(answers)
    strata = [Stratum(weight, known(of_situation)) for of_situation in answers]
    return _Block(strata, count, is_random=True)


def _least_variance_of_shares(
    sample: Sample,
    values: Numbers,
) -> float:
    """Return the variance of shares, a 0 and a 1 added, since equal answers have no spread."""
    if not is_share(values):
        return 0.0
    least = 0.0
    for weight, of_arm in zip(sample.weights, values, strict=True):
        answers = known(of_arm)
        count = len(answers) + 2
        share = (answers.sum() + 1) / count
        variance = share * (1 - share) / count
        least += weight**2 * variance
    return least
