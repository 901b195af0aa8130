"""What a policy rule makes of an economy: stability and responses to shocks.

Near its steady state an economy under a rule is linear, bounds apart, so that stability and
responses follow from one matrix, without a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum, inf
from typing import TYPE_CHECKING, Any

from llmsim_lab.economy._macro import (
    NO_SHOCKS,
    STEADY_STATE,
    RudebuschSvensson,
    Rule,
    Shocks,
    TaylorRule,
    rate_by,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState, MacroLags

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def long_run_response(rule: TaylorRule | Rule) -> float:
    """Return how far a rule raises the rate in the end, in points, per point of inflation.

    The immediate response over one minus the response to the previous rate. Above 1 the real rate
    rises with inflation: the Taylor principle. Source: Woodford (2001), "The Taylor rule and
    optimal monetary policy", American Economic Review 91(2).

    Raises:
        ConfigError: the rule returns its previous rate or more, so that there is no long run.
    """
    rate = _without_bound(rule)
    here = {"inflation": 2.0, "output_gap": 0.0, "previous_rate": 4.0}  # the steady state
    up, down = ([rate(**here | {n: here[n] + d}) for n in here] for d in (0.5, -0.5))
    of_inflation, _, inertia = (above - below for above, below in zip(up, down, strict=True))
    if inertia >= 1:
        raise ConfigError(f"the rule adds {inertia:g} times its previous rate; it has no long run")
    return of_inflation / (1 - inertia)


def _without_bound(rule: TaylorRule | Rule) -> Rule:
    """Return the rule as a function, a Taylor rule without its lower bound."""
    return replace(rule, lower_bound=-inf).rate if isinstance(rule, TaylorRule) else rule


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """An economy under a rule as a linear system, in deviations from its steady state.

    Attributes:
        matrix: what one quarter does to the state: four lags of quarterly inflation, two of the
            gap, four of the rate.
        supply: what a supply shock of one point adds to the state.
        demand: what a demand shock of one percent adds.
    """

    matrix: np.ndarray[Any, np.dtype[np.float64]]
    supply: np.ndarray[Any, np.dtype[np.float64]]
    demand: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def spectral_radius(self) -> float:
        """The largest root's modulus: below 1 every shock dies out, above 1 it grows."""
        import numpy as np

        return float(np.abs(np.linalg.eigvals(self.matrix)).max())

    def response(
        self, *, supply: float = 0.0, demand: float = 0.0, quarters: int = 16
    ) -> pd.DataFrame:
        """Return what a shock in quarter 1 does: a row a quarter, 0 to ``quarters``.

        Columns, as deviations: ``inflation`` (over four quarters, percentage points),
        ``output_gap`` (percent) and ``interest_rate`` (percentage points).
        """
        import pandas as pd

        state = supply * self.supply + demand * self.demand
        rows = [[0.0, 0.0, 0.0]]
        for _ in range(quarters):
            rows.append([float(state[:4].mean()), float(state[4]), float(state[6])])
            state = self.matrix @ state
        index = pd.RangeIndex(len(rows), name="quarter")
        return pd.DataFrame(rows, columns=["inflation", "output_gap", "interest_rate"], index=index)


def closed_loop(rule: TaylorRule | Rule | None = None) -> ClosedLoop:
    """Return the linear system that the economy and a rule make together, without any bounds.

    The timing is that of a run: what the rule says of quarter t is in force in quarter t+1.

    Args:
        rule: a Taylor rule (its lower bound is left out), or any function with its arguments;
            Taylor (1993) if not given.
    """
    import numpy as np

    model = RudebuschSvensson()
    rate = _without_bound(rule or TaylorRule())
    rest = _vector(STEADY_STATE)
    base = rate_by(rate, STEADY_STATE)

    def after(moved: Any, shocks: Shocks = NO_SHOCKS) -> Any:
        here = _state(rest + moved)
        # A rule whose own neutral rate is another one is shifted to this steady state.
        decided = STEADY_STATE.interest_rate + rate_by(rate, here) - base
        return _vector(model.advance(here, interest_rate=decided, shocks=shocks)) - rest

    # Central differences: exact in a linear model, but for rounding.
    moves = 0.5 * np.eye(len(rest))
    matrix = np.column_stack([after(move) - after(-move) for move in moves])
    supply, demand = (after(0 * rest, it) for it in (Shocks(supply=1.0), Shocks(demand=1.0)))
    return ClosedLoop(matrix, supply, demand)


def _vector(state: GlobalState) -> Any:
    import numpy as np

    lags = state.lags
    return np.array([*lags.inflation, *lags.output_gap, *lags.interest_rate])


def _state(vector: Any) -> GlobalState:
    p0, p1, p2, p3, gap, before, i0, i1, i2, i3 = map(float, vector)
    return GlobalState(
        interest_rate=i0,
        inflation=fsum((p0, p1, p2, p3)) / 4,
        output_gap=gap,
        lags=MacroLags((p0, p1, p2, p3), (gap, before), (i0, i1, i2, i3)),
    )
