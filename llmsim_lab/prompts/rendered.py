"""A prompt with its slots filled: a string that knows its parts and where they came from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from llmsim_lab.calls import CallSite
from llmsim_lab.spans import Layout, Origin, Provenance, Span, name_sources

if TYPE_CHECKING:
    from llmsim_lab.prompts.prompt import Prompt

__all__ = ["RenderedPrompt", "digest_of", "fenced"]

_NOT_SAID = Provenance(how="unknown", why="whoever put the prompt together did not say")

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
    _provenance: Provenance | Layout | Callable[[], Provenance]

    def __new__(
        cls,
        *,
        system: str,
        user: str,
        template: Prompt,
        provenance: Provenance | Layout | Callable[[], Provenance] = _NOT_SAID,
    ) -> RenderedPrompt:
        """Join the parts with an empty line.

        Args:
            system: the system message.
            user: the user message.
            template: what they were rendered from.
            provenance: where the parts came from, or a function that works it out.
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
                {turn}"}``; a fact's name in braces is all that is filled in.
            facts: what the words' ``{turn}`` and the like stand for.
        """
        self._said = sources, facts
        return self

    @property
    def provenance(self) -> Provenance:
        """Where the parts came from, if that is known; worked out when first asked for."""
        known = self._provenance
        if isinstance(known, Layout):
            known = Provenance(spans=known.spans())
        elif not isinstance(known, Provenance):
            known = self._provenance = known()
        if self._said is None:
            return known
        return replace(known, spans=name_sources(known.spans, *self._said))

    def origin(self, site: CallSite | None) -> Origin | None:
        """Return what a call keeps of where the parts came from; None where that is not known.

        Args:
            site: the call's.

        Raises:
            PromptError: spans that somebody else noted overlap or end behind their message.
        """
        known = self._provenance
        if not isinstance(known, Layout):
            texts = {"system": self.system, "user": self.user}
            return Origin.of_provenance(self.provenance, texts)
        agent, turn = (site.agent, site.turn) if site else (None, None)
        return Origin.of_layout(known, *(self._said or ({}, {})), agent=agent, turn=turn)

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
