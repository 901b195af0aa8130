"""Where the parts of a prompt came from: stretches of its messages, each with a name and a source.

One form for any prompt. A template's slots are spans; so are the sections that a prompt is put
together from, which may say how many tokens they take.

A call keeps this as an ``Origin``: two short texts of JSON, as a tape has them, and read strictly.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from llmsim_lab._util.text import clip, faults
from llmsim_lab.errors import TapeError

Role = Literal["system", "user"]
ROLES: tuple[Role, ...] = ("system", "user")

MAX_SPANS = 2_000
"""Of a prompt; a call that has more keeps none of them."""
MAX_WORDS = 1_000
"""Of a name or a source, in characters; a call keeps no more of them."""


class Span(NamedTuple):
    """A stretch of a message.

    Attributes:
        name: of the slot or section; of several slots that one expression mixes, all of them.
        role: of the message it stands in.
        start: its first character's place in that message.
        end: the place after its last one.
        source: where the text came from, in words, such as ``state.global_state.inflation,
            turn 3``; empty where it is not known.
        tokens: how many it takes, where that was counted or estimated.
    """

    name: str
    role: Role
    start: int
    end: int
    source: str = ""
    tokens: int | None = None


Part = tuple[str, Role, int, int, str, int | None]
"""The fields of a ``Span``: a plain tuple will do, and takes a fifth of the time to make."""
Layout = tuple[tuple[str, Role, int, str], ...]
"""Of values: name, message, characters between the one before in that message and it, source."""
Filled = tuple[str, Layout, tuple[int, ...]]
"""A message's text, the layout of its values, and how long each is."""


def laid_out(text: str, places: Sequence[Part]) -> Filled:
    """Return a message whose values are in these places, in the order of its text."""
    ends = [0, *[place[3] for place in places]]
    layout = [(at[0], at[1], at[2] - end, at[4]) for at, end in zip(places, ends, strict=False)]
    return text, tuple(layout), tuple([place[3] - place[2] for place in places])


