"""Where the parts of a prompt came from: stretches of its messages, each with a name and a source.

One form for any prompt. A template's slots are spans; so are the sections that a prompt is put
together from, which may say how many tokens they take.

A call keeps this as an ``Origin``: what all prompts of one form share, and the lengths of this
one's values. Both are short texts of JSON, as a tape has them, and are read as strictly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from llmsim_lab._util.text import clip, faults
from llmsim_lab.errors import PromptError, TapeError

_Role = Literal["system", "user"]
_ROLES: tuple[_Role, ...] = ("system", "user")

_MOST_SHARED = 50
"""A prompt of more values than these has an origin of its own."""
MAX_SPANS = 2_000
"""Of a prompt; one that has more is kept without any."""
MAX_WORDS = 1_000
"""Of a name or a source, in characters; a call keeps no more of them."""
_MAX_FORM_CHARS, _MAX_LENGTHS_CHARS = 4_000_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
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

    def __str__(self) -> str:
        known = "noted as the prompt was rendered" if self.how == "rendered" else "not known"
        return f"{known} ({self.why})" if self.why else known


# --- sources -------------------------------------------------------------------------------------


def name_sources(
    spans: Iterable[Span], sources: Mapping[str, str], facts: Mapping[str, object]
) -> tuple[Span, ...]:
    """Return spans with their sources filled in.

    Args:
        spans: whose names are slots, or slots with commas between.
        sources: by slot, in words; ``{turn}`` and the like stand for facts.
        facts: what the words need.
    """
    return tuple(
        replace(span, source=_with_facts(words, facts))
        if (words := _words_for(span.name, sources))
        else span
        for span in spans
    )


def _words_for(name: str, sources: Mapping[str, str]) -> str:
    return "; ".join([sources[slot] for slot in name.split(", ") if slot in sources])


_FACT = re.compile(r"\{(\w+)\}")


def _with_facts(words: str, facts: Mapping[str, object]) -> str:
    """Put facts in their places; no more than that, since a tape's words are anybody's."""
    return _FACT.sub(lambda at: str(facts.get(at[1], at[0])), words)


# --- rendering -----------------------------------------------------------------------------------

Form = tuple[tuple[int, str], ...]
"""Of a message: for each value the characters between the one before and it, and its name."""


@dataclass(slots=True, eq=False)
class SystemMessage:
    """A filled system message, which many prompts begin with.

    Attributes:
        text: the message.
        form: where its values are.
        lengths: of its values.
        last: the form of the last origin of a prompt that begins with it, behind what it follows
            from: the user message's form, the sources and the facts.
    """

    text: str
    form: Form
    lengths: tuple[int, ...]
    last: tuple[tuple[Form, Mapping[str, str], Sequence[tuple[str, _Fact]]], str] | None = None


Layout = tuple[SystemMessage, Form, list[int]]
"""Where the values in a prompt's messages are, as noted while they are put together: in the system
message, and in the user message its form and the lengths of its values."""


def spans_of(layout: Layout) -> tuple[Span, ...]:
    """Return where the values are as spans."""
    system, user, lengths = layout
    return (*_spans("system", system.form, system.lengths), *_spans("user", user, lengths))


def _spans(role: _Role, form: Form, lengths: Iterable[int]) -> Iterator[Span]:
    end = 0
    for (gap, name), length in zip(form, lengths, strict=True):
        start = end + gap
        end = start + length
        yield Span(name, role, start, end)


# --- with a call ---------------------------------------------------------------------------------


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

    @classmethod
    def of_layout(
        cls,
        layout: Layout,
        sources: Mapping[str, str],
        facts: Mapping[str, object],
        *,
        agent: str | None,
        turn: int | None,
    ) -> Origin | None:
        """Return what a call keeps of a rendered prompt; None for one of too many values.

        Args:
            layout: of the prompt.
            sources: by slot, in words.
            facts: what the words' ``{turn}`` and the like stand for.
            agent: the call's.
            turn: the call's.
        """
        system, user, lengths = layout
        if len(system.form) + len(user) > MAX_SPANS:
            return None
        relative: list[tuple[str, _Fact]] = []
        for name, fact in facts.items():
            # Relative to the call's own agent and turn, so that calls of any share the form.
            if type(fact) is str and fact == agent:
                relative.append((name, None))
            elif type(fact) is int and turn is not None and -1 <= fact - turn <= 0:
                relative.append((name, fact - turn))
            else:
                relative.append((name, _cut(str(fact))))
        # Nearly always that of the last prompt, made of the very same objects: to see that takes
        # no time, and to look it up by what is in them would. The sources are copied for it, since
        # a caller's dict that is changed later would still be equal to itself.
        parts, last = (user, sources, relative), system.last
        if last is None or last[0] != parts:
            words = tuple(sources), tuple(sources.values())
            form = _form_of(system.form, system.lengths, user, words, tuple(relative))
            last = system.last = (user, dict(sources), relative), form
        # Two prompts of many values hardly ever have them all equally long: to keep their origins
        # would be in vain.
        made = _shared if len(lengths) <= _MOST_SHARED else _shared.__wrapped__
        return made(last[1], tuple(lengths))

    @classmethod
    def of_provenance(cls, known: Provenance, texts: Mapping[str, str]) -> Origin | None:
        """Return what a call keeps of a prompt put together otherwise; None if nothing is known.

        Args:
            known: where the prompt's parts came from.
            texts: by role, the prompt's messages.

        Raises:
            PromptError: the spans overlap, are out of order or end behind their message.
        """
        if known.how == "unknown" or len(known.spans) > MAX_SPANS:
            return None
        form: dict[str, Any] = {"system": [], "user": [], "facts": {}}
        lengths, tokens = [], []
        for role in _ROLES:
            end, limit = 0, len(texts[role])
            for span in known.spans:
                if span.role != role:
                    continue
                if not end <= span.start <= span.end <= limit:
                    raise PromptError(
                        f"the span {span.name!r} of the {role} message goes from {span.start} to "
                        f"{span.end}, but the one before ends at {end} and the message at {limit}; "
                        "name spans in the order of the text, none inside another"
                    )
                length = span.end - span.start
                if role == "user":
                    lengths.append(length)
                own = length if role == "system" else None
                form[role].append((span.start - end, own, _cut(span.name), _cut(span.source)))
                end = span.end
                tokens.append(span.tokens)
        if any(count is not None for count in tokens):
            return cls(_written(form), _written((lengths, tokens)))
        return cls(_written(form), _written(lengths))

    def moved(self, turn: int) -> Origin:
        """Return the same for a call of another turn, its facts' turns made absolute.

        Args:
            turn: the one that it was made for.
        """
        return self._replace(form=_without_turn(self.form, turn))

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
        if len(self.spans) > _MAX_LENGTHS_CHARS:
            raise ValueError(f"its spans are longer than {_MAX_LENGTHS_CHARS:,} characters")
        values = form["system"] + form["user"]
        tokens: Sequence[int | None] = (None,) * len(values)
        # Both forms are JSON lists; only that of sections begins with another list.
        if self.spans.startswith("[["):
            lengths, tokens, *_ = _sections().validate_json(self.spans, strict=True)
        else:
            lengths = _lengths().validate_json(self.spans, strict=True)
        if len(lengths) != len(form["user"]) or len(tokens) != len(values):
            raise ValueError(
                f"{len(form['user'])} values of the user message have {len(lengths)} lengths, "
                f"{len(values)} of both have {len(tokens)} tokens"
            )
        facts = {name: _absolute(fact, agent, turn) for name, fact in form["facts"].items()}
        spans: list[Span] = []
        left = iter(lengths)
        for role in _ROLES:
            end, limit = 0, len(texts.get(role, ""))
            for gap, length, name, words in form[role]:
                start = end + gap
                end = start + (next(left) if length is None else length)
                if end > limit:
                    raise ValueError(
                        f"{clip(name, 60)!r} ends at {end}, and the {role} message has {limit} "
                        "characters"
                    )
                source = _cut(_with_facts(words, facts))
                spans.append(Span(name, role, start, end, source, tokens[len(spans)]))
        return Provenance(spans=tuple(spans))


_Fact = str | int | None
_COUNT = Annotated[int, Field(ge=0, le=1 << 31)]
_WORDS = Annotated[str, Field(max_length=MAX_WORDS)]
_SYSTEM = Annotated[list[tuple[_COUNT, _COUNT, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]
_USER = Annotated[list[tuple[_COUNT, None, _WORDS, _WORDS]], Field(max_length=MAX_SPANS)]


@with_config(ConfigDict(extra="forbid"))
class _FormText(TypedDict):
    system: _SYSTEM
    user: _USER
    facts: dict[_WORDS, Annotated[int, Field(ge=-1, le=0)] | _WORDS | None]


@cache
def _form() -> TypeAdapter[_FormText]:
    return TypeAdapter(_FormText)


@cache
def _lengths() -> TypeAdapter[list[int]]:
    return TypeAdapter(list[_COUNT])


@cache
def _sections() -> TypeAdapter[Any]:
    # A tape recorded by an earlier version may have a third list, which is not read.
    counted = tuple[list[_COUNT], list[_COUNT | None]]
    return TypeAdapter(counted | tuple[list[_COUNT], list[_COUNT | None], list[Any]])


@lru_cache(maxsize=64)
def _form_in(text: str) -> _FormText:
    if len(text) > _MAX_FORM_CHARS:
        raise ValueError(f"its form is longer than {_MAX_FORM_CHARS:,} characters")
    return _form().validate_json(text, strict=True)


@lru_cache(maxsize=1024)
def _form_of(
    system: Form,
    fixed: tuple[int, ...],
    user: Form,
    sources: tuple[tuple[str, ...], tuple[str, ...]],
    facts: tuple[tuple[str, _Fact], ...],
) -> str:
    words = dict(zip(*sources, strict=True))
    form = {
        role: [
            (gap, length, _cut(name), _cut(_words_for(name, words)))
            for (gap, name), length in zip(values, lengths, strict=True)
        ]
        for role, values, lengths in (
            ("system", system, fixed),
            ("user", user, (None,) * len(user)),
        )
    }
    return _written({**form, "facts": {_cut(name): fact for name, fact in facts}})


@lru_cache(maxsize=4096)
def _shared(form: str, lengths: tuple[int, ...]) -> Origin:
    """Return the origin that all prompts of a form whose values are of these lengths share."""
    # The JSON of a list of integers, faster than ``json`` writes it.
    return Origin(form, repr(list(lengths)).replace(" ", ""))


@lru_cache(maxsize=1024)
def _without_turn(text: str, turn: int) -> str:
    form = _form_in(text)
    facts = {
        name: str(turn + fact) if isinstance(fact, int) else fact
        for name, fact in form["facts"].items()
    }
    return _written({**form, "facts": facts})


def _absolute(fact: _Fact, agent: str | None, turn: int | None) -> str:
    if fact is None:
        return agent or "?"
    return str((turn or 0) + fact) if isinstance(fact, int) else fact


def _cut(words: str) -> str:
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 1] + "…"


def _written(value: object) -> str:
    """Return JSON that a database takes, with a question mark for half a character."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isascii() else text.encode(errors="replace").decode()
