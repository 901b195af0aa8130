"""Texts and model calls as HTML for widgets: read, compared word by word, slots marked; no script.

All of it is untrusted text and goes through ``markup``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import ipywidgets as w
from markupsafe import Markup, escape

from llmsim_lab._spans import Provenance, Span
from llmsim_lab._util.html import badge, details, join, pairs, pre, safe, table, visible
from llmsim_lab._util.text import clip
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.prompts._prompt import PromptDiff
from llmsim_lab.types import Attempt, ChatReply, Message

_MOST_COMPARED_CHARS = 4_000
_MOST_COPIED_CHARS = 500_000


def block(*parts: object) -> Markup:
    """Return parts as one block with lines of a page's height; long words in tables wrap."""
    return Markup('<div style="line-height:1.4;overflow-wrap:anywhere">{}</div>').format(
        join(parts)
    )


def sideways(content: object, *, name: str, least: str = "0") -> Markup:
    """Return content with a scroll bar of its own where the page is too narrow for it.

    Args:
        content: such as a table or a picture.
        name: what it is, for screen readers; the arrow keys scroll it.
        least: how narrow it may become, in CSS.
    """
    # Words break only where they are longer than a line, so that columns stay readable. Without
    # a width of 0 the content would widen the whole widget.
    return Markup(
        '<div tabindex="0" role="region" aria-label="{}" '
        'style="width:0;min-width:100%;overflow-x:auto">'
        '<div style="line-height:1.4;overflow-wrap:break-word;min-width:{}">{}</div></div>'
    ).format(name, least, safe(content))


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


def prose(text: object, *, limit: int = 20_000) -> Markup:
    """Return a text for reading: its lines are kept, in the page's font.

    Args:
        text: anything.
        limit: the most characters shown.
    """
    return Markup(
        '<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{}</div>'
    ).format(safe(text, limit=limit))


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


_MARKS = ("#fff3bf", "#d0ebff", "#d3f9d8", "#ffe3e3", "#e5dbff", "#ffe8cc", "#c5f6fa", "#f3d9fa")
"""Backgrounds for the black text of slots; a number beside each says it without colour."""

_MOST_CHARS = 20_000
_FOLDED_FROM = 2_000


def parsed_fields(reply: ChatReply) -> dict[str, Any] | str:
    """Return the fields of the JSON object in a reply, or why there are none."""
    try:
        return reply_fields(reply.text)
    except InvalidReply as error:
        return str(error)


# --- the prompt ------------------------------------------------------------------------------


def messages_html(attempt: Attempt, provenance: Provenance) -> Markup:
    """Return a request's messages in order, the values of slots marked and numbered.

    Args:
        attempt: the request.
        provenance: of the system and the user message that it begins with.
    """
    numbers = _numbers(provenance)
    blocks = []
    opened: set[str] = set()
    for message, note in zip(attempt.request.messages, _notes(attempt), strict=True):
        # Only the first message of a role was rendered; later ones are the repair conversation.
        spans = [span for span in provenance.spans if span.role == message.role]
        text = _marked(message.content, spans if message.role not in opened else (), numbers)
        opened.add(message.role)
        blocks.append(_message(message, note, text))
    return block(*blocks)


def _message(message: Message, note: str, text: Markup) -> Markup:
    title = f"{message.role}: {note}" if note else message.role
    box = Markup(
        '<div style="border-left:3px solid var(--jp-border-color1, #999);padding:2px 8px">{}</div>'
    ).format(pre(text))
    return join([heading(title), box, *map(_tool_call, message.tool_calls)])


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
    return Markup('<div style="font-weight:600;margin-top:6px">{}</div>').format(
        safe(text, limit=400)
    )


def bold(text: object, *, limit: int = 300) -> Markup:
    """Return a line in bold."""
    return Markup('<div style="font-weight:600">{}</div>').format(safe(text, limit=limit))


def _tool_call(call: Any) -> Markup:
    return safe(f"calls {call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})")


def _numbers(provenance: Provenance) -> dict[str, int]:
    """Return a number for each name, the same wherever it stands."""
    names = dict.fromkeys(span.name for span in provenance.spans)
    return {name: number for number, name in enumerate(names, start=1)}


