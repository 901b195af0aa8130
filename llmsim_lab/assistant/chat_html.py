"""A conversation as text and HTML; all that people, models and tools say is escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence

from markupsafe import Markup

from llmsim_lab.assistant.types import AgentDecision, ToolCall, ToolResult
from llmsim_lab.markup import details, join, pairs, pre, safe, visible
from llmsim_lab.text import clip

__all__ = ["chat_html", "exchange_text", "shown_exchange"]

_MAX_CHARS = 4_000
_SHOWN = 50
"""So many of the latest exchanges are shown, so that a long talk stays quick."""

_EXCHANGE = (
    '<div style="display:flex;flex-wrap:wrap;gap:4px 16px;padding:4px 0;'
    'border-top:1px solid var(--jp-border-color2, #ccc)">'
    '<div style="flex:3 1 320px;min-width:0">{said}</div>'
    '<div style="flex:2 1 240px;min-width:0">{done}</div></div>'
)
_SPEECH = (
    '<div style="line-height:1.4"><strong>{who}</strong>'
    '<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{text}</div></div>'
)


def chat_html(exchanges: Sequence[tuple[str, AgentDecision]]) -> Markup:
    """Return a conversation; of a long one the latest part.

    Args:
        exchanges: messages and what was decided, oldest first.
    """
    if not exchanges:
        return Markup("<p>Nothing was said yet.</p>")
    left_out = len(exchanges) - _SHOWN
    head = Markup("<p><em>{} earlier messages are not shown.</em></p>").format(left_out)
    shown = join(shown_exchange(message, decision) for message, decision in exchanges[-_SHOWN:])
    return (head if left_out > 0 else Markup()) + shown


def shown_exchange(message: str, decision: AgentDecision) -> Markup:
    """Return one message, its answer, and beside them what was done."""
    said = join([_speech("You", message), _speech("Assistant", decision.text)])
    calls = join(_call(call) for call in decision.tool_calls or ())
    kind = Markup("<div><small>{}</small></div>").format(_kind(decision))
    return Markup(_EXCHANGE).format(said=said, done=kind + calls)


def _kind(decision: AgentDecision) -> str:
    return str(decision.decision_type).replace("_", " ").lower()


def _speech(who: str, text: str) -> Markup:
    return Markup(_SPEECH).format(who=who, text=safe(text, limit=_MAX_CHARS))


def _call(call: ToolCall) -> Markup:
    result = call.result
    rows = [("asked for", pre(_json(call.parameters), limit=_MAX_CHARS))]
    if result is not None:
        rows.append(("result", pre(_outcome(result), limit=_MAX_CHARS)))
    return details(f"{call.tool_name}: {_mark(call)}", pairs(rows))


def _mark(call: ToolCall) -> str:
    return "done" if call.worked else "failed"


def _outcome(result: ToolResult) -> str:
    if result.success:
        return _json(result.data)
    return f"{result.error_code}: {result.error}"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=1, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no names, or cycles
        return repr(value)


def exchange_text(message: str, decision: AgentDecision) -> str:
    """Return one exchange as plain lines."""
    lines = [f"You: {_line(message)}"]
    for call in decision.tool_calls or ():
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.parameters.items())
        lines.append(f"  [{_line(call.tool_name)}({_line(arguments)}): {_mark(call)}]")
    lines.append(f"Assistant ({_kind(decision)}): {_line(decision.text)}")
    return "\n".join(lines)


def _line(text: str) -> str:
    return visible(clip(text, _MAX_CHARS)).replace("\n", " ")
