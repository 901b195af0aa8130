"""What components that ask a model share: their reasoning chains, and which failures to forgive."""

from __future__ import annotations

import logging
from typing import Any

from llmsim_lab._util.text import log_event
from llmsim_lab.errors import FailureReason
from llmsim_lab.types import CallRecord, CallSite, LLMReasoningChain, Status

FORGIVEN: tuple[FailureReason, ...] = ("invalid_response", "generation_stopped", "timeout")
"""Failures of one call that need not stop a turn; any other means that no model is there."""
# The gate and ``doctor`` stop at these: each further question would wait out its retries.
LASTING: tuple[FailureReason, ...] = ("connection_error", "rate_limited", "model_not_found")
"""Failures after which the next question would fail as well."""


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
    call: CallRecord | None = decision.call
    if status is None:
        status = call.status if call is not None else "ok"
    log_event(
        logger,
        logging.DEBUG,
        "llm_reasoning_chain",
        component=site.component,
        agent_id=site.agent,
        turn=site.turn,
        status=status,
        **fields,
        reasoning=decision.reasoning,
        confidence=decision.confidence,
    )
    return LLMReasoningChain(
        component=site.component,
        agent=site.agent or "",
        turn=site.turn or 0,
        reasoning=decision.reasoning,
        confidence=decision.confidence,
        status=status,
        call=call,
        # Of a call the record has it; twice it would double what a run keeps.
        prompt_text=str(prompt) if call is None else "",
    )
