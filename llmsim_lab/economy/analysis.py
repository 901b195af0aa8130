"""What a policy rule makes of an economy: stability and responses to shocks.

Near its steady state an economy under a rule is linear, bounds apart, so that stability and
responses follow from one matrix, without a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from llmsim_lab._util.tables import frame_of
from llmsim_lab.economy.macro import (
    STATE,
    STEADY_STATE,
    RudebuschSvensson,
    Rule,
    TaylorRule,
    rate_by,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


# Where each begins in the system's state: four lags of inflation, two of the gap, four of the rate.
_INFLATION = 0
_GAP = 4
_RATE = 6
_SIZE = 10


def weights_of(rule: Rule) -> list[float]:
    """Return what a rule adds to the rate for a point of inflation, gap and previous rate.

    Of a Taylor rule without its lower bound. Central differences: exact in a linear rule, but for
    rounding.
    """
    if isinstance(rule, TaylorRule):
        rule = replace(rule, lower_bound=-inf)
    # Half a point to each side, so that the difference is the slope itself.
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
        matrix: what one quarter does to the state: four lags of quarterly inflation, two of the
            gap, four of the rate.
    """

    matrix: NDArray[np.float64]

    @property
    def spectral_radius(self) -> float:
        """The largest root's modulus: below 1 every shock dies out, above 1 it grows."""
        return float(largest_roots(self.matrix))

    def response(
        self,
        *,
        supply: float = 0.0,
        demand: float = 0.0,
        quarters: int = 16,
    ) -> pd.DataFrame:
        """Return what a shock in quarter 1 does: a row a quarter, 0 to ``quarters``.

        Columns, as deviations: ``inflation`` (over four quarters, percentage points),
        ``output_gap`` (percent) and ``interest_rate`` (percentage points).
        """
        import numpy as np

        state = np.zeros(len(self.matrix))
        state[_INFLATION] = supply
        state[_GAP] = demand
        # In quarter 0 all is at rest; the shock is in the state of quarter 1.
        rows = [[0.0, 0.0, 0.0]]
        for _ in range(quarters):
            # As states have it; each lag is of inflation in one quarter.
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
    """Return the largest root's modulus of each matrix."""
    import numpy as np

    roots = np.linalg.eigvals(matrices)
    largest: NDArray[np.float64] = np.abs(roots).max(-1)
    return largest


def closed_loop(rule: Rule | None = None) -> ClosedLoop:
    """Return the linear system that the economy and a rule make together, without any bounds.

    The timing is that of a run: what the rule says of quarter t is in force in quarter t+1. A rule
    whose own neutral rate is another one is shifted to the model's steady state.

    Args:
        rule: a Taylor rule (its lower bound is left out), or any function with its arguments;
            Taylor (1993) if not given.
    """
    weights = weights_of(rule or TaylorRule())
    [matrix] = matrices_of([weights])
    return ClosedLoop(matrix)


def matrices_of(weights: ArrayLike) -> NDArray[np.float64]:
    """Return what one quarter does to the economy under each of several rules.

    Args:
        weights: a row a rule: what it adds to the rate for a point of inflation, of the gap and of
            the previous rate.
    """
    import numpy as np

    model = RudebuschSvensson()
    of_inflation, of_gap, inertia = np.asarray(weights, dtype=float).T
    # Of four-quarter means.
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
