"""Checks an economic simulation for mistakes that published ones have made; no model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log
from typing import Any, NamedTuple

from llmsim_lab._util.text import number
from llmsim_lab.economy.analysis import closed_loop, weights_of
from llmsim_lab.economy.macro import STEADY_STATE, Rule, rate_by
from llmsim_lab.models import GlobalState

_FRACTION = 0.25
"""Targets and rates between 0 and this are fractions: 0.02 for 2 percent."""
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


def of_targets(nations: Iterable[Any]) -> Iterator[LintFinding]:
    """Find percent written as a fraction, in inflation targets."""
    for nation in nations:
        value, percent = nation.inflation_target, 100 * nation.inflation_target
        if 0 < abs(value) < _FRACTION:
            what = f"the inflation target of {nation.name} is {value:g} percent"
            remedy = f"rates are in percent here: write {percent:g} if you mean {percent:g}%"
            yield LintFinding("percent and fraction", what, remedy)


def of_model(model: Any) -> Iterator[LintFinding]:
    """Find an annual rate that is applied undivided in each quarter."""
    quarter = model.advance(STEADY_STATE, interest_rate=STEADY_STATE.interest_rate)
    change = 100 * log(quarter.total_economic_value / STEADY_STATE.total_economic_value)
    growth = quarter.gdp_growth
    if abs(4 * change - growth) > 0.05 * abs(growth):
        yield LintFinding(
            "annual rate in a quarter",
            f"growth of {number(growth)}% per year raises output by {number(change)}% in a quarter",
            "divide annual rates by 4 where a turn is a quarter",
        )


def of_rule(who: str, rule: Rule, start: GlobalState, largest: float) -> Iterator[LintFinding]:
    """Find what is wrong with a policy rule.

    In the end a rule raises the rate by its response to inflation over one minus that to the
    previous rate. Above 1 the real rate rises with inflation: the Taylor principle. Source:
    Woodford (2001), "The Taylor rule and optimal monetary policy", American Economic Review 91(2).

    Args:
        who: whose it is.
        rule: the rule.
        start: where the run begins.
        largest: the largest move of a turn, percentage points.
    """
    neutral, name = rate_by(rule, STEADY_STATE), "percent and fraction"
    if 0 < abs(neutral) < _FRACTION or abs(neutral) > _MOST_PERCENT:
        what = f"{who} asks for {number(neutral)}% where inflation is 2%, the gap 0, the rate 4%"
        yield LintFinding(name, what, "use percent for all of it, targets and neutral rates too")
    asked, here = rate_by(rule, start), start.interest_rate
    if (quarters := abs(asked - here) / largest) > _MOST_QUARTERS_TO_RULE:
        what = (
            f"{who} asks for {number(asked)}% at the start, and from {number(here)}% moves of "
            f"{number(largest)} points take {quarters:.0f} quarters"
        )
        yield LintFinding("moves out of reach", what, "offer larger moves")
    name = "Taylor principle"
    of_inflation, _, inertia = weights_of(rule)
    if inertia >= 1:
        what = f"{who} adds {inertia:g} times its previous rate, so that it has no long run"
        yield LintFinding(name, what, "lower the weight on the last rate")
    elif (response := of_inflation / (1 - inertia)) <= 1:
        what = (
            f"{who} raises the rate by {response:.2f} points in the end for each point of "
            "inflation, so that the real rate falls when inflation rises"
        )
        remedy = "let the total response, divided by 1 - inertia, exceed 1; Taylor (1993) has 1.5"
        yield LintFinding(name, what, remedy)
    elif (root := closed_loop(rule).spectral_radius) >= 1:
        what = f"under {who} shocks grow by {100 * (root - 1):.2f}% a quarter"
        remedy = "weaken its response to inflation, or answer the output gap more"
        yield LintFinding("unstable economy", what, remedy)
