"""What becomes of a request that failed: a fault, and at last the exception for the caller."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from llmsim_lab.calls import Attempt, CallRecord, CallSite, ChatReply, ChatRequest
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm.extract import InvalidReply
from llmsim_lab.logs import log_event
from llmsim_lab.models import Decision

__all__ = ["failure_of", "invalid_fault", "out_of_time", "recorded_fault"]

logger = logging.getLogger("llmsim_lab.llm.client")
"""Under the client's name: its users know that one."""


def invalid_fault(
    reply: ChatReply, error: InvalidReply, *, num_ctx: int, max_tokens: int | None
) -> BackendError:
    """Return the fault of a reply that is not what was asked for; says so if it was cut off."""
    detail = str(error)
    if reply.done_reason == "length":
        used = (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
        if used >= num_ctx:
            limit = f"prompt and reply filled num_ctx={num_ctx}; raise it"
        else:
            limit = f"max_tokens={max_tokens} was reached; raise it"
        detail = f"the reply was cut off: {limit}, or ask for less ({detail})"
    return BackendError(detail, reason="invalid_response", retry=True, rejected=error.rejected)


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


def recorded_fault(attempt: Attempt) -> BackendError:
    """Return the fault that an attempt on a tape ended with."""
    return BackendError(
        attempt.detail,
        reason=attempt.reason or "connection_error",
        status_code=attempt.status_code,
        retry=attempt.retry,
    )
