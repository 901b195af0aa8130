"""The economy under a policy rule: stability and responses to shocks.

Without bounds, an economy under a linear rule is linear, so that stability and responses follow
from one matrix, without a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.tables import frame_of
from llmsim_lab.economy.macro import (
    STATE,
    STEADY_STATE,
    RudebuschSvensson,
    Rule,
    TaylorRule,
    checked_rule,
    rate_by,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


# The first place of each in the state: four lags of inflation, two of the gap, four of the rate.
_INFLATION = 0
_GAP = 4
_RATE = 6
_SIZE = 10


def weights_of(rule: Rule) -> list[float]:
    """Return how much a rule changes the rate for a point of inflation, gap and previous rate.

    A Taylor rule's lower bound is left out. Central differences, which are exact for a linear rule
    up to rounding.
    """
    if isinstance(rule, TaylorRule):
        rule = replace(rule, lower_bound=-inf)
    # Half a point to each side, so that the difference is the slope.
    weights = []
    for name in STATE:
        here = getattr(STEADY_STATE, name)
        above = STEADY_STATE.model_copy(update={name: here + 0.5})
        below = STEADY_STATE.model_copy(update={name: here - 0.5})
        weights.append(rate_by(rule, above) - rate_by(rule, below))
    return weights


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """An economy under a rule as a linear system, in deviations from its steady state.

    Attributes:
        matrix: maps the state to that of the next quarter: four lags of quarterly inflation, two of
            the gap, four of the rate.
    """

    matrix: NDArray[np.float64]

    @property
    def spectral_radius(self) -> float:
        """The modulus of the largest root: below 1 every shock dies out, above 1 it grows."""
        return float(largest_roots(self.matrix))

    def response(
        self,
        *,
        supply: float = 0.0,
        demand: float = 0.0,
        quarters: int = 16,
    ) -> pd.DataFrame:
        """Return the response to a shock in quarter 1: one row for each quarter, 0 to ``quarters``.

        Columns, as deviations: ``inflation`` (over four quarters, percentage points),
        ``output_gap`` (percent) and ``interest_rate`` (percentage points).
        """
        import numpy as np

        whole_number("quarters", quarters, least=0, most=10_000)
        state = np.zeros(len(self.matrix))
        state[_INFLATION] = real_number("supply", supply)
        state[_GAP] = real_number("demand", demand)
        # Quarter 0 is the steady state; the shock is in the state of quarter 1.
        rows = [[0.0, 0.0, 0.0]]
        for _ in range(quarters):
            # Over four quarters, as states have it; a lag is the inflation of one quarter.
            of_four_quarters = state[_INFLATION:_GAP].sum() / 4
            rows.append(
                [
                    float(of_four_quarters),
                    float(state[_GAP]),
                    float(state[_RATE]),
                ]
            )
            state = self.matrix @ state
        return frame_of(rows, list(STATE)).rename_axis("quarter")


def largest_roots(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the modulus of each matrix's largest root."""
    import numpy as np

    roots = np.linalg.eigvals(matrices)
    largest: NDArray[np.float64] = np.abs(roots).max(-1)
    return largest


def closed_loop(rule: Rule | None = None) -> ClosedLoop:
    """Return the linear system of the economy and a rule together, without any bounds.

    The timing is that of a run: the rule's rate for quarter t is in force in quarter t+1. A rule
    with another neutral rate is shifted to the model's steady state.

    Args:
        rule: a Taylor rule (its lower bound is left out), or any function with its arguments;
            Taylor (1993) if not given.
    """
    weights = weights_of(checked_rule(rule))
    [matrix] = matrices_of([weights])
    return ClosedLoop(matrix)


def matrices_of(weights: ArrayLike) -> NDArray[np.float64]:
    """Return the matrix of one quarter under each of several rules.

    Args:
        weights: one row for each rule: how much it changes the rate for a point of inflation, of
            the gap and of the previous rate.
    """
    import numpy as np

    model = RudebuschSvensson()
    of_inflation, of_gap, inertia = np.asarray(weights, dtype=float).T
    # The real rate is a four-quarter mean.
    pull = model.real_rate_to_gap / 4
    # Each lag becomes the next one; the rows of inflation, gap and rate are the equations.
    lags = np.eye(_SIZE, k=-1)
    matrices = np.tile(lags, (len(inertia), 1, 1))
    matrices[:, _INFLATION] = 0
    matrices[:, _INFLATION, _INFLATION:_GAP] = model.inflation_lags
    matrices[:, _INFLATION, _GAP] = model.gap_to_inflation
    # The real rate is the rate minus inflation, and lowers the gap.
    matrices[:, _GAP, _INFLATION:_GAP] = pull
    matrices[:, _GAP, _GAP:_RATE] = model.gap_lags
    matrices[:, _GAP, _RATE:] = -pull
    matrices[:, _RATE] = 0
    matrices[:, _RATE, _INFLATION:_GAP] = of_inflation[:, None] / 4
    matrices[:, _RATE, _GAP] = of_gap
    matrices[:, _RATE, _RATE] = inertia
    return matrices
