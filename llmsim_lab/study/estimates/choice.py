"""The list of estimators, and the choice of one for a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmsim_lab.study.estimates.estimate import Contrast
from llmsim_lab.study.estimates.groups import (
    are_group_shares,
    group_means,
    group_shares,
)
from llmsim_lab.study.estimates.paired import paired_means
from llmsim_lab.study.estimates.parts import Parts, Sample, TextSample
from llmsim_lab.study.estimates.shares import are_paired_shares, paired_shares
from llmsim_lab.study.estimates.situations import situation_means
from llmsim_lab.study.estimates.texts import group_texts, paired_texts, situation_texts
from llmsim_lab.study.estimates.typical import typical_difference
from llmsim_lab.study.estimates.wordings import wording_means_of_new, wording_means_of_these


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of a comparison.

    Attributes:
        paired: whether runs with the same seed are pairs.
        typical: whether the typical difference is wanted, not the mean.
        level: of the interval.
    """

    paired: bool = True
    typical: bool = False
    level: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """A way to compare numbers; of the estimators the first that fits is used.

    Attributes:
        fits: takes the contrast, the numbers and the options, and returns whether it fits.
        estimate: takes the numbers and the level.
    """

    fits: Callable[[Contrast, Sample, Wanted], bool]
    estimate: Callable[[Sample, float], Parts]


ESTIMATORS: tuple[Estimator, ...] = (
    # Units other than runs come first: shares and typical differences exist for runs alone.
    Estimator(
        fits=lambda contrast, _, wanted: contrast.generalises_to == "new wordings",
        estimate=wording_means_of_these,
    ),
    Estimator(
        fits=lambda contrast, _, wanted: contrast.unit == "wording",
        estimate=wording_means_of_new,
    ),
    Estimator(
        fits=lambda contrast, _, wanted: contrast.unit == "situation",
        estimate=situation_means,
    ),
    # From here on, the unit is the run.
    Estimator(
        fits=lambda _, sample, wanted: not wanted.paired and are_group_shares(sample),
        estimate=group_shares,
    ),
    Estimator(
        fits=lambda _, sample, wanted: not wanted.paired,
        estimate=group_means,
    ),
    # Before the typical difference, which is nearly always 0 for values of 0 and 1.
    Estimator(
        fits=lambda _, sample, wanted: are_paired_shares(sample),
        estimate=paired_shares,
    ),
    Estimator(
        fits=lambda _, sample, wanted: wanted.typical,
        estimate=typical_difference,
    ),
    # Fits everything else.
    Estimator(
        fits=lambda _, sample, wanted: True,
        estimate=paired_means,
    ),
)


def estimate_numbers(
    contrast: Contrast,
    sample: Sample,
    wanted: Wanted,
) -> Parts:
    """Return the result of the first estimator that fits."""
    for estimator in ESTIMATORS:
        if estimator.fits(contrast, sample, wanted):
            return estimator.estimate(sample, wanted.level)
    raise AssertionError("the last estimator fits everything")


def estimate_texts(
    contrast: Contrast,
    sample: TextSample,
    wanted: Wanted,
) -> Parts:
    """Return the distance of texts, for situations, groups or pairs of runs."""
    if contrast.unit == "situation":
        return situation_texts(sample)
    if not wanted.paired:
        return group_texts(sample)
    return paired_texts(sample)
