"""What the engine says and how it counts: from a text, a tool's result or a failure to a decision.

Outcome categories, each with its kind: ``SUCCESS`` (``RESPONDED``, ``TOOL_DONE``,
``CONFIRMATION_ASKED``, ``CANCELLED``), ``ERROR`` (``TOOL_FAILED``, ``TOO_MANY_STEPS``, the code of
a failed result or an ``LLMError``), ``REFUSAL`` (``DECLINED``, ``NOT_ASKED``,
``CONFIRMED_BEFORE``), ``AMBIGUITY`` (``CLARIFICATION``, ``CONFIRMATION_UNCLEAR``). Where there is
no decision: ``ERROR`` with the exception's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmsim_lab._util.text import clip, printable
from llmsim_lab.assistant._decision_log import DecisionOutcome
from llmsim_lab.assistant._toolbox import in_words, json_text
from llmsim_lab.assistant._types import (
    AgentDecision,
    DecisionType,
    LLMError,
    Meaning,
    PendingAction,
    RateLimitError,
    ToolCall,
)
from llmsim_lab.llm._extract import without_thinking

TROUBLE = "I'm having trouble processing your request. Please try again."
RATE_LIMITED = "I'm receiving too many requests. Please wait a moment."
TOO_COMPLEX = "That request is too complex. Could you break it into smaller steps?"
NOT_ASKED = "You were not asked anything here, so there is nothing to answer with yes or no."
_REASONS_FOR_USERS = ("NOT_FOUND", "TIMEOUT", "SERVER_DIED", "INVALID_PARAMETERS")
"""Failures whose reason is fit for the user; the reason of others may be an internal."""
_QUESTION_MARKS = tuple("?;\uff1f\u061f\u037e")  # wide, Arabic; Greek looks like a semicolon
_CLOSING = " \t\r\n\"'*)]\u00bb\u2019\u201c\u201d\u300d\uff09"
_KEPT = "\n\t\u200c\u200d"  # and the joiners, with which emoji and Persian words are written


def outcome(
    category: str,
    text: str,
    calls: Sequence[ToolCall] = (),
    *,
    kind: DecisionType = DecisionType.RESPOND_ONLY,
    pending: PendingAction | None = None,
) -> DecisionOutcome:
    """Return a decision that says a text to the user.

    Args:
        category: how it counts.
        text: what the user is told or asked.
        calls: the tools that ran before.
        kind: of the decision.
        pending: what waits for a yes.
    """
    asks = kind is DecisionType.ASK_CLARIFICATION
    decision = AgentDecision(
        decision_type=kind,
        tool_calls=list(calls) or None,
        response_text=None if asks else text,
        clarification_question=text if asks else None,
        pending_action=pending,
    )
    return DecisionOutcome(decision, category)


def final_text(text: str, calls: Sequence[ToolCall], kind: Meaning | None) -> DecisionOutcome:
    """Return the decision that a model's final text stands for.

    Args:
        text: not empty, fit for the user.
        calls: the tools that ran before.
        kind: what the model says that it is. Where it does not, a text that ends in a question
            mark is a question, and any other an answer.
    """
    if kind is None:
        kind = "question" if text.rstrip(_CLOSING).endswith(_QUESTION_MARKS) else "answer"
    if kind == "question":
        asking = DecisionType.ASK_CLARIFICATION
        return outcome("AMBIGUITY:CLARIFICATION", text, calls, kind=asking)
    if calls:
        works = any(call.worked for call in calls)
        category = "SUCCESS:TOOL_DONE" if works else "ERROR:TOOL_FAILED"
        return outcome(category, text, calls, kind=DecisionType.INVOKE_TOOL)
    return outcome("REFUSAL:DECLINED" if kind == "refusal" else "SUCCESS:RESPONDED", text)


def failed(
    fault: LLMError, calls: Sequence[ToolCall], pending: PendingAction | None
) -> DecisionOutcome:
    """Return the answer to a failure of the model or of listing the tools.

    Args:
        fault: the failure.
        calls: the tools that ran before.
        pending: what still waits for a yes, because it could not be done.
    """
    text = RATE_LIMITED if isinstance(fault, RateLimitError) else TROUBLE
    return outcome(f"ERROR:{fault.code}", text, calls, pending=pending)


def wants_yes(
    pending: PendingAction,
    calls: Sequence[ToolCall] = (),
    *,
    category: str = "SUCCESS:CONFIRMATION_ASKED",
    before: str = "",
    after: str = "",
) -> DecisionOutcome:
    """Return the question whether to do what waits, between what is said before and after it."""
    text = f"{before}Shall I {words_of(pending)}? Please answer yes or no.{after}"
    kind = DecisionType.REQUEST_CONFIRMATION
    return outcome(category, text, calls, kind=kind, pending=pending)


def confirmed(pending: PendingAction, call: ToolCall) -> DecisionOutcome:
    """Return the answer after a yes: whether the call worked."""
    words, result, kind = words_of(pending), call.result, DecisionType.INVOKE_TOOL
    if call.worked:
        return outcome("SUCCESS:TOOL_DONE", f"Done: {words}.", [call], kind=kind)
    reason = ""
    # A reason is the server's text, so it is shortened and cleaned like a model's.
    if result is not None and result.error and result.error_code in _REASONS_FOR_USERS:
        reason = f" ({for_user(clip(result.error, 300), [call.tool_name])})"
    text = f"That did not work: I could not {words}{reason}."
    return outcome("ERROR:TOOL_FAILED", text, [call], kind=kind)


# --- words for the user ---------------------------------------------------------------------------


def words_of(pending: PendingAction) -> str:
    """Return what a pending action will do.

    Its own description does not count: the context has been outside since and may have been
    changed, and the user must confirm what really runs.
    """
    return described(pending.tool_name, pending.parameters)


def described(tool_name: str, parameters: Mapping[str, Any]) -> str:
    """Return what a call will do, in words: ``delete task 3``; long values are cut."""
    words = clip(in_words(tool_name), 200)
    told = [(_shown(in_words(key)), _shown(json_text(item))) for key, item in parameters.items()]
    if len(told) == 1 and re.fullmatch(r"(?:.+ )?(?:id|number)", told[0][0]):
        return f"{words} {told[0][1]}"
    return f"{words} ({', '.join(map(': '.join, told))})" if told else words


def _shown(text: str) -> str:
    # Marks of direction could make the question read as another one than what will run.
    return clip(printable(text), 200)


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text as the user may see it: no thinking, tool names or control codes."""
    clean = printable(without_thinking(text), keep=_KEPT).strip()
    names = "|".join(map(re.escape, sorted(tool_names, key=len, reverse=True)))
    return re.sub(rf"`?\b({names})\b`?", lambda name: in_words(name[1]), clean) if names else clean
