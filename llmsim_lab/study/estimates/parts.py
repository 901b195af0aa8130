"""The data that estimators take (samples) and return (parts of an estimate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim_lab.study.estimates.estimate import Interval, Kind
from llmsim_lab.study.estimates.numeric import Numbers, mean_of_known


class Spread(NamedTuple):
    """The variance that one source of chance adds to an estimate.

    Attributes:
        variance: the added variance; NaN with too few units.
        df: its degrees of freedom.
    """

    variance: float
    df: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One outcome in the arms of one contrast.

    Attributes:
        values: arms x wordings x units x replicates; NaN where there is no value.
        weights: of the arms; no weight is 0.
        run_of: the number of each unit's run.
        wording_counts: how many wordings each arm has.
        wording_sets: a number for each arm; arms with the same number ask the same wordings.
    """

    values: Numbers
    weights: Numbers
    run_of: NDArray[np.intp]
    wording_counts: NDArray[np.intp]
    wording_sets: NDArray[np.intp]

    def unit_means(self) -> Numbers:
        """Return means over replicates, then over wordings: arms x units."""
        # A mean of means, so that a wording with more answers does not count more.
        of_wordings = mean_of_known(self.values, 3)
        return mean_of_known(of_wordings, 1)

    def halves(self) -> Sample:
        """Return each arm's second half of replicates minus its first half, as a sample of its own.

        Its contrast varies by chance as much as the contrast itself, and its true value is 0. The
        last of an odd number of replicates is left out.
        """
        half = self.values.shape[3] // 2
        first = self.values[..., :half]
        second = self.values[..., half : 2 * half]
        # Half as many draws double the variance, and two halves double it again: weights of 1 / 2.
        weights = self.weights / 2
        return Sample(
            values=np.concatenate([second, first]),
            weights=np.concatenate([weights, -weights]),
            run_of=self.run_of,
            wording_counts=np.tile(self.wording_counts, 2),
            wording_sets=np.tile(self.wording_sets, 2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSample:
    """One outcome of texts in the arms of one contrast.

    Attributes:
        kinds: arms x units x replicates x kinds, as ``text_kinds`` returns them; NaN where there
            is no answer.
        lengths: how many words each text has.
        are_words: whether kinds are words, not whole texts.
    """

    kinds: Numbers
    lengths: Sample
    are_words: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The result of an estimator.

    Attributes:
        kind: what ``value`` is.
        n: how many units.
        value: the estimate; None where nothing can be compared.
        interval: None where there is none, and a note says why.
        p: the two-sided p-value of no difference; None where there is none.
        df: degrees of freedom; None where the method has none.
        method: how interval and p-value were computed.
        notes: one sentence each.
        pairs: for sign flips, a number for each pair of runs; NaN where a run is missing.
        spreads: the sources of the standard error, where the interval is Student's.
        groups: for arms that share nothing, the weighted variance of one run of each arm.
        p_beyond: returns the p-value of a difference as large as a margin or larger.
        typical: for a mean of skewed differences, the typical difference.
    """

    kind: Kind
    n: int = 0
    value: float | None = None
    interval: Interval | None = None
    p: float | None = None
    df: float | None = None
    method: str = "none"
    notes: tuple[str, ...] = ()
    pairs: Numbers | None = None
    spreads: tuple[Spread, ...] = ()
    groups: tuple[Spread, ...] = ()
    p_beyond: Callable[[float], float] | None = None
    typical: Parts | None = None

    def with_note(self, note: str) -> Parts:
        """Return these parts with one more note."""
        return replace(self, notes=(*self.notes, note))


def left_out(
    count: int,
    total: int,
) -> tuple[str, ...]:
    """Return the note on units that are left out; none if all are complete."""
    if not count:
        return ()
    return (
        f"{count} of {total} units left out: failed, not played or without a value; if that "
        "depends on the arm, no interval shows it",
    )
