"""What becomes of a request that failed: a fault, and at last the exception for the caller."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from llmsim_lab.calls import Attempt, CallRecord, CallSite, ChatReply, ChatRequest
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm.extract import InvalidReply
from llmsim_lab.logs import log_event
from llmsim_lab.models import Decision

__all__ = [
    "both_told",
    "failure_of",
    "invalid_fault",
    "no_time_to_retry",
    "out_of_time",
    "recorded_fault",
]

logger = logging.getLogger("llmsim_lab.llm.client")
"""Under the client's name: its users know that one."""


def invalid_fault(
    reply: ChatReply, error: InvalidReply, *, options: Mapping[str, Any]
) -> BackendError:
    """Return the fault of a reply that is not what was asked for; says so if it was cut off."""
    detail = str(error)
    if reply.done_reason == "length":
        detail = f"the reply was cut off: {_limit_reached(reply, options)} ({detail})"
    return BackendError(detail, reason="invalid_response", retry=True, rejected=error.rejected)


def _limit_reached(reply: ChatReply, options: Mapping[str, Any]) -> str:
    """Say which limit cut a reply off, and the way out."""
    num_ctx, max_tokens = options.get("num_ctx"), options.get("num_predict")
    written = reply.reply_tokens or 0
    used = (reply.prompt_tokens or 0) + written
    if num_ctx is not None and used >= num_ctx:
        return f"prompt and reply filled num_ctx={num_ctx}; raise it, or ask for less"
    if reply.prompt_tokens and reply.reply_tokens and max_tokens and written < max_tokens:
        return (
            f"prompt and reply filled the {used} tokens of context that the model has, which is "
            f"less than num_ctx={num_ctx}; shorten the prompt, or use a model with a longer context"
        )
    return f"max_tokens={max_tokens} was reached; raise it, or ask for less"


def both_told(first: BackendError, second: BackendError, *, repaired: bool) -> BackendError:
    """Return the fault to tell of a call that failed twice: what went wrong first comes first.

    Args:
        first: of the first attempt.
        second: of the second attempt.
        repaired: whether the second one was shown the first fault, which made it longer.
    """
    if repaired and second.reason == "context_overflow":
        told = BackendError(
            f"{first} (asking again with this fault shown did not fit into the context window)",
            reason=first.reason,
            status_code=first.status_code,
            rejected=first.rejected,
        )
    elif str(first) == str(second):
        return second
    else:
        alike = first.reason == second.reason
        was, now = ("", "") if alike else (f" {first.reason}", f" {second.reason}")
        told = BackendError(
            f"first{was}: {first}; then{now}: {second}",
            reason=second.reason,
            status_code=second.status_code,
            rejected=second.rejected,
            retry_after_s=second.retry_after_s,
        )
    told.__cause__ = second
    return told


def failure_of(
    fault: BackendError, history: Sequence[Attempt], site: CallSite | None, *, model: str
) -> LLMFailureException:
    """Log the one ERROR line of a failed call and return the exception for it."""
    component = site.component if site else None
    detail = str(fault)
    call = CallRecord(history=tuple(history), status="failed") if history else None
    if call is not None and isinstance(fault.rejected, Decision):
        fault.rejected.with_call(call)
    log_event(
        logger,
        logging.ERROR,
        "LLM_FAILURE",
        component=component,
        agent=site.agent if site else None,
        turn=site.turn if site else None,
        reason=fault.reason,
        attempts=len(history),
        status_code=fault.status_code,
        model=model,
        detail=detail,
    )
    failure = LLMFailureException(
        fault.reason,
        len(history),
        fault.status_code,
        component,
        detail=detail,
        rejected=fault.rejected,
    )
    failure.__cause__ = fault
    failure.call = call
    return failure


def out_of_time(request: ChatRequest, seconds: float) -> tuple[Attempt, BackendError]:
    """Return what becomes of a request whose caller waits no longer.

    Args:
        request: the request.
        seconds: how long it was waited for.
    """
    detail = f"no reply within {round(seconds, 2):g} s, and the caller waits no longer"
    fault = BackendError(detail, reason="timeout")
    return Attempt(
        request=request, reply=None, seconds=seconds, reason=fault.reason, detail=detail
    ), fault


def no_time_to_retry(fault: BackendError, *, left: float | None, timeout_s: float) -> BackendError:
    """Return a fault without its retry if the server asks to wait longer than the caller will.

    Args:
        fault: of a request.
        left: how long the caller is going to wait, seconds; None without a limit.
        timeout_s: the longest wait that a server is granted, seconds.
    """
    asked = fault.retry_after_s
    if not fault.retry or not asked or left is None or min(asked, timeout_s) < left:
        return fault
    told = BackendError(
        f"{fault}; it asks to wait {asked:g} s, and the caller waits no longer than {left:.1f} s",
        reason=fault.reason,
        status_code=fault.status_code,
        retry_after_s=asked,
        reply=fault.reply,
    )
    told.__cause__ = fault
    return told


def recorded_fault(attempt: Attempt) -> BackendError:
    """Return the fault that an attempt on a tape ended with."""
    return BackendError(
        attempt.detail,
        reason=attempt.reason or "connection_error",
        status_code=attempt.status_code,
        retry=attempt.retry,
        reply=attempt.reply,
    )
