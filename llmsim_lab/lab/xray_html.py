"""An agent's prompt as a table of sections, and what it loses without some of them, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from llmsim_lab.calls import Attempt, ChatRequest, Message, Role
from llmsim_lab.lab.texts import word_diff
from llmsim_lab.markup import join, safe, table
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.text import clip

__all__ = [
    "as_attempt",
    "changed",
    "clip_lines",
    "section_rows",
    "sections_table",
    "title_line",
    "tokens_of",
]

_ROLES: tuple[Role, ...] = ("system", "user")


def section_rows(whole: RenderedPrompt, shown: RenderedPrompt) -> list[tuple[str, ...]]:
    """Return each section: name, source, message, tokens, and ``yes``, ``no`` or why not.

    Where a budget cuts prompts, silence makes room: a section may then come back.

    Args:
        whole: the prompt.
        shown: the same without some modules' words.
    """
    there = {(span.name, span.source, span.of(_text(shown, span.role))) for span in shown.spans}
    sections = {(span.name, span.source) for span in whole.spans}
    returned = {(span.name, span.source) for span in shown.spans} - sections
    rows: list[tuple[str, ...]] = []
    for span in whole.spans:
        text = span.of(_text(whole, span.role))
        left = "yes" if (span.name, span.source, text) in there else "no"
        rows.append((span.name, span.source, span.role, f"{span.tokens or 0}", left))
    for cut in whole.provenance.cuts:
        back = (cut.name, cut.source) in returned
        left = "yes, now that there is room" if back else cut.reason
        rows.append((cut.name, cut.source, "", f"{cut.tokens or 0}", left))
    return rows


def sections_table(whole: RenderedPrompt, shown: RenderedPrompt) -> Markup:
    """Return the sections as a table; ``section_rows`` has the words."""
    header = ("section", "from", "message", "tokens", "in the prompt")
    return table(header, section_rows(whole, shown), caption="Sections, tokens estimated")


def clip_lines(lines: Iterable[str]) -> str:
    """Return lines, each of at most 300 characters."""
    return "\n".join(
        " " * (len(line) - len(line.lstrip())) + clip(line.strip(), 300) for line in lines
    )


def title_line(text: str) -> Markup:
    """Return a line in bold."""
    return Markup('<div style="font-weight:600;margin-top:6px">{}</div>').format(
        safe(text, limit=400)
    )


def _text(prompt: RenderedPrompt, role: Role) -> str:
    return prompt.system if role == "system" else prompt.user


def tokens_of(prompt: RenderedPrompt) -> int:
    """Return about how many tokens a prompt has."""
    return sum(span.tokens or 0 for span in prompt.spans)


def changed(whole: RenderedPrompt, shown: RenderedPrompt) -> list[Markup]:
    """Return what differs, by message, without the lines before and after that are the same."""
    found = [
        join([safe(f"{role}: "), _difference(_text(whole, role), _text(shown, role))])
        for role in _ROLES
        if _text(whole, role) != _text(shown, role)
    ]
    return found or [safe("Nothing: those modules had nothing to say to this agent.")]


def _difference(before: str, after: str) -> Markup:
    old, new = before.split("\n"), after.split("\n")
    head = _same(old, new)
    old, new = old[head:], new[head:]
    tail = _same(old[::-1], new[::-1])
    parts = [word_diff(*("\n".join(lines[: len(lines) - tail]) for lines in (old, new)))]
    if head:
        parts.insert(0, safe(f"{head} lines before it stay. "))
    if tail:
        parts.append(safe(f"{tail} lines after it stay."))
    return join(parts)


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines are the same from the start."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (one, two) in pairs if one != two), min(len(old), len(new)))


def as_attempt(prompt: RenderedPrompt) -> Attempt:
    """Return a prompt as a request that nobody has made."""
    messages = [Message(role, _text(prompt, role)) for role in _ROLES if _text(prompt, role)]
    return Attempt(request=ChatRequest(model="", messages=tuple(messages)), reply=None, seconds=0.0)
