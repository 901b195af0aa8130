"""Checks of an economic simulation for mistakes in published ones; no model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log
from typing import NamedTuple, Protocol

from llmsim_lab._util.text import number
from llmsim_lab.economy.analysis import closed_loop, weights_of
from llmsim_lab.economy.macro import STEADY_STATE, Rule, rate_by
from llmsim_lab.models import GlobalState

_FRACTION = 0.25
"""Targets and rates between 0 and this are taken for fractions, such as 0.02 for 2 percent."""
_MOST_PERCENT = 25.0
_MOST_QUARTERS_TO_RULE = 4


class LintFinding(NamedTuple):
    """One thing that is probably wrong.

    Attributes:
        rule: what was checked, such as ``Taylor principle``.
        what: what was found, with its numbers.
        remedy: what to do.
    """

    rule: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}; {self.remedy}"


class MacroModel(Protocol):
    """An economy to check: the shipped one, or a user's."""

    def advance(self, state: GlobalState, *, interest_rate: float) -> GlobalState:
        """Return the next quarter under a rate."""


class _HasTarget(Protocol):
    name: str
    inflation_target: float


def of_targets(nations: Iterable[_HasTarget]) -> Iterator[LintFinding]:
    """Find percent written as a fraction, in inflation targets."""
    for nation in nations:
        target = nation.inflation_target
        # 0 is the same target in percent and as a fraction.
        if 0 < abs(target) < _FRACTION:
            percent = 100 * target
            yield LintFinding(
                "percent and fraction",
                f"the inflation target of {nation.name} is {target:g} percent",
                f"rates are in percent here: write {percent:g} if you mean {percent:g}%",
            )


def of_model(model: MacroModel) -> Iterator[LintFinding]:
    """Find an annual growth rate that is applied in each quarter without dividing it by four."""
    # From the steady state, where only growth moves output.
    quarter = model.advance(STEADY_STATE, interest_rate=STEADY_STATE.interest_rate)
    ratio = quarter.total_economic_value / STEADY_STATE.total_economic_value
    change = 100 * log(ratio)
    growth = quarter.gdp_growth
    # In logarithms, a quarter grows by a fourth of the annual rate.
    difference = abs(4 * change - growth)
    if difference > 0.05 * abs(growth):
        yield LintFinding(
            "annual rate in a quarter",
            f"growth of {number(growth)}% per year raises output by {number(change)}% in a quarter",
            "divide annual rates by 4 where a turn is a quarter",
        )


def of_rule(
    who: str,
    rule: Rule,
    start: GlobalState,
    largest: float,
) -> Iterator[LintFinding]:
    """Find what is wrong with a policy rule.

    A rule's long-run response is its response to inflation divided by one minus its response to
    the previous rate. Above 1, the real rate rises with inflation: the Taylor principle. Source:
    Woodford (2001), "The Taylor rule and optimal monetary policy", American Economic Review 91(2).

    Args:
        who: the player that the rule belongs to.
        rule: the rule.
        start: the state that the run begins from.
        largest: the largest move of a turn, percentage points.
    """
    # In the steady state, the rule must ask for the steady state's rate, about 4 percent.
    neutral = rate_by(rule, STEADY_STATE)
    is_fraction = 0 < abs(neutral) < _FRACTION
    is_too_much = abs(neutral) > _MOST_PERCENT
    if is_fraction or is_too_much:
        yield LintFinding(
            "percent and fraction",
            f"{who} asks for {number(neutral)}% where inflation is 2%, the gap 0, the rate 4%",
            "use percent for all of it, targets and neutral rates too",
        )
    here = start.interest_rate
    asked_for = rate_by(rule, start)
    quarters = abs(asked_for - here) / largest
    if quarters > _MOST_QUARTERS_TO_RULE:
        yield LintFinding(
            "moves out of reach",
            f"{who} asks for {number(asked_for)}% at the start, and from {number(here)}% moves of "
            f"{number(largest)} points take {quarters:.0f} quarters",
            "offer larger moves",
        )
    yield from _of_dynamics(who, rule)


def _of_dynamics(who: str, rule: Rule) -> Iterator[LintFinding]:
    """Find a rule without a long run, with too small a response to inflation, or unstable."""
    of_inflation, _, inertia = weights_of(rule)
    if inertia >= 1:
        yield LintFinding(
            "Taylor principle",
            f"{who} adds {inertia:g} times its previous rate, so that it has no long run",
            "lower the weight on the last rate",
        )
        return
    # The response after the previous rate has caught up.
    response = of_inflation / (1 - inertia)
    if response <= 1:
        yield LintFinding(
            "Taylor principle",
            f"{who} raises the rate by {response:.2f} points in the end for each point of "
            "inflation, so that the real rate falls when inflation rises",
            "let the total response, divided by 1 - inertia, exceed 1; Taylor (1993) has 1.5",
        )
        return
    # The Taylor principle is not enough: a rule with inertia .95 meets it, and this model explodes.
    root = closed_loop(rule).spectral_radius
    if root >= 1:
        yield LintFinding(
            "unstable economy",
            f"under {who} shocks grow by {100 * (root - 1):.2f}% a quarter",
            "weaken its response to inflation, or answer the output gap more",
        )
