"""When a request is sent, and how long it may take."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from llmsim_lab._util.text import log_event
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm._limits import Lane, Limits, Sent
from llmsim_lab.llm._returned import returned_fault, returned_reply
from llmsim_lab.llm.calls.context import CallContext, Outcome
from llmsim_lab.llm.calls.faults import fault_of, is_not_ready
from llmsim_lab.types import Attempt, ChatBackend, ChatReply, ChatRequest

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")

logger = logging.getLogger("llmsim_lab.llm")  # users know the package, not this module

# Three times as fast as ``dataclasses.replace``, and each request is copied once.
_fields = attrgetter(*ChatRequest.__slots__)

KNOCK_S = 0.5
"""How often a server that refuses the connection is tried."""


class Queued:
    """Waits for its turn and sends a request; ends it when it takes too long.

    Args:
        backend: answers.
        backend_name: the backend's class, for messages.
        limits: how many requests are under way at once.
    """

    def __init__(
        self,
        backend: ChatBackend,
        backend_name: str,
        limits: Limits,
    ) -> None:
        self._backend = backend
        self._backend_name = backend_name
        self._limits = limits

    def send(self, context: CallContext[T]) -> Awaitable[Outcome[T]]:
        """Return what the backend answers, or its fault."""
        first_piece_s = None
        if self._backend.streams:
            first_piece_s = context.config.first_wait_s
        sent = Sent(
            request=context.request,
            first_piece_s=first_piece_s,
            total_s=context.total_s,
            phase_of=self._backend.phase,
            watch=context.scope.watch,
            round=context.scope.round,
        )
        if context.scope.deadline is not None:
            return self._in_time(context, sent, context.scope.deadline)
        if context.first_attempt is not None:
            return self._again(context, sent)
        return self._in_turn(context, sent)

    async def _in_turn(
        self,
        context: CallContext[T],
        sent: Sent,
    ) -> Outcome[T]:
        """Send a request when it is its turn."""
        request = context.request
        # Of the running loop: threads that share a client have a loop each.
        lane = self._limits.lane()
        reply: ChatReply | None = None
        fault: BackendError | None = None
        try:
            if not lane.takes_at_once(sent):
                await lane.turn_of(sent)
            lane.begin(sent)
            try:
                if sent.watch is not None:
                    sent.watch.began(request)
                answer = await self._asking(context, sent, lane)
                reply = returned_reply(answer, self._backend_name)
            except BaseException as error:  # also a cancellation, by the caller or the lane
                late = lane.end(sent, error=error)
                if late is not None:
                    raise late from late.__cause__
                raise
            lane.end(sent, reply=reply)
        except Exception as error:
            fault = self._fault_of(error, request.timeout_s)
            if fault is None:
                raise
            reply = fault.reply
        # Without the time in the queue, which says nothing of the model.
        attempt = Attempt(
            request=request,
            reply=reply,
            seconds=sent.seconds,
        )
        return Outcome(attempt, fault)

    def _asking(
        self,
        context: CallContext[T],
        sent: Sent,
        lane: Lane,
    ) -> Awaitable[ChatReply]:
        """Return the backend's work on a request, which has the call's seed."""
        request = context.request
        # What was asked for stays on the tape, without the seed, and with more alternatives than
        # this backend can give: a replay, which has no backend, asks the same.
        copy = ChatRequest(*_fields(request))
        if context.seed is not None:
            copy.options = {**request.options, "seed": context.seed}
        if request.top_logprobs is not None:
            possible = min(request.top_logprobs, self._backend.max_top_logprobs)
            copy.top_logprobs = possible or None
        if self._backend.streams:
            streamed: Callable[..., Awaitable[ChatReply]] = self._backend.chat
            asking = streamed(copy, on_text=partial(lane.heard, sent))
        else:
            asking = self._backend.chat(copy)
        if not inspect.isawaitable(asking):
            raise ConfigError(
                f"{self._backend_name}.chat must be async: async def chat(self, request): ..."
            )
        return asking

    def _fault_of(self, error: Exception, timeout_s: float) -> BackendError | None:
        """Return the fault behind an exception, its fields of their types; None if it is a bug."""
        fault = fault_of(error, timeout_s)
        if fault is None:
            return None
        try:
            # A backend of one's own may raise it with numbers of numpy's, or a reply that is none.
            sound = returned_fault(fault, self._backend_name)
        except BackendError as unsound:  # what it says was answered is no reply
            return unsound
        if sound is not fault:
            sound.__cause__ = fault.__cause__
        return sound

    async def _in_time(
        self,
        context: CallContext[T],
        sent: Sent,
        deadline: float,
    ) -> Outcome[T]:
        """Send a request, and wait no longer than its caller does."""
        send = self._in_turn
        if context.first_attempt is not None:
            send = self._again
        try:
            async with asyncio.timeout(deadline - time.monotonic()) as limit:
                return await send(context, sent)
        except TimeoutError:
            if not limit.expired():  # a backend's own
                raise
            # No retry, and the tape shows why.
            return Outcome(
                attempt=Attempt(request=context.request, reply=None, seconds=sent.seconds),
                fault=BackendError(context.scope.late, reason="timeout"),
            )

    async def _again(
        self,
        context: CallContext[T],
        sent: Sent,
    ) -> Outcome[T]:
        """Send a second request: after a wait, and until a server that is away is back."""
        if context.wait_s > 0:
            await asyncio.sleep(context.wait_s)
        patience_s = context.config.wait_for_server_s
        _, longest_wait_s = context.config.retry_wait_s
        # Who wants no wait at all, as tests do, waits for no server either.
        if not patience_s or not longest_wait_s:
            return await self._in_turn(context, sent)
        import tenacity  # here, since few runs need it and it takes long to import

        def tell(state: tenacity.RetryCallState) -> None:
            if self._limits.is_away:  # once, and not by each that waits
                return
            self._limits.is_away = True
            fault = _last_outcome(state).fault
            detail = f"waiting up to {patience_s:g} s for it; {fault}"
            log_event(
                logger,
                logging.WARNING,
                "server_away",
                detail=detail,
            )

        knocking = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(_finds_server_away),
            wait=tenacity.wait_fixed(KNOCK_S),
            stop=tenacity.stop_after_delay(patience_s),
            before_sleep=tell,
            retry_error_callback=_last_outcome,
        )
        outcome: Outcome[T] = await knocking(
            self._in_turn,
            context,
            sent,
        )
        if not _finds_server_away(outcome):
            self._limits.is_away = False
        return outcome


def _finds_server_away(outcome: Outcome[T]) -> bool:
    """Return True if the server may be there in a moment."""
    return outcome.fault is not None and is_not_ready(outcome.fault)


def _last_outcome(state: tenacity.RetryCallState) -> Outcome[object]:
    """Return what the last of several tries came to."""
    if state.outcome is None:
        raise RuntimeError("tenacity asks what to do before the first try has ended")
    outcome: Outcome[object] = state.outcome.result()
    return outcome