def placed(layout: Layout, lengths: Sequence[int], tokens: Sequence[int | None]) -> Iterator[Part]:
    """Yield where values are; of no tokens where none are known."""
    ends = dict.fromkeys(ROLES, 0)
    for (name, role, gap, source), length, count in zip_longest(layout, lengths, tokens):
        start = ends[role] + gap
        ends[role] = start + length
        yield name, role, start, ends[role], source, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a prompt's parts came from, and whether that is known.

    Attributes:
        spans: in the order of the messages and of their text.
        why: why that is not known; empty where it is, and then the spans are exact.
    """

    spans: tuple[Span, ...] = ()
    why: str = ""


class Origin(NamedTuple):
    """Where the values in a request came from, as small as its call keeps it.

    Attributes:
        form: JSON that prompts of one form share: by message its values, each with the characters
            between the one before and it, its length (null in the user message), its name and its
            source; and what ``{turn}`` and the like in the sources stand for: a text, the call's
            agent (null), or the call's turn, with a number added.
        spans: the lengths of the values in the user message; where tokens are known two lists:
            those lengths, and all values' tokens.
    """

    form: str
    spans: Sequence[Any]

    def read(self, texts: Mapping[str, str], *, agent: str | None, turn: int | None) -> Provenance:
        """Return the spans.

        Args:
            texts: by role, the request's first message.
            agent: the call's.
            turn: the call's.

        Raises:
            TapeError: it is damaged, or is not that of the messages.
        """
        try:
            return Provenance(spans=tuple(self._read(texts, agent, turn)))
        except (ValueError, RecursionError) as error:
            why = faults(error) if isinstance(error, ValidationError) else str(error)
            raise TapeError(f"where its values came from is damaged: {clip(why, 200)}") from error

    def _read(
        self, texts: Mapping[str, str], agent: str | None, turn: int | None
    ) -> Iterator[Span]:
        form = _form_in(self.form)
        layout = tuple([(row[2], role, row[0], row[3]) for role in ROLES for row in form[role]])
        sections = bool(self.spans) and isinstance(self.spans[0], list | tuple)
        kept = self.spans if sections else (self.spans, [None] * len(layout))
        # A tape recorded by an earlier version may have a third list, which is not read.
        lengths, tokens = _kept().validate_python(tuple(kept[:2]))
        if len(lengths) != len(form["user"]) or len(tokens) != len(layout):
            what = f"{len(form['user'])} values of the user message have {len(lengths)} lengths"
            raise ValueError(f"{what}, {len(layout)} of both have {len(tokens)} tokens")
        facts = {name: _absolute(fact, agent, turn) for name, fact in form["facts"].items()}
        every = [*[row[1] for row in form["system"]], *lengths]
        for name, role, start, end, words, count in placed(layout, every, tokens):
            if end > (limit := len(texts.get(role, ""))):
                what = f"{clip(name, 60)!r} ends at {end}"
                raise ValueError(f"{what}, and the {role} message has {limit} characters")
            source = _FACT.sub(lambda at: facts.get(at[1], at[0]), words)[:MAX_WORDS]
            yield Span(name, role, start, end, source, count)


# Most calls of a run differ in little more than their texts: they keep one object.
shared_origin = lru_cache(maxsize=1024)(Origin)

_FACT = re.compile(r"\{(\w+)\}")
"""All that is filled in, since a tape may come from a stranger."""
_Fact = str | int | None
_COUNT = Annotated[int, Field(strict=True, ge=0, le=1 << 31)]
_WORDS = Annotated[str, Field(max_length=MAX_WORDS)]
_SYSTEM = Annotated[list[tuple[_COUNT, _COUNT, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_USER = Annotated[list[tuple[_COUNT, None, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_Kept = tuple[list[_COUNT], list[_COUNT | None]]


@with_config(ConfigDict(extra="forbid"))
class _FormText(TypedDict):
    system: _SYSTEM
    user: _USER
    facts: dict[_WORDS, Annotated[int, Field(ge=-1, le=0)] | _WORDS | None]


_kept, _form = cache(lambda: TypeAdapter(_Kept)), cache(lambda: TypeAdapter(_FormText))


@lru_cache(maxsize=64)
def form_of(system: Layout, fixed: Sequence[int], user: Layout, *known: tuple[Any, ...]) -> str:
    """Return the form of an origin, written once for all calls that have it.

    Args:
        system: the layout of that message's values.
        fixed: their lengths.
        user: the layout of that message's values.
        known: slots with their sources in words, and facts as ``relative`` returns them.
    """
    sources, facts = map(dict, known)
    parts: dict[str, Any] = {role: [] for role in ROLES}
    for (name, role, gap, source), length in zip_longest(system + user, fixed):
        # An expression that mixes slots has all of their names and sources.
        words = "; ".join([sources[slot] for slot in name.split(", ") if slot in sources])
        parts[role].append((gap, length, name[:MAX_WORDS], (words or source)[:MAX_WORDS]))
    parts["facts"] = {name[:MAX_WORDS]: fact for name, fact in facts.items()}
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    # With a question mark for half a character, which no file holds.
    return sys.intern(text.encode(errors="replace").decode())


@lru_cache(maxsize=64)
def _form_in(text: str) -> _FormText:
    form: _FormText = _form().validate_json(text, strict=True)
    return form


def relative(fact: object, agent: str | None, turn: int | None) -> _Fact:
    """Return a fact so that calls of any agent and turn have the same form."""
    if type(fact) is str and fact == agent:
        return None
    if type(fact) is int and turn is not None and -1 <= fact - turn <= 0:
        return fact - turn
    return str(fact)[:MAX_WORDS]


def _absolute(fact: _Fact, agent: str | None, turn: int | None) -> str:
    if fact is None:
        return agent or "?"
    return str((turn or 0) + fact) if isinstance(fact, int) else fact
