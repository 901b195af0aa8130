"""How a committee's votes become one interest rate, whatever the order of its members.

Rates are percent per year. Sources for the rules: Blinder (2004), *The Quiet Revolution: Central
Banking Goes Modern*, Yale University Press; Riboni and Ruge-Murcia (2010), "Monetary Policy by
Committee: Consensus, Chairman Dominance, or Simple Majority?", Quarterly Journal of Economics
125(1). Differs from the latter, where the status quo stays unless a proposal beats it: here the
votes are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CommitteeRule = Literal["median", "majority", "chair"]

_SAME = 1e-9
"""Percentage points; rates that differ by less are one rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committee:
    """A rule that puts votes for a rate together.

    Attributes:
        rule: ``median``, the vote in the middle; of an even number, the point between the two in
            the middle that is closest to the rate in force. ``majority``, the rate that more than
            half of the votes name; without one the rate stays. ``chair``, the chair's vote, which
            prevails as far as it is within the tolerance of the median.
        chair: whose vote that is; where the chair has no vote that counts, the median decides.
        tolerance_bp: how far from the median the others follow the chair, basis points.
    """

    rule: CommitteeRule = "median"
    chair: str = ""
    tolerance_bp: float = 25.0

    def rate(self, votes: Mapping[str, float], *, current: float) -> float:
        """Return the rate that the votes lead to.

        Args:
            votes: the rate that each member wants, by name.
            current: the rate in force, which stays if nobody votes.
        """
        if not votes:
            return current
        if self.rule == "majority":
            counts = Counter(round(rate, 6) for rate in votes.values())
            most, named = counts.most_common(1)[0]
            if 2 * named <= len(votes):
                return current
            return min(rate for rate in votes.values() if round(rate, 6) == most)
        median = _median(votes, current)
        if self.rule == "median" or self.chair not in votes:
            return median
        reach = self.tolerance_bp / 100
        return min(max(votes[self.chair], median - reach), median + reach)

    def dissents(self, vote: float, outcome: float) -> bool:
        """Return True if a member wanted another rate than the one that was set."""
        return abs(vote - outcome) > _SAME

    def __str__(self) -> str:
        if self.rule == "chair":
            return f"chair {self.chair} within {self.tolerance_bp:g} bp of the median"
        return self.rule


def _median(votes: Mapping[str, float], current: float) -> float:
    rates = sorted(votes.values())
    low, high = rates[(len(rates) - 1) // 2], rates[len(rates) // 2]
    return min(max(current, low), high)
