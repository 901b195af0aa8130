"""Text on charts: safe to draw whatever it says, and placed so that it can be read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from llmsim_lab.text import clip, printable

__all__ = ["drawable", "spread_out"]


def drawable(text: str, length: int = 40) -> str:
    """Return a stranger's text as matplotlib draws it as it is: no formula, no missing letter.

    Args:
        text: such as a run's name.
        length: the most characters; a longer one is cut with an ellipsis.
    """
    shown = clip(printable(text), length)
    known = "".join(letter if _has(letter) else "\N{WHITE SQUARE}" for letter in shown)
    return known.replace("\\", "\N{SET MINUS}").replace("$", r"\$")


@cache
def _has(letter: str) -> bool:
    """Say whether the font has a letter; without it drawing would warn."""
    return letter.isascii() or bool(_font().get_char_index(ord(letter)))


@cache
def _font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


def spread_out(heights: Sequence[float], *, gap: float, most: float) -> list[float | None]:
    """Return where labels go so that they do not overlap; None for one that finds no room.

    Args:
        heights: where each should be.
        gap: the least distance between two.
        most: how far one may be moved.
    """
    placed: list[float | None] = [None] * len(heights)
    lowest = float("-inf")
    for place in sorted(range(len(heights)), key=heights.__getitem__):
        wanted = max(heights[place], lowest + gap)
        if wanted - heights[place] <= most:
            placed[place] = lowest = wanted
    return placed
