"""Whether the prompts of one question begin with what is the same for all players.

A server has to read a prompt from the first place where it differs from the prompts that it has in
memory. So text that is the same for all should come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from llmsim_lab._util.text import clip, counted, estimate_tokens
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.tape.prompts_read import shared_start

_SHORT = 200
"""Shorter prompts, in characters, are read at once, whatever their order."""
_LITTLE = 0.3
"""The common start is short if it is less than this share of a prompt."""
_MUCH = 0.6
"""Much of the rest is common if it is more than this share."""
_MOST_PROMPTS = 50
"""How many prompts of a question are compared; the others hardly change the result."""
_GROWTH = 50
"""Prompts that grow by fewer characters have no history."""
_SENTENCE = re.compile(r"\n|(?<=[.!?:;])\s+")
"""Divides a text into pieces that could stand elsewhere in it."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class PromptOrder:
    """What the prompts of one question have in common.

    Attributes:
        place: the question in words: ``turn 1, Gift``.
        prompts: the number of prompts.
        characters: the mean length of a prompt in characters.
        tokens: the mean length in estimated tokens.
        start: the number of characters that all prompts have in common from their start.
        elsewhere: the share of the rest, 0 to 1, in sentences and lines that all prompts have.
        differs: the first difference, in words.
        begun: the same question in an earlier turn; None if there is none to compare with.
    """

    place: str
    prompts: int
    characters: float
    tokens: int
    start: int
    elsewhere: float
    differs: str
    begun: PromptOrder | None = None

    @property
    def is_late(self) -> bool:
        """True if text that is the same for all comes too late for a server to keep it."""
        is_long = self.prompts > 1 and self.characters >= _SHORT
        is_little = self.start < _LITTLE * self.characters
        return is_long and self.elsewhere > _MUCH and (is_little or self._grows_late)

    @property
    def _grows_late(self) -> bool:
        """True if a history grows too late for a server to keep it, even after long rules."""
        if self.begun is None:
            return False
        growth = self.characters - self.begun.characters
        return growth >= _GROWTH and self.start - self.begun.start < _LITTLE * growth

    @property
    def advice(self) -> str:
        """What to change, in a sentence."""
        return (
            f"{self.place}: the prompts share {counted(self.start, 'character')} from their start "
            f"and {100 * self.elsewhere:.0f} % of the rest; {self.differs}. A server reads anew "
            "what follows the first difference: put what is the same for all first, or into "
            "system=."
        )

    def __str__(self) -> str:
        size = f"about {counted(self.tokens, 'token')}"
        if self.prompts == 1:
            return f"{self.place}: 1 prompt of {size}"
        share = 100 * self.start / self.characters
        return (
            f"{self.place}: {self.prompts} prompts of {size}, "
            f"{share:.0f} % the same from their start"
        )


def prompt_order(place: str, prompts: Sequence[str]) -> PromptOrder:
    """Return what the prompts of one question have in common.

    Args:
        place: the question in words.
        prompts: the prompts of its players, at least one.
    """
    compared = prompts[:_MOST_PROMPTS]
    first = min(compared)
    last = max(compared)
    # In sorted order, the first and the last have the least in common from their start.
    start = shared_start((first,), (last,))  # all texts between these two have this start as well
    pieces = []
    for text in compared:
        sentences = _SENTENCE.split(text[start:].strip())
        pieces.append(Counter(filter(None, sentences)))
    # Sentences that all prompts have, wherever they stand; repeated ones count repeatedly.
    shared = _size(reduce(and_, pieces)) * len(compared)
    rest = sum(map(_size, pieces))
    return PromptOrder(
        place=place,
        prompts=len(prompts),
        characters=sum(map(len, prompts)) / len(prompts),
        tokens=round(sum(map(estimate_tokens, prompts)) / len(prompts)),
        start=start,
        elsewhere=shared / max(rest, 1),
        differs=_difference(first, last, start),
    )


def _size(pieces: Counter[str]) -> int:
    return sum(len(piece) * number for piece, number in pieces.items())


def _difference(
    first: str,
    last: str,
    start: int,
) -> str:
    """Return the first difference between two prompts, in words."""
    for text in (first, last):
        name = _slot_at(text, start)
        if name.isidentifier():
            return f"the first slot that differs is {{{{ {name} }}}}"
        if name:
            return f"the first part that differs is {name}"
    return f"they first differ at {_line_at(first, start)!r} and {_line_at(last, start)!r}"


def _line_at(text: str, place: int) -> str:
    """Return a text from a place to the end of its line, shortened."""
    return clip(text[place : place + 60].partition("\n")[0], 30)


def _slot_at(text: str, place: int) -> str:
    """Return the slot of a prompt whose value holds or ends at a place; empty if there is none."""
    if not isinstance(text, RenderedPrompt):
        return ""
    before_user = len(text) - len(text.user)
    ends_here = ""
    for span in text.spans:
        shift = before_user if span.role == "user" else 0
        if span.start + shift <= place < span.end + shift:
            return span.name
        if place == span.end + shift:
            ends_here = span.name
    return ends_here
