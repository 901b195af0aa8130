"""Rules that tell a central bank which short rate to set.

Source: Taylor (1993), "Discretion versus policy rules in practice", Carnegie-Rochester Conference
Series on Public Policy 39, pp. 195-214, where the federal funds rate is
``p + 0.5 y + 0.5 (p - 2) + 2`` with ``p`` inflation over four quarters and ``y`` the output gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan

from llmsim_lab.errors import ConfigError

__all__ = ["TaylorRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorRule:
    """The 1993 rule; ``output_gap_weight=1.0`` gives the variant that Taylor (1999) discusses.

    Differs from the source: the response to inflation is one number, ``inflation_weight``, the
    total of the 1993 rule's one for one plus one half; and there are a lower bound and inertia. A
    weight below 1 is allowed, to show what it does: the real rate then falls when inflation rises,
    and inflation runs away.

    Attributes:
        neutral_real_rate: real rate at which output stays at potential, percent per year.
        inflation_target: four-quarter inflation aimed at, percent.
        inflation_weight: percentage points of the rate per point of inflation, in total.
        output_gap_weight: percentage points of the rate per percent of output gap.
        lower_bound: the rate never goes below it, percent per year; ``-math.inf`` switches it off.
        inertia: weight on the previous rate, from 0 to below 1.
    """

    neutral_real_rate: float = 2.0
    inflation_target: float = 2.0
    inflation_weight: float = 1.5
    output_gap_weight: float = 0.5
    lower_bound: float = 0.0
    inertia: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "neutral_real_rate",
            "inflation_target",
            "inflation_weight",
            "output_gap_weight",
        ):
            if not isfinite(value := getattr(self, name)):
                raise ConfigError(f"{name}={value} must be a finite number")
        if isnan(self.lower_bound) or self.lower_bound == float("inf"):
            raise ConfigError(
                f"lower_bound={self.lower_bound} must be a number, or -inf for no bound"
            )
        if not 0 <= self.inertia < 1:
            raise ConfigError(f"inertia={self.inertia} must be from 0 to below 1")

    def rate(self, *, inflation: float, output_gap: float, previous_rate: float) -> float:
        """Return the rate the rule asks for, percent per year.

        Args:
            inflation: over four quarters, percent.
            output_gap: percent of potential output.
            previous_rate: the rate now in force, percent per year; matters only with inertia.
        """
        target = (
            self.neutral_real_rate
            + self.inflation_target
            + self.inflation_weight * (inflation - self.inflation_target)
            + self.output_gap_weight * output_gap
        )
        rate = self.inertia * previous_rate + (1 - self.inertia) * target
        if not isfinite(rate):
            raise ConfigError(
                f"no rate follows from {inflation=}, {output_gap=}, {previous_rate=}: "
                "all three must be finite numbers"
            )
        return max(self.lower_bound, rate)
