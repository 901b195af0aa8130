"""What the engine says and how it counts: from a text, a tool's result or a failure to a decision.

Outcome categories, each with its kind: ``SUCCESS`` (``RESPONDED``, ``TOOL_DONE``,
``CONFIRMATION_ASKED``, ``CANCELLED``), ``ERROR`` (``TOOL_FAILED``, ``TOO_MANY_STEPS``,
``TOOL_NOT_FOUND``, ``INVALID_PARAMETERS`` and the codes of ``LLMError``), ``REFUSAL``
(``DECLINED``), ``AMBIGUITY`` (``CLARIFICATION``, ``CONFIRMATION_UNCLEAR``,
``UNFOUNDED_CLAIM``). Where there is no decision: ``ERROR`` with ``STOPPED`` or
the exception's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmsim_lab.assistant.book import Outcome
from llmsim_lab.assistant.errors import LLMError, RateLimitError
from llmsim_lab.assistant.reading import asks_user, declines, in_words
from llmsim_lab.assistant.toolbox import BadCall, GoodCall
from llmsim_lab.assistant.types import AgentDecision, DecisionType, PendingAction, ToolCall
from llmsim_lab.text import clip, printable

__all__ = [
    "NOTHING_DONE",
    "RATE_LIMITED",
    "TOO_COMPLEX",
    "TROUBLE",
    "asked_again",
    "confirmed",
    "described",
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

_MAX_VALUE_CHARS = 60
_TITLES = ("title", "description", "name", "text")


def said(text: str, executed: Sequence[ToolCall], *, changed: bool = False) -> Outcome:
    """Return the decision that a model's final text stands for.

    A question is a question also where tools ran before, to look things up or in vain.

    Args:
        text: not empty, fit for the user.
        executed: the tools that ran before.
        changed: whether one of them changed something.
    """
    if executed and asks_user(text, after_work=changed):
        kind = DecisionType.ASK_CLARIFICATION
        decision = _decision(kind, executed, clarification_question=text)
        return Outcome(decision, "AMBIGUITY:CLARIFICATION", _of(executed))
    if executed:
        works = any(call.result is not None and call.result.success for call in executed)
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
    kind = DecisionType.INVOKE_TOOL if executed else DecisionType.RESPOND_ONLY
    decision = _decision(kind, executed, response_text=f"{text}\n\n{NOTHING_DONE}")
    return Outcome(decision, "AMBIGUITY:UNFOUNDED_CLAIM", _of(executed))


def failed(fault: LLMError, executed: Sequence[ToolCall]) -> Outcome:
    """Return the answer to a model's failure."""
    text = RATE_LIMITED if isinstance(fault, RateLimitError) else TROUBLE
    decision = _decision(DecisionType.RESPOND_ONLY, executed, response_text=text)
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
    description = described(call, executed)
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
    text = f"I did not take that for a yes or a no. {_question(_words(pending))}"
    return Outcome(_asking(pending, text), "AMBIGUITY:CONFIRMATION_UNCLEAR", pending.tool_name)


def dropped(pending: PendingAction) -> Outcome:
    """Return the answer to a no."""
    text = f"All right, I will not {_words(pending)}."
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return Outcome(decision, "SUCCESS:CANCELLED", pending.tool_name)


def confirmed(pending: PendingAction, call: ToolCall) -> Outcome:
    """Return the answer after a yes: how it went."""
    success = call.result is not None and call.result.success
    words = _words(pending)
    text = f"Done: {words}." if success else f"That did not work: I could not {words}."
    decision = _decision(DecisionType.INVOKE_TOOL, [call], response_text=text)
    return Outcome(
        decision, "SUCCESS:TOOL_DONE" if success else "ERROR:TOOL_FAILED", call.tool_name
    )


def gone(pending: PendingAction, fault: BadCall) -> Outcome:
    """Return the answer to a yes for what is no longer possible."""
    text = f"I can no longer {_words(pending)}. Please ask me again."
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return Outcome(decision, f"ERROR:{fault.code}", pending.tool_name)


def described(call: GoodCall, executed: Sequence[ToolCall] = ()) -> str:
    """Return what a call will do, in words made of the call itself, not by the model.

    A thing named by number is also given by its title, where an earlier result has it.
    """
    words = in_words(call.name)
    if not call.parameters:
        return words
    shown = {key: _shown(value) for key, value in call.parameters.items()}
    if len(shown) == 1:
        [(key, value)] = call.parameters.items()
        title = _title_of(key, value, executed)
        return f"{words} {shown[key]}" + (f" ({title})" if title else "")
    listed = ", ".join(f"{in_words(key)}: {value}" for key, value in shown.items())
    return f"{words} ({listed})"


def _shown(value: Any) -> str:
    text = clip(printable(str(value)), _MAX_VALUE_CHARS)
    return f"“{text}”" if isinstance(value, str) else text


def _title_of(key: str, value: Any, executed: Sequence[ToolCall]) -> str:
    for call in reversed(executed):
        for thing in _objects(call.result.data if call.result else None):
            if value in (thing.get("id"), thing.get(key)) and not isinstance(value, bool):
                titles = [thing[name] for name in _TITLES if isinstance(thing.get(name), str)]
                return _shown(titles[0]) if titles else ""
    return ""


def _objects(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        yield data
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _objects(item)


def _question(description: str) -> str:
    return f"Shall I {description}? Please answer yes or no."


def _words(pending: PendingAction) -> str:
    return pending.description or described(GoodCall(pending.tool_name, pending.parameters))


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
