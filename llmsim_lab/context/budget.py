"""Keep a prompt to a number of tokens, by declared priority, and note what that cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llmsim_lab.calls import Role
from llmsim_lab.errors import ConfigError
from llmsim_lab.spans import Cut

__all__ = [
    "CORE",
    "CountTokens",
    "Part",
    "bytes_to_tokens",
    "estimate_tokens",
    "fit",
    "keep_to_allowance",
    "module_source",
    "shorten",
]

CORE = "context builder"
"""The source of sections that are not a module's."""

CountTokens = Callable[[str], int]

_BYTES_PER_TOKEN = 4
_SEPARATOR_TOKENS = 1
_ELLIPSIS = " …"


def module_source(name: str) -> str:
    """Return the source of a module's sections, as spans and cuts have it."""
    return f"module {name}"


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens without a tokenizer: four UTF-8 bytes each, rounded up.

    English prose has between 4 and 5 characters a token on current models; figures, names and other
    scripts have fewer, so leave a quarter to spare where a limit is hard.
    """
    return bytes_to_tokens(len(text) if text.isascii() else len(text.encode()))


def bytes_to_tokens(size: int) -> int:
    """Estimate the tokens of a text from its length in UTF-8; see ``estimate_tokens``."""
    return -(-size // _BYTES_PER_TOKEN)


class Part(NamedTuple):
    """A section on its way into a prompt.

    Attributes:
        name: its title.
        source: who contributes it.
        role: of the message it goes into.
        text: with its heading.
        priority: 0 to 100, the lowest goes first; None: it is never left out.
        shorter: makes a text of at most so many tokens of it, or None if that cannot be.
    """

    name: str
    source: str
    role: Role
    text: str
    priority: int | None = None
    shorter: Callable[[int], str | None] | None = None


def shorten(text: str, tokens: int, count: CountTokens) -> str | None:
    """Cut a section at the end of a word, with an ellipsis; None if only its heading would stay."""
    head = text.index("\n") + 1 if text.startswith("=== ") and "\n" in text else 0
    low, high = head, len(text)
    while low < high:  # the longest beginning that fits
        middle = (low + high + 1) // 2
        if count(text[:middle] + _ELLIPSIS) <= tokens:
            low = middle
        else:
            high = middle - 1
    kept = text[: max(text.rfind(" ", head, low), text.rfind("\n", head, low), head)].rstrip()
    return kept + _ELLIPSIS if len(kept) > head else None


def keep_to_allowance(
    parts: Sequence[Part], tokens: int, count: CountTokens
) -> tuple[list[Part], list[Cut]]:
    """Keep one module's parts to the tokens it may use: the last are shortened or left out."""
    kept: list[Part] = []
    cuts: list[Cut] = []
    left = tokens
    for part in parts:
        need = count(part.text)
        if need <= left:
            kept.append(part)
            left -= need
            continue
        text = shorten(part.text, left, count)
        reason = f"left out: max_tokens={tokens}"
        if text is not None:
            kept.append(part._replace(text=text))
            reason = f"shortened to {count(text)} tokens: max_tokens={tokens}"
        left = 0
        cuts.append(Cut(part.name, part.source, reason, need, shortened=text is not None))
    return kept, cuts


def fit(
    parts: Sequence[Part], budget_tokens: int, count: CountTokens
) -> tuple[list[Part], list[Cut]]:
    """Keep a whole prompt to a budget.

    Parts with a priority are left out, the lowest first and among equals the last. If that is not
    enough, those that can be made shorter are.

    Raises:
        ConfigError: what cannot be cut is longer than the budget.
    """
    kept = list(parts)
    needs = [count(part.text) + _SEPARATOR_TOKENS for part in kept]
    total = sum(needs)
    cuts: list[Cut] = []
    order = sorted(
        (part.priority, -place) for place, part in enumerate(kept) if part.priority is not None
    )
    gone: set[int] = set()
    for _, place in order:
        if total <= budget_tokens:
            break
        gone.add(-place)
        total -= needs[-place]
        part = kept[-place]
        reason = f"left out: budget_tokens={budget_tokens}, priority {part.priority}"
        cuts.append(Cut(part.name, part.source, reason, needs[-place] - _SEPARATOR_TOKENS))
    for place, part in enumerate(kept):
        if total > budget_tokens and part.shorter is not None:
            need = needs[place] - _SEPARATOR_TOKENS
            text = part.shorter(need - (total - budget_tokens))
            if text is not None:
                kept[place] = part._replace(text=text)
                total += count(text) - need
                reason = f"shortened to {count(text)} tokens: budget_tokens={budget_tokens}"
                cuts.append(Cut(part.name, part.source, reason, need, shortened=True))
    if total > budget_tokens:
        raise ConfigError(
            f"budget_tokens={budget_tokens}, but the sections that are always there need about "
            f"{total} tokens; raise it, or shorten the role, the events or the state"
        )
    return [part for place, part in enumerate(kept) if place not in gone], cuts
