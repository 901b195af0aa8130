"""Macro models and shocks, policy rules, the limits of a rate change, the loss of a policy.

Rates are percent per year, gaps percent of potential output. Inflation is over four quarters unless
stated otherwise. A state is one quarter.

Timing, everywhere: ``interest_rate`` is the rate in force in a state's quarter. A decision based on
quarter t becomes the rate of quarter t+1, so that it first changes the output gap in quarter t+2
and inflation in t+3. (In Rudebusch and Svensson's paper the bank responds to quarter t within it.
Here the data must be published first, so that everything comes one quarter later.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, floor, inf, isfinite
from statistics import NormalDist, fmean
from typing import Annotated, Any, Self

from pydantic import Field, FiniteFloat, model_validator

from llmsim_lab._util.checks import instance_of, is_number, plain_number, real_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.models import GlobalState, MacroLags
from llmsim_lab.types import Rate, Value

STEADY_STATE = GlobalState()
"""The default model's steady state: rate 4, inflation 2, gap 0, growth 2.2."""

STATE = ("inflation", "output_gap", "interest_rate")
"""The variables that rules and policymakers respond to, and that a policy is judged by."""
_TOLERANCE = 1e-6
"""Percentage points; smaller differences are rounding."""
_NORMAL = NormalDist()


class Shocks(Value):
    """The shocks of one quarter in the model's equations.

    Attributes:
        supply: added to quarterly inflation at an annual rate, percentage points.
        demand: added to the output gap, percent of potential.
    """

    supply: Rate = 0.0
    demand: Rate = 0.0

    def __add__(self, other: Shocks) -> Shocks:
        return Shocks(
            supply=self.supply + other.supply,
            demand=self.demand + other.demand,
        )


NO_SHOCKS = Shocks()
"""A quarter without surprises."""


SUPPLY_STD = 1.009
"""Standard deviation of supply shocks, percentage points. This and the next are the standard errors
of Rudebusch and Svensson's equations."""
DEMAND_STD = 0.819
"""Standard deviation of demand shocks, percent of potential."""


def shocks_at(
    turn: int,
    *,
    seed: int,
    scale: float = 1.0,
    mirrored: bool = False,
) -> Shocks:
    """Return the random shocks of the quarter that a turn leads to: two independent normal draws.

    A draw depends on seed and turn only, not on how often or in which order draws are made. So runs
    with the same seed have the same shocks whatever the policy (common random numbers), and a fork
    or a resumed run needs no generator state.

    Made with the counter-based Philox generator (Salmon et al., 2011, "Parallel random numbers: as
    easy as 1, 2, 3"): the seed is its key, the turn its counter. numpy keeps Philox's raw numbers
    the same in every release; the step to normal ones is the standard library's inverse
    distribution function. Differs from Rudebusch and Svensson (1999): they allow the two shocks to
    be correlated; here, as in the Macroeconomic Model Data Base, they are not.

    Args:
        turn: the number of the state that the shocks act on, from 0.
        seed: from 0 to below 2**128.
        scale: factor on both standard deviations; 0 gives exactly no shocks.
        mirrored: whether both have the opposite sign.
    """
    if scale == 0:  # 0 times a draw would be -0.0 half of the time
        return NO_SHOCKS
    from numpy.random import Philox  # here, since numpy takes time to import

    generator = Philox(key=seed, counter=turn)
    supply_bits, demand_bits = generator.random_raw(2).tolist()
    signed = -scale if mirrored else scale
    return Shocks(
        supply=signed * SUPPLY_STD * _normal(supply_bits),
        demand=signed * DEMAND_STD * _normal(demand_bits),
    )


