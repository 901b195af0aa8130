"""Where the parts of a prompt came from: stretches of its messages, each with a name and a source.

One form for any prompt. A template's slots are spans; so are the sections that a prompt is put
together from, which may say how many tokens they take.

A call keeps this as an ``Origin``: two short texts of JSON, as a tape has them, and read strictly.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice, repeat
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from llmsim_lab._util.text import clip, faults
from llmsim_lab.errors import TapeError

_Role = Literal["system", "user"]
ROLES: tuple[_Role, ...] = ("system", "user")

MAX_SPANS = 2_000
"""Of a prompt; one that has more is kept without any."""
MAX_WORDS = 1_000
"""Of a name or a source, in characters; a call keeps no more of them."""
_MAX_CHARS = 4_000_000


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
    role: _Role
    start: int
    end: int
    source: str = ""
    tokens: int | None = None

    def of(self, text: str) -> str:
        """Return the stretch of a message's text."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a prompt's parts came from, and whether that is known.

    Attributes:
        spans: in the order of the messages and of their text.
        how: ``rendered`` is exact; ``unknown`` has no spans.
        why: for ``unknown``, why.
    """

    spans: tuple[Span, ...] = ()
    how: Literal["rendered", "unknown"] = "rendered"
    why: str = ""

    def sourced(self, sources: Mapping[str, str], facts: Mapping[str, object]) -> Provenance:
        """Return the same with sources.

        Args:
            sources: by slot, in words; ``{turn}`` and the like stand for facts.
            facts: what the words need.
        """
        names = {span.name for span in self.spans}
        words = {name: _filled(_words(name, sources), facts) for name in names}
        spans = [Span(*one[:4], words[one.name] or one.source, one.tokens) for one in self.spans]
        return replace(self, spans=tuple(spans))

    def __str__(self) -> str:
        known = "noted as the prompt was rendered" if self.how == "rendered" else "not known"
        return f"{known} ({self.why})" if self.why else known


def _words(name: str, sources: Mapping[str, str]) -> str:
    """Return the sources of a span; one of several slots has all of theirs."""
    return "; ".join([sources[slot] for slot in name.split(", ") if slot in sources])


_FACT = re.compile(r"\{(\w+)\}")


def _filled(words: str, facts: Mapping[str, object]) -> str:
    """Put facts in their places; no more than that, since a tape's words are anybody's."""
    return _FACT.sub(lambda at: str(facts.get(at[1], at[0])), words)


class Layout(NamedTuple):
    """Where the values of one message stand: what its template makes of them, without the texts.

    Attributes:
        form: of each value the characters between the one before and it, its name and its source.
        lengths: of the values, in characters.
        tokens: of the values; empty where none was counted or estimated.
    """

    form: tuple[tuple[int, str, str], ...]
    lengths: tuple[int, ...]
    tokens: tuple[int | None, ...] = ()

    @staticmethod
    def of(spans: Iterable[Span], role: _Role) -> Layout:
        """Return the layout of a message with such spans."""
        own = [span for span in spans if span.role == role]
        ends = [0, *(span.end for span in own)]
        form = tuple(
            (one.start - end, one.name, one.source) for one, end in zip(own, ends, strict=False)
        )
        tokens = tuple(span.tokens for span in own)
        return Layout(form, tuple(span.end - span.start for span in own), tokens)

    def spans(self, role: _Role) -> Iterator[Span]:
        """Yield the spans, of a message of a role."""
        end = 0
        tokens = self.tokens or repeat(None)
        for (gap, name, source), length, count in zip(
            self.form, self.lengths, tokens, strict=False
        ):
            start, end = end + gap, end + gap + length
            yield Span(name, role, start, end, source, count)


class Origin(NamedTuple):
    """Where the values in a request came from, as small as its call keeps it.

    Attributes:
        form: JSON that prompts of one form share: by message its values, each with the characters
            between the one before and it, its length (null in the user message), its name and its
            source; and what ``{turn}`` and the like in the sources stand for: a text, the call's
            agent (null), or the call's turn, with a number added.
        spans: JSON: the lengths of the values in the user message; where tokens are known
            two lists: those lengths, and all values' tokens.
    """

    form: str
    spans: str

    @staticmethod
    def of(
        system: Layout,
        user: Layout,
        sources: Mapping[str, str],
        facts: Mapping[str, object],
        *,
        agent: str | None,
        turn: int | None,
    ) -> Origin | None:
        """Return what a call keeps; None of too many values.

        Args:
            system: where the values of the system message are.
            user: likewise of the user message.
            sources: by slot, in words.
            facts: what ``{turn}`` and the like in the words stand for.
            agent: the call's.
            turn: the call's.
        """
        if len(system.form) + len(user.form) > MAX_SPANS:
            return None
        tokens = system.tokens + user.tokens
        if tokens.count(None) < len(tokens):
            spans = _written((user.lengths, tokens))
        else:
            spans = f"[{','.join(map(str, user.lengths))}]"
        related = tuple([(name, _relative(fact, agent, turn)) for name, fact in facts.items()])
        form = _form_of(system.form, system.lengths, user.form, tuple(sources.items()), related)
        return _shared(form, spans)

    def moved(self, turn: int) -> Origin:
        """Return the same for a call of another turn, its facts' turns made absolute.

        Args:
            turn: the one that it was made for.
        """
        form = _form_in(self.form)
        facts = {
            name: str(turn + fact) if isinstance(fact, int) else fact
            for name, fact in form["facts"].items()
        }
        return Origin(_written({**form, "facts": facts}), self.spans)

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
            return self._read(texts, agent, turn)
        except (ValueError, RecursionError) as error:
            why = faults(error) if isinstance(error, ValidationError) else str(error)
            raise TapeError(f"where its values came from is damaged: {clip(why, 200)}") from error

    def _read(self, texts: Mapping[str, str], agent: str | None, turn: int | None) -> Provenance:
        form = _form_in(self.form)
        values = form["system"] + form["user"]
        # Both forms are JSON lists; only that of sections begins with another list.
        if self.spans.startswith("[["):
            lengths, tokens, *_ = _parsed(_Sections, self.spans)
        else:
            lengths, tokens = _parsed(_Lengths, self.spans), [None] * len(values)
        if len(lengths) != len(form["user"]) or len(tokens) != len(values):
            raise ValueError(
                f"{len(form['user'])} values of the user message have {len(lengths)} lengths, "
                f"{len(values)} of both have {len(tokens)} tokens"
            )
        facts = {name: _absolute(fact, agent, turn) for name, fact in form["facts"].items()}
        spans: list[Span] = []
        left, count = iter(lengths), iter(tokens)
        for role in ROLES:
            limit = len(texts.get(role, ""))
            own = form[role]
            layout = Layout(
                tuple([(gap, name, _cut(_filled(words, facts))) for gap, _, name, words in own]),
                tuple([next(left) if length is None else length for _, length, _, _ in own]),
                tuple(islice(count, len(own))),
            )
            for span in layout.spans(role):
                if span.end > limit:
                    raise ValueError(
                        f"{clip(span.name, 60)!r} ends at {span.end}, and the {role} message has "
                        f"{limit} characters"
                    )
                spans.append(span)
        return Provenance(spans=tuple(spans))


# Most calls of a run differ in little more than their texts: they keep one object.
_shared = lru_cache(maxsize=256)(Origin)

_Fact = str | int | None
_COUNT = Annotated[int, Field(ge=0, le=1 << 31)]
_WORDS = Annotated[str, Field(max_length=MAX_WORDS)]
_SYSTEM = Annotated[list[tuple[_COUNT, _COUNT, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_USER = Annotated[list[tuple[_COUNT, None, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_Lengths = list[_COUNT]
# A tape recorded by an earlier version may have a third list, which is not read.
_Sections = tuple[_Lengths, list[_COUNT | None]] | tuple[_Lengths, list[_COUNT | None], list[Any]]


@with_config(ConfigDict(extra="forbid"))
class _FormText(TypedDict):
    system: _SYSTEM
    user: _USER
    facts: dict[_WORDS, Annotated[int, Field(ge=-1, le=0)] | _WORDS | None]


_adapter = cache(TypeAdapter)


def _parsed(kind: Any, text: str) -> Any:
    if len(text) > _MAX_CHARS:
        raise ValueError(f"it is longer than {_MAX_CHARS:,} characters")
    return _adapter(kind).validate_json(text, strict=True)


@lru_cache(maxsize=64)
def _form_of(
    system: tuple[tuple[int, str, str], ...],
    lengths: tuple[int, ...],
    user: tuple[tuple[int, str, str], ...],
    sources: tuple[tuple[str, str], ...],
    facts: tuple[tuple[str, _Fact], ...],
) -> str:
    """Return the form of an origin, written once for all calls that have it."""
    words = dict(sources)

    def values(form: tuple[tuple[int, str, str], ...], lengths: Iterable[int | None]) -> list[Any]:
        return [
            (gap, length, _cut(name), _cut(_words(name, words) or source))
            for (gap, name, source), length in zip(form, lengths, strict=False)
        ]

    parts = {"system": values(system, lengths), "user": values(user, repeat(None))}
    return sys.intern(_written({**parts, "facts": {_cut(name): fact for name, fact in facts}}))


@lru_cache(maxsize=64)
def _form_in(text: str) -> _FormText:
    form: _FormText = _parsed(_FormText, text)
    return form


def _relative(fact: object, agent: str | None, turn: int | None) -> _Fact:
    """Return a fact so that calls of any agent and turn have the same form."""
    if type(fact) is str and fact == agent:
        return None
    if type(fact) is int and turn is not None and -1 <= fact - turn <= 0:
        return fact - turn
    return _cut(str(fact))


def _absolute(fact: _Fact, agent: str | None, turn: int | None) -> str:
    if fact is None:
        return agent or "?"
    return str((turn or 0) + fact) if isinstance(fact, int) else fact


def _cut(words: str) -> str:
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 1] + "…"


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def _written(value: object) -> str:
    """Return JSON that a database takes, with a question mark for half a character."""
    text = _JSON.encode(value)
    return text if text.isascii() else text.encode(errors="replace").decode()
