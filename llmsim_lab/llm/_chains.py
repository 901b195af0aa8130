"""What components that ask a model share: their reasoning chains, and looking things up first."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from llmsim_lab._util.text import log_event
from llmsim_lab.errors import FailureReason, LLMFailureException
from llmsim_lab.llm._client import LLMClient
from llmsim_lab.types import CallSite, LLMReasoningChain, Status

FORGIVEN: tuple[FailureReason, ...] = ("invalid_response", "generation_stopped", "timeout")
"""Failures of one call that need not stop a turn; any other means that no model is there."""
LOOKING_UP = "in looking things up, before the decision was asked for: "
"""The beginning of a failure's detail where the model failed before the decision."""


def chain_of(
    decision: Any,
    site: CallSite,
    *,
    logger: logging.Logger,
    prompt: str = "",
    status: Status | None = None,
    **fields: Any,
) -> LLMReasoningChain:
    """Return why a component decided as it did, after logging it at DEBUG.

    Args:
        decision: has ``reasoning``, ``confidence``, and as ``call`` the model call behind it.
        site: who decided, about whom, and in which turn.
        logger: the component's own.
        prompt: kept in the chain of a decision without a call, whose record would hold it.
        status: how the decision came about; by default the call's.
        fields: what else of the decision goes into the log line.
    """
    call = decision.call
    status = status or (call.status if call else "ok")
    at: dict[str, Any] = {"component": site.component, "agent_id": site.agent, "turn": site.turn}
    said: dict[str, Any] = {"reasoning": decision.reasoning, "confidence": decision.confidence}
    log_event(logger, logging.DEBUG, "llm_reasoning_chain", **at, status=status, **fields, **said)
    return _chain(site, status=status, call=call, prompt_text="" if call else str(prompt), **said)


def chain_of_failure(
    failure: LLMFailureException,
    site: CallSite,
    *,
    logger: logging.Logger,
    event: str,
    status: Status,
    instead: str,
    **fields: Any,
) -> LLMReasoningChain:
    """Return what a component does without the model's answer, after logging it as a WARNING.

    Args:
        failure: why there is no answer.
        site: who asked, and in which turn.
        logger: the component's own.
        event: the log line's first word.
        status: of the chain.
        instead: what is done without the answer.
        fields: what else goes into the log line.
    """
    why = f"{instead}: {failure}"
    words = f"Turn {site.turn}, {site.agent or site.component}: {why}"
    fields = {"agent": site.agent, "turn": site.turn, **fields, "reason": failure.reason}
    fields["detail"] = failure.detail
    log_event(logger, logging.WARNING, event, words=words, **fields)
    return _chain(site, status=status, call=failure.call, reasoning=why, confidence=None)


def _chain(site: CallSite, **said: Any) -> LLMReasoningChain:
    agent, turn = site.agent or "", site.turn or 0
    return LLMReasoningChain(component=site.component, agent=agent, turn=turn, **said)


class LooksUp(Protocol):
    """Looks up, with the model, what a question calls for; ``ToolLookup`` does so with tools."""

    async def look_up(self, prompt: str, client: LLMClient, site: CallSite) -> str:
        """Return a prompt with what was found at its end; as it is where nothing was.

        Args:
            prompt: the question.
            client: the model.
            site: who asks, and when.
        """
        ...