def _normal(bits: int) -> float:
    """Return the standard normal number that 64 random bits stand for."""
    # The upper 52 bits; half a unit avoids 0 and 1, where the inverse is infinite.
    number = (bits >> 12) + 0.5
    return _NORMAL.inv_cdf(number * 2.0**-52)


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

    inflation_lags = (0.70, -0.10, 0.28, 0.12)
    gap_to_inflation = 0.14
    gap_lags = (1.16, -0.25)
    real_rate_to_gap = 0.10
    neutral_real_rate = 2.0
    okun = 0.5
    potential_growth = 2.2

    def advance(
        self,
        state: GlobalState,
        *,
        interest_rate: float,
        shocks: Shocks = NO_SHOCKS,
    ) -> GlobalState:
        """Return the next quarter; see the class for the equations, the module for the timing."""
        _check(state)
        lags = state.lags
        p0, p1, p2, p3 = lags.inflation
        gap, gap_before = lags.output_gap
        i0, i1, i2, i3 = lags.interest_rate
        _, w1, w2, w3 = self.inflation_lags
        # With weights summing to 1 this is the published sum, and exactly p0 if nothing moves.
        past_inflation = p0 + w1 * (p1 - p0) + w2 * (p2 - p0) + w3 * (p3 - p0)
        inflation = past_inflation + self.gap_to_inflation * gap + shocks.supply
        # As in the paper: four-quarter means of both, so the real rate looks back, not ahead.
        real_rate = _mean(i0, i1, i2, i3) - _mean(p0, p1, p2, p3)
        weight_now, weight_before = self.gap_lags
        past_gap = weight_now * gap + weight_before * gap_before
        pull = self.real_rate_to_gap * (real_rate - self.neutral_real_rate)
        next_gap = past_gap - pull + shocks.demand
        unemployment = state.unemployment - self.okun * (next_gap - gap)
        is_possible = isfinite(inflation) and 0 <= unemployment <= 100
        if not is_possible:
            raise EconomyError(
                f"the next quarter would have unemployment {unemployment:.4g} percent (limits 0 "
                f"and 100), output gap {next_gap:.4g} and quarterly inflation {inflation:.4g}; "
                "answer inflation more than one for one, end the run earlier, or use smaller shocks"
            )
        # Percent of a quarter's output, at an annual rate.
        growth = self.potential_growth + 4 * (next_gap - gap)
        # A log rate, at an annual rate: 100 for percent, 4 for quarters.
        value = state.total_economic_value * exp(growth / 400)
        lags = MacroLags(
            inflation=(inflation, p0, p1, p2),
            output_gap=(next_gap, gap),
            # The rate acts a quarter later, by the means above.
            interest_rate=(interest_rate, i0, i1, i2),
        )
        return economy_of(
            lags,
            gdp_growth=growth,
            unemployment=unemployment,
            total_economic_value=value,
        )


def economy_of(
    lags: MacroLags,
    *,
    gdp_growth: float,
    unemployment: float,
    total_economic_value: float,
) -> GlobalState:
    """Return an economy whose rate, inflation and gap follow from its lags."""
    return GlobalState(
        interest_rate=lags.interest_rate[0],
        inflation=_mean(*lags.inflation),
        output_gap=lags.output_gap[0],
        lags=lags,
        gdp_growth=gdp_growth,
        unemployment=unemployment,
        total_economic_value=total_economic_value,
    )


def set_levels(state: GlobalState, **levels: float) -> GlobalState:
    """Return the state with some of its levels changed, such as ``inflation=9``, and its lags.

    ``state.model_copy(update={"inflation": 9})`` would leave the old lags, from which a model
    computes the next quarter. Here all four quarters of inflation move by the same amount, the rate
    and the gap change in the current quarter only, and what is not given stays the same.
    """
    inflation: Any = state.lags.inflation
    gap, gap_before = state.lags.output_gap
    rate, *rates_before = state.lags.interest_rate
    # Inflation is a mean over four quarters, so that one of them alone could not reach the level.
    if "inflation" in levels:
        inflation = tuple(value + levels["inflation"] - state.inflation for value in inflation)
    gap = levels.get("output_gap", gap)
    rate = levels.get("interest_rate", rate)
    rates: Any = (rate, *rates_before)
    values: dict[str, Any] = dict(state)
    values.update(levels)
    values["lags"] = MacroLags(inflation, (gap, gap_before), rates)
    # Built anew, not copied: only then are the values checked.
    return GlobalState.model_validate(values)


def mirrored(state: GlobalState) -> GlobalState:
    """Return the state mirrored around the default model's steady state.

    Output is a level and stays as it is; its growth is mirrored. The model is linear, so that
    quarters with mirrored shocks and rates stay mirror images, unless the rate meets a bound.

    Raises:
        ConfigError: unemployment would leave 0 to 100 percent.
    """
    # A share of people has bounds, which the other figures do not have.
    rest = STEADY_STATE
    unemployment = 2 * rest.unemployment - state.unemployment
    if not 0 <= unemployment <= 100:
        raise ConfigError(
            f"unemployment of {state.unemployment:g}% has no mirror image: that would be "
            f"{unemployment:g}%; choose another start"
        )
    lags = MacroLags(
        _mirrored(state.lags.inflation, rest.lags.inflation),
        _mirrored(state.lags.output_gap, rest.lags.output_gap),
        _mirrored(state.lags.interest_rate, rest.lags.interest_rate),
    )
    return economy_of(
        lags,
        gdp_growth=2 * rest.gdp_growth - state.gdp_growth,
        unemployment=unemployment,
        total_economic_value=state.total_economic_value,
    )


