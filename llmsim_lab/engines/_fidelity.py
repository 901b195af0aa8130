"""The rate that an action's words ask for, where they say it plainly: a measurement, no decision.

What an engine's model makes of an action is compared with it afterwards. Nothing here ever moves a
rate: a decision that should be applied exactly states its ``rate_change_bp``.
"""

from __future__ import annotations

import re

TOLERANCE = 0.125
"""Percentage points; an engine within half a quarter point did what the words say."""

_NUMBER = (
    r"(?P<{0}>\d+(?:\.\d+)?)\s*"
    r"(?P<{0}_unit>%|percentage points?|percent|points?|pp|basis points?|bps?)"
)
_BY = re.compile(rf"\bby (?:about |exactly )?{_NUMBER.format('by')}(?!\w)", re.IGNORECASE)
_TO = re.compile(rf"\b(?:to|at) (?:about |exactly )?{_NUMBER.format('to')}(?!\w)", re.IGNORECASE)
_FROM = re.compile(rf"\bfrom {_NUMBER.format('from')}(?!\w)", re.IGNORECASE)
_UP = re.compile(r"\b(?:rais|increas|hik|lift)(?:e|es|ing)?\b", re.IGNORECASE)
_DOWN = re.compile(r"\b(?:lower|cut|reduc|decreas)(?:e|s|es|ing|ting)?\b", re.IGNORECASE)
_SET = re.compile(r"\bset(?:s|ting)?\b", re.IGNORECASE)
_HOLD = re.compile(r"\b(?:hold|keep|maintain|leave)(?:s|ing)?\b|\bunchanged\b", re.IGNORECASE)
_RATE = re.compile(
    r"\b(?:interest|policy|federal funds|funds|key|bank|base|repo|discount) rates?\b", re.IGNORECASE
)
# Conditions, alternatives, ranges and time: then the words name no one rate for the next quarter.
_UNSURE = re.compile(
    r"\b(?:if|unless|or|not|until|gradual\w*|over|between|each|per (?:quarter|month|meeting)|"
    r"up to|at least|at most|tax(?:es)?|spending|reserve)\b|\d\s*[-\u2013]\s*\d",
    re.IGNORECASE,
)


def stated_rate(action: str, *, current: float) -> float | None:
    """Return the rate that an action's words ask for, percent per year; None where they do not.

    Understood are one direction with ``by X``, one rate with ``to X``, and holding. Percent after
    ``by`` are percentage points, as everybody who writes so means.

    Args:
        action: in words.
        current: the rate in force, percent per year.
    """
    text = " ".join(action.split())
    if not _RATE.search(text) or _UNSURE.search(text):
        return None
    start, text = _FROM.search(text), _FROM.sub("", text)
    if start is not None and abs(_size(start, "from") - current) > TOLERANCE:
        return None
    sizes = len(re.findall(r"\d+(?:\.\d+)?", text))
    by, to = _BY.search(text), _TO.search(text)
    up, down, hold = (bool(words.search(text)) for words in (_UP, _DOWN, _HOLD))
    if sizes != (by is not None) + (to is not None) or up + down + hold > 1:
        return None
    target = None if to is None else _size(to, "to")
    if hold:
        same = target is None or abs(target - current) <= TOLERANCE
        return current if same and by is None else None
    if up or down:
        sign = 1 if up else -1
        if by is None:
            onward = target is not None and (target - current) * sign > 0
            return target if onward else None
        wanted = current + sign * _size(by, "by")
        return wanted if target is None or abs(target - wanted) <= TOLERANCE else None
    return target if _SET.search(text) and by is None else None


def _size(found: re.Match[str], name: str) -> float:
    """Return a number in percent or percentage points."""
    size = float(found[name])
    return size / 100 if found[f"{name}_unit"].lower().startswith(("b",)) else size
