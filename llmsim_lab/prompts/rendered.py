"""A prompt with its slots filled: a string that knows its parts and where they came from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from llmsim_lab.calls import Role
from llmsim_lab.prompts.spans import Provenance, Span, match_pieces, name_sources

if TYPE_CHECKING:
    from llmsim_lab.prompts.prompt import Prompt

__all__ = ["RenderedPrompt", "digest_of", "fenced", "trace_prompt"]

Said = tuple[Mapping[str, str], Mapping[str, object]]


class RenderedPrompt(str):
    """A prompt with its slots filled: a plain string that remembers its parts.

    Attributes:
        system: the system message, empty if there is none.
        user: the user message.
        template: the prompt it was rendered from.
    """

    __slots__ = ("_provenance", "_said", "system", "template", "user")

    system: str
    user: str
    template: Prompt
    _said: Said | None
    _provenance: Provenance | Callable[[], Provenance] | None

    def __new__(
        cls,
        *,
        system: str,
        user: str,
        template: Prompt,
        provenance: Provenance | Callable[[], Provenance] | None = None,
    ) -> RenderedPrompt:
        """Join the parts with an empty line.

        Args:
            system: the system message.
            user: the user message.
            template: what they were rendered from.
            provenance: where the parts came from, or a function that works it out; without it the
                template's fixed text is looked for in the messages.
        """
        self = super().__new__(cls, f"{system}\n\n{user}" if system else user)
        self.system = system
        self.user = user
        self.template = template
        self._said = None
        self._provenance = provenance
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal: the same for the same prompt in any process."""
        return digest_of(self.system, self.user)

    def sourced(self, sources: Mapping[str, str], /, **facts: object) -> Self:
        """Say where the slots' values came from; returns the prompt itself.

        Args:
            sources: by slot, in words: ``{"inflation": "state.global_state.inflation, turn
                {turn}"}``.
            facts: what the words' ``{turn}`` and the like stand for.
        """
        self._said = sources, facts
        return self

    @property
    def provenance(self) -> Provenance:
        """Where the parts came from, and how sure that is; worked out when first asked for."""
        known = self._provenance
        if known is None:
            known = trace_prompt(self.template, system=self.system, user=self.user)
        elif not isinstance(known, Provenance):
            known = known()
        self._provenance = known
        if self._said is None:
            return known
        return replace(known, spans=name_sources(known.spans, *self._said))

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where each slot's value landed in the messages: system first, then user."""
        return self.provenance.spans

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.system, self.user, self.template, self.provenance)

    def _repr_markdown_(self) -> str:
        return fenced(system=self.system, user=self.user)


def _rebuild(system: str, user: str, template: Prompt, provenance: Provenance) -> RenderedPrompt:
    return RenderedPrompt(system=system, user=user, template=template, provenance=provenance)


def trace_prompt(template: Prompt, *, system: str, user: str) -> Provenance:
    """Return where the values of a template's slots seem to be in messages rendered from it.

    The template's fixed text is looked for in the messages. What ``Prompt.render`` returns knows
    better: it noted where each value went.

    Args:
        template: the prompt.
        system: the system message, empty if there is none.
        user: the user message.
    """
    parts: list[tuple[Role, str, str]] = [
        ("system", template.system, system),
        ("user", template.user, user),
    ]
    spans: list[Span] = []
    for role, source, text in parts:
        found = _matched(role, source, text)
        if isinstance(found, str):
            return Provenance(how="unknown", why=found)
        spans += found
    return Provenance(
        spans=tuple(spans), how="matched", why="the values of the slots were not kept"
    )


def _matched(role: Role, source: str, text: str) -> tuple[Span, ...] | str:
    from llmsim_lab.prompts.language import template_of

    pieces = template_of(source).split()
    if pieces is None:
        return f"the {role} template holds more than text and slots"
    return match_pieces(text, *pieces, role=role)


def digest_of(*parts: str) -> str:
    """Return the SHA-256 of texts, hexadecimal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def fenced(**parts: str) -> str:
    """Return texts as Markdown: each in a fence longer than any in it, under its name."""
    blocks = []
    for title, text in parts.items():
        if text:
            longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
            fence = "`" * max(3, longest + 1)
            blocks.append(f"*{title}*\n\n{fence}text\n{text}\n{fence}")
    return "\n\n".join(blocks)
