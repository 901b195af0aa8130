"""Texts and model calls as HTML for widgets: read, compared word by word, slots marked; no script.

All of it is untrusted text and goes through ``markup``.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._spans import Provenance, Span
from llmsim_lab._util.html import (
    AS_WRITTEN,
    ASIDE,
    HIT,
    INK,
    MARKS,
    MAX_CHARACTERS,
    QUIET,
    STRONG,
    badge,
    details,
    join,
    left_out,
    pairs,
    pre,
    safe,
    styled,
    table,
    visible,
)
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.prompts._prompt import PromptDiff
from llmsim_lab.types import Attempt

_MOST_COMPARED_CHARS = 4_000
_MOST_COPIED_CHARS = 500_000
_FOLDED_FROM = 2_000


def block(*parts: object) -> Markup:
    """Return parts as one block with lines of a page's height; long words in tables wrap."""
    return styled(join(parts), "line-height:1.4;overflow-wrap:anywhere")


def sideways(content: object, *, name: str, least: str = "0") -> Markup:
    """Return content with a scroll bar of its own where the page is too narrow for it.

    Args:
        content: such as a table or a picture.
        name: what it is, for screen readers; the arrow keys scroll it.
        least: how narrow it may become, in CSS.
    """
    # Words break only where they are longer than a line, so that columns stay readable. Without
    # a width of 0 the content would widen the whole widget.
    inside = styled(content, f"line-height:1.4;overflow-wrap:break-word;min-width:{least}")
    css = "width:0;min-width:100%;overflow-x:auto"
    return styled(inside, css, tabindex=0, role="region", aria_label=name)


def copyable(text: str) -> str:
    """Return a text that is safe to paste anywhere; a last line says what differs, if anything.

    Args:
        text: hidden characters, which a terminal might obey, are written out.
    """
    whole = text[:_MOST_COPIED_CHARS]
    shown = visible(whole)
    notes = []
    if shown != whole.replace("\r\n", "\n"):
        notes.append("hidden characters are written out")
    if len(text) > len(whole):
        notes.append(f"{len(text) - len(whole):,} characters are left out")
    return f"{shown}\n[{'; '.join(notes)}]" if notes else shown


def part_of(title: object, content: object) -> Markup:
    """Return a part of a widget under its title, which folds it away; unfolded at first."""
    return details(styled(title, STRONG, tag="span"), content, open=True)


def word_diff(before: str, after: str, *, limit: int = _MOST_COMPARED_CHARS) -> Markup:
    """Return what changed from one text to another, word by word; a line where nothing did.

    Args:
        before: the earlier text.
        after: the later one.
        limit: how much of each is compared, characters, since the time grows with its square; a
            note says so where a text is longer.
    """
    if before == after:
        return safe("no change")
    parts = [Markup(PromptDiff(before[:limit], after[:limit])._repr_html_())]
    if max(len(before), len(after)) > limit:
        parts.append(safe(f"Only the first {limit:,} characters were compared."))
    return join(parts)


class CopyBoxes(w.VBox):
    """Texts in boxes to copy them from, which needs no script: click, Ctrl+A, Ctrl+C.

    JupyterLab takes text areas out of HTML; a widget's is left alone.

    Args:
        labels: a box each.

    Attributes:
        boxes: by label.
    """

    def __init__(self, *labels: str) -> None:
        how = w.HTML("Click into a text, press Ctrl+A, then Ctrl+C (on a Mac: Cmd).")
        layout = w.Layout(width="auto")
        self.boxes = {
            label: w.Textarea(description=label, rows=8, layout=layout) for label in labels
        }
        super().__init__((how, *self.boxes.values()), layout=w.Layout(display="none"))

    @property
    def shown(self) -> bool:
        """True while the boxes are shown."""
        return bool(self.layout.display != "none")

    def show(self, *texts: str) -> None:
        """Show a text in each box, or, without any, take the boxes away."""
        for box, text in zip(self.boxes.values(), texts, strict=False):
            box.value = copyable(text)
        self.layout.display = "" if texts else "none"


# --- the prompt ------------------------------------------------------------------------------


