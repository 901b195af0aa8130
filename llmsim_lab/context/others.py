"""The section on what the others did: in a fixed order, in their own words, cut if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llmsim_lab.context.budget import CORE, CountTokens, Part
from llmsim_lab.context.wording import names_a_speaker, quote, section

__all__ = ["Others"]

_SHORTEST_CHARS = 20
"""A reply is never cut to less; a prompt that needs more cutting is refused."""


class Others:
    """Writes the section.

    Args:
        order: of the agents; those that it does not name follow in the order given.
        count: counts or estimates tokens.
    """

    def __init__(self, order: Sequence[str], count: CountTokens) -> None:
        self._rank = {name: place for place, name in enumerate(order)}
        self._count = count

    def part(self, agent_name: str, step_number: int, responses: Mapping[str, str]) -> Part:
        """Return the section for one agent, whose own words are left out.

        Args:
            agent_name: who reads it.
            step_number: the step that begins; the words are of the one before.
            responses: what each agent said.
        """
        said = [(name, words.strip()) for name, words in responses.items() if name != agent_name]
        if self._rank:
            last = len(self._rank)
            said.sort(key=lambda item: self._rank.get(item[0], last))
        title = f"WHAT OTHERS DID (Step {step_number - 1})"
        names: frozenset[str] = frozenset()
        if any(names_a_speaker(words) for _, words in said):
            names = frozenset(map(str.casefold, {agent_name, *responses, *self._rank}))

        def write(limit: int | None = None) -> str:
            quoted = [quote(name, _cut(words, limit), names) for name, words in said]
            return section(title, "\n\n".join(quoted) or "Nobody has acted yet.")

        def shorter(tokens: int) -> str | None:
            longest = max((len(words) for _, words in said), default=0)
            return self._shorter(write, longest, tokens)

        return Part("WHAT OTHERS DID", CORE, "user", write(), shorter=shorter)

    def _shorter(self, write: Callable[[int], str], longest: int, tokens: int) -> str | None:
        """Cut every reply to the same length, the longest that the tokens allow."""
        low, high = 0, longest
        while low < high:
            middle = (low + high + 1) // 2
            if self._count(write(middle)) <= tokens:
                low = middle
            else:
                high = middle - 1
        return write(low) if low >= _SHORTEST_CHARS else None


def _cut(words: str, limit: int | None) -> str:
    if limit is None or len(words) <= limit:
        return words
    return words[: limit - 1].rstrip() + "…"
