"""Where the parts of a prompt came from: stretches of its messages, each with a name and a source.

A shape for any prompt. A template's slots are spans; so are the sections that a prompt is put
together from, which may say how many tokens they take, with what was left out as cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmsim_lab.calls import Role

__all__ = ["HOW", "Cut", "How", "Provenance", "Span", "match_pieces", "name_sources"]

How = Literal["rendered", "rebuilt", "matched", "unknown"]

HOW: dict[How, str] = {
    "rendered": "noted as the prompt was rendered",
    "rebuilt": "the prompt was built again from the recorded state and came out identical",
    "matched": "the template's fixed text was found in the recorded messages",
    "unknown": "not known",
}
"""How sure the spans are, in words."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a message.

    Attributes:
        name: of the slot or section; of several slots that one expression mixes, all of them.
        role: of the message it stands in.
        start: its first character's place in that message.
        end: the place after its last one.
        source: where the text came from, in words, such as ``state.global_state.inflation,
            turn 3``; empty where nobody said.
        tokens: how many it takes, where that was counted or estimated.
    """

    name: str
    role: Role
    start: int
    end: int
    source: str = ""
    tokens: int | None = None

    def of(self, text: str) -> str:
        """Return the stretch of a message's text."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Cut:
    """What was left out of a prompt, or stands in it shortened.

    Attributes:
        name: of the section.
        source: where it would have come from.
        reason: why it was left out or shortened, in words.
        tokens: how many it would have taken whole, where that is known.
        shortened: whether a part of it was kept.
    """

    name: str
    source: str
    reason: str
    tokens: int | None = None
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a prompt's parts came from, and how sure that is.

    Attributes:
        spans: in the order of the messages and of their text.
        how: ``rendered`` and ``rebuilt`` are exact; ``matched`` was inferred from the text, in the
            only way there is; ``unknown`` has no spans.
        why: for ``matched`` and ``unknown``, why it is no better.
        cuts: what was left out.
    """

    spans: tuple[Span, ...] = ()
    how: How = "rendered"
    why: str = ""
    cuts: tuple[Cut, ...] = ()

    def __str__(self) -> str:
        return f"{HOW[self.how]} ({self.why})" if self.why else HOW[self.how]


def name_sources(
    spans: Iterable[Span], sources: Mapping[str, str], facts: Mapping[str, object]
) -> tuple[Span, ...]:
    """Return spans with their sources filled in.

    Args:
        spans: whose names are slots, or slots with commas between.
        sources: by slot, in words; ``{turn}`` and the like stand for facts.
        facts: what the words need.
    """
    filled = {slot: words.format_map(facts) for slot, words in sources.items()}
    return tuple(
        replace(span, source=source)
        if (source := "; ".join(filled[s] for s in span.name.split(", ") if s in filled))
        else span
        for span in spans
    )


def match_pieces(
    text: str, fixed: Sequence[str], slots: Sequence[str], *, role: Role
) -> tuple[Span, ...] | str:
    """Return where a template's slots are in a text, or why that cannot be told.

    Args:
        text: of one message.
        fixed: the template's fixed pieces, one more than there are slots.
        slots: the slots' names between them.
        role: of the message.
    """
    if not slots:
        return () if text == fixed[0] else f"the {role} message is not the template's"
    first, *middle, last = fixed
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or end < len(first):
        return f"the {role} message does not begin and end as the template does"
    # With every piece as far left, then as far right as it can be, any other way lies between.
    leftmost = _places(text, middle, len(first), end)
    if leftmost is None:
        return f"the {role} message lacks some of the template's fixed text"
    if leftmost != _places_from_the_right(text, middle, len(first), end):
        return f"the {role} message holds some of the template's fixed text more than once"
    starts = [len(first), *(at + len(p) for at, p in zip(leftmost, middle, strict=True))]
    ends = [*leftmost, end]
    spans = tuple(
        Span(slot, role, start, stop) for slot, start, stop in zip(slots, starts, ends, strict=True)
    )
    values: dict[str, str] = {}
    for span in spans:
        if values.setdefault(span.name, span.of(text)) != span.of(text):
            return f"the slot {span.name} has two values in the {role} message"
    return spans


def _places(text: str, pieces: Sequence[str], start: int, end: int) -> list[int] | None:
    """Return where pieces stand one after another, each as early as it can; None if they do not."""
    found = []
    for piece in pieces:
        at = text.find(piece, start, end)
        if at < 0:
            return None
        found.append(at)
        start = at + len(piece)
    return found


def _places_from_the_right(text: str, pieces: Sequence[str], start: int, end: int) -> list[int]:
    """Return where pieces that are there stand, each as late as it can."""
    found = []
    for piece in reversed(pieces):
        end = text.rfind(piece, start, end)
        found.append(end)
    return found[::-1]
