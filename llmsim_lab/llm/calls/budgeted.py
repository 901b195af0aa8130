"""What live requests may cost."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from llmsim_lab.llm.calls.context import CallContext, Outcome
from llmsim_lab.llm.calls.queued import Queued
from llmsim_lab.llm.scope import Purse

T = TypeVar("T")


class Budgeted:
    """Counts each live attempt of a run that has a budget; what a tape answers costs nothing."""

    def __init__(self, below: Queued) -> None:
        self._below = below

    def send(self, context: CallContext[T]) -> Awaitable[Outcome[T]]:
        """Send an attempt if the budget allows it.

        Raises:
            BudgetReached: the budget is spent.
        """
        log = context.scope.log
        # Most runs have no budget; a coroutine less for each call.
        if log is None or log.purse is None:
            return self._below.send(context)
        return self._counted(context, log.purse)

    async def _counted(
        self,
        context: CallContext[T],
        purse: Purse,
    ) -> Outcome[T]:
        # Before it is sent: of several at once none passes the limit of calls.
        purse.begin()
        outcome = await self._below.send(context)
        purse.end(outcome.attempt)
        return outcome
