"""Attempts that a tape knows, and attempts that it is given."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import NoReturn, TypeVar

from pydantic import BaseModel

from llmsim_lab.errors import BackendError, TapeMiss
from llmsim_lab.llm._debug import log_outcome, log_recorded
from llmsim_lab.llm.calls.budgeted import Budgeted
from llmsim_lab.llm.calls.context import CallContext, Outcome
from llmsim_lab.llm.calls.faults import cut_texts, parsed
from llmsim_lab.llm.scope import caller
from llmsim_lab.types import Attempt

T = TypeVar("T")

_CANCELLED_LATE_S = 30.0
"""How much longer than when it was recorded a replay waits for a call to be cancelled."""


class Recorded:
    """Takes a known attempt from the tape; a new one is on the tape before it is acted on.

    What was answered is read here, from the tape as from the server, so that a replay takes the
    path of its recording.
    """

    def __init__(self, below: Budgeted) -> None:
        self._below = below

    async def send(self, context: CallContext[T]) -> Outcome[T]:
        """Return what became of an attempt, or what becomes of it now.

        Raises:
            TapeMiss: a replay has no such attempt.
            TapeError: the tape cannot be written.
        """
        recorder = context.scope.recorder
        watch = context.scope.watch
        entry = recorder.find(context.request, context.first_attempt)
        if entry.attempt is not None:
            if watch is not None:
                watch.recorded()
            return await _known_outcome(context, entry.attempt)
        request = entry.request
        # A request that was made by hand gets the number of the turn that is played.
        if request is not context.request:
            context = replace(context, request=request)
        # Its own clock: one that is cancelled in the queue has been waited for, too.
        began = time.monotonic()
        if watch is not None:
            watch.asked(request)
        try:
            outcome = await self._below.send(context)
            if watch is not None and isinstance(outcome.fault, BackendError):
                watch.failed(request, outcome.fault)
        except asyncio.CancelledError as error:
            # The code that asked may catch this and go on, so a replay has to know of it.
            cancelled = Attempt(
                request=request,
                reply=None,
                seconds=time.monotonic() - began,
                reason="cancelled",
                detail="cancelled by its caller, as by asyncio.wait_for",
            )
            outcome = Outcome(attempt=cancelled, fault=error.with_traceback(None))
        finally:
            if watch is not None:
                watch.ended(request)
        if outcome.attempt.reason != "cancelled":
            outcome = parsed(context, outcome)
        attempt = outcome.attempt
        if isinstance(outcome.value, BaseModel):
            attempt.cut = cut_texts(outcome.value, context.text_limits)
        if context.first_attempt is not None:
            attempt.first = context.first_attempt.number
        log_outcome(attempt)
        # Before anyone acts on it: what a run has seen is on its tape, whatever happens next.
        recorder.keep(entry, attempt)
        return outcome


async def _known_outcome(
    context: CallContext[T],
    recorded: Attempt,
) -> Outcome[T]:
    """Return what an attempt of the tape comes to."""
    log_recorded(recorded)
    # The same path as when it was made: also an invalid reply is read, and asked for again.
    if recorded.reason != "cancelled":
        return parsed(context, Outcome(attempt=recorded))
    try:
        site = caller(recorded.request.site)
        await until_cancelled(f"call {recorded.number} ({site})", recorded.seconds)
    except asyncio.CancelledError as error:
        return Outcome(attempt=recorded, fault=error.with_traceback(None))


async def until_cancelled(name: str, seconds: float) -> NoReturn:
    """Wait for the caller to cancel, in a replay, what it cancelled in the recording.

    Only this gives the caller what it saw then, whether it used ``asyncio.timeout``, ``wait_for``,
    or took the first of several answers.

    Args:
        name: of what it waits for, for the message.
        seconds: after which it was cancelled in the recording.

    Raises:
        TapeMiss: the caller waits for much longer than it did.
    """
    patience_s = seconds + _CANCELLED_LATE_S
    await asyncio.sleep(patience_s)
    raise TapeMiss(
        f"{name} was cancelled by its caller after {seconds:.1f} s when it was recorded, and in "
        f"this replay it is still waited for after {patience_s:.0f} s; cancel it in the turn's own "
        "code, as asyncio.wait_for does, not by a clock or an event from outside"
    )