def messages_html(attempt: Attempt, provenance: Provenance, *, wanted: str = "") -> Markup:
    """Return a request's messages in order, each to fold, slots' values marked and numbered.

    Args:
        attempt: the request.
        provenance: of the system and the user message that it begins with.
        wanted: what was searched, to mark it.
    """
    numbered = _numbered(provenance)
    blocks = []
    opened: set[str] = set()
    for message, note in zip(attempt.request.messages, _notes(attempt), strict=True):
        # Only the first message of a role was rendered; later ones are the repair conversation.
        new = message.role not in opened
        slots = [slot for slot in numbered if new and slot[1].role == message.role]
        text = lit(message.content, wanted, slots=slots)
        opened.add(message.role)
        title = f"{message.role}: {note}" if note else message.role
        calls = map(_tool_call, message.tool_calls)
        blocks.append(part_of(title, join([styled(pre(text), ASIDE), *calls])))
    return block(*blocks)


def _notes(attempt: Attempt) -> list[str]:
    """Return a note on each message: where a repair begins, which tool a result is of."""
    messages = attempt.request.messages
    notes = [message.tool_name or "" for message in messages]
    roles = [message.role for message in messages[-2:]]
    if attempt.request.attempt > 1 and roles == ["assistant", "user"]:
        notes[-2:] = ["its answer to the attempt before", "what was wrong with that"]
    return notes


def heading(text: str) -> Markup:
    """Return a line in bold, a little below what is above it."""
    return styled(safe(text, limit=400), f"{STRONG};margin-top:8px")


def _tool_call(call: Any) -> Markup:
    return safe(f"calls {call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})")


def _numbered(provenance: Provenance) -> list[tuple[int, Span]]:
    """Return the slots, each with a number that its name has wherever it stands."""
    numbers: dict[str, int] = {}
    return [(numbers.setdefault(span.name, len(numbers) + 1), span) for span in provenance.spans]


def lit(
    text: str, wanted: str, *, slots: Sequence[tuple[int, Span]] = (), limit: int = MAX_CHARACTERS
) -> Markup:
    """Return a text with its slots, and the places where a searched text is, marked.

    Args:
        text: untrusted.
        wanted: what was searched, upper and lower case alike; nothing is marked if it is empty. A
            hit may reach across a slot.
        slots: where they are, each with its number.
        limit: the most characters shown.
    """
    shown = text[:limit]
    hits = re.finditer(re.escape(wanted), shown, re.IGNORECASE) if wanted else ()
    edges = [at for hit in hits for at in hit.span()]

    def piece(start: int, end: int) -> Markup:
        cuts = [start, *(at for at in edges if start < at < end), end]
        texts = ((at, shown[at:to]) for at, to in pairwise(cuts) if at < to)
        # An odd number of edges lies before what is within a hit.
        return join(
            styled(text, HIT, tag="mark") if bisect(edges, at) % 2 else text for at, text in texts
        )

    parts: list[object] = []
    at = 0
    for number, span in slots:
        if span.end > limit:
            break
        # The number is not copied with the text.
        tag = styled(f"[{number}] ", "color:#555;user-select:none", tag="small")
        css = f"background:{MARKS[(number - 1) % len(MARKS)]};color:{INK};padding:0 2px"
        slot = tag + piece(span.start, span.end)
        parts += [piece(at, span.start), styled(slot, css, tag="mark", title=span.name)]
        at = span.end
    return join([*parts, piece(at, len(shown)), left_out(len(text) - limit)])


def legend_html(attempt: Attempt, provenance: Provenance) -> Markup:
    """Return the slots' values and sources as a table, and how sure that is.

    Args:
        attempt: the request.
        provenance: of its prompt.
    """
    slots = [
        (f"[{number}] {name}", safe(value, limit=500), source)
        for number, name, value, source in slots_of(attempt, provenance)
    ]
    listed = table(("slot", "value", "source"), slots, caption="Slots")
    shown = [sideways(listed, name="Slots")] if slots else []
    return block(*shown, styled(f"Where the values are: {provenance}.", QUIET))


