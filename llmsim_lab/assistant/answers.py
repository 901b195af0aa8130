"""What the engine says and how it counts: from a text, a tool's result or a failure to a decision.

Outcome categories, each with its kind: ``SUCCESS`` (``RESPONDED``, ``TOOL_DONE``,
``CONFIRMATION_ASKED``, ``CANCELLED``), ``ERROR`` (``TOOL_FAILED``, ``TOO_MANY_STEPS``,
``TOOL_NOT_FOUND``, ``INVALID_PARAMETERS`` and the codes of ``LLMError``), ``REFUSAL``
(``DECLINED``), ``AMBIGUITY`` (``CLARIFICATION``, ``CONFIRMATION_UNCLEAR``,
``UNFOUNDED_CLAIM``). Where there is no decision: ``ERROR`` with ``STOPPED`` or
the exception's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llmsim_lab.assistant.book import Outcome
from llmsim_lab.assistant.call_words import described, words_of
from llmsim_lab.assistant.errors import LLMError, RateLimitError
from llmsim_lab.assistant.questions import asks_user, declines
from llmsim_lab.assistant.shown import for_user
from llmsim_lab.assistant.toolbox import BadCall, GoodCall
from llmsim_lab.assistant.types import (
    AgentDecision,
    DecisionType,
    PendingAction,
    ToolCall,
    ToolErrorCode,
)
from llmsim_lab.text import clip

__all__ = [
    "NOTHING_DONE",
    "RATE_LIMITED",
    "TOO_COMPLEX",
    "TROUBLE",
    "asked_again",
    "confirmed",
    "dropped",
    "failed",
    "gone",
    "said",
    "too_complex",
    "unfounded",
    "wants_yes",
]

TROUBLE = "I'm having trouble processing your request. Please try again."
"""The answer where the model failed."""
RATE_LIMITED = "I'm receiving too many requests. Please wait a moment."
"""The answer where the model has too much to do."""
TOO_COMPLEX = "That request is too complex. Could you break it into smaller steps?"
"""The answer where the model wanted tools again and again."""

NOTHING_DONE = "(Nothing has been changed by this message.)"
"""The remark below a text that claims otherwise."""

_TELLING: tuple[ToolErrorCode, ...] = ("NOT_FOUND", "TIMEOUT", "SERVER_DIED", "INVALID_PARAMETERS")
"""Failures whose reason is fit for the user; of others it may be an internal."""
_MAX_REASON_CHARS = 300
_LIMITED = re.compile(r"rate.?limit|too.?many.?requests|resource.?exhausted|\b429\b", re.IGNORECASE)
"""How adapters of other makers call a rate limit in an error's code."""


def said(text: str, executed: Sequence[ToolCall]) -> Outcome:
    """Return the decision that a model's final text stands for.

    A question is a question also where tools ran before; but after a tool that worked, an offer
    to do more is none.

    Args:
        text: not empty, fit for the user.
        executed: the tools that ran before.
    """
    if executed and asks_user(text, after_work=executed[-1].worked):
        kind = DecisionType.ASK_CLARIFICATION
        decision = _decision(kind, executed, clarification_question=text)
        return Outcome(decision, "AMBIGUITY:CLARIFICATION", _of(executed))
    if executed:
        works = any(call.worked for call in executed)
        decision = _decision(DecisionType.INVOKE_TOOL, executed, response_text=text)
        return Outcome(
            decision, "SUCCESS:TOOL_DONE" if works else "ERROR:TOOL_FAILED", _of(executed)
        )
    if declines(text):
        decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
        return Outcome(decision, "REFUSAL:DECLINED")
    if asks_user(text):
        decision = _decision(DecisionType.ASK_CLARIFICATION, clarification_question=text)
        return Outcome(decision, "AMBIGUITY:CLARIFICATION")
    return Outcome(_decision(DecisionType.RESPOND_ONLY, response_text=text), "SUCCESS:RESPONDED")


def unfounded(text: str, executed: Sequence[ToolCall] = ()) -> Outcome:
    """Return the decision for a text that claims a change although no tool has made one.

    Args:
        text: what the model insists on.
        executed: the tools that ran before, to look things up or in vain.
    """
    marked = said(f"{text}\n\n{NOTHING_DONE}", executed)
    return replace(marked, category="AMBIGUITY:UNFOUNDED_CLAIM")


