"""What its staff puts before a central bank: two years of figures, the stance, the moves on offer.

Each number has a unit and a horizon, and is the state's own: models, rules and people read the same
output gap. What came before the run is history, in its final vintage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llmsim_lab._util.text import number
from llmsim_lab.economy._data import Quarter, mirrored_quarters, quarters_before
from llmsim_lab.economy._macro import RudebuschSvensson
from llmsim_lab.models import GlobalState

SHOWN = 8
"""How many quarters the table has."""
NEUTRAL_REAL_RATE = RudebuschSvensson().neutral_real_rate
"""Percent per year."""

_TITLES = (
    "quarter",
    "inflation over 4 quarters, %",
    "inflation in the quarter, % at an annual rate",
    "output gap, % of potential",
    "unemployment, % of labour force",
    "policy rate, % per year",
    "real rate, % per year",
)


def known_quarters(
    states: Sequence[Any], *, us_past: bool = True, mirror_of: str | None = None
) -> list[Quarter]:
    """Return all quarters that are known at the last of a run's states, oldest first.

    Before a run that starts from a real quarter the data are used. Before any other the economy has
    stood at the first state's levels, without an output gap, which the first quarter opens.

    Args:
        states: of an economic run, from its first turn on.
        us_past: whether a dated run starts from the US data, not from others.
        mirror_of: the quarter of which a run starts from the mirror image.
    """
    first = states[0]
    if mirror_of:
        before = mirrored_quarters(quarters_before(mirror_of))
    elif first.period and us_past:
        before = quarters_before(first.period)
    else:
        before = [replace(_quarter(first), period=None, output_gap=0.0)] * (SHOWN - 1)
    return [*before, *map(_quarter, states)]


def _quarter(state: Any) -> Quarter:
    economy: GlobalState = state.global_state
    return Quarter(
        period=state.period,
        inflation=economy.inflation,
        inflation_in_quarter=economy.lags.inflation[0],
        output_gap=economy.output_gap,
        unemployment=economy.unemployment,
        interest_rate=economy.interest_rate,
    )


def role_of(name: str, *, masked: bool, members: int, rule: str) -> str:
    """Return who is asked, as the prompt of a central bank or a member of its committee begins.

    Args:
        name: of the economy, or of the member.
        masked: whether no economy is named, so that a model cannot recall what happened.
        members: how many vote.
        rule: how the votes become one rate, in words.
    """
    economy = "a large economy" if masked or members > 1 else name
    if members == 1:
        return f"You are the central bank of {economy} and set its policy interest rate."
    who = "one" if masked else f"{name}, one"
    return (
        f"You are {who} of the {members} members of the committee that sets the policy interest "
        f"rate of {economy}; the votes are put together by the rule: {rule}."
    )


def briefing(
    quarters: Sequence[Quarter], *, inflation_target: float, masked: bool
) -> dict[str, str]:
    """Return the values of the slots of ``agent_briefing`` that change from turn to turn.

    Args:
        quarters: all that are known, oldest first, as ``known_quarters`` returns them.
        inflation_target: four-quarter inflation, percent.
        masked: whether quarters are counted back from now instead of named by their dates.
    """
    lines = []
    latest = quarters[-SHOWN:]
    for back, quarter in zip(range(len(latest) - 1, -1, -1), latest, strict=True):
        name = quarter.period if quarter.period and not masked else f"-{back}" if back else "now"
        values = (
            quarter.inflation,
            quarter.inflation_in_quarter,
            quarter.output_gap,
            quarter.unemployment,
            quarter.interest_rate,
            None if quarter.inflation is None else quarter.interest_rate - quarter.inflation,
        )
        lines.append(" | ".join((name, *(_cell(value) for value in values))))
    now = latest[-1]
    assert now.inflation is not None  # a run's own states have it
    real_rate = now.interest_rate - now.inflation
    return {
        "quarters": str(len(latest)),
        "history": "\n".join((" | ".join(_TITLES), *lines)),
        "inflation": number(now.inflation),
        "distance": _distance(now.inflation - inflation_target),
        "inflation_target": number(inflation_target),
        "output_gap": f"{number(now.output_gap)}%",
        "real_rate": number(real_rate),
        "stance": _distance(real_rate - NEUTRAL_REAL_RATE),
        "neutral_real_rate": number(NEUTRAL_REAL_RATE),
        "interest_rate": number(now.interest_rate),
    }


def _cell(value: float | None) -> str:
    return "not known" if value is None else f"{round(value, 2) + 0.0:.2f}"  # not -0.00


def _distance(difference: float) -> str:
    """Return how far a number is from a mark, to be followed by the mark."""
    points = number(abs(difference))
    if points == "0":
        return "at"
    noun = "point" if points == "1" else "points"
    return f"{points} percentage {noun} {'above' if difference > 0 else 'below'}"
