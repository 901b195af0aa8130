"""The second attempt of a call that failed."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import TypeVar

from llmsim_lab._util.text import log_event
from llmsim_lab.errors import BackendError
from llmsim_lab.llm._debug import log_wait
from llmsim_lab.llm.calls.context import Answered, CallContext
from llmsim_lab.llm.calls.faults import (
    failure_of,
    is_shown,
    lacks_form,
    second_request,
    second_seed,
)
from llmsim_lab.llm.calls.stood_in import StoodIn
from llmsim_lab.types import Attempt, CallRecord, Status

T = TypeVar("T")

logger = logging.getLogger("llmsim_lab.llm")  # users know the package, not this module

_CHANCE = random.SystemRandom()  # Python's shared generator is the user's


class Retried:
    """Books a call in its turn's log, and asks a second time where that may help.

    Args:
        below: makes an attempt.
        advised: the models that were said to need the form of a reply in words; None
            where that is not said.
    """

    def __init__(
        self,
        below: StoodIn,
        advised: set[str] | None,
    ) -> None:
        self._below = below
        self._advised = advised

    async def send(self, context: CallContext[T]) -> Answered[T]:
        """Return what was answered, at the first or the second attempt, with the whole call.

        Raises:
            LLMFailureException: the call failed for good.
        """
        request = context.request
        log = context.scope.log
        if log is not None:
            context.seed = log.begin(request)
        attempts: tuple[Attempt, ...] = ()
        # Until it is known better: the call is booked however it ends.
        status: Status = "failed"
        try:
            outcome = await self._below.send(context)
            attempts = (outcome.attempt,)
            fault = outcome.fault
            if isinstance(fault, BackendError) and fault.retry:
                outcome = await self._below.send(
                    _second(
                        context,
                        outcome.attempt,
                        fault,
                    )
                )
                attempts = (*attempts, outcome.attempt)
                # The repair may have made the prompt too long, not the user.
                if not (is_shown(fault) and outcome.attempt.reason == "context_overflow"):
                    fault = outcome.fault
            if fault is None:
                status = "ok"
                if len(attempts) == 2:
                    if self._advised is not None and not context.scope.recorder.is_replay:
                        _say_what_helped(context, attempts[0], self._advised)
                    if is_shown(attempts[0]):
                        status = "repaired"
        finally:
            # Also after a cancellation: what was answered before it belongs to the turn.
            call = CallRecord(history=attempts, status=status)
            if log is not None:
                log.end(request, call)
        # Raised here and not where it came from: the tape and the log had to know of it first.
        if isinstance(fault, asyncio.CancelledError):
            try:
                raise fault
            finally:
                del outcome, fault  # else the error would hold this frame, which holds the error
        if fault is not None:
            raise failure_of(fault, call, request)
        value: T = outcome.value  # type: ignore[assignment]  # without a fault it was read
        return Answered(value, call)


def _say_what_helped(
    context: CallContext[T],
    first: Attempt,
    advised: set[str],
) -> None:
    """Say once that the model answers where it is told the form, if that was the reason."""
    model = first.request.model
    if model in advised or context.config.tell_form:
        return
    # A reply that was cut off has no JSON either, for another reason.
    if first.reply is None or first.reply.done_reason != "stop":
        return
    if first.reason != "invalid_response" or not lacks_form(first):
        return
    advised.add(model)
    words = (
        f"{model} answered in the form asked for only when it was told the form in words: its "
        "server does not hold replies to a schema. With connect(..., tell_form=True) the first "
        "attempt tells it, which saves a second one."
    )
    log_event(
        logger,
        logging.WARNING,
        "form_told",
        words=words,
        model=model,
        detail=words,
    )


def _second(
    context: CallContext[T],
    failed: Attempt,
    fault: BackendError,
) -> CallContext[T]:
    """Return the second attempt of a call, with how long it waits."""
    request = second_request(context.request, failed, fault)
    seed = context.seed
    if seed is not None and failed.reply is not None:
        seed = second_seed(seed)  # the first one's answer is of no use
    # Jittered, so that agents who failed together do not all come back at once.
    wait_s = _CHANCE.uniform(*context.config.retry_wait_s)
    # A server that asks for more time is given it, up to the silence that is borne anyway.
    wait_s = max(wait_s, min(fault.retry_after_s or 0.0, context.request.timeout_s))
    log_wait(request, wait_s, fault.reason)
    return replace(
        context,
        request=request,
        seed=seed,
        first_attempt=failed,
        wait_s=wait_s,
    )
