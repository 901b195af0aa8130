"""Models that move the economy by one quarter, given the policy rate.

Timing, everywhere: a state is one quarter, ``interest_rate`` the rate in force in it. What is
decided on looking at quarter t becomes the rate of quarter t+1, so a decision first touches the
output gap in quarter t+2 and inflation in t+3. (Rudebusch and Svensson let the bank answer quarter
t within it; here the data have to be out first, so everything comes one quarter later.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, fsum, inf, isfinite
from typing import Protocol

from llmsim_lab.economy.shocks import NO_SHOCKS, Shocks
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.models import GlobalState, MacroLags

__all__ = ["STEADY_STATE", "MacroModel", "RudebuschSvensson", "StaticEconomy", "set_levels"]

STEADY_STATE = GlobalState()
"""Where the default model stays if nothing happens: rate 4, inflation 2, gap 0, growth 2.2."""

_TOLERANCE = 1e-6
_MAX_GROWTH = 40_000.0
"""Percent per year; only an economy that has exploded gets near. Far beyond, ``exp`` overflows."""


class MacroModel(Protocol):
    """What moves the economy; any object with this method will do."""

    def advance(
        self, state: GlobalState, *, interest_rate: float, shocks: Shocks = NO_SHOCKS
    ) -> GlobalState:
        """Return the next quarter.

        Args:
            state: this quarter.
            interest_rate: the policy rate of the next quarter, percent per year.
            shocks: what surprises the next quarter.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RudebuschSvensson:
    """The small estimated model of the US economy of Rudebusch and Svensson (1999).

    Quarterly inflation π (annual rate), output gap y and policy rate i follow::

        π[t+1] = 0.70 π[t] - 0.10 π[t-1] + 0.28 π[t-2] + 0.12 π[t-3] + 0.14 y[t] + supply
        y[t+1] = 1.16 y[t] - 0.25 y[t-1] - 0.10 (ī[t] - π̄[t] - r*) + demand

    with ī and π̄ the means over quarters t to t-3. Source: "Policy rules for inflation targeting",
    in Taylor (ed.), Monetary Policy Rules, University of Chicago Press and NBER (NBER working paper
    6512). Checked against:

    - the Macroeconomic Model Data Base (Wieland et al.), model US_RS99, replication file
      ``US_RS99_rep.mod``: all eight coefficients, both standard errors (1.009 and 0.819), timing;
    - the rule which that file quotes from the paper's Table 5.4, ``2.34 π̄ + 1.03 y + 0.30 i[t-1]``:
      up to rounding it is what minimises var π̄ + 0.2 var y + 0.5 var Δi in the equations above (a
      test computes it: 0.14, 1.16 and -0.25 are pinned well, 0.10 roughly, the lags of π little);
    - an n-player central-bank game (module ``financial/dynamic_game.py`` of the project moirai),
      which quotes 0.14, 0.10 and gap lags summing to 0.91 from the paper. Another code, with
      1.1597, -0.2588, -0.0908 and 1.013, uses a different estimate of these equations; not taken.

    Constants: the paper takes means out of all variables first. Inflation's lags sum to one, so its
    equation needs no constant and any inflation can last; policy alone decides which one does. In
    the gap's equation the real rate counts from ``neutral_real_rate``.

    Added here: unemployment by Okun's law in changes, ``u[t+1] = u[t] - 0.5 (y[t+1] - y[t])``. Okun
    (1962), "Potential GNP: its measurement and significance", has about 0.3; textbooks, and about
    Ball, Leigh and Loungani (2017), "Okun's law: fit at 50?", Journal of Money, Credit and Banking
    49(7), 0.4 to 0.5; the data shipped here give 0.42 (unemployment and output, both as deviations
    from HP trends). Growth at an annual rate is ``potential_growth + 4 (y[t+1] - y[t])``, 2.2 being
    Taylor's (1993) trend; it is a log rate, so output grows by the factor ``exp(growth / 400)``.

    Not bounded: unemployment that would leave 0 to 100 percent is an ``EconomyError``.

    Attributes:
        inflation_lags: weights on π[t] to π[t-3]; they sum to 1.
        gap_to_inflation: percentage points of inflation per percent of gap, a quarter later.
        gap_lags: weights on y[t] and y[t-1].
        real_rate_to_gap: percent of gap lost per point of real rate above neutral, a quarter later.
        neutral_real_rate: percent per year.
        okun: points of unemployment per percent of gap.
        potential_growth: percent per year.
    """

    inflation_lags: tuple[float, float, float, float] = (0.70, -0.10, 0.28, 0.12)
    gap_to_inflation: float = 0.14
    gap_lags: tuple[float, float] = (1.16, -0.25)
    real_rate_to_gap: float = 0.10
    neutral_real_rate: float = 2.0
    okun: float = 0.5
    potential_growth: float = 2.2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not all(isfinite(number) for number in numbers):
                raise ConfigError(f"{field.name}={value} must hold finite numbers")
        if abs((total := fsum(self.inflation_lags)) - 1) > _TOLERANCE:
            raise ConfigError(
                f"inflation_lags={self.inflation_lags} sum to {total:g}, not to 1: the model has "
                "no constant to which inflation would return"
            )

    def advance(
        self, state: GlobalState, *, interest_rate: float, shocks: Shocks = NO_SHOCKS
    ) -> GlobalState:
        """Return the next quarter; the class has the equations, the module the timing."""
        _check(state, interest_rate)
        lags = state.lags
        p0, p1, p2, p3 = lags.inflation
        gap, gap_before = lags.output_gap
        i0, i1, i2, i3 = lags.interest_rate
        # With weights summing to 1 this is the published sum, and exactly p0 if nothing moves.
        _, w1, w2, w3 = self.inflation_lags
        inflation = (
            p0
            + w1 * (p1 - p0)
            + w2 * (p2 - p0)
            + w3 * (p3 - p0)
            + self.gap_to_inflation * gap
            + shocks.supply
        )
        real_rate = _mean(i0, i1, i2, i3) - _mean(p0, p1, p2, p3)
        next_gap = (
            self.gap_lags[0] * gap
            + self.gap_lags[1] * gap_before
            - self.real_rate_to_gap * (real_rate - self.neutral_real_rate)
            + shocks.demand
        )
        growth = self.potential_growth + 4 * (next_gap - gap)
        unemployment = state.unemployment - self.okun * (next_gap - gap)
        factor = exp(growth / 400) if abs(growth) < _MAX_GROWTH else inf
        value = state.total_economic_value * factor
        _check_outcome(inflation, next_gap, value, unemployment)
        return GlobalState(
            interest_rate=interest_rate,
            total_economic_value=value,
            gdp_growth=growth,
            inflation=_mean(inflation, p0, p1, p2),
            unemployment=unemployment,
            output_gap=next_gap,
            lags=MacroLags((inflation, p0, p1, p2), (next_gap, gap), (interest_rate, i0, i1, i2)),
        )


