"""What a fault means: whether a second attempt may help, and what is asked then.

A fault is whatever a backend raised, or a reply that is not what was asked for, as one
``BackendError``. The layers ask, wait and record; what a fault is, is decided here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from llmsim_lab._util.text import clip, errors_behind, log_event
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm._seeds import seed_from
from llmsim_lab.llm.calls.context import CallContext, Outcome, TextLimit
from llmsim_lab.llm.extract import InvalidReply, has_form, without_thinking
from llmsim_lab.llm.form import told_form
from llmsim_lab.types import (
    HUMAN,
    Attempt,
    CallRecord,
    ChatReply,
    ChatRequest,
    Decision,
    Message,
    aliases_of,
)

T = TypeVar("T")

logger = logging.getLogger("llmsim_lab.llm")  # users know the package, not this module

_MAX_WHOLE_REPLY_CHARS = 2_000
"""How much of its own reply the model sees again."""
_MAX_CUT_REPLY_CHARS = 400
"""How much of one that was cut off: the rest would fill the window once more."""
_MAX_COMPLAINT_CHARS = 500


def fault_of(error: Exception, timeout_s: float) -> BackendError | None:
    """Return the fault behind an exception, or None if it is a bug and must not be hidden."""
    if isinstance(error, BackendError):
        return error
    # One class, whether asyncio or a socket raised it.
    if isinstance(error, TimeoutError):
        message = f"no reply within {timeout_s:g} s; raise timeout_s or use a faster model"
        return BackendError(message, reason="timeout", retry=True)
    if isinstance(error, ConnectionError):
        message = str(error) or type(error).__name__
        fault = BackendError(
            message,
            reason="connection_error",
            retry=True,
        )
        fault.__cause__ = error
        return fault
    return None


def is_refused(error: BaseException) -> bool:
    """Return True if nothing listens at the server's address, at least for the moment."""
    if getattr(error, "reason", "connection_error") != "connection_error":
        return False
    return any(isinstance(cause, ConnectionRefusedError) for cause in errors_behind(error))


FULL_QUEUE = "maximum pending requests"
"""How an Ollama server says, with status 503, that its queue is full."""


def is_not_ready(error: BaseException) -> bool:
    """Return True if a server may be ready in a moment.

    It is away, or says that it loads its model (llama.cpp's) or that its queue is full (Ollama's).
    """
    if getattr(error, "status_code", None) == 503:
        message = str(error).lower()
        return "loading model" in message or FULL_QUEUE in message
    return is_refused(error)