def slots_of(attempt: Attempt, provenance: Provenance) -> list[tuple[int, str, str, str]]:
    """Return the slots' numbers, names, values and sources; one with the same value is told once.

    Args:
        attempt: the request.
        provenance: of its prompt.
    """
    # Spans are places in the first message of each role.
    texts = {message.role: message.content for message in reversed(attempt.request.messages)}
    found: dict[tuple[str, str], tuple[int, str, str, str]] = {}
    for number, span in _numbered(provenance):
        value = span.of(texts[span.role])
        tokens = "" if span.tokens is None else f" ({span.tokens:,} tokens)"
        source = f"{span.source or 'source not said'}{tokens}"
        found.setdefault((span.name, value), (number, span.name, value, source))
    return list(found.values())


# --- the reply -------------------------------------------------------------------------------


def facts_html(
    attempt: Attempt, *, status: str | None, seconds: bool = False, wanted: str = ""
) -> Markup:
    """Return a request's model, tokens, options and fault as a table.

    Args:
        attempt: the request.
        status: how the decision came about; None where there is no decision.
        seconds: True to show how long it took.
        wanted: what was searched, to mark it in the fault.
    """
    request, reply = attempt.request, attempt.reply
    options = ", ".join(f"{name} {value}" for name, value in sorted(request.options.items()))
    rows: list[tuple[str, object]] = [
        ("decision", badge(status) if status else "none"),
        ("model", request.model),
        ("options", options or "the server's"),
        ("prompt tokens", _count(reply.prompt_tokens if reply else None)),
        ("reply tokens", _count(reply.reply_tokens if reply else None)),
    ]
    if attempt.reason is not None:
        code = f", HTTP {attempt.status_code}" if attempt.status_code else ""
        rows.append(("fault", join([f"{attempt.reason}{code}: ", lit(attempt.detail, wanted)])))
    if reply is not None and reply.done_reason != "stop":
        rows.append(("ended by", reply.done_reason))
    if seconds:
        rows.append(("seconds", f"{attempt.seconds:.2f}"))
    parts = [pairs(rows, caption="Call")]
    if request.schema is not None:
        schema = json.dumps(request.schema, indent=1, ensure_ascii=False)
        parts.append(details("schema the reply is held to", pre(schema)))
    if request.tools:
        tools = json.dumps([dict(tool) for tool in request.tools], indent=1, ensure_ascii=False)
        parts.append(details("tools it may call", pre(tools)))
    return block(*parts)


def _count(tokens: int | None) -> str:
    return "not reported" if tokens is None else f"{tokens:,}"


def reply_html(attempt: Attempt, *, wanted: str = "") -> Markup:
    """Return a reply's fields as a table, and, folded, the reply as it came.

    Args:
        attempt: the request and its outcome.
        wanted: what was searched, to mark it, and to unfold where it is.
    """
    reply = attempt.reply
    if reply is None:
        return block(heading("Reply"), "none came")
    is_cut = reply.done_reason == "length"
    parts = [heading("Reply, cut at its length" if is_cut else "Reply")]

    def folded(title: str, text: str, *, shown: Markup | None = None) -> Markup:
        there = bool(wanted) and wanted.lower() in text.lower()
        return details(title, shown or pre(lit(text, wanted)), open=there)

    def field(value: object) -> Markup:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = styled(lit(text, wanted), AS_WRITTEN, dir="auto")
        few = len(text) <= _FOLDED_FROM
        return shown if few else folded(f"{len(text):,} characters", text, shown=shown)

    try:
        fields = reply_fields(reply.text)
    except InvalidReply as error:
        parts += [safe(error), pre(lit(reply.text, wanted))]
    else:
        asked = (attempt.request.schema or {}).get("properties", fields)
        parts.append(
            pairs(
                (name if name in asked else f"{name} (not asked for)", field(value))
                for name, value in list(fields.items())[:100]
            )
        )
        parts.append(folded("as it came", reply.text))
    if reply.thinking:
        parts.append(folded("what it thought first", reply.thinking))
    return block(*parts, *map(_tool_call, reply.tool_calls))
