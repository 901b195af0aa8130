"""Differences of runs with the same seed in each arm, one number for each seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmsim_lab.study.estimates.numeric import Numbers, by_run, without_rounding
from llmsim_lab.study.estimates.parts import Sample, left_out


class Pairs(NamedTuple):
    """Runs with the same seed in each arm.

    Attributes:
        means: the means of the runs, by arm.
        differences: for each seed the weighted sum over arms; NaN where a run is missing.
        notes: on what was left out.
    """

    means: Numbers
    differences: Numbers
    notes: tuple[str, ...]


def pairs_of(sample: Sample) -> Pairs:
    """Return a sample's runs in pairs, each averaged over answers, wordings and situations."""
    of_units = sample.unit_means()
    # Before the mean over situations, so that a situation that one arm lacks is left out.
    differences = without_rounding(sample.weights @ of_units, of_units)
    missing = int(np.isnan(differences).sum())
    return Pairs(
        means=by_run(of_units, sample.run_of),
        differences=by_run(differences, sample.run_of),
        notes=left_out(missing, len(differences)),
    )
