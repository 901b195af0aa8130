"""Committees: their votes become one interest rate, whatever the order of the members.

Rates are percent per year. Sources for the rules: Blinder (2004), *The Quiet Revolution: Central
Banking Goes Modern*, Yale University Press; Riboni and Ruge-Murcia (2010), "Monetary Policy by
Committee: Consensus, Chairman Dominance, or Simple Majority?", Quarterly Journal of Economics
125(1). Differs from the latter, where the status quo stays unless a proposal beats it: here the
votes are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median_high, median_low
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from llmsim_lab._util.config import Settings


class Committee(Settings):
    """How the votes of several agents become the one interest rate.

    Attributes:
        rule: which vote counts: ``median``, the one in the middle; of an even number, the point
            between those two that is closest to the rate in force. ``majority``, the rate that more
            than half of the votes name; without one the rate stays. ``chair``, the chair's vote, as
            far as it is within the tolerance of the median. ``sequential`` is no committee: actions
            are applied one after the other, each to the rate that the last one left, as in the
            engine contract, so that the order of the agents matters.
        chair: whose vote that is; where the chair has no vote that counts, the median decides.
        tolerance_bp: how far from the median the others follow the chair, basis points.
    """

    rule: Literal["median", "majority", "chair", "sequential"] = "median"
    chair: str | None = None
    tolerance_bp: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 25.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        has_defaults = self.chair is None and self.tolerance_bp == 25
        # A setting without effect is an error, since it would seem to have one.
        if self.rule != "chair" and not has_defaults:
            raise ValueError(f"chair and tolerance_bp have no effect with the rule {self.rule}")
        if self.rule == "chair" and not self.chair:
            raise ValueError(
                "rule 'chair' needs the chair's name: {rule: chair, chair: Ann, tolerance_bp: 25}"
            )
        return self

    def rate(
        self,
        votes: Mapping[str, float],
        *,
        current: float,
    ) -> float:
        """Return the rate that the votes lead to.

        Args:
            votes: the rate that each member wants, by name.
            current: the current rate, which stays without votes.
        """
        if not votes:
            return current
        rates = votes.values()
        if self.rule == "majority":
            # Rounded, since 0.1 + 0.2 is not 0.3.
            rounded = Counter(round(rate, 6) for rate in rates)
            [(most_named, count)] = rounded.most_common(1)
            if 2 * count <= len(votes):
                return current
            # The rate as voted, not rounded; the smallest, so that the order does not matter.
            return min(rate for rate in rates if round(rate, 6) == most_named)
        lower = median_low(rates)
        upper = median_high(rates)
        # The point between the two middle votes that is closest to the current rate.
        median = min(max(current, lower), upper)
        if self.chair is None or self.chair not in votes:
            return median
        # The others follow the chair up to this distance from the median.
        reach = self.tolerance_bp / 100
        lowest = median - reach
        highest = median + reach
        return min(max(votes[self.chair], lowest), highest)

    def __str__(self) -> str:
        if self.rule == "chair":
            return f"chair {self.chair} within {self.tolerance_bp:g} bp of the median"
        return self.rule
