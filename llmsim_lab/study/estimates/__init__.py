"""Estimates of studies: contrasts of arms, with intervals, over units that are named.

``choice.ESTIMATORS`` and ``choice.TEXT_ESTIMATORS`` list what compares numbers and texts: small
pure functions, one file each. ``effects`` takes one long table; the study's is ``Study.results``.
"""

from llmsim_lab.study.estimates.effects import effects
from llmsim_lab.study.estimates.estimate import Contrast, Effects, Estimate

__all__ = ["Contrast", "Effects", "Estimate", "effects"]
