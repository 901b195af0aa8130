"""What answers in place of a model, as where a plan counts calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from llmsim_lab.llm.calls.context import CallContext, Outcome
from llmsim_lab.llm.calls.faults import parsed
from llmsim_lab.llm.calls.recorded import Recorded
from llmsim_lab.types import Attempt, ChatBackend, ChatReply, ChatRequest

T = TypeVar("T")

_MOST_REPLIES = 100
"""Of what stands in: a class of replies may have rules of its own."""


class StoodIn:
    """Lets a stand-in answer where the scope has one; then no model is asked and nothing recorded.

    Args:
        below: makes an attempt where there is none.
        backend: the one that is not asked.
    """

    def __init__(self, below: Recorded, backend: ChatBackend) -> None:
        self._below = below
        self._backend = backend

    def send(self, context: CallContext[T]) -> Awaitable[Outcome[T]]:
        """Return what becomes of an attempt."""
        if context.scope.stand_in is None:
            return self._below.send(context)
        return self._stood_in(context, context.scope.stand_in)

    async def _stood_in(
        self,
        context: CallContext[T],
        stand_in: Callable[[ChatRequest], ChatReply],
    ) -> Outcome[T]:
        """Return what was read in the first valid reply of the stand-in, or in the last."""
        request = context.request
        # Without probabilities a choice is made of samples, which a plan has to count.
        if not self._backend.max_top_logprobs:
            request = replace(request, top_logprobs=None)
        # What is drawn by chance breaks a class's own rules now and then.
        for _ in range(_MOST_REPLIES):
            attempt = Attempt(
                request=request,
                reply=stand_in(request),
                seconds=0.0,
            )
            outcome = parsed(context, Outcome(attempt=attempt))
            if outcome.fault is None:
                break
        return outcome
