"""The economy that agents act on: policy rules, macro models, shocks and real data.

Rates are percent per year, gaps percent of potential, steps are quarters; every formula's docstring
names its source. numpy and pandas are loaded when a function first needs them, not on import.
"""

from __future__ import annotations

from llmsim_lab.economy.data import (
    FIRST_START,
    LAST_QUARTER,
    history,
    initial_state,
    load_us_macro,
    next_quarter,
)
from llmsim_lab.economy.limits import RateLimits
from llmsim_lab.economy.loss import LossParts, QuadraticLoss
from llmsim_lab.economy.macro import (
    STEADY_STATE,
    MacroModel,
    RudebuschSvensson,
    StaticEconomy,
    set_levels,
)
from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.economy.shocks import NO_SHOCKS, ShockGenerator, Shocks

__all__ = [
    "FIRST_START",
    "LAST_QUARTER",
    "NO_SHOCKS",
    "STEADY_STATE",
    "LossParts",
    "MacroModel",
    "QuadraticLoss",
    "RateLimits",
    "RudebuschSvensson",
    "ShockGenerator",
    "Shocks",
    "StaticEconomy",
    "TaylorRule",
    "history",
    "initial_state",
    "load_us_macro",
    "next_quarter",
    "set_levels",
]