def _mirrored(
    values: Sequence[float],
    middles: Sequence[float],
) -> Any:
    """Return each value as far on the other side of its middle."""
    pairs = zip(values, middles, strict=True)
    return tuple(2 * middle - value for value, middle in pairs)


def shifted(state: GlobalState, by: float) -> GlobalState:
    """Return the state with inflation and rates so many points higher, in all of its quarters.

    In the default model any inflation can last, with a rate that is higher by as much, so that it
    is the same economy around another inflation.
    """
    if by == 0:  # digit by digit
        return state
    inflation: Any = tuple(value + by for value in state.lags.inflation)
    rates: Any = tuple(value + by for value in state.lags.interest_rate)
    lags = MacroLags(inflation, state.lags.output_gap, rates)
    return economy_of(
        lags,
        gdp_growth=state.gdp_growth,
        unemployment=state.unemployment,
        total_economic_value=state.total_economic_value,
    )


def _mean(
    a: float,
    b: float,
    c: float,
    d: float,
) -> float:
    return ((a + b) + (c + d)) / 4  # exactly a if all four are a


def _check(state: GlobalState) -> None:
    """Raise ConfigError if the levels disagree with the lags."""
    instance_of("state", state, GlobalState, "a GlobalState: initial_state(...).global_state")
    lags = state.lags
    levels = (
        state.interest_rate,
        state.output_gap,
        state.inflation,
    )
    lagged = (
        lags.interest_rate[0],
        lags.output_gap[0],
        _mean(*lags.inflation),
    )
    for level, lag in zip(levels, lagged, strict=True):
        is_near = abs(level - lag) <= _TOLERANCE
        # Not by "is far": NaN is neither near nor far.
        if not is_near:
            raise ConfigError(
                f"interest_rate, output_gap and inflation are {levels} but the state's lags say "
                f"{lagged}; change levels with run.intervene(turn, {{'inflation': ...}}), not with "
                "model_copy"
            )


_LARGEST = 10**300
"""Of whole numbers: a little below the largest float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorRule:
    """The 1993 rule; ``output_gap_weight=1.0`` gives the variant that Taylor (1999) discusses.

    Source: Taylor (1993), "Discretion versus policy rules in practice", Carnegie-Rochester
    Conference Series on Public Policy 39, pp. 195-214, where the federal funds rate is
    ``p + 0.5 y + 0.5 (p - 2) + 2`` with ``p`` inflation over four quarters and ``y`` the output
    gap. Differs from the source: the response to inflation is one number, ``inflation_weight``, the
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
        for field in fields(self):
            value = plain_number(getattr(self, field.name))
            # A bound may be infinite; with a whole number beyond all floats nothing is calculated.
            is_number = isinstance(value, float) or (
                isinstance(value, int) and abs(value) < _LARGEST
            )
            if not is_number:
                raise ConfigError(f"{field.name}={brief(value)} of a TaylorRule must be a number")
        if not 0 <= self.inertia < 1:
            raise ConfigError(f"inertia={self.inertia} must be from 0 to below 1")

    def rate(
        self,
        *,
        inflation: float,
        output_gap: float,
        previous_rate: float,
    ) -> float:
        """Return the rate the rule asks for, percent per year.

        Args:
            inflation: over four quarters, percent.
            output_gap: percent of potential output.
            previous_rate: the rate now in force, percent per year; matters only with inertia.
        """
        try:
            distance = inflation - self.inflation_target
            target = (
                self.neutral_real_rate
                + self.inflation_target
                + self.inflation_weight * distance
                + self.output_gap_weight * output_gap
            )
            smoothed = self.inertia * previous_rate + (1 - self.inertia) * target
            rate = max(self.lower_bound, smoothed)
            # max would hide a NaN behind the lower bound.
            is_finite = isfinite(rate) and isfinite(smoothed)
        except (OverflowError, TypeError, ValueError):  # such as a text, or an array
            is_finite = False
        if not is_finite:
            raise ConfigError(
                f"no rate follows from inflation={brief(inflation)}, "
                f"output_gap={brief(output_gap)}, previous_rate={brief(previous_rate)} by {self}: "
                "all must be finite numbers"
            )
        return rate


