"""Estimates of studies: contrasts of arms, with intervals, over units that are named.

``choice.ESTIMATORS`` lists what compares numbers; texts have three of their own. All are small pure
functions, one file each. ``effects`` takes one long table; the study's is ``Study.results``.
"""

from llmsim_lab.study.estimates.effects import effects
from llmsim_lab.study.estimates.estimate import Contrast, Effects, Estimate

__all__ = ["Contrast", "Effects", "Estimate", "effects"]
