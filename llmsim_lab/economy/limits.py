"""How far one action may move the policy rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmsim_lab.errors import ConfigError

__all__ = ["RateLimits"]

_TOLERANCE = 1e-6
"""Rates are told apart to a millionth of a percentage point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Bounds of the policy rate and of one action's step; all in percent (points) per year.

    Attributes:
        lower: effective lower bound.
        upper: highest rate accepted.
        max_move: largest change by one action, percentage points.
        step: the grid of rates offered to a model, percentage points; central banks move in quarter
            points.
    """

    lower: float = 0.0
    upper: float = 25.0
    max_move: float = 2.0
    step: float = 0.25

    def __post_init__(self) -> None:
        numbers = (self.lower, self.upper, self.max_move, self.step)
        if not all(map(math.isfinite, numbers)):
            raise ConfigError(f"rate limits must be finite numbers, not {numbers}")
        if self.lower >= self.upper:
            raise ConfigError(f"rate bounds [{self.lower}, {self.upper}] hold no range; swap them?")
        if self.max_move <= 0 or self.step <= 0:
            raise ConfigError(
                f"max_move={self.max_move} and step={self.step} must be above 0; to keep the rate "
                "still, set both bounds close to it"
            )
        if self.max_move / self.step > 1000:
            raise ConfigError(
                f"step={self.step} cuts max_move={self.max_move} into more than 1000 rates; "
                "a model cannot choose among so many: raise step"
            )

    def choices(self, current: float) -> list[float]:
        """Return the rates a model may choose from, lowest first; the current one is among them.

        Args:
            current: the rate before the action, percent per year. Where something else has put it
                outside the bounds, the closest bound stands in for it.
        """
        here = self._inside(current)
        low = max(self.lower, here - self.max_move)
        high = min(self.upper, here + self.max_move)
        first = math.ceil(low / self.step - _TOLERANCE)
        last = math.floor(high / self.step + _TOLERANCE)
        rates = {round(number * self.step, 6) for number in range(first, last + 1)}
        return sorted(rates | {round(here, 6)})

    def problem(self, rate: float, *, current: float) -> str | None:
        """Say what is wrong with a new rate, or None.

        A rate between the grid's points is accepted: the grid is what a model is offered.
        """
        if not math.isfinite(rate):
            return f"the new interest rate {rate} is not a finite number"
        if not self.lower - _TOLERANCE <= rate <= self.upper + _TOLERANCE:
            return (
                f"the new interest rate {rate:g}% is outside the bounds "
                f"{self.lower:g}% to {self.upper:g}%"
            )
        here = self._inside(current)
        move = abs(rate - here)
        if move > self.max_move + _TOLERANCE:
            where = "the current" if here == current else "the bound at"
            return (
                f"the new interest rate {rate:g}% is {move:g} percentage points from {where} "
                f"{here:g}%; one action may move it by {self.max_move:g} at most"
            )
        return None

    def _inside(self, rate: float) -> float:
        return min(max(rate, self.lower), self.upper)

    def nearest(self, rate: float, *, current: float) -> float:
        """Return the offered rate closest to a wished one; the lower of two equally close."""
        return min(self.choices(current), key=lambda choice: (abs(choice - rate), choice))
