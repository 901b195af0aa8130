"""The economy's figures as series, its parameters, and the moves on offer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief
from llmsim_lab.run.series import Series

SERIES = (
    Series(
        column="interest_rate",
        label="Policy rate",
        unit="% per year",
        short="rate",
    ),
    Series(
        column="inflation",
        label="Inflation",
        unit="% over four quarters",
        short="infl.",
    ),
    Series(column="output_gap", label="Output gap", unit="% of potential output"),
    Series(
        column="unemployment",
        label="Unemployment",
        unit="% of labour force",
        short="unem.",
    ),
    Series(column="gdp_growth", label="Real growth", unit="% per year"),
    Series(column="total_economic_value", label="Real output", unit="index"),
    Series(column="taylor_rate", label="Rate by the Taylor rule", unit="% per year"),
)
"""The columns of a run's frame that have charts."""


class EconomyConfig(Settings):
    """The economy that the interest rate acts on.

    Attributes:
        shock_scale: size of the random shocks: 1 for their estimated spread, 0 for none.
        fiscal_backstop: whether the budget adds demand where the rate is at its lower bound and the
            Taylor rule asks for a rate more than two points below it; without it long runs may end
            in a deflationary spiral.
        mirrored: whether all is as far on the other side of the steady state: the start, the
            quarters before it and the random shocks. Where inflation was too high it is then too
            low, so that two runs show whether a player responds to the economy or to the word
            "inflation".
    """

    shock_scale: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    fiscal_backstop: bool = False
    mirrored: bool = False


_SIZES_BP = (25, 50, 75, 100, 150, 200, 300, 450)
"""The largest change in a quarter of the data is 446."""
_CUTS_BP = [-size for size in reversed(_SIZES_BP)]
MOVES_BP = (*_CUTS_BP, 0, *_SIZES_BP)
"""The moves on offer by default, basis points."""

_LARGEST_MOVE = 100_000
_MOST_MOVES = 101
"""Servers cannot constrain a reply to a longer list of values."""


def checked_moves(moves: tuple[int, ...]) -> tuple[int, ...]:
    """Return moves in ascending order.

    Raises:
        ValueError: there are too few or too many moves, one occurs twice, or 0 is missing.
    """
    # Without 0 a bank could not hold the rate.
    can_hold = 0 in moves
    # Options are looked up by their moves.
    are_different = len(set(moves)) == len(moves)
    are_as_many = 2 <= len(moves) <= _MOST_MOVES
    are_possible = all(abs(move) <= _LARGEST_MOVE for move in moves)
    if not (can_hold and are_different and are_as_many and are_possible):
        raise ValueError(
            f"moves_bp={brief(list(moves), 120)} must be 2 to {_MOST_MOVES} different changes, at "
            f"most {_LARGEST_MOVE:,} basis points, 0 among them, such as [-25, 0, 25]; null lets "
            "agents use words"
        )
    # Sorted, since prompts and charts list moves from cut to rise.
    return tuple(sorted(moves))
