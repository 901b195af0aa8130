"""What estimators take and return: arrays in, parts out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim_lab.study.estimates.estimate import Interval, Kind
from llmsim_lab.study.estimates.numeric import Numbers, mean_of_known


class Spread(NamedTuple):
    """One source of chance in an estimate.

    Attributes:
        variance: what it adds to the variance of the estimate; NaN with too few units.
        df: its degrees of freedom.
    """

    variance: float
    df: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One outcome in the arms of one contrast.

    Attributes:
        values: arms x wordings x units x replicates; NaN where there is none.
        weights: of the arms; none is 0.
        run_of: the number of each unit's run.
        wording_counts: how many wordings each arm has.
        wording_sets: arms with one number ask the same wordings.
    """

    values: Numbers
    weights: Numbers
    run_of: NDArray[np.intp]
    wording_counts: NDArray[np.intp]
    wording_sets: NDArray[np.intp]

    def unit_means(self) -> Numbers:
        """Return means over replicates, then over wordings: arms x units."""
        # Of these means, so that a wording with more answers does not count more.
        of_wordings = mean_of_known(self.values, 3)
        return mean_of_known(of_wordings, 1)

    def halves(self) -> Sample:
        """Return the second half of each arm's replicates as arms that are minus the first half.

        The contrast of these varies by chance as much as the contrast itself, and is 0 but for
        that. Of an odd number of replicates the last is left out.
        """
        half = self.values.shape[3] // 2
        first = self.values[..., :half]
        second = self.values[..., half : 2 * half]
        # A mean of half as many draws varies twice as much, and here are two of them for each arm.
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
        kinds: arms x units x replicates x kinds, as ``text_kinds`` has them; NaN where there is no
            answer.
        lengths: how many words each text has.
        are_words: whether kinds are words, not whole texts.
    """

    kinds: Numbers
    lengths: Sample
    are_words: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an estimator finds.

    Attributes:
        kind: what ``value`` is.
        n: how many units.
        value: the estimate; None where nothing can be compared.
        interval: None where none is offered; a note says why.
        p: two-sided, of no difference; None where none is offered.
        df: degrees of freedom; None where the method has none.
        method: how interval and p-value were computed.
        notes: a sentence each.
        pairs: a number for each pair of runs, NaN where a run is missing: what sign flips take.
        spreads: what ``error`` consists of, where the interval is Student's.
        groups: of arms that share nothing, how one run of each varies, as it is weighted.
        p_beyond: returns the p-value of a difference as large as a margin or larger.
        typical: of a mean whose differences are skewed, the typical difference.
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
        """Return it with one more note."""
        return replace(self, notes=(*self.notes, note))


def left_out(
    count: int,
    total: int,
) -> tuple[str, ...]:
    """Return the note on units that are left out; none where all are there."""
    if not count:
        return ()
    return (
        f"{count} of {total} units left out: failed, not played or without a value; if that "
        "depends on the arm, no interval shows it",
    )
