"""How numbers and lines are written for models and people."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["clip", "number"]


@lru_cache(maxsize=1024)
def number(value: float) -> str:
    """Write a number with at most two decimals, none of them idle: 9.375 as 9.38, 2.0 as 2."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def clip(text: str, length: int) -> str:
    """Put a text on one line of at most so many characters, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