Rule = TaylorRule | Callable[..., float]
"""A policy rule: Taylor's, or any function that takes ``inflation``, ``output_gap`` and
``previous_rate`` by name, percent, and returns a rate."""


def checked_rule(rule: Rule | None) -> Rule:
    """Return a rule that was given as an argument; Taylor (1993) if it is None."""
    if rule is None:
        return TaylorRule()
    return instance_of(
        "rule",
        rule,
        TaylorRule | Callable,
        "a TaylorRule, or a function of inflation, output_gap and previous_rate",
    )


def rate_by(rule: Rule, state: GlobalState) -> float:
    """Return the rate that a rule asks for on a quarter's data, percent per year."""
    # By name, so that a function of a user's may take them in any order.
    ask = rule.rate if isinstance(rule, TaylorRule) else rule
    rate = ask(
        inflation=state.inflation,
        output_gap=state.output_gap,
        previous_rate=state.interest_rate,
    )
    return real_number("the rule's rate", rate)


def fiscal_demand(
    state: GlobalState,
    *,
    rate: float,
    lower_bound: float,
) -> float:
    """Return what the budget adds where the rate is at its lower bound, percent of output.

    At the bound the real rate rises as prices fall, and a linear model has nothing that would end
    the spiral. Idea: Reifschneider and Williams (2000), "Three lessons for monetary policy in a
    low-inflation era", Journal of Money, Credit and Banking 32(4): in the severest
    contractions something other than the rate has to stimulate. Differs: theirs is part of a large
    model; here the budget replaces, percent for percent, what a rate below the bound would have
    done to the output gap, beyond the first two points of it. Measured under the Taylor rule over
    80 quarters from the steady state, 200 seeds: 16.5% of the runs spiral without, none with it,
    and the budget acts in 13% of the quarters.
    """
    if rate > lower_bound:
        return 0.0
    # By the standard rule, since the budget does not know the bank's rule.
    wanted = rate_by(TaylorRule(lower_bound=-inf), state)
    missing = max(0.0, lower_bound - wanted - 2.0)
    return RudebuschSvensson().real_rate_to_gap * missing


@lru_cache(maxsize=64, typed=True)  # typed, since prompts write 4 and 4.0 differently
def _offered(
    lower: float,
    upper: float,
    most: float,
    step: float,
    rate: float,
) -> list[float]:
    """Return the rates of ``EngineConfig.choices``; cached."""
    here = min(max(rate, lower), upper)
    lowest = max(here - most, lower)
    highest = min(here + most, upper)
    # The grid counts from 0, not from the current rate: from 4.13 the next is 4.25, not 4.38.
    first = ceil(lowest / step - _TOLERANCE)
    last = floor(highest / step + _TOLERANCE)
    grid = [round(number * step, 6) for number in range(first, last + 1)]
    # With the current rate, which may be between the grid's points: holding is always offered.
    return sorted({*grid, round(here, 6)})


class EngineConfig(Settings):
    """Limits of the interest rate and of its change by one action; percent (points) per year.

    Attributes:
        rate_bounds: lowest and highest rate; beyond them a reply is invalid, never clamped.
        max_move: largest change by one action, percentage points.
        rate_step: the grid of rates offered to a model; central banks move in quarter points.
    """

    rate_bounds: tuple[FiniteFloat, FiniteFloat] = (0.0, 25.0)
    max_move: Annotated[FiniteFloat, Field(gt=0)] = 2.0
    rate_step: Annotated[FiniteFloat, Field(gt=0)] = 0.25

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lower >= self.upper:
            raise ValueError(f"rate_bounds={self.rate_bounds} are empty; swap them?")
        if self.max_move / self.rate_step > 1000:
            raise ValueError(
                f"rate_step={self.rate_step} cuts max_move={self.max_move} into more than 1000 "
                "rates; a model cannot choose among so many: raise rate_step"
            )
        return self

    @property
    def lower(self) -> float:
        """Effective lower bound."""
        return self.rate_bounds[0]

    @property
    def upper(self) -> float:
        """Highest rate accepted."""
        return self.rate_bounds[1]

    def choices(self, current: float) -> list[float]:
        """Return the rates a model may choose from, lowest first; the current one is among them.

        Args:
            current: the rate before the action, percent per year. Where something else has put it
                outside the bounds, the closest bound is used instead.
        """
        offered = _offered(
            self.lower,
            self.upper,
            self.max_move,
            self.rate_step,
            current,
        )
        # A copy, since the list is cached.
        return list(offered)

    def problem(
        self,
        rate: float,
        *,
        current: float,
    ) -> str | None:
        """Return what is wrong with a new rate, or None.

        A rate between the grid's points is accepted: the grid only limits what a model is offered.
        """
        lowest = self.lower - _TOLERANCE
        highest = self.upper + _TOLERANCE
        if not lowest <= rate <= highest:
            return (
                f"the new interest rate {rate:g}% is outside the bounds {self.lower:g}% to "
                f"{self.upper:g}%"
            )
        # An intervention may have put the rate beyond a bound; moving back to the bound is allowed.
        here = self.inside(current)
        distance = abs(rate - here)
        if distance > self.max_move + _TOLERANCE:
            return (
                f"the new interest rate {rate:g}% is {distance:g} percentage points from the "
                f"current {here:g}%; one action may move it by {self.max_move:g} at most"
            )
        return None

    def inside(self, rate: float) -> float:
        """Return the rate, or the bound that it is beyond."""
        return min(max(rate, self.lower), self.upper)


