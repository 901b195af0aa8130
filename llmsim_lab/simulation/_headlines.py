"""The quarter's news, written by code from numbers that a model is told too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from llmsim_lab.models import GlobalState

_WORDS = ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = dict(enumerate(_WORDS, start=3))
_PLACES = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_ORDINALS = dict(enumerate(_PLACES, start=2))
_LEAST_RECORD = 3
"""Quarters that a high or low has to outlast to be news."""


def headlines(quarters: Sequence[GlobalState], *, target: float = 2.0) -> list[str]:
    """Return up to three headlines on the latest quarter, the most striking first.

    Numbers have one decimal, the rate two, and what does not show in them is not news.

    Args:
        quarters: all that were played, oldest first.
        target: of inflation, percent.
    """
    now = quarters[-1]
    if len(quarters) == 1:
        return [
            f"The term begins: inflation {now.inflation:.1f} %, unemployment "
            f"{now.unemployment:.1f} %, the rate {now.interest_rate:.2f} %"
        ]
    news = [
        _level("Inflation", [q.inflation for q in quarters], usual=0.5, target=target),
        _level("Unemployment", [q.unemployment for q in quarters], usual=0.4),
        _growth([q.gdp_growth for q in quarters]),
        _rate([q.interest_rate for q in quarters]),
    ]
    return [text for _, text in sorted(news, key=lambda item: -item[0])][:3]


def _level(
    name: str, values: Sequence[float], *, usual: float, target: float | None = None
) -> tuple[float, str]:
    """Return how striking a level is, in usual changes, and what to say of it."""
    *before, now = (round(value, 1) for value in values)
    change = now - before[-1]
    size = abs(change) / usual
    if target is not None and abs(now - target) <= 0.25 < abs(before[-1] - target):
        return size + 2, f"{name} is back at its target: {now:.1f} %"
    if not change:
        return 0.1, f"{name} stays at {now:.1f} %"
    verb = (
        ("jumps" if change > 0 else "tumbles") if size > 2 else "climbs" if change > 0 else "falls"
    )
    text = f"{name} {verb} to {now:.1f} %"
    sign = 1 if change > 0 else -1
    beaten = _run(sign * (now - value) > 0 for value in reversed(before))
    if beaten < _LEAST_RECORD:
        return size, text
    which = "highest" if change > 0 else "lowest"
    span = "of the term" if beaten == len(before) else f"in {_NUMBERS.get(beaten, beaten)} quarters"
    return size + 1, f"{text}, its {which} {span}"


def _growth(values: Sequence[float]) -> tuple[float, str]:
    now = round(values[-1], 1)
    shrinking = _run(round(value, 1) < 0 for value in reversed(values))
    if shrinking > 1:
        running = _ORDINALS.get(shrinking, f"{shrinking}th")
        text = f"Recession: output shrinks for the {running} quarter running"
        return 3, f"{text}, by {-now:.1f} % a year"
    if shrinking:
        return 2, f"Output shrinks, at a rate of {-now:.1f} % a year"
    verb = "booms" if now > 5 else "grows"
    return abs(now - 2.2) / 3, f"The economy {verb} by {now:.1f} % a year"


def _rate(values: Sequence[float]) -> tuple[float, str]:
    moves = [round(b - a, 2) for a, b in pairwise(values)]
    if not moves[-1]:
        held = _run(not move for move in reversed(moves))
        more = f" for the {_ORDINALS[held]} time running" if held in _ORDINALS else ""
        return 0.2, f"The bank holds its rate at {values[-1]:.2f} %{more}"
    verb = "raises" if moves[-1] > 0 else "cuts"
    size = abs(moves[-1])
    return 0.5 + size, f"The bank {verb} its rate by {size:.2f} points to {values[-1]:.2f} %"


def _run(hits: Iterable[bool]) -> int:
    """Return how many come first that hold."""
    return len(list(takewhile(bool, hits)))