def retry_after_s(text: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks to wait, or None.

    No model server sends the header's other form, a date.
    """
    text = (text or "").strip()
    # Digits of other scripts are decimal too, and a proxy may send anything.
    if text.isascii() and text.isdecimal():
        return float(text)
    return None


def failure_of(
    fault: BackendError,
    call: CallRecord,
    request: ChatRequest,
) -> LLMFailureException:
    """Log the one ERROR line of a failed call; return its exception."""
    component = agent = turn = None
    if request.site is not None:
        component = request.site.component
        agent = request.site.agent
        turn = request.site.turn
    attempts = len(call.history)
    # A stand-in may look at what was answered, and at what it cost.
    if isinstance(fault.rejected, Decision):
        fault.rejected.with_call(call)
    # A person who has left is no fault of anything, and mostly another one answers.
    has_left = request.model == HUMAN and fault.reason == "timeout"
    log_event(
        logger,
        logging.INFO if has_left else logging.ERROR,
        "LLM_FAILURE",
        words="",  # which the exception has
        component=component,
        agent=agent,
        turn=turn,
        reason=fault.reason,
        attempts=attempts,
        status_code=fault.status_code,
        model=request.model,
        detail=str(fault),
    )
    failure = LLMFailureException(
        fault.reason,
        attempts,
        fault.status_code,
        component,
        agent=agent,
        turn=turn,
        detail=str(fault),
        rejected=fault.rejected,
        call=call,
    )
    failure.__cause__ = fault
    return failure


def parsed(
    context: CallContext[T],
    outcome: Outcome[Any],
) -> Outcome[T]:
    """Return what became of an attempt, with what was read in its reply, or else its fault.

    A reply from a tape is read again, an invalid one too, so that a replay takes the same path.

    Args:
        context: says how replies are read.
        outcome: of an attempt that was made now, with what the backend raised; or of one from a
            tape.

    Raises:
        Exception: whatever the check of the caller's own raises.
    """
    attempt = outcome.attempt
    fault = outcome.fault
    if isinstance(fault, BackendError):
        attempt = replace(
            attempt,
            reason=fault.reason,
            detail=str(fault),
            status_code=fault.status_code,
            retry=fault.retry,
        )
        return Outcome(attempt, fault)
    if attempt.reply is None or attempt.reason not in (None, "invalid_response"):
        return Outcome(attempt, _recorded_fault(attempt))
    try:
        outcome.value = context.read(attempt.reply)
    except InvalidReply as error:
        fault = _invalid(attempt.reply, attempt.request, error)
        attempt = replace(
            attempt,
            reason=fault.reason,
            detail=str(fault),
            retry=True,
        )
        return Outcome(attempt, fault)
    return outcome


def _recorded_fault(attempt: Attempt) -> BackendError:
    """Return the fault of an attempt on a tape."""
    return BackendError(
        attempt.detail,
        reason=attempt.reason or "connection_error",
        status_code=attempt.status_code,
        retry=attempt.retry,
        reply=attempt.reply,
    )


def _invalid(
    reply: ChatReply,
    request: ChatRequest,
    error: InvalidReply,
) -> BackendError:
    """Return the fault of a reply that is not what was asked for."""
    detail = str(error)
    if reply.done_reason == "length":
        lengths = ""
        if reply.reply_tokens is not None and reply.prompt_tokens is not None:
            lengths = f" after {reply.reply_tokens} tokens, the prompt having {reply.prompt_tokens}"
        detail = (
            f"the reply was cut off{lengths} (max_tokens={request.options.get('num_predict')}, "
            f"num_ctx={request.options.get('num_ctx')}); raise the limit that was reached, shorten "
            f"the prompt, or ask for less ({detail})"
        )
    elif reply.thinking and not reply.text.strip():
        detail += (
            "; LLMConfig(think=False) asks without thinking, and a model that thinks all the same "
            "needs a larger max_tokens"
        )
    fault = BackendError(
        detail,
        reason="invalid_response",
        retry=True,
        rejected=error.rejected,
    )
    fault.__cause__ = error  # the second request shows the model its words
    return fault


def text_limits_of(
    response_model: type[BaseModel],
    schema: Mapping[str, Any],
) -> tuple[TextLimit, ...]:
    """Return how long a schema allows the texts of a reply to be.

    Args:
        response_model: what the reply is read as.
        schema: the reply schema.
    """
    limits = []
    names = aliases_of(response_model)
    for field in response_model.model_fields:
        name = names.get(field, field)
        part = schema.get("properties", {}).get(name, {})
        # A text that may be null is one of two kinds, of which only one has a length.
        kinds = (part, *part.get("anyOf", ()))
        longest = max(kind.get("maxLength", 0) for kind in kinds)
        if longest:
            limits.append(TextLimit(field, name, longest))
    return tuple(limits)


def cut_texts(
    reply: BaseModel,
    limits: Sequence[TextLimit],
) -> tuple[str, ...]:
    """Return the fields of a reply whose text has reached the schema's longest length."""
    cut = []
    texts = reply.__dict__  # of the model itself it takes long, and every reply is asked
    # As long as allowed is as good as cut: no server says which text it ended.
    for field, name, longest in limits:
        text = texts[field]
        # One less, since a blank at the end may have been stripped.
        if isinstance(text, str) and len(text) >= longest - 1:
            cut.append(name)
    return tuple(cut)


def is_shown(fault: BackendError | Attempt) -> bool:
    """Return True if the second request shows the model what was wrong with its first reply."""
    return fault.reason in ("invalid_response", "generation_stopped")


def second_request(
    request: ChatRequest,
    failed: Attempt,
    fault: BackendError,
) -> ChatRequest:
    """Return a call's second request.

    After an invalid answer the model sees the useful part of it, with a note. A model that was
    stopped, or left its window, gets another seed: the same one would give the same answer.
    """
    messages = request.messages
    options = request.options
    complaint = ""
    if is_shown(fault):
        complaint = _complaint_of(fault)
        messages = (
            *messages,
            *_repair_messages(
                request,
                failed,
                fault,
                complaint,
            ),
        )
        if _is_cut(failed, fault):
            complaint = ""  # of what was not complete
    # With the same seed it would stop at the same place.
    if fault.reason in ("generation_stopped", "context_overflow"):
        seed = options.get("seed")
        if isinstance(seed, int):
            options = {**options, "seed": second_seed(seed)}
    return replace(
        request,
        attempt=2,
        messages=messages,
        options=options,
        complaint=complaint,
    )


def lacks_form(failed: Attempt) -> bool:
    """Return True if a failed attempt was to be answered in a form, and has no JSON of it."""
    schema = failed.request.schema
    if schema is None:
        return False
    return failed.reply is None or not has_form(failed.reply.text, schema)


def second_seed(seed: int) -> int:
    """Return the seed of a second attempt; by a hash, so that retries do not correlate."""
    return seed_from(f"second attempt, seed {seed}")


def _complaint_of(fault: BackendError) -> str:
    """Return what was wrong with a reply, in the words that the model is shown."""
    # The fault's own words are for the one who set the limits; its cause's are for the model.
    return clip(str(fault.__cause__ or fault), _MAX_COMPLAINT_CHARS)


def _is_cut(failed: Attempt, fault: BackendError) -> bool:
    """Return True if a reply ended before it was complete."""
    is_at_limit = failed.reply is not None and failed.reply.done_reason == "length"
    return is_at_limit or fault.reason == "generation_stopped"


def _repair_messages(
    request: ChatRequest,
    failed: Attempt,
    fault: BackendError,
    complaint: str,
) -> tuple[Message, Message]:
    """Return the useful part of a reply, and a note for the model on what was wrong with it."""
    reply = failed.reply or ChatReply(text="…")
    is_cut = _is_cut(failed, fault)
    # Its thinking is of no use to it, and may have been what filled the window.
    text = without_thinking(reply.text).strip()
    limit = _MAX_CUT_REPLY_CHARS if is_cut else _MAX_WHOLE_REPLY_CHARS
    if len(text) > limit:
        text = text[:limit].rstrip() + " …"
    again = "Reply again."
    if lacks_form(failed):
        again = f"Reply again.\n\n{told_form(request.schema or {})}"
    elif request.schema is not None:
        again = "Reply again with one complete JSON object of the required form and nothing else."
    if not is_cut:
        note = f"That reply was not valid: {complaint}."
    elif fault.reason == "generation_stopped":
        note = "That reply was stopped before it was complete."
    else:
        note = "That reply was too long and was cut off. Be brief."
    if is_cut and fault.rejected is not None:
        note += f" It was not valid either: {complaint}."
    return Message("assistant", text, reply.tool_calls), Message("user", f"{note}\n{again}")