def _marked(text: str, spans: Sequence[Span], numbers: dict[str, int]) -> Markup:
    # The number is not copied with the text.
    mark = Markup(
        '<mark style="background:{};color:#111;padding:0 2px" title="{}">'
        '<small style="color:#555;user-select:none">[{}] </small>{}</mark>'
    )
    parts: list[Markup] = []
    at = 0
    for span in spans:
        if span.end > _MOST_CHARS:
            break
        number = numbers[span.name]
        colour = _MARKS[(number - 1) % len(_MARKS)]
        parts.append(escape(visible(text[at : span.start])))
        parts.append(mark.format(colour, span.name, number, visible(span.of(text))))
        at = span.end
    left = max(0, _MOST_CHARS - at)
    return join([*parts, safe(text[at:], limit=left)])


def legend_html(attempt: Attempt, provenance: Provenance) -> Markup:
    """Return the slots' values and sources as a table, what was cut, and how sure that is.

    Args:
        attempt: the request.
        provenance: of its prompt.
    """
    texts = _opening_texts(attempt)
    numbers = _numbers(provenance)
    rows: dict[str, tuple[object, ...]] = {}
    for span in provenance.spans:
        value = span.of(texts[span.role])
        slot = f"[{numbers[span.name]}] {span.name}"
        # A slot that stands in several places with the same value is one row.
        rows.setdefault(f"{span.name}\0{value}", (slot, safe(value, limit=500), _source(span)))
    parts = []
    if rows:
        parts.append(table(("slot", "value", "source"), rows.values(), caption="Slots"))
    cuts = [(cut.name, cut.source, cut.reason) for cut in provenance.cuts]
    if cuts:
        parts.append(table(("left out", "source", "why"), cuts, caption="Left out"))
    parts.append(Markup("<div>Where the values are: {}.</div>").format(safe(str(provenance))))
    return block(*parts)


def slot_lines(attempt: Attempt, provenance: Provenance) -> list[str]:
    """Return the slots' values and sources as lines of plain text, and how sure that is."""
    texts = _opening_texts(attempt)
    values = ((s.name, clip(s.of(texts[s.role]), 80), _source(s)) for s in provenance.spans)
    lines = [f"  {name} = {value}  ({source})" for name, value, source in dict.fromkeys(values)]
    return [*lines, f"  where the values are: {provenance}"]


def _opening_texts(attempt: Attempt) -> dict[str, str]:
    """Return the first message of each role; spans are places in these."""
    first: dict[str, str] = {}
    for message in attempt.request.messages:
        first.setdefault(message.role, message.content)
    return first


def _source(span: Span) -> str:
    tokens = "" if span.tokens is None else f" ({span.tokens:,} tokens)"
    return (span.source or "source not said") + tokens


# --- the reply -------------------------------------------------------------------------------


def facts_html(attempt: Attempt, *, status: str | None, seconds: bool = False) -> Markup:
    """Return a request's model, tokens, options and fault as a table.

    Args:
        attempt: the request.
        status: how the decision came about; None where there is no decision.
        seconds: True to show how long it took.
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
        rows.append(("fault", join([f"{attempt.reason}{code}: ", safe(attempt.detail)])))
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


def reply_html(attempt: Attempt) -> Markup:
    """Return a reply's fields as a table, and, folded, the reply as it came.

    Args:
        attempt: the request and its outcome.
    """
    reply = attempt.reply
    if reply is None:
        return block(heading("Reply"), "none came")
    fields = parsed_fields(reply)
    parts = [heading("Reply")]
    if isinstance(fields, str):
        parts += [safe(fields), pre(reply.text)]
    else:
        asked = (attempt.request.schema or {}).get("properties", fields)
        parts.append(
            pairs(
                (name if name in asked else f"{name} (not asked for)", _value(value))
                for name, value in list(fields.items())[:100]
            )
        )
        parts.append(details("as it came", pre(reply.text)))
    if reply.thinking:
        parts.append(details("what it thought first", pre(reply.thinking)))
    return block(*parts, *map(_tool_call, reply.tool_calls))


def _value(value: object) -> Markup:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _FOLDED_FROM:
        return prose(text)
    return details(f"{len(text):,} characters", prose(text))


def conversation_text(attempt: Attempt) -> str:
    """Return a request's messages as plain text, each under its role."""
    return "\n\n".join(
        f"[{message.role}]\n{message.content}" for message in attempt.request.messages
    )
