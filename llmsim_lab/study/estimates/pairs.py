"""Runs with the same seed in each arm, one number a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmsim_lab.study.estimates.numeric import Numbers, by_run, without_rounding
from llmsim_lab.study.estimates.parts import Sample, left_out


class Pairs(NamedTuple):
    """Runs with the same seed in each arm.

    Attributes:
        means: of runs, by arm.
        differences: of each seed: the weighted sum over arms; NaN where a run is missing.
        notes: on what was left out.
    """

    means: Numbers
    differences: Numbers
    notes: tuple[str, ...]


def pairs_of(sample: Sample) -> Pairs:
    """Return a sample's runs in pairs: answers, wordings and situations are averaged in each."""
    of_units = sample.unit_means()
    # Before means are taken over a run's situations: those that one arm lacks are left out.
    differences = without_rounding(sample.weights @ of_units, of_units)
    missing = int(np.isnan(differences).sum())
    return Pairs(
        means=by_run(of_units, sample.run_of),
        differences=by_run(differences, sample.run_of),
        notes=left_out(missing, len(differences)),
    )