def failed(
    fault: LLMError, executed: Sequence[ToolCall], pending: PendingAction | None = None
) -> Outcome:
    """Return the answer to a failure.

    Args:
        fault: the failure, of the model or of what lists the tools.
        executed: the tools that ran before.
        pending: what still waits for a yes, since it could not be done.
    """
    limited = isinstance(fault, RateLimitError) or _LIMITED.search(str(fault.code)) is not None
    decision = _decision(
        DecisionType.RESPOND_ONLY,
        executed,
        response_text=RATE_LIMITED if limited else TROUBLE,
        pending_action=pending,
    )
    return Outcome(decision, f"ERROR:{fault.code}", _of(executed))


def too_complex(executed: Sequence[ToolCall]) -> Outcome:
    """Return the answer where the model did not come to an end."""
    decision = _decision(DecisionType.RESPOND_ONLY, executed, response_text=TOO_COMPLEX)
    return Outcome(decision, "ERROR:TOO_MANY_STEPS", _of(executed))


def wants_yes(
    call: GoodCall, executed: Sequence[ToolCall], *, call_id: str, left: int = 0
) -> Outcome:
    """Return the question whether to go on with a call.

    Args:
        call: the call.
        executed: the tools that ran before.
        call_id: distinguishes this question from others.
        left: how many calls the model wanted after this one, which are not made.
    """
    description = described(call.name, call.parameters, executed)
    pending = PendingAction(
        tool_name=call.name, parameters=call.parameters, description=description, call_id=call_id
    )
    text = _question(description)
    if left:
        steps = "One more step has" if left == 1 else f"{left} more steps have"
        text += f" {steps} not been done; please ask again afterwards."
    return Outcome(_asking(pending, text, executed), "SUCCESS:CONFIRMATION_ASKED", call.name)


def asked_again(pending: PendingAction) -> Outcome:
    """Return the question once more."""
    text = f"I did not take that for a yes or a no. {_question(words_of(pending))}"
    return Outcome(_asking(pending, text), "AMBIGUITY:CONFIRMATION_UNCLEAR", pending.tool_name)


def dropped(pending: PendingAction) -> Outcome:
    """Return the answer to a no."""
    text = f"All right, I will not {words_of(pending)}."
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return Outcome(decision, "SUCCESS:CANCELLED", pending.tool_name)


def confirmed(pending: PendingAction, call: ToolCall) -> Outcome:
    """Return the answer after a yes: how it went."""
    success = call.worked
    words = words_of(pending)
    text = f"Done: {words}."
    if not success:
        text = f"That did not work: I could not {words}{_reason(call)}."
    decision = _decision(DecisionType.INVOKE_TOOL, [call], response_text=text)
    return Outcome(
        decision, "SUCCESS:TOOL_DONE" if success else "ERROR:TOOL_FAILED", call.tool_name
    )


def gone(pending: PendingAction, fault: BadCall) -> Outcome:
    """Return the answer to a yes for what is no longer possible."""
    text = f"I can no longer {words_of(pending)}. Please ask me again."
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return Outcome(decision, f"ERROR:{fault.code}", pending.tool_name)


def _reason(call: ToolCall) -> str:
    result = call.result
    if result is None or result.error_code not in _TELLING or not result.error:
        return ""
    return f" ({for_user(clip(result.error, _MAX_REASON_CHARS), [call.tool_name])})"


def _question(description: str) -> str:
    return f"Shall I {description}? Please answer yes or no."


def _asking(pending: PendingAction, text: str, executed: Sequence[ToolCall] = ()) -> AgentDecision:
    kind = DecisionType.REQUEST_CONFIRMATION
    return _decision(kind, executed, response_text=text, pending_action=pending)


def _decision(
    kind: DecisionType, executed: Sequence[ToolCall] = (), **fields: Any
) -> AgentDecision:
    return AgentDecision(decision_type=kind, tool_calls=list(executed) or None, **fields)


def _of(executed: Sequence[ToolCall]) -> str:
    names = ", ".join(dict.fromkeys(call.tool_name for call in executed))
    return names or "CONVERSATION"
