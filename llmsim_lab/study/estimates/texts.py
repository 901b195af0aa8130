"""Distances of arms whose answers are texts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmsim_lab.study.estimates.family import RANDOM_FLIPS, sign_flips
from llmsim_lab.study.estimates.numeric import ROUNDING, Numbers, by_run, mean_of_known
from llmsim_lab.study.estimates.parts import Parts, TextSample, left_out

_WORD = r"\w+"


class TextKinds(NamedTuple):
    """The categories or words that texts are compared by.

    Attributes:
        rows: one row of length 1 for each text.
        are_words: whether columns are words, not whole texts.
    """

    rows: pd.DataFrame
    are_words: bool


def text_kinds(texts: pd.Series[str]) -> TextKinds:
    """Return for each text its category, or the words in it.

    Words are used if more than half of the texts differ; texts without words are then equal.
    """
    # Categories repeat. Free answers hardly ever do, so that each would be a category of its own.
    are_words = texts.nunique() > len(texts) / 2
    if are_words:
        lower = texts.str.casefold()
        words = lower.str.findall(_WORD).str.join(" ")
        kinds = words.str.get_dummies(" ")
        # A column for texts without words, whose rows would be all zero and have no length 1.
        kinds[""] = words.eq("")
    else:
        kinds = pd.get_dummies(texts)
    # The product of two rows of length 1 is their cosine; for categories it is 1 or 0.
    lengths = np.sqrt(kinds.sum(axis=1))
    return TextKinds(
        kinds.div(lengths, axis=0),
        are_words,
    )


def text_lengths(texts: pd.Series[str]) -> pd.Series[float]:
    """Return how many words each text has."""
    counts = texts.str.count(_WORD)
    return counts.astype(float)


def paired_texts(sample: TextSample) -> Parts:
    """Return the distance of texts of runs with the same seed."""
    pairs = _differences(sample)
    of_runs = _means_of_runs(pairs, sample)
    one_replicate = of_runs[:, None]
    return text_distance(sample, one_replicate, _left_out(pairs))


def _means_of_runs(
    values: Numbers,
    sample: TextSample,
) -> Numbers:
    """Return runs x kinds of units x replicates x kinds."""
    of_units = mean_of_known(values, 1)
    # by_run() takes units as the last axis.
    kinds_first = of_units.T
    return by_run(kinds_first, sample.lengths.run_of).T


def situation_texts(sample: TextSample) -> Parts:
    """Return the distance of answers to the same situations."""
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
    """Return where pairs of answers are complete: units x replicates."""
    is_missing = np.isnan(pairs).any(axis=2)
    return np.asarray(~is_missing)


def _left_out(pairs: Numbers) -> tuple[str, ...]:
    """Return the note on units without a complete pair of answers."""
    has_answers = _is_known(pairs).any(axis=1)
    present = int(has_answers.sum())
    return left_out(len(pairs) - present, len(pairs))


def text_distance(
    sample: TextSample,
    pairs: Numbers,
    notes: tuple[str, ...],
) -> Parts:
    """Return the energy distance of the arms' texts, and the p-value by sign flips.

    The distance is 2 E d(x, y) - E d(x, x') - E d(y, y'): Székely and Rizzo (2013), "Energy
    statistics: a class of statistics based on distances", Journal of Statistical Planning and
    Inference 143. With
    d = 1 minus the cosine, which is 1 for two different categories, this is the squared distance of
    the arms' means. It is 0 if each category, or each word, is equally frequent in both arms; which
    words occur together is not compared. Chance makes it larger than 0 even if nothing differs, the
    more so the fewer pairs there are. All sign flips, or random ones, exchange the arms within
    pairs: pairs of runs, or of answers of the same situation and replicate, so that situations may
    differ in any way. All pairs have the same weight.

    Args:
        sample: the texts.
        pairs: weighted sums over arms: units x replicates x kinds; NaN where an answer is missing.
        notes: on what was left out.
    """
    is_known = _is_known(pairs)
    has_answers = is_known.any(axis=1)
    parts = Parts(
        kind="text distance",
        n=int(has_answers.sum()),
        notes=notes,
    )
    known_pairs = pairs[is_known]
    count = len(known_pairs)
    if not count:
        return parts.with_note("there are no answers of both arms")
    means = sign_flips(count) @ known_pairs / count
    test = _test_of_distance(means)
    parts = replace(
        parts,
        value=test.distance,
        p=test.p,
        method="energy distance, sign flips",
    )
    if len(set(sample.lengths.wording_counts)) > 1:
        # A mean of more texts varies less, so that arms of different sizes cannot be exchanged.
        without = replace(parts, p=None)
        return without.with_note("no p-value: arms have different numbers of wordings")
    return parts


class _DistanceTest(NamedTuple):
    """The distance of arms, and how often chance alone gives at least this distance."""

    distance: float
    p: float


def _test_of_distance(means: Numbers) -> _DistanceTest:
    """Return the distance of the first difference of means, and its p-value among all of them."""
    squares = means**2
    distances = squares.sum(axis=1)
    # The first is observed; the others are flips or exchanges of it.
    observed = float(distances[0])
    # Equal up to rounding counts as equal, since sums in another order differ in their last bits.
    is_as_far = distances >= observed - ROUNDING
    return _DistanceTest(
        distance=round(observed, 12),
        p=float(is_as_far.mean()),
    )


def group_texts(sample: TextSample) -> Parts:
    """Return the distance of unrelated groups' texts; runs are exchanged between arms."""
    of_arms = []
    for kinds in sample.kinds:
        of_runs = _means_of_runs(kinds, sample)
        # A run that this arm lacks may be another arm's.
        is_missing = np.isnan(of_runs).any(axis=1)
        of_arms.append(of_runs[~is_missing])
    sizes = [len(rows) for rows in of_arms]
    parts = Parts(kind="text distance", n=sum(sizes))
    if min(sizes) == 0:
        return parts.with_note("an arm has no texts")
    rows = np.concatenate(of_arms)
    # The weight of each run in the difference; exchanging weights exchanges runs.
    share_of_run = sample.lengths.weights / sizes
    shares = np.repeat(share_of_run, sizes)
    # Seeded by their number, so that the same table gives the same p-value everywhere.
    rng = np.random.default_rng(len(rows))
    shuffled = rng.permuted(
        np.tile(shares, (RANDOM_FLIPS + 1, 1)),
        axis=1,
    )
    # The observed weights are one of the exchanges; without them p could be 0.
    shuffled[0] = shares
    test = _test_of_distance(shuffled @ rows)
    return replace(
        parts,
        value=test.distance,
        p=test.p,
        method=f"energy distance, {RANDOM_FLIPS:,} exchanges of runs",
    )
