"""What a world tells the people in its seats: about the latest turn, and their payoff at the end.

Rooms and windows show it. A world's code may raise anything here; rooms and windows go on.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, cast

from llmsim_lab.llm import Person

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmsim_lab._util.jsontext import JSON
    from llmsim_lab.run.recorded import Run
    from llmsim_lab.run.state import State

__all__ = ["is_over", "payoff_of", "seats_of_people", "told_in", "told_of"]

logger = logging.getLogger(__name__)


def is_over(run: Run) -> bool:
    """Return True if no further turn is planned."""
    planned: int = run.config.turns
    return run.turn_number >= planned > 0 or run.done(run.state)


def seats_of_people(run: Run) -> list[str]:
    """Return the players who answered in the latest turn and are people."""
    seats: dict[str, None] = {}
    for answer in run.turns[-1].answers:
        player = run.players.get(answer.player, run.players.get("*"))
        if isinstance(getattr(player, "backend", None), Person):
            seats[answer.player] = None
    return list(seats)


def told_in(
    run: Run,
    seats: Iterable[str],
) -> dict[str, dict[str, JSON]]:
    """Return what players are told of the latest turn, and their payoff at the end, by seat."""
    told: dict[str, dict[str, JSON]] = {}
    if not run.turn_number:  # the first state is not the result of a turn
        return told
    for seat in seats:
        lines = told_of(run, run.state, seat)
        payoff = payoff_of(run, seat) if is_over(run) else None
        if payoff is not None:
            lines["your payoff in all"] = payoff
        if lines:
            told[seat] = lines
    return told


def payoff_of(run: Run, seat: str) -> float | None:
    """Return a player's payoff, if the world has ``payoff(player)``."""
    payoff = getattr(run, "payoff", None)
    if not callable(payoff) or not run.turn_number:  # a round may end before its first turn
        return None
    try:
        value = float(payoff(seat))
    except Exception as error:  # noqa: BLE001 - a world's own code, which must not end the page
        logger.warning("payoff(%r) failed, so no payoff is shown: %r", seat, error)
        return None
    if not math.isfinite(value):
        logger.warning("payoff(%r) is %r, so no payoff is shown", seat, value)
        return None
    return value


def told_of(
    run: Run,
    state: State,
    seat: str,
) -> dict[str, JSON]:
    """Return what a player is told of a state; values that are not JSON become texts."""
    try:
        results = dict(run.told(state, seat))
    except Exception as error:  # noqa: BLE001 - a world's own code, which must not end the page
        logger.warning("told(state, %r) failed: %r", seat, error)
        return {}
    return {str(label): _as_told(value) for label, value in results.items()}


def _as_told(value: object) -> JSON:
    """Return a value as pages take it: neither NaN nor other libraries' numbers are JSON."""
    is_number = isinstance(value, float) and math.isfinite(value)
    if is_number or isinstance(value, str | bool | int):
        return cast("JSON", value)
    # A list of winners is written as a person would: not ['Cy'].
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(item) for item in value)
    return str(value)
