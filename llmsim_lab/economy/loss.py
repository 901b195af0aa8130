"""How well a policy did: the quadratic loss that central banks' studies use.

Source: Rudebusch & Svensson (1999), "Policy rules for inflation targeting", in Taylor (ed.),
*Monetary Policy Rules*, University of Chicago Press, whose period loss is
``p² + λ y² + μ (i - i₋₁)²`` with ``p`` four-quarter inflation as a deviation from its target, ``y``
the output gap and ``i`` the policy rate; their benchmark has λ = 1 and
μ = 0.5 (the letter nu in theirs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from llmsim_lab.checks import real_number
from llmsim_lab.errors import ConfigError

__all__ = ["LossParts", "QuadraticLoss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """A loss and what it is made of; percentage points squared, the weights not applied.

    Attributes:
        inflation: mean squared distance of inflation from its target.
        output_gap: mean squared output gap.
        rate_change: mean squared change of the policy rate from quarter to quarter.
        total: the weighted sum; 0 is best.
    """

    inflation: float
    output_gap: float
    rate_change: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticLoss:
    """The mean of Rudebusch and Svensson's period loss over a run.

    Differs from the source: a mean over the quarters of one run, where they take the expectation;
    and levels with a target, where they take deviations from means.

    Attributes:
        inflation_target: percent.
        gap_weight: λ, the weight of the squared output gap against that of inflation.
        rate_change_weight: μ, the weight of the squared change of the rate.
    """

    inflation_target: float = 2.0
    gap_weight: float = 1.0
    rate_change_weight: float = 0.5

    def __post_init__(self) -> None:
        real_number("inflation_target", self.inflation_target)
        for name in ("gap_weight", "rate_change_weight"):
            real_number(name, getattr(self, name), least=0)

    def of(
        self,
        *,
        inflation: Sequence[float],
        output_gap: Sequence[float],
        interest_rate: Sequence[float],
    ) -> LossParts:
        """Return the loss of a run; the first quarter, where it starts from, does not count.

        Args:
            inflation: over four quarters, percent, one value a quarter.
            output_gap: percent of potential.
            interest_rate: percent per year.

        Raises:
            ConfigError: fewer than two quarters, or series of different lengths.
        """
        prices, gaps, rates = list(inflation), list(output_gap), list(interest_rate)
        if not len(prices) == len(gaps) == len(rates):
            raise ConfigError(
                f"the series must be of one length, not {len(prices)}, {len(gaps)} and {len(rates)}"
            )
        if len(rates) < 2:
            raise ConfigError(
                f"a loss needs the quarter a run starts from and at least one more, not "
                f"{len(rates)}; play a turn first"
            )
        of_inflation = fmean((value - self.inflation_target) ** 2 for value in prices[1:])
        of_gap = fmean(value**2 for value in gaps[1:])
        of_change = fmean((now - before) ** 2 for before, now in pairwise(rates))
        total = of_inflation + self.gap_weight * of_gap + self.rate_change_weight * of_change
        return LossParts(
            inflation=of_inflation, output_gap=of_gap, rate_change=of_change, total=total
        )
