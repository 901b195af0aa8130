"""What becomes of a call, a line each at DEBUG: queue, request, reply, complaint, wait, retry.

``LLMSIM_LOG=debug`` shows the lines, as does logging that a program sets up itself.
"""

from __future__ import annotations

import logging

from llmsim_lab._util.text import clip, logfmt
from llmsim_lab.types import Attempt, ChatRequest

logger = logging.getLogger("llmsim_lab.llm")  # users know the package, not this module

_SHOWN_CHARS = 300
"""Of a prompt, a reply or a complaint."""


def log_queued(request: ChatRequest, at_once: int) -> None:
    """Log that a request waits for its turn, behind so many at once."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    _log("LLM_QUEUED", request, at_once=at_once)


def log_request(request: ChatRequest, queued_s: float) -> None:
    """Log that a request is sent, after so long in the queue; a second one is a retry."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    # Below the look at the level: a call is dear enough without texts that are not shown.
    event = "LLM_REQUEST"
    if request.attempt == 2:
        event = "LLM_RETRY"
    last = None
    if request.messages:
        last = clip(request.messages[-1].content, _SHOWN_CHARS)
    _log(
        event,
        request,
        model=request.model,
        messages=len(request.messages),
        chars=len(request.prompt),
        # logfmt leaves out what is None: 0 s in the queue is the rule.
        queued_s=round(queued_s, 3) or None,
        last=last,
    )


def log_outcome(attempt: Attempt) -> None:
    """Log a reply, and what is wrong with it; or why there is none."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    reply = attempt.reply
    request = attempt.request
    if reply is not None:
        _log(
            "LLM_REPLY",
            request,
            seconds=round(attempt.seconds, 3),
            prompt_tokens=reply.prompt_tokens,
            reply_tokens=reply.reply_tokens,
            done_reason=reply.done_reason,
            calls=len(reply.tool_calls) or None,
            thinking=clip(reply.thinking, _SHOWN_CHARS) or None,
            text=clip(reply.text, _SHOWN_CHARS),
        )
    if attempt.reason is not None:
        event = "LLM_FAULT"
        # The model answered, and not as asked: of a failure there is no reply.
        if attempt.reason == "invalid_response" and reply is not None:
            event = "LLM_COMPLAINT"
        _log(
            event,
            request,
            reason=attempt.reason,
            status_code=attempt.status_code,
            retry=attempt.retry,
            detail=clip(attempt.detail, _SHOWN_CHARS),
        )


def log_wait(
    request: ChatRequest,
    wait_s: float,
    reason: str,
) -> None:
    """Log the wait before a second request."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    _log(
        "LLM_WAIT",
        request,
        seconds=round(wait_s, 3),
        reason=reason,
    )


def log_recorded(attempt: Attempt) -> None:
    """Log that a tape answers."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    _log(
        "LLM_RECORDED",
        attempt.request,
        call=attempt.number,
        reason=attempt.reason,
    )


def _log(event: str, request: ChatRequest, **fields: str | float | None) -> None:
    """Log a line, with the place of its call; ``fields`` go to the end of it."""
    component = agent = turn = None
    if request.site is not None:
        component = request.site.component
        agent = request.site.agent
        turn = request.site.turn
    line = logfmt(
        component=component,
        agent=agent,
        turn=turn,
        attempt=request.attempt,
        **fields,
    )
    logger.debug("%s %s", event, line)
