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

from pydantic import ConfigDict, FailFast, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from llmsim_lab._util.text import clip, faults
from llmsim_lab.errors import TapeError

Role = Literal["system", "user"]
ROLES: tuple[Role, ...] = ("system", "user")

MAX_SPANS = 2_000
"""Of a prompt; a call that has more keeps none of them."""
MAX_WORDS = 1_000
"""Of a name or a source, in characters; a call keeps no more of them."""
_LONGEST_FORM = 2**21
"""In characters."""


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
Laid = tuple[str, Role, int, str]
"""Of a value: name, message, characters between the one before in that message and it, source."""
Layout = tuple[Laid, ...]
Filled = tuple[str, Layout, tuple[int, ...]]
"""A message's text, the layout of its values, and how long each is."""


def laid_out(text: str, places: Sequence[Part]) -> Filled:
    """Return a message whose values are in these places, in the order of its text."""
    layout: list[Laid] = []
    lengths: list[int] = []
    before = 0
    for name, role, start, end, source, _ in places:
        layout.append((name, role, start - before, source))
        lengths.append(end - start)
        before = end
    return text, tuple(layout), tuple(lengths)


def placed(
    layout: Sequence[Laid],
    lengths: Sequence[int],
    tokens: Sequence[int | None],
) -> Iterator[Part]:
    """Yield where values are; of no tokens where none are known."""
    # Each message counts its characters by itself, and their values come mixed.
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

    def read(
        self,
        texts: Mapping[str, str],
        *,
        agent: str | None,
        turn: int | None,
    ) -> Provenance:
        """Return the spans.

        Args:
            texts: by role, the request's first message.
            agent: the call's.
            turn: the call's.

        Raises:
            TapeError: it is damaged, or is not that of the messages.
        """
        try:
            return Provenance(
                spans=tuple(
                    self._read(
                        texts,
                        agent,
                        turn,
                    )
                )
            )
        except ValidationError as error:
            detail = clip(faults(error), 200)
            raise TapeError(f"where its values came from is damaged: {detail}") from error
        except (ValueError, RecursionError) as error:
            detail = clip(str(error), 200)
            raise TapeError(f"where its values came from is damaged: {detail}") from error

    def _read(
        self,
        texts: Mapping[str, str],
        agent: str | None,
        turn: int | None,
    ) -> Iterator[Span]:
        form = _form_in(self.form)
        layout: list[Laid] = []
        fixed_lengths: list[int] = []
        for gap, length, name, source in form["system"]:
            layout.append((name, "system", gap, source))
            fixed_lengths.append(length)
        for gap, _, name, source in form["user"]:
            layout.append((name, "user", gap, source))
        has_tokens = bool(self.spans) and isinstance(self.spans[0], list | tuple)
        kept = self.spans if has_tokens else (self.spans, [None] * len(layout))
        # A tape recorded by an earlier version may have a third list, which is not read.
        lengths, tokens = _kept().validate_python(tuple(kept[:2]))
        if len(lengths) != len(form["user"]) or len(tokens) != len(layout):
            raise ValueError(
                f"{len(form['user'])} values of the user message have {len(lengths)} lengths, "
                f"{len(layout)} of both have {len(tokens)} tokens"
            )
        facts = {name: _absolute(fact, agent, turn) for name, fact in form["facts"].items()}
        every_length = [*fixed_lengths, *lengths]
        for name, role, start, end, words, count in placed(layout, every_length, tokens):
            limit = len(texts.get(role, ""))
            if end > limit:
                raise ValueError(
                    f"{clip(name, 60)!r} ends at {end}, and the {role} message has {limit} "
                    "characters"
                )
            source = _FACT.sub(lambda match: facts.get(match[1], match[0]), words)
            yield Span(
                name,
                role,
                start,
                end,
                source[:MAX_WORDS],
                count,
            )


# Most calls of a run differ in little more than their texts: they keep one object.
shared_origin = lru_cache(maxsize=1024)(Origin)

_FACT = re.compile(r"\{(\w+)\}")
"""All that is filled in, since a tape may come from a stranger."""
_Fact = str | int | None
_COUNT = Annotated[int, Field(strict=True, ge=0, le=1 << 31)]
_WORDS = Annotated[str, Field(max_length=MAX_WORDS)]
_SYSTEM = Annotated[list[tuple[_COUNT, _COUNT, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_USER = Annotated[list[tuple[_COUNT, None, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_Kept = tuple[Annotated[list[_COUNT], FailFast()], Annotated[list[_COUNT | None], FailFast()]]


@with_config(ConfigDict(extra="forbid"))
class _FormText(TypedDict):
    system: _SYSTEM
    user: _USER
    facts: dict[_WORDS, Annotated[int, Field(ge=-1, le=0)] | _WORDS | None]


# Made when a tape is first read: pydantic takes long to make them.
_kept = cache(lambda: TypeAdapter(_Kept))
_form = cache(lambda: TypeAdapter(_FormText))


@lru_cache(maxsize=64)
def form_of(
    system: Layout,
    fixed: Sequence[int],
    user: Layout,
    sources: tuple[tuple[str, str], ...],
    facts: tuple[tuple[str, _Fact], ...],
) -> str:
    """Return the form of an origin, written once for all calls that have it.

    Args:
        system: the layout of that message's values.
        fixed: their lengths.
        user: the layout of that message's values.
        sources: slots, each with where its value came from, in words.
        facts: by name, as ``relative`` returns them.
    """
    source_of = dict(sources)
    rows: dict[str, list[tuple[int, int | None, str, str]]] = {role: [] for role in ROLES}
    for (name, role, gap, source), length in zip_longest(system + user, fixed):
        # An expression that mixes slots has all of their names and sources.
        words = "; ".join([source_of[slot] for slot in name.split(", ") if slot in source_of])
        rows[role].append((gap, length, name[:MAX_WORDS], (words or source)[:MAX_WORDS]))
    parts = {**rows, "facts": {name[:MAX_WORDS]: fact for name, fact in facts}}
    text = json.dumps(
        parts,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    # With a question mark for half a character, which no file holds.
    return sys.intern(text.encode(errors="replace").decode())


@lru_cache(maxsize=64)
def _form_in(text: str) -> _FormText:
    if len(text) > _LONGEST_FORM:
        raise ValueError(f"it has {len(text):,} characters, and may have {_LONGEST_FORM:,}")
    form: _FormText = _form().validate_json(text, strict=True)
    return form


def relative(
    fact: object,
    agent: str | None,
    turn: int | None,
) -> _Fact:
    """Return a fact so that calls of any agent and turn have the same form."""
    # Not ``isinstance``: True is no turn, and an enum's member no name.
    if type(fact) is str and fact == agent:
        return None
    if type(fact) is int and turn is not None and -1 <= fact - turn <= 0:
        return fact - turn
    return str(fact)[:MAX_WORDS]


def _absolute(
    fact: _Fact,
    agent: str | None,
    turn: int | None,
) -> str:
    if fact is None:
        return agent or "?"
    if isinstance(fact, int):
        return str((turn or 0) + fact)
    return fact
