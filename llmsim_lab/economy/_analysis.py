"""What a policy rule makes of an economy, and how close a rule comes to what was done.

Near its steady state an economy under a rule is linear, bounds apart, so that stability and
responses follow from one matrix, without a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum, inf, sqrt
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab._util.checks import whole_number
from llmsim_lab.economy._data import load_us_macro
from llmsim_lab.economy._macro import (
    NO_SHOCKS,
    STEADY_STATE,
    MacroModel,
    RudebuschSvensson,
    Rule,
    Shocks,
    TaylorRule,
    function_of,
    rate_by,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState, MacroLags

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_WIDTH = 10  # four lags of inflation, two of the gap, four of the rate


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
            gap, four of the rate, and the same of earlier quarters where the rule looks back.
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

        whole_number("quarters", quarters, least=1)
        state = supply * self.supply + demand * self.demand
        rows = [[0.0, 0.0, 0.0]]
        for _ in range(quarters):
            rows.append([float(state[:4].mean()), float(state[4]), float(state[6])])
            state = self.matrix @ state
        index = pd.RangeIndex(len(rows), name="quarter")
        return pd.DataFrame(rows, columns=["inflation", "output_gap", "interest_rate"], index=index)


def closed_loop(
    rule: TaylorRule | Rule | None = None,
    *,
    model: MacroModel | None = None,
    delay: int = 0,
    around: GlobalState = STEADY_STATE,
) -> ClosedLoop:
    """Return the linear system that an economy and a rule make together, without any bounds.

    The timing is that of a run: what the rule says of quarter t is in force in quarter t+1.

    Args:
        rule: a Taylor rule (its lower bound is left out), or any function with its arguments;
            Taylor (1993) if not given.
        model: the economy; Rudebusch and Svensson's if not given.
        delay: how many quarters later than that the rule sees inflation and gap.
        around: the steady state.

    Raises:
        ConfigError: the state is not a steady state of the model.
    """
    import numpy as np

    whole_number("delay", delay, least=0, most=8)
    model = model or RudebuschSvensson()
    rate = _without_bound(rule or TaylorRule())
    rest = _vector(around)
    stays = model.advance(around, interest_rate=around.interest_rate)
    if not np.allclose(_vector(stays), rest, atol=1e-6):
        raise ConfigError(
            f"without shocks, {around!r} leads to {stays!r}: no response can be told from that "
            "movement; give the model's steady state as around=..."
        )
    base = rate_by(rate, around)

    def after(vector: Any, seen: Any, shocks: Shocks = NO_SHOCKS) -> Any:
        # A rule whose own neutral rate is another one is shifted to this steady state.
        decided = (
            around.interest_rate
            - base
            + rate(
                inflation=float(seen[:4].mean()),
                output_gap=float(seen[4]),
                previous_rate=float(vector[6]),
            )
        )
        state = model.advance(_state(vector, around), interest_rate=decided, shocks=shocks)
        return _vector(state) - rest

    size = _WIDTH * (delay + 1)
    matrix = np.zeros((size, size))
    for column in range(size):
        # Central differences: exact in a linear model, but for rounding.
        move = np.zeros(size)
        move[column] = 0.5
        now, seen = move[:_WIDTH], move[-_WIDTH:]
        matrix[:_WIDTH, column] = after(rest + now, rest + seen) - after(rest - now, rest - seen)
    # Below, earlier quarters move back by one: what the rule sees is the last of them.
    for back in range(_WIDTH, size):
        matrix[back, back - _WIDTH] = 1.0
    hits = []
    for shocks in (Shocks(supply=1.0), Shocks(demand=1.0)):
        hit = np.zeros(size)
        hit[:_WIDTH] = after(rest, rest, shocks)
        hits.append(hit)
    return ClosedLoop(matrix, *hits)


def _vector(state: GlobalState) -> Any:
    import numpy as np

    lags = state.lags
    return np.array([*lags.inflation, *lags.output_gap, *lags.interest_rate])


def _state(vector: Any, around: GlobalState) -> GlobalState:
    p0, p1, p2, p3, gap, before, i0, i1, i2, i3 = map(float, vector)
    return GlobalState(
        interest_rate=i0,
        inflation=fsum((p0, p1, p2, p3)) / 4,
        output_gap=gap,
        unemployment=around.unemployment,
        lags=MacroLags((p0, p1, p2, p3), (gap, before), (i0, i1, i2, i3)),
    )


def backtest(
    rule: TaylorRule | Rule | None = None,
    *,
    first: str = "1987Q4",
    last: str = "1999Q4",
    gap: Literal["output_gap", "output_gap_one_sided"] = "output_gap_one_sided",
    data: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return what a rule would have set in each quarter of the past, beside what was set.

    The rule sees the data of the quarter itself. Columns: ``interest_rate``, the bill rate that
    was; ``rule``; ``no_change``, the quarter before's. The frame's ``attrs`` hold the root mean
    squared errors of both, ``rmse_rule`` and ``rmse_no_change``, percentage points.

    Args:
        rule: Taylor (1993) if not given.
        first: the first quarter, from 1960Q1 on; 1963Q4 with the one-sided gap.
        last: the last quarter.
        gap: the gap that the rule sees: the ex-post one, which nobody could know at the time, or
            the one-sided one.
        data: a frame of ``load_macro``; the US data if not given.

    Raises:
        ConfigError: a quarter lacks the data that the rule needs.
    """
    import pandas as pd

    rate = function_of(rule or TaylorRule())
    data = load_us_macro() if data is None else data.copy()
    data["no_change"] = data["interest_rate"].shift()
    data = data.loc[first:last]
    needed = data[["inflation", gap, "interest_rate", "no_change"]]
    if needed.empty or needed.isna().to_numpy().any():
        raise ConfigError(
            f"first={first}, last={last}: not every quarter has inflation, {gap} and a rate; "
            "the US data have them from 1960Q1 to 2009Q3, with the one-sided gap from 1963Q4 on"
        )
    said = [
        rate(inflation=inflation, output_gap=gap_then, previous_rate=before)
        for inflation, gap_then, _, before in needed.itertuples(index=False)
    ]
    frame = pd.DataFrame(
        {"interest_rate": data["interest_rate"], "rule": said, "no_change": data["no_change"]}
    )
    for name in ("rule", "no_change"):
        missed = frame[name] - frame["interest_rate"]
        frame.attrs[f"rmse_{name}"] = sqrt(float((missed**2).mean()))
    return frame
