"""In which order the prompts of one question say what is the same for all players.

A server reads a prompt anew from the first place on where it differs from those that it holds. What
is the same for all therefore belongs first.
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
"""Prompts of fewer characters are read at once, whatever their order."""
_LITTLE = 0.3
"""Of a prompt: what is the same from the start is less than this share."""
_MUCH = 0.6
"""Of the rest: what is the same is more than this share."""
_MOST_PROMPTS = 50
"""So many of a question are compared: what they share, the others share as well, or nearly."""
_GROWTH = 50
"""Prompts that grow by fewer characters have no history."""
_SENTENCE = re.compile(r"\n|(?<=[.!?:;])\s+")
"""What divides a text into pieces that could stand elsewhere in it."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class PromptOrder:
    """What the prompts of one question have in common.

    Attributes:
        place: which question it is: ``turn 1, Gift``.
        prompts: how many.
        characters: of a prompt, in the mean.
        tokens: the same as estimated tokens.
        start: how many characters all have in common from their start.
        elsewhere: of the rest, the share in sentences and lines that all have, 0 to 1.
        differs: what differs first, in words.
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
        """Whether what is the same for all comes too late to be kept by a server."""
        is_long = self.prompts > 1 and self.characters >= _SHORT
        is_little = self.start < _LITTLE * self.characters
        return is_long and self.elsewhere > _MUCH and (is_little or self._grows_late)

    @property
    def _grows_late(self) -> bool:
        """Whether a history grows where a server cannot keep it, however long the rules before."""
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
        place: which question it is, in words.
        prompts: one of each player, at least one.
    """
    compared = prompts[:_MOST_PROMPTS]
    first = min(compared)
    last = max(compared)
    # Sorted, first and last are those that have least in common from their start.
    start = shared_start((first,), (last,))  # what these two share, all between them share
    pieces = []
    for text in compared:
        sentences = _SENTENCE.split(text[start:].strip())
        pieces.append(Counter(filter(None, sentences)))
    # Sentences that all have, as often as all have them, wherever they stand.
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
    """Return what differs between two prompts that share so many characters, in words."""
    for text in (first, last):
        name = _slot_at(text, start)
        if name.isidentifier():
            return f"the first slot that differs is {{{{ {name} }}}}"
        if name:
            return f"the first part that differs is {name}"
    return f"they first differ at {_line_at(first, start)!r} and {_line_at(last, start)!r}"


def _line_at(text: str, place: int) -> str:
    """Return how a text goes on from a place, to the end of that line at most."""
    return clip(text[place : place + 60].partition("\n")[0], 30)


def _slot_at(text: str, place: int) -> str:
    """Return the slot of a prompt whose value holds a place, or ends there; empty if none does."""
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