def _column(quarters: Any, name: str) -> list[float]:
    """Return a column of a run's frame; a value that is missing, NaN, stays."""
    numbers = []
    for value in quarters[name]:
        # float() would also read texts: of "23" the quarters 2 and 3.
        if not is_number(value):
            raise TypeError(f"{name} has {brief(value)} in it")
        numbers.append(float(value))
    return numbers


class QuadraticLoss(Settings):
    """The mean of Rudebusch and Svensson's period loss over a run; central banks' studies use it.

    Source: Rudebusch & Svensson (1999), "Policy rules for inflation targeting", in Taylor (ed.),
    *Monetary Policy Rules*, University of Chicago Press, whose period loss is
    ``p² + λ y² + μ (i - i₋₁)²`` with ``p`` four-quarter inflation as a deviation from its target,
    ``y`` the output gap and ``i`` the policy rate; their benchmark has λ = 1 and μ = 0.5 (the
    letter nu in theirs). Differs from the source: a mean over the quarters of one run, where they
    take the expectation; and levels with a target, where they take deviations from means.

    Attributes:
        inflation_target: percent.
        gap_weight: λ, the weight of the squared output gap, where that of inflation is 1.
        rate_change_weight: μ, the weight of the squared change of the rate.
    """

    inflation_target: FiniteFloat = 2.0
    gap_weight: Annotated[FiniteFloat, Field(ge=0)] = 1.0
    rate_change_weight: Annotated[FiniteFloat, Field(ge=0)] = 0.5

    def of(self, quarters: Any) -> dict[str, float]:
        """Return the ``loss`` of a run, and its parts: means of squares, before they are weighted.

        The parts are ``inflation``, of its distance from the target; ``output_gap``; and
        ``rate_change``, of the policy rate. The first quarter, from which a run starts, does not
        count.

        Args:
            quarters: a run's frame, or other columns by name: ``inflation``, ``output_gap`` and
                ``interest_rate``.

        Raises:
            ConfigError: fewer than two quarters, columns of different lengths, or no numbers.
        """
        try:
            # Lists, since a frame's index may begin anywhere.
            prices, gaps, rates = [_column(quarters, name) for name in STATE]
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise ConfigError(
                f"quarters={brief(quarters)} must be a run's frame, or a dict of numbers by "
                f"{', '.join(STATE)} ({type(error).__name__}: {error})"
            ) from error
        are_complete = len(prices) == len(gaps) == len(rates)
        if not are_complete or len(rates) < 2:
            raise ConfigError(
                f"{len(prices)}, {len(gaps)} and {len(rates)} quarters have no loss: it takes as "
                "many of each, and at least two"
            )
        of_inflation = fmean((value - self.inflation_target) ** 2 for value in prices[1:])
        of_gap = fmean(value**2 for value in gaps[1:])
        # The first change starts from the initial rate; the initial quarter itself does not count.
        of_rate = fmean((now - before) ** 2 for before, now in pairwise(rates))
        loss = of_inflation + self.gap_weight * of_gap + self.rate_change_weight * of_rate
        return {
            "loss": loss,
            "inflation": of_inflation,
            "output_gap": of_gap,
            "rate_change": of_rate,
        }
