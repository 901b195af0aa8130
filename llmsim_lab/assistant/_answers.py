"""What the engine says and how it counts: from a text, a tool's result or a failure to a decision.

Outcome categories, each with its kind: ``SUCCESS`` (``RESPONDED``, ``TOOL_DONE``,
``CONFIRMATION_ASKED``, ``CANCELLED``), ``ERROR`` (``TOOL_FAILED``,
``TOO_MANY_STEPS``, ``TOOL_NOT_FOUND``, ``INVALID_PARAMETERS`` and the codes of ``LLMError``),
``REFUSAL`` (``DECLINED``), ``AMBIGUITY`` (``CLARIFICATION``, ``CONFIRMATION_UNCLEAR``). Where
there is no decision: ``ERROR`` with ``STOPPED`` or the exception's name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.assistant._decision_log import DecisionOutcome
from llmsim_lab.assistant._toolbox import BadCall, GoodCall, in_words
from llmsim_lab.assistant._types import (
    AgentDecision,
    DecisionContext,
    DecisionType,
    LLMError,
    Meaning,
    PendingAction,
    RateLimitError,
    ToolCall,
    ToolErrorCode,
)
from llmsim_lab.llm._extract import without_thinking

_TROUBLE = "I'm having trouble processing your request. Please try again."
_RATE_LIMITED = "I'm receiving too many requests. Please wait a moment."
_TOO_COMPLEX = "That request is too complex. Could you break it into smaller steps?"

_REASONS_FOR_USERS: tuple[ToolErrorCode, ...] = (
    "NOT_FOUND",
    "TIMEOUT",
    "SERVER_DIED",
    "INVALID_PARAMETERS",
)
"""Failures whose reason is fit for the user; the reason of others may be an internal."""
_MAX_REASON_CHARS = 300
_QUESTION_MARKS = tuple("?;\uff1f\u061f\u037e")  # wide, Arabic; Greek looks like a semicolon
_CLOSING = " \t\r\n\"'*)]\u00bb\u2019\u201c\u201d\u300d\uff09"
_LIMITED = re.compile(r"rate.?limit|too.?many.?requests|resource.?exhausted|\b429\b", re.IGNORECASE)
"""How users' own adapters name a rate limit in an error's code."""
_MAX_CHARS = 200
_MAX_ITEMS = 10
_NUMBER = re.compile(r"(?:.+_)?(?:id|number)")
"""Arguments that only say which thing is meant, so that the text names the thing alone."""
_PLAIN = ("title", "description", "name", "text", "key", "url", "path", "query")
_KEPT = "\n\t\u200c\u200d"  # and the joiners, with which emoji and Persian words are written
_QUOTES = str.maketrans("“”", "''")  # so that no value can end the quotation that it stands in
_QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]*(?:'\w[^'\n]*){0,3}'(?!\w)"
)
"""Words in quotation marks or as code; an apostrophe within a word is not a quotation mark."""
_BETWEEN = r"(?:\\?_|[-./:])?"  # Markdown may have it as \_
# Repeats are bounded, since a model's text must not keep the regular expression busy for long.
_ARGUMENTS = r"(?:\((?:[^()\n]|\([^()\n]{0,100}\)){0,300}\))?"
_CODES: tuple[str, ...] = get_args(ToolErrorCode)


def final_text(
    text: str, executed: Sequence[ToolCall], *, kind: Meaning | None = None
) -> DecisionOutcome:
    """Return the decision that a model's final text stands for.

    Args:
        text: not empty, fit for the user.
        executed: the tools that ran before.
        kind: what the model says that it is. Where it does not, a text that ends in a question
            mark is a question, and any other an answer.
    """
    if kind is None:
        kind = "question" if text.rstrip(_CLOSING).endswith(_QUESTION_MARKS) else "answer"
    if kind == "question":
        category = "AMBIGUITY:CLARIFICATION"
        asking = DecisionType.ASK_CLARIFICATION
        decision = _decision(asking, executed, clarification_question=text)
    elif executed:
        works = any(call.worked for call in executed)
        category = "SUCCESS:TOOL_DONE" if works else "ERROR:TOOL_FAILED"
        decision = _decision(DecisionType.INVOKE_TOOL, executed, response_text=text)
    else:
        category = "REFUSAL:DECLINED" if kind == "refusal" else "SUCCESS:RESPONDED"
        decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return DecisionOutcome(decision, category, _tools_used(executed))


def failed(
    fault: LLMError, executed: Sequence[ToolCall], pending: PendingAction | None = None
) -> DecisionOutcome:
    """Return the answer to a failure.

    Args:
        fault: the failure, of the model or of listing the tools.
        executed: the tools that ran before.
        pending: what still waits for a yes, because it could not be done.
    """
    limited = isinstance(fault, RateLimitError) or _LIMITED.search(str(fault.code)) is not None
    decision = _decision(
        DecisionType.RESPOND_ONLY,
        executed,
        response_text=_RATE_LIMITED if limited else _TROUBLE,
        pending_action=pending,
    )
    return DecisionOutcome(decision, f"ERROR:{fault.code}", _tools_used(executed))


def too_complex(executed: Sequence[ToolCall]) -> DecisionOutcome:
    """Return the answer to a message on which the model used up its calls."""
    decision = _decision(DecisionType.RESPOND_ONLY, executed, response_text=_TOO_COMPLEX)
    return DecisionOutcome(decision, "ERROR:TOO_MANY_STEPS", _tools_used(executed))


def wants_yes(
    call: GoodCall,
    executed: Sequence[ToolCall],
    context: DecisionContext,
    *,
    call_id: str,
    left: int = 0,
) -> DecisionOutcome:
    """Return the question whether to make a call.

    Args:
        call: the call.
        executed: the tools that ran before.
        context: the message, whose user alone can say yes.
        call_id: tells this question from others.
        left: how many calls the model wanted after this one, which are not made.
    """
    description = described(call.name, call.parameters)
    pending = PendingAction(
        tool_name=call.name,
        parameters=call.parameters,
        description=description,
        call_id=call_id,
        user_id=context.user_id,
        conversation_id=context.conversation_id,
    )
    text = _question(description)
    if left:
        steps = "One more step has" if left == 1 else f"{left} more steps have"
        text += f" {steps} not been done; please ask again afterwards."
    return DecisionOutcome(
        _asking(pending, text, executed), "SUCCESS:CONFIRMATION_ASKED", call.name
    )


def asked_again(pending: PendingAction) -> DecisionOutcome:
    """Return the question once more."""
    text = f"I did not take that for a yes or a no. {_question(words_of(pending))}"
    return DecisionOutcome(
        _asking(pending, text), "AMBIGUITY:CONFIRMATION_UNCLEAR", pending.tool_name
    )


def dropped(pending: PendingAction) -> DecisionOutcome:
    """Return the answer to a no."""
    return _unrun(pending, f"All right, I will not {words_of(pending)}.", "SUCCESS:CANCELLED")


def confirmed(pending: PendingAction, call: ToolCall) -> DecisionOutcome:
    """Return the answer after a yes: whether the call worked."""
    words, category = words_of(pending), "SUCCESS:TOOL_DONE"
    text = f"Done: {words}."
    if not call.worked:
        category, result, reason = "ERROR:TOOL_FAILED", call.result, ""
        # A reason is the server's text, so it is shortened and cleaned like a model's.
        if result is not None and result.error and result.error_code in _REASONS_FOR_USERS:
            reason = f" ({for_user(clip(result.error, _MAX_REASON_CHARS), [call.tool_name])})"
        text = f"That did not work: I could not {words}{reason}."
    decision = _decision(DecisionType.INVOKE_TOOL, [call], response_text=text)
    return DecisionOutcome(decision, category, call.tool_name)


def done_before(pending: PendingAction) -> DecisionOutcome:
    """Return the answer to a second yes."""
    text = f"Your yes was taken before; I do not {words_of(pending)} twice."
    return _unrun(pending, text, "REFUSAL:CONFIRMED_BEFORE")


def nothing_asked() -> DecisionOutcome:
    """Return the answer to a yes or a no where this user was asked nothing here."""
    text = "You were not asked anything here, so there is nothing to answer with yes or no."
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return DecisionOutcome(decision, "REFUSAL:NOT_ASKED")


def impossible(pending: PendingAction, fault: BadCall) -> DecisionOutcome:
    """Return the answer to a yes for a call that is no longer possible."""
    text = f"I can no longer {words_of(pending)}. Please ask me again."
    return _unrun(pending, text, f"ERROR:{fault.code}")


def _unrun(pending: PendingAction, text: str, category: str) -> DecisionOutcome:
    """Return an answer after which a pending action neither runs nor waits."""
    decision = _decision(DecisionType.RESPOND_ONLY, response_text=text)
    return DecisionOutcome(decision, category, pending.tool_name)


def _question(description: str) -> str:
    return f"Shall I {description}? Please answer yes or no."


def _asking(pending: PendingAction, text: str, executed: Sequence[ToolCall] = ()) -> AgentDecision:
    asking = DecisionType.REQUEST_CONFIRMATION
    return _decision(asking, executed, response_text=text, pending_action=pending)


def _decision(
    decision_type: DecisionType, executed: Sequence[ToolCall] = (), **fields: Any
) -> AgentDecision:
    return AgentDecision(decision_type=decision_type, tool_calls=list(executed) or None, **fields)


def _tools_used(executed: Sequence[ToolCall]) -> str:
    names = ", ".join(dict.fromkeys(call.tool_name for call in executed))
    return names or "CONVERSATION"


# --- words for the user ---------------------------------------------------------------------------


def described(tool_name: str, parameters: Mapping[str, Any]) -> str:
    """Return what a call will do, in words: ``delete task 3``.

    Long values are cut, with their length.

    Args:
        tool_name: the tool.
        parameters: its arguments, checked.
    """
    words = _short(tool_name)
    if not parameters:
        return words
    if len(parameters) == 1:
        [(key, value)] = parameters.items()
        if _NUMBER.fullmatch(key) or (key in _PLAIN and isinstance(value, str)):
            return f"{words} {_value_text(value)}"
    listed = ", ".join(f"{_short(key)}: {_value_text(value)}" for key, value in parameters.items())
    return f"{words} ({listed})"


def words_of(pending: PendingAction) -> str:
    """Return what a pending action will do.

    Its own description does not count: the context has been outside since and may have been
    changed, and the user must confirm what really runs.
    """
    return described(pending.tool_name, pending.parameters)


def _short(name: str) -> str:
    """Return a name that a model wrote in words, as the user may see it."""
    return clip(printable(in_words(name)), _MAX_CHARS)


def _value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(few([*map(_value_text, value)], _MAX_ITEMS))}]"
    # Marks of direction could make the question read as another one than what will run.
    text = printable(" ".join(str(value).split()))
    short = clip(text, _MAX_CHARS)
    cut = f" ({len(text):,} characters)" if len(text) > _MAX_CHARS else ""
    return f"“{short.translate(_QUOTES)}”{cut}" if isinstance(value, str) else f"{short}{cut}"


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text as the user may see it: no thinking, tool names or control codes.

    A name inside a longer quotation is taken for the user's own words and stays.
    """
    clean = printable(without_thinking(text), keep=_KEPT).strip()
    internal = {_letters(name): in_words(name) for name in (*tool_names, *_CODES)}
    quoted = [match.span() for match in _QUOTED.finditer(clean) if match[0][0] != "`"]

    def reworded(match: re.Match[str]) -> str:
        # The quotation that a name stands in, if any: the last one that begins before it.
        place = bisect_right(quoted, (match.start(), len(clean))) - 1
        if place >= 0 and match.end() < quoted[place][1]:
            start, end = quoted[place]
            if _letters(clean[start:end]) != _letters(match[0]):
                return match[0]
        return internal[_letters(match[1])]

    # Of two names that begin alike a pattern takes the first, which must not be part of the other.
    longest_first = sorted(internal.values(), key=len, reverse=True)
    spelled = "|".join(_BETWEEN.join(map(re.escape, w.split())) for w in longest_first if " " in w)
    return re.sub(
        rf"`?(?<!\w)({spelled})(?!\w){_ARGUMENTS}`?", reworded, clean, flags=re.IGNORECASE
    )


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()
