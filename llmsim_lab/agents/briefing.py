"""A central bank's briefing: two years of figures, the stance of policy, the moves on offer.

Each number has a unit and a horizon, and comes from the state: models, rules and people read the
same output gap. Quarters before the run are history, in the final vintage of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import number
from llmsim_lab.economy.data import Quarter, quarters_before
from llmsim_lab.economy.macro import RudebuschSvensson
from llmsim_lab.models import GlobalState

SHOWN = 8
"""The number of quarters in the table."""

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


class _HasEconomy(Protocol):
    """A state of an economic run, or of the contracts."""

    @property
    def global_state(self) -> GlobalState: ...

    @property
    def period(self) -> str | None: ...


def known_quarters(
    states: Sequence[_HasEconomy],
    *,
    us_from: str | None = None,
    mirrored: bool = False,
) -> list[Quarter]:
    """Return all quarters up to the last of a run's states, oldest first.

    Quarters before a run that starts from a real quarter are those of the data. Before any other
    run, they have the levels of the first state, and an output gap of 0.

    Args:
        states: the states of an economic run, from its first turn on.
        us_from: the quarter of the US data that the run starts from, if any.
        mirrored: whether the run starts from that quarter's mirror image.
    """
    quarters = [_quarter(state) for state in states]
    if us_from:
        # The data up to the quarter that the run starts from.
        history = quarters_before(us_from, mirrored=mirrored)
        return [*history, *quarters]
    # A table with a single line would show a model that this is the first turn.
    first = quarters[0]
    before = Quarter(
        period=None,
        inflation=first.inflation,
        inflation_in_quarter=first.inflation_in_quarter,
        output_gap=0.0,
        unemployment=first.unemployment,
        interest_rate=first.interest_rate,
    )
    return [before] * (SHOWN - 1) + quarters


def _quarter(state: _HasEconomy) -> Quarter:
    # With the gap that players read, which may differ from the true one.
    economy = state.global_state
    return Quarter(
        period=state.period,
        inflation=economy.inflation,
        inflation_in_quarter=economy.lags.inflation[0],
        output_gap=economy.output_gap,
        unemployment=economy.unemployment,
        interest_rate=economy.interest_rate,
    )


def role_of(
    name: str,
    *,
    masked: bool,
    members: int,
    rule: str,
) -> str:
    """Return the first words of a prompt, which say who is asked: a bank or a committee's member.

    Args:
        name: the name of the economy, or of the member.
        masked: whether the economy is not named, so that a model cannot recall its history.
        members: how many members vote.
        rule: how the votes become one rate, in words.
    """
    # With one member there is no vote.
    if members == 1:
        economy = "a large economy" if masked else name
        return f"You are the central bank of {economy} and set its policy interest rate."
    # A member's name tells nothing about the economy, but a masked run has no names.
    member = "one" if masked else f"{name}, one"
    return (
        f"You are {member} of the {members} members of the committee that sets the policy interest "
        f"rate of a large economy; the votes are put together by the rule: {rule}."
    )


def briefing(
    quarters: Sequence[Quarter],
    *,
    masked: bool,
) -> dict[str, str]:
    """Return the values of a briefing's slots that are the same for all members.

    Args:
        quarters: as ``known_quarters`` returns them, oldest first.
        masked: whether quarters are counted back from now instead of having dates.
    """
    # Two years, so that the prompt does not grow with each turn.
    latest = quarters[-SHOWN:]
    lines = [_HEADER]
    for place, quarter in enumerate(latest, start=1):
        line = _line(
            quarter,
            len(latest) - place,
            masked=masked,
        )
        lines.append(line)
    now = latest[-1]
    # Only the first quarters of the data lack it, and never the latest one.
    assert now.inflation is not None
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


def briefing_for_people(
    quarters: Sequence[Quarter],
    profile: NationProfile,
    role: str,
    *,
    masked: bool,
) -> str:
    """Return a briefing for a person: the same figures in a third of the words.

    Args:
        quarters: as for ``briefing``.
        profile: the member's profile.
        role: as ``role_of`` returns it.
        masked: as for ``briefing``.
    """
    shown = briefing(quarters, masked=masked)
    # The rounded figure, so that both figures of a sentence agree to the last digit.
    view = view_of(profile, float(shown["inflation"]))
    *earlier, now = quarters[-SHOWN:]
    before = []
    for place, quarter in enumerate(earlier):
        quarters_ago = len(earlier) - place
        name = _name_of(quarter, quarters_ago, masked=masked)
        before.append(
            f"{name}: rate {quarter.interest_rate:.2f}, "
            f"inflation {_cell(quarter.inflation)} (quarter {_cell(quarter.inflation_in_quarter)}),"
            f" gap {_cell(quarter.output_gap)}, unemployment {_cell(quarter.unemployment)}"
        )
    return "\n".join(
        [
            f"{role} {view['profile']}",
            "",
            f"Now the policy rate is {shown['interest_rate']} %. Inflation over four quarters is "
            f"{shown['inflation']} %, {view['distance']} the target (in the quarter "
            f"{_cell(now.inflation_in_quarter)} %). The output gap is {_cell(now.output_gap)} %, "
            f"unemployment {_cell(now.unemployment)} %.",
            "",
            f"Output first responds to the rate 2 quarters from now, inflation 3. The real rate is "
            f"{shown['real_rate']} %, {shown['stance']} the neutral "
            f"{shown['neutral_real_rate']} %: above it output and then inflation fall.",
            "",
            "Before, oldest first, %:",
            *before,
        ]
    )


def _name_of(
    quarter: Quarter,
    quarters_ago: int,
    *,
    masked: bool,
) -> str:
    """Return the name of a quarter."""
    # If masked, quarters are counted back, since a date would tell a model what happened next.
    if quarter.period and not masked:
        return quarter.period
    if quarters_ago == 0:
        return "now"
    return f"-{quarters_ago}"


def _line(
    quarter: Quarter,
    quarters_ago: int,
    *,
    masked: bool,
) -> str:
    """Return a quarter as a line of the table."""
    name = _name_of(quarter, quarters_ago, masked=masked)
    real_rate = None
    # As in the model, minus inflation over four quarters, which the first data lack.
    if quarter.inflation is not None:
        real_rate = quarter.interest_rate - quarter.inflation
    figures = (
        quarter.inflation,
        quarter.inflation_in_quarter,
        quarter.output_gap,
        quarter.unemployment,
        quarter.interest_rate,
        real_rate,
    )
    return " | ".join([name, *map(_cell, figures)])


def view_of(profile: NationProfile, inflation: float) -> dict[str, str]:
    """Return the values of a briefing's slots that depend on the member's mandate and target."""
    target = number(profile.inflation_target)
    return {
        "profile": f"Mandate: {profile.mandate}. Inflation target: {target}% over 4 quarters. "
        f"Temperament: {profile.temperament}.",
        "distance": _distance(inflation - profile.inflation_target),
        "inflation_target": target,
    }


def _cell(value: float | None) -> str:
    """Return a figure to two decimals."""
    if value is None:
        return "not known"
    # Adding 0 turns -0.0 into 0.0.
    rounded = round(value, 2) + 0.0
    return f"{rounded:.2f}"


def _distance(difference: float) -> str:
    """Return the words for a distance from a mark, to be followed by the mark."""
    # As printed: 0.004 points are 0.00.
    points = number(abs(difference))
    if points == "0":
        return "at"
    noun = "point" if points == "1" else "points"
    side = "above" if difference > 0 else "below"
    return f"{points} percentage {noun} {side}"
