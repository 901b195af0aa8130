"""Shocks to the economy, drawn so that runs with different policies can have the same ones.

A draw depends on seed and turn only, not on how often or in which order draws are made. So runs
with one seed share their shocks whatever the policy (common random numbers), and a fork or a
resumed run needs no generator state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab.errors import ConfigError

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Shocks:
    """What one quarter adds to the model's equations.

    Attributes:
        supply: added to quarterly inflation at an annual rate, percentage points.
        demand: added to the output gap, percent of potential.
    """

    supply: float = 0.0
    demand: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.supply) and isfinite(self.demand)):
            raise ConfigError(f"{self} must hold finite numbers")

    def __add__(self, other: Shocks) -> Shocks:
        if not isinstance(other, Shocks):
            return NotImplemented
        return Shocks(self.supply + other.supply, self.demand + other.demand)


NO_SHOCKS = Shocks()
"""A quarter without surprises."""


@dataclass(frozen=True, slots=True)
class ShockGenerator:
    """Independent normal shocks, one pair a turn.

    Made with the counter-based Philox generator (Salmon et al., 2011, "Parallel random numbers: as
    easy as 1, 2, 3"): the seed is its key, the turn its counter. numpy keeps Philox's raw numbers
    the same in every release; the step to normal ones is the standard library's inverse
    distribution function. Differs from Rudebusch and Svensson (1999): they allow the two shocks to
    be correlated; here, as in the Macroeconomic Model Data Base, they are not.

    Attributes:
        seed: a whole number from 0.
        scale: factor on both standard deviations; 0 gives exactly no shocks.
        mirrored: whether every shock has the opposite sign.
        supply_std: standard deviation of the supply shock, percentage points; the default is the
            standard error of Rudebusch and Svensson's inflation equation.
        demand_std: the same for their output gap equation, percent of potential.
    """

    seed: int
    scale: float = 1.0
    supply_std: float = 1.009
    demand_std: float = 0.819
    mirrored: bool = False

    def __post_init__(self) -> None:
        whole_number("seed", self.seed)
        if not 0 <= self.seed < 2**128:  # Philox's key has 128 bits
            raise ConfigError(f"seed={self.seed} must be from 0 to below 2**128")
        for name in ("scale", "supply_std", "demand_std"):
            real_number(name, getattr(self, name), least=0)

    def at(self, turn: int) -> Shocks:
        """Return the shocks of the quarter that ``turn`` leads to.

        Args:
            turn: the number of the state they help to make, from 0.
        """
        whole_number("turn", turn, least=0)
        if self.scale == 0:
            return NO_SHOCKS
        from numpy.random import Philox  # here, since numpy takes time to import

        supply, demand = Philox(key=self.seed, counter=turn).random_raw(2).tolist()
        scale = -self.scale if self.mirrored else self.scale
        return Shocks(
            scale * self.supply_std * _standard_normal(supply),
            scale * self.demand_std * _standard_normal(demand),
        )


def _standard_normal(raw: int) -> float:
    """Turn 64 random bits, of which the uppermost 52 are used, into a standard normal number."""
    # Half a unit keeps the probability off 0 and 1, where the inverse is infinite.
    return _NORMAL.inv_cdf(((raw >> 12) + 0.5) * 2.0**-52)
