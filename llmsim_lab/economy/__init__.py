"""The economy that agents act on: policy rules, macro models, shocks and real data.

Rates are percent per year, gaps percent of potential, steps are quarters; every formula's docstring
names its source. numpy and pandas are loaded when a function first needs them, not on import.
"""

from llmsim_lab.economy.analysis import closed_loop
from llmsim_lab.economy.data import initial_state, load_us_macro
from llmsim_lab.economy.macro import QuadraticLoss, RudebuschSvensson, TaylorRule
from llmsim_lab.economy.response import response_of

__all__ = [
    "QuadraticLoss",
    "RudebuschSvensson",
    "TaylorRule",
    "closed_loop",
    "initial_state",
    "load_us_macro",
    "response_of",
]
