"""Memory: what a player keeps of earlier turns, no longer than a prompt can hold.

It is a value in a state, so that forks, replays and interventions see it as any other. A summary is
a question like any other: the world asks for it and adds the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import FailFast, field_validator

from llmsim_lab._util.checks import plain_number, real_number, whole_number
from llmsim_lab._util.text import brief, estimate_tokens, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.state import State

if TYPE_CHECKING:
    from llmsim_lab.run._ask import Ask

HALF_LIFE = 10.0
"""After so many turns an entry counts half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """One thing remembered.

    Attributes:
        turn: when it happened.
        text: what.
        weight: how much it matters.
        tokens: of the text, as the model's own tokenizer counted them; None where nobody did.

    Raises:
        ConfigError: one of them is of the wrong kind.
    """

    turn: int
    text: str
    weight: float = 1.0
    tokens: int | None = None

    def __post_init__(self) -> None:
        # Checked where it is written: the state would say so a turn later, and a weight that is
        # NaN would put all others in a wrong order.
        whole_number("turn", self.turn)
        if not isinstance(self.text, str):
            raise ConfigError(
                f"turn {self.turn}: what is remembered is a text, and this is {brief(self.text)}"
            )
        real_number("weight", self.weight)
        if self.tokens is not None:
            whole_number("tokens", self.tokens, least=0)
        # No tape holds numpy's numbers, and no file half a character.
        object.__setattr__(self, "turn", plain_number(self.turn))
        object.__setattr__(self, "weight", plain_number(self.weight))
        object.__setattr__(self, "text", whole_text(self.text))

    def __str__(self) -> str:
        return self.text


class Memory(State):
    """What one player remembers, oldest first; ``dict[str, Memory]`` in a state has all players'.

    Attributes:
        entries: all of it.
    """

    # The first wrong entry is the error: of range(10**12) pydantic would keep every one.
    entries: Annotated[tuple[MemoryEntry, ...], FailFast()] = ()

    @field_validator("entries")
    @classmethod
    def _in_order_of_turns(cls, entries: tuple[MemoryEntry, ...]) -> tuple[MemoryEntry, ...]:
        # A summary is added late and is of an earlier turn; sorted() keeps the order within one.
        return tuple(sorted(entries, key=lambda entry: entry.turn))

    def add(
        self,
        turn: int,
        text: str,
        *,
        weight: float = 1.0,
    ) -> Memory:
        """Return a memory with one entry more, after those of its turn.

        Raises:
            ConfigError: one of them is of the wrong kind.
        """
        entry = MemoryEntry(
            turn=turn,
            text=text,
            weight=weight,
        )
        return self.replace(entries=(*self.entries, entry))

    async def counted(self, ask: Ask) -> Memory:
        """Return the same memory, whose new entries' tokens the run's model has counted.

        A text is counted once, and the count stays with its entry. Where the model's backend has no
        tokenizer to ask (``ask.count_tokens``), ``within`` goes on estimating.
        """
        # Counted once: what a tape has of it is one line for each text, and not for each turn.
        new = [entry.text for entry in self.entries if entry.tokens is None]
        counts = await ask.count_tokens(new) if new else None
        if counts is None:
            return self
        tokens_of = dict(
            zip(
                new,
                counts,
                strict=True,
            )
        )
        entries = []
        for entry in self.entries:
            tokens = tokens_of.get(entry.text, entry.tokens)
            entries.append(replace(entry, tokens=tokens))
        return self.replace(entries=tuple(entries))

    def recent(self, k: int) -> list[MemoryEntry]:
        """Return the newest entries, at most ``k``, oldest first."""
        _check_count("recent", k)
        return list(self.entries[-k:])

    def salient(
        self,
        k: int,
        *,
        half_life: float = HALF_LIFE,
    ) -> list[MemoryEntry]:
        """Return the entries that matter most, at most ``k``, oldest first.

        An entry counts by its weight, and half as much for every ``half_life`` turns that it is
        older than the newest one; of equal ones the newer counts more.

        Raises:
            ConfigError: a number is not above 0.
        """
        _check_count("salient", k)
        return self._in_order(self._by_salience(half_life)[:k])

    def within(
        self,
        tokens: int,
        *,
        count: Callable[[str], int] | None = None,
        half_life: float | None = None,
    ) -> list[MemoryEntry]:
        """Return the newest entries that fit into so many tokens together, oldest first.

        Args:
            tokens: the most.
            count: of a text, and the same in a replay. By default what ``counted`` found; of
                entries that were not counted an estimate, four bytes a token.
            half_life: where given, the most salient entries are taken, and not the newest.

        Raises:
            ConfigError: a number is not above 0, or ``count`` returns no number.
        """
        _check_count("within", tokens)
        if count is not None and not callable(count):
            raise ConfigError(
                f"count={brief(count)} must be a function that returns how many tokens a text has"
            )
        # The newest first, which is taken even where an older one would fit better.
        ranked = list(range(len(self.entries)))[::-1]
        if half_life is not None:
            ranked = self._by_salience(half_life)
        taken: list[int] = []
        left = tokens
        for place in ranked:
            entry = self.entries[place]
            size = entry.tokens
            if count is not None:
                size = whole_number("count(text)", count(entry.text), least=0)
            elif size is None:
                size = estimate_tokens(entry.text)
            if size > left:
                # Not a smaller one behind it: a gap would read as if nothing had happened.
                break
            taken.append(place)
            left -= size
        return self._in_order(taken)

    def _by_salience(self, half_life: float) -> list[int]:
        """Return the entries' places, the most salient first."""
        if real_number("half_life", half_life) <= 0:
            raise ConfigError(f"half_life={half_life:g} must be above 0: turns until half is left")
        # From the newest entry and not from now, so that a memory is the same in any turn.
        newest = max(
            (entry.turn for entry in self.entries),
            default=0,
        )
        # With its place, so that of two equal ones the newer, which stands later, goes first.
        salience = []
        for place, entry in enumerate(self.entries):
            age = newest - entry.turn
            salience.append((entry.weight * 0.5 ** (age / half_life), place))
        return [place for _, place in sorted(salience, reverse=True)]

    def _in_order(self, places: list[int]) -> list[MemoryEntry]:
        return [self.entries[place] for place in sorted(places)]


def _check_count(method: str, number: int) -> None:
    if whole_number(f"memory.{method}", number) < 1:
        raise ConfigError(f"memory.{method}({number}) returns nothing; give at least 1")
