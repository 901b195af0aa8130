"""Why a sample came to nothing, as reasoning chains."""

from __future__ import annotations

from collections.abc import Sequence

from llmsim_lab.calls import CallRecord, CallSite
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.models import LLMReasoningChain

__all__ = ["failed_chains"]


def failed_chains(
    failure: LLMFailureException,
    calls: Sequence[CallRecord],
    turn: int,
    chains: Sequence[LLMReasoningChain],
) -> list[LLMReasoningChain]:
    """Return chains for the calls that have none: the one that failed, and those it took along.

    Args:
        failure: what ended the sample.
        calls: what was asked.
        turn: the turn that was played.
        chains: those that there are.
    """
    known = {id(chain.call) for chain in chains}
    left = [call for call in calls if id(call) not in known]
    found = [
        _failed_chain(
            call.request.site,
            turn,
            str(failure) if call.history[-1].reason else "answered, but another call failed",
            call,
        )
        for call in left
    ]
    if any(call.history[-1].reason for call in left):
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