@dataclass(frozen=True, slots=True)
class StaticEconomy:
    """An economy in which only the rate moves, for studies of agents and engines alone.

    Shocks have no equation to enter, so any but zero are refused.
    """

    def advance(
        self, state: GlobalState, *, interest_rate: float, shocks: Shocks = NO_SHOCKS
    ) -> GlobalState:
        """Return the same quarter with another rate; the past moves on by one quarter."""
        if shocks != NO_SHOCKS:
            raise ConfigError(f"StaticEconomy cannot take {shocks}; use shocks of scale 0 with it")
        _check(state, interest_rate)
        inflation, gap, rates = (
            state.lags.inflation,
            state.lags.output_gap,
            state.lags.interest_rate,
        )
        return GlobalState(
            interest_rate=interest_rate,
            total_economic_value=state.total_economic_value,
            gdp_growth=state.gdp_growth,
            inflation=state.inflation,
            unemployment=state.unemployment,
            output_gap=state.output_gap,
            lags=MacroLags(inflation, (gap[0], gap[0]), (interest_rate, *rates[:3])),
        )


def set_levels(
    state: GlobalState,
    *,
    interest_rate: float | None = None,
    inflation: float | None = None,
    output_gap: float | None = None,
    unemployment: float | None = None,
) -> GlobalState:
    """Return the state with some of its levels changed and its lags still in agreement.

    ``state.model_copy(update={"inflation": 9})`` would leave the old lags, which are what a model
    with lags computes from. Here all four quarters of inflation move by the same amount, the rate
    and the gap change in the current quarter, and what is left out stays.
    """
    lags, given = state.lags, state.model_dump(exclude={"lags"})
    quarters, gaps, rates = lags.inflation, lags.output_gap, lags.interest_rate
    if inflation is not None:
        p0, p1, p2, p3 = (quarter + inflation - state.inflation for quarter in quarters)
        quarters = (p0, p1, p2, p3)
    if output_gap is not None:
        gaps = (output_gap, gaps[1])
    if interest_rate is not None:
        rates = (interest_rate, *rates[1:])
    changes = {
        "interest_rate": interest_rate,
        "inflation": inflation,
        "output_gap": output_gap,
        "unemployment": unemployment,
    }
    given |= {name: value for name, value in changes.items() if value is not None}
    return GlobalState(**given, lags=MacroLags(quarters, gaps, rates))


def _mean(a: float, b: float, c: float, d: float) -> float:
    return ((a + b) + (c + d)) / 4  # exactly a if all four are a


def _check(state: GlobalState, interest_rate: float) -> None:
    """Refuse a rate that is no number, and a state whose levels and lags disagree."""
    if not isfinite(interest_rate):
        raise ConfigError(f"interest_rate={interest_rate} must be a finite number")
    lags = state.lags
    for name, level, lagged in (
        ("interest_rate", state.interest_rate, lags.interest_rate[0]),
        ("output_gap", state.output_gap, lags.output_gap[0]),
        ("inflation", state.inflation, _mean(*lags.inflation)),
    ):
        if not abs(level - lagged) <= _TOLERANCE:
            raise ConfigError(
                f"{name}={level} but the state's lags say {lagged}; change levels with "
                f"economy.set_levels(state, {name}=...), not with model_copy"
            )


def _check_outcome(inflation: float, gap: float, value: float, unemployment: float) -> None:
    if isfinite(inflation) and isfinite(gap) and isfinite(value) and 0 <= unemployment <= 100:
        return
    raise EconomyError(
        f"the next quarter would have unemployment {unemployment:.4g} percent (limits 0 and 100), "
        f"output gap {gap:.4g} percent, quarterly inflation {inflation:.4g} percent and output "
        f"{value:.4g}: policy, shocks or the run's length "
        "have driven the model off its range; answer inflation more than one for one, end "
        "the run earlier, or use smaller shocks"
    )
