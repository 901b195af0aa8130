"""How much of a run's prompts a server had to read anew.

A server keeps what a prompt has in common, from its start, with one that it still holds. Some say
how many tokens that were. Of the others it is computed from the texts, and then said to be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from llmsim_lab._util.text import estimate_tokens
from llmsim_lab.types import Attempt

Text = tuple[str, ...]
"""The contents of a request's messages, oldest first: not joined, since that would copy them."""

_PERSON = "human"
"""The model's name in requests to people, whose prompts no server reads."""
_SENT_ALL_THE_SAME = ("timeout", "cancelled")
"""Without a reply, other requests did not come to a model."""
_LONG = 10_000
"""Of a message, in characters."""
_MOST_TOKENS = 2**53
"""A count above it, or below 0, was not made by a server."""


class Anew(NamedTuple):
    """Of one request: how much of its prompt was read anew.

    Attributes:
        tokens: of its prompt that were read anew.
        of: tokens of its prompt in all.
        is_counted: whether the server counted them; else they are computed from the texts.
    """

    tokens: int
    of: int
    is_counted: bool


@dataclass(slots=True)
class _Held:
    """What a server may hold of the prompts that one model was sent."""

    latest: Text = ()
    of_kind: dict[str, Text] = field(default_factory=dict)
    every: list[Text] = field(default_factory=list)
    """Sorted: the longest start that a text shares with any of them, it shares with a neighbour."""
    tokens: dict[str, int] = field(default_factory=dict)

    def tokens_of(self, content: str) -> int:
        """Return a message's estimated tokens; thousands of requests may share a long one."""
        if len(content) < _LONG:
            return estimate_tokens(content)
        if content not in self.tokens:
            self.tokens[content] = estimate_tokens(content)
        return self.tokens[content]


@dataclass(slots=True)
class PromptsRead:
    """Adds up requests in the order in which they were made; ``prompts_read`` makes one.

    Attributes:
        requests: how many.
        counted: of how many of them the server counted what it read.
        characters: of their prompts.
        one_slot: those that a server reads that holds the prompt before.
        by_kind: those that a server reads that holds the latest prompt of each kind of question.
        at_best: those that a server reads that holds every prompt of the run.
        tokens: of their prompts, as the server counted them, else estimated.
        tokens_anew: those that the server read anew by its own counts, else as with ``one_slot``.
        tokens_at_best: those that it would have read as with ``at_best``, and no more than it read.
    """

    requests: int = 0
    counted: int = 0
    characters: int = 0
    one_slot: int = 0
    by_kind: int = 0
    at_best: int = 0
    tokens: int = 0
    tokens_anew: float = 0
    tokens_at_best: float = 0
    _models: dict[str, _Held] = field(default_factory=dict, repr=False)

    def add(self, attempt: Attempt) -> Anew | None:
        """Add a request, and return what of its prompt was read anew; None if no server read it."""
        request = attempt.request
        reply = attempt.reply
        if request.model == _PERSON:
            return None
        if reply is None and attempt.reason not in _SENT_ALL_THE_SAME:
            return None
        # By the contents alone: what a chat's form adds between them is the same for all.
        text = tuple([message.content for message in request.messages])
        kind = request.site.component if request.site else ""
        # By model: what one holds does not help another.
        held = self._models.setdefault(request.model, _Held())
        # A character between each two, as in the texts that are compared.
        separators = len(text) - 1
        size = sum(map(len, text)) + separators
        after_latest = size - shared_start(text, held.latest)
        latest_of_kind = held.of_kind.get(kind, ())
        after_kind = size - shared_start(text, latest_of_kind)
        # In order, the text that shares most with this one stands beside it.
        place = bisect_left(held.every, text)
        first = max(0, place - 1)
        neighbours = held.every[first : place + 1]
        shared = [shared_start(text, neighbour) for neighbour in neighbours]
        after_all = size - max(shared, default=0)
        # A server may keep one text, one of each kind, or all of them.
        held.latest = text
        held.of_kind[kind] = text
        held.every.insert(place, text)

        tokens = None
        cached = None
        if reply is not None:
            tokens = reply.prompt_tokens
            cached = reply.cached_tokens
        # Without the server's count, four bytes count as a token.
        if tokens is None or not 0 <= tokens <= _MOST_TOKENS:
            tokens = sum(map(held.tokens_of, text))
            cached = None
        # Of the texts the share, since a server counts the tokens of the whole prompt only.
        anew = tokens * after_latest / max(size, 1)
        at_best = tokens * after_all / max(size, 1)
        is_counted = cached is not None and 0 <= cached <= tokens
        if cached is not None and is_counted:
            anew = tokens - cached
            # It also keeps what a chat's form adds to the texts, and prompts of earlier runs.
            at_best = min(at_best, anew)
        self.requests += 1
        self.counted += is_counted
        self.characters += size
        self.one_slot += after_latest
        self.by_kind += after_kind
        self.at_best += after_all
        self.tokens += tokens
        self.tokens_anew += anew
        self.tokens_at_best += at_best
        return Anew(round(anew), tokens, is_counted)

    @property
    def share(self) -> float:
        """Of the prompts' tokens those that were read anew, 0 to 1."""
        return self.tokens_anew / max(self.tokens, 1)

    @property
    def share_at_best(self) -> float:
        """Of the prompts' tokens those that would do for the same texts, 0 to 1."""
        return self.tokens_at_best / max(self.tokens, 1)

    def __str__(self) -> str:
        """A sentence for people; empty where there is nothing that could have been kept."""
        if self.requests < 2:
            return ""
        read_pct = f"{100 * self.share:.0f} %"
        best_pct = f"{100 * self.share_at_best:.0f} %"
        if best_pct == read_pct:
            best_pct = "no less"
        words = f"{read_pct} of the prompts' tokens were read anew; {best_pct} would do"
        if self.counted == 0:
            return f"{words} (computed from the texts: the server does not tell)"
        if self.counted < self.requests:
            rest = self.requests - self.counted
            return f"{words} (computed from the texts for {rest:,} of {self.requests:,} requests)"
        return words


def prompts_read(attempts: Iterable[Attempt]) -> PromptsRead:
    """Return how much of the prompts of these requests a server had to read anew.

    Args:
        attempts: of one run, second ones too. Those of a tape are taken in its order, each once.
    """
    ordered = list(attempts)
    # Players ask at once, so the order in which a turn names its calls is not that of the server.
    if all(attempt.number is not None for attempt in ordered):
        by_number = {attempt.number or 0: attempt for attempt in ordered}
        ordered = [by_number[number] for number in sorted(by_number)]
    total = PromptsRead()
    for attempt in ordered:
        total.add(attempt)
    return total


def shared_start(a: Text, b: Text) -> int:
    """Return how many characters two texts have in common from their start.

    The end of a message that another one follows counts as a character.
    """
    common = 0
    for message, other in zip(a, b, strict=False):
        if message != other:
            return common + _common_prefix(message, other)
        common += len(message) + 1
    return max(0, common - 1)  # no character follows the end of the shorter one


def _common_prefix(a: str, b: str) -> int:
    """Return the length of two texts' common start: by halves, since a loop of Python is slow."""
    low = 0
    high = min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
