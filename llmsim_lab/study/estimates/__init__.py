"""Estimates of studies: contrasts of arms, with intervals, over units that are named.

``ESTIMATORS`` and ``TEXT_ESTIMATORS`` list what compares numbers and texts: small pure functions,
one file each. ``effects`` takes one long table, ``by_turn`` the same of one outcome.
"""

from llmsim_lab.study.estimates.bands import by_turn, sup_t_band
from llmsim_lab.study.estimates.choice import ESTIMATORS, TEXT_ESTIMATORS
from llmsim_lab.study.estimates.effects import effects
from llmsim_lab.study.estimates.estimate import Contrast, Effects, Estimate

__all__ = [
    "ESTIMATORS",
    "TEXT_ESTIMATORS",
    "Contrast",
    "Effects",
    "Estimate",
    "by_turn",
    "effects",
    "sup_t_band",
]
