"""Answers that are texts: how far apart those of arms are."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmsim_lab.study.estimates.family import RANDOM_FLIPS, sign_flips
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, by_run, mean_of_known
from llmsim_lab.study.estimates.parts import Parts, TextSample, left_out


class TextKinds(NamedTuple):
    """What texts are compared by.

    Attributes:
        rows: a row of length 1 for each text.
        are_words: whether columns are words, not whole texts.
    """

    rows: pd.DataFrame
    are_words: bool


def text_kinds(texts: pd.Series[str]) -> TextKinds:
    """Return for each text which category it is, or which words it has.

    Words are taken where more than half of the texts are different ones; texts without words are
    then alike.
    """
    # Categories come again; free answers hardly ever do, so that each would be a kind of its own.
    are_words = texts.nunique() > len(texts) / 2
    if are_words:
        words = texts.str.casefold().str.findall(r"\w+").str.join(" ")
        kinds = words.str.get_dummies(" ")
        # A column for texts without words, which would be rows of zeros and have no length 1.
        kinds[""] = words.eq("")
    else:
        kinds = pd.get_dummies(texts)
    # With rows of length 1 a product of two is the cosine, of categories 1 or 0.
    lengths = np.sqrt(kinds.sum(axis=1))
    return TextKinds(kinds.div(lengths, axis=0), are_words)


def text_lengths(texts: pd.Series[str]) -> pd.Series[float]:
    """Return how many words each text has."""
    return texts.str.count(r"\w+").astype(float)


def paired_texts(sample: TextSample) -> Parts:
    """Return how far apart the texts of runs with the same seed are."""
    pairs = _differences(sample)
    of_units = mean_of_known(pairs, 1)
    # by_run takes units as the last axis.
    of_runs = by_run(of_units.T, sample.lengths.run_of).T
    one_replicate = of_runs[:, None]
    return text_distance(sample, one_replicate, _left_out(pairs))


def situation_texts(sample: TextSample) -> Parts:
    """Return how far apart the answers to the same situations are."""
    pairs = _differences(sample)
    return text_distance(sample, pairs, _left_out(pairs))


def _differences(sample: TextSample) -> Numbers:
    """Return weighted sums over arms: units x replicates x kinds."""
    return np.asarray(
        np.tensordot(
            sample.lengths.weights,
            sample.kinds,
            1,
        )
    )


def _is_known(pairs: Numbers) -> NDArray[np.bool_]:
    """Return which pairs of answers there are: units x replicates."""
    return np.asarray(~np.isnan(pairs).any(axis=2))


def _left_out(pairs: Numbers) -> tuple[str, ...]:
    has_answers = _is_known(pairs).any(axis=1)
    return left_out(int((~has_answers).sum()), len(pairs))


def text_distance(
    sample: TextSample,
    pairs: Numbers,
    notes: tuple[str, ...],
) -> Parts:
    """Return the energy distance of arms' texts, and the p-value of sign flips.

    It is 2 E d(x, y) - E d(x, x') - E d(y, y'): Székely and Rizzo (2013), "Energy statistics: a
    class of statistics based on distances", Journal of Statistical Planning and Inference 143. With
    d = 1 minus the cosine, which for categories is 1 for two different ones, that is the squared
    distance of the arms' means. It is 0 if both arms have the same categories, or each word, as
    often; which words stand together is not compared. By chance it is above 0 also where nothing
    differs, the more so the fewer pairs there are. Arms are exchanged in pairs, by all sign flips
    or random ones: pairs of runs, or of answers of the same situation and replicate, so that
    situations may differ as they like. All pairs count alike.

    Args:
        sample: the texts.
        pairs: weighted sums over arms: units x replicates x kinds; NaN where an answer is missing.
        notes: on what was left out.
    """
    is_known = _is_known(pairs)
    count = int(is_known.sum())
    units = int(is_known.any(axis=1).sum())
    parts = Parts(
        kind="text distance",
        n=units,
        notes=notes,
    )
    if not count:
        return replace(parts, notes=(*notes, "there are no answers of both arms"))
    means = sign_flips(count) @ pairs[is_known] / count
    distances = (means**2).sum(axis=1)
    # The first flip is what was observed.
    observed = distances[0]
    is_as_far = distances >= observed - ROUNDING
    parts = replace(
        parts,
        value=round(float(observed), 12),
        p=float(is_as_far.mean()),
        method="energy distance, sign flips",
    )
    if len(set(sample.lengths.wording_counts)) > 1:
        # The mean of many texts varies less than one text, so that arms cannot be exchanged.
        uneven = "no p-value: arms have different numbers of wordings"
        return replace(
            parts,
            p=None,
            notes=(*notes, uneven),
        )
    return parts


def group_texts(sample: TextSample) -> Parts:
    """Return how far apart the texts of unrelated groups are; runs are exchanged between arms."""
    of_arms = []
    for kinds in sample.kinds:
        of_units = mean_of_known(kinds, 1)
        of_runs = by_run(of_units.T, sample.lengths.run_of).T
        # A run that this arm does not have may be another arm's.
        is_of_arm = ~np.isnan(of_runs).any(axis=1)
        of_arms.append(of_runs[is_of_arm])
    sizes = [len(rows) for rows in of_arms]
    parts = Parts(kind="text distance", n=sum(sizes))
    if min(sizes) == 0:
        return replace(parts, notes=("an arm has no texts",))
    rows = np.concatenate(of_arms)
    # What each run counts in the difference; runs are exchanged by exchanging these.
    shares = np.repeat(sample.lengths.weights / sizes, sizes)
    # From their number alone, so that the same table gives the same p-value everywhere.
    rng = np.random.default_rng(len(rows))
    shuffled = rng.permuted(
        np.tile(shares, (RANDOM_FLIPS + 1, 1)),
        axis=1,
    )
    # What was observed is one of the exchanges: else p could be 0.
    shuffled[0] = shares
    means = shuffled @ rows
    distances = (means**2).sum(axis=1)
    observed = distances[0]
    is_as_far = distances >= observed - ROUNDING
    return replace(
        parts,
        value=round(float(observed), 12),
        p=float(is_as_far.mean()),
        method=f"energy distance, {RANDOM_FLIPS:,} exchanges of runs",
    )
