"""What its staff puts before a central bank: two years of figures, the stance, the moves on offer.

Each number has a unit and a horizon, and is the state's own: models, rules and people read the same
output gap. What came before the run is history, in its final vintage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import number
from llmsim_lab.economy.data import Quarter, quarters_before
from llmsim_lab.economy.macro import RudebuschSvensson
from llmsim_lab.models import GlobalState

SHOWN = 8
"""How many quarters the table has."""

_HEADER = (
    "quarter | inflation over 4 quarters, % | inflation in the quarter, % at an annual rate | "
    "output gap, % of potential | unemployment, % of labour force | policy rate, % per year | "
    "real rate, % per year"
)


class NationProfile(Settings):
    """How one nation's advisor differs from another's.

    Attributes:
        mandate: what the advisor should achieve.
        inflation_target: percent per year.
        temperament: a word or two on how the advisor weighs risks.
    """

    mandate: Annotated[str, Field(min_length=1)] = "stable prices and full employment"
    inflation_target: Annotated[float, Field(ge=-5, le=50, allow_inf_nan=False)] = 2.0
    temperament: Annotated[str, Field(min_length=1)] = "pragmatic"


def known_quarters(
    states: Sequence[Any], *, us_from: str | None = None, mirrored: bool = False
) -> list[Quarter]:
    """Return all quarters that are known at the last of a run's states, oldest first.

    Before a run that starts from a real quarter the data are used. Before any other the economy has
    stood at the first state's levels, without an output gap, which the first quarter opens.

    Args:
        states: of an economic run, from its first turn on.
        us_from: the quarter of the US data that a run starts from, if it does.
        mirrored: whether it starts from that quarter's mirror image.
    """
    known = [_quarter(state) for state in states]
    if us_from:
        return [*quarters_before(us_from, mirrored=mirrored), *known]
    return [known[0]._replace(period=None, output_gap=0.0)] * (SHOWN - 1) + known


def _quarter(state: Any) -> Quarter:
    now: GlobalState = state.global_state
    of_prices = now.inflation, now.lags.inflation[0]
    return Quarter(state.period, *of_prices, now.output_gap, now.unemployment, now.interest_rate)


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


def briefing(quarters: Sequence[Quarter], *, masked: bool) -> dict[str, str]:
    """Return the values of those slots of a briefing's prompt that all members read alike.

    Args:
        quarters: all that are known, oldest first, as ``known_quarters`` returns them.
        masked: whether quarters are counted back from now instead of named by their dates.
    """
    lines, latest = [_HEADER], quarters[-SHOWN:]
    for back, quarter in zip(range(len(latest) - 1, -1, -1), latest, strict=True):
        period, inflation = quarter.period, quarter.inflation
        name = period if period and not masked else f"-{back}" if back else "now"
        real = None if inflation is None else quarter.interest_rate - inflation
        lines.append(" | ".join((name, *map(_cell, (*quarter[1:], real)))))
    now = latest[-1]
    assert now.inflation is not None  # a run's own states have it
    real_rate = now.interest_rate - now.inflation
    return {
        "quarters": str(len(latest)),
        "history": "\n".join(lines),
        "inflation": number(now.inflation),
        "output_gap": f"{number(now.output_gap)}%",
        "real_rate": number(real_rate),
        "stance": _distance(real_rate - RudebuschSvensson.neutral_real_rate),
        "neutral_real_rate": number(RudebuschSvensson.neutral_real_rate),
        "interest_rate": number(now.interest_rate),
    }


def view_of(profile: NationProfile, inflation: float) -> dict[str, str]:
    """Return the values of a briefing's slots that differ by mandate and target."""
    target = number(profile.inflation_target)
    return {
        "profile": f"Mandate: {profile.mandate}. Inflation target: {target}% over 4 quarters. "
        f"Temperament: {profile.temperament}.",
        "distance": _distance(inflation - profile.inflation_target),
        "inflation_target": target,
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
