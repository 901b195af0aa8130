"""What was asked while a sample was played, recorded elsewhere or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmsim_lab.calls import Attempt, CallRecord, CallSite, ChatRequest
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm.recorder import Recorder
from llmsim_lab.models import LLMReasoningChain

__all__ = ["Tally", "failed_chains"]


class Tally:
    """Notes a sample's requests on their way to a recorder.

    Args:
        inner: what records them; None keeps nothing.
        turn: the turn being played, for requests that nobody records.

    Attributes:
        attempts: what was asked and what became of it, in the order of the answers.
    """

    def __init__(self, inner: Recorder | None, *, turn: int) -> None:
        self.attempts: list[Attempt] = []
        self._inner = inner
        self._turn = turn

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with its place."""
        if self._inner is not None:
            return self._inner.place(request)
        site = request.site or CallSite(component="call")
        return replace(request, site=replace(site, turn=self._turn))

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt | None:
        """Return what became of this request before, if anything."""
        found = self._inner.find(request, previous) if self._inner is not None else None
        if found is not None:
            self.attempts.append(found)
        return found

    def keep(self, attempt: Attempt) -> Attempt:
        """Note a request and hand it on."""
        kept = self._inner.keep(attempt) if self._inner is not None else attempt
        self.attempts.append(kept)
        return kept


def failed_chains(
    failure: LLMFailureException, tally: Tally, turn: int, chains: Sequence[LLMReasoningChain]
) -> list[LLMReasoningChain]:
    """Return chains for the calls that have none: the one that failed, and those it took along.

    Args:
        failure: what ended the sample.
        tally: what was asked.
        turn: the turn that was played.
        chains: those that there are.
    """
    known = {id(attempt) for chain in chains if chain.call for attempt in chain.call.history}
    calls: dict[CallSite | None, list[Attempt]] = {}
    for attempt in tally.attempts:
        if id(attempt) not in known:
            calls.setdefault(attempt.request.site, []).append(attempt)
    found = [
        _failed_chain(
            site,
            turn,
            str(failure) if attempts[-1].reason else "answered, but another call failed",
            CallRecord(history=tuple(attempts), status="failed"),
        )
        for site, attempts in calls.items()
    ]
    if any(attempts[-1].reason for attempts in calls.values()):
        return found
    site = CallSite(component=failure.component or "call", turn=turn)
    return [*found, _failed_chain(site, turn, str(failure), None)]


def _failed_chain(
    site: CallSite | None, turn: int, why: str, call: CallRecord | None
) -> LLMReasoningChain:
    return LLMReasoningChain(
        component=site.component if site else "call",
        agent=(site.agent if site else None) or "",
        turn=turn,
        reasoning=why,
        confidence=0.0,
        status="failed",
        call=call,
    )
