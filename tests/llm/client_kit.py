"""For the client's tests: a question, its good answer, and calls that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallRecord, CallSite, ChatReply, Message

__all__ = ["GOOD", "SITE", "decide", "decided", "failure_of", "say", "until"]

GOOD = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.8}
SITE = CallSite(component="agent", agent="Aland", turn=1)


async def decide(client: LLMClient, **more: Any) -> PolicyDecision:
    """Ask for a policy."""
    asked = {"prompt": "What now?", "response_model": PolicyDecision, "site": SITE, **more}
    decision: PolicyDecision = await client.call_with_retry(**asked)
    return decision


async def decided(client: LLMClient, **more: Any) -> CallRecord:
    """Ask for a policy; returns the record of the call."""
    decision = await decide(client, **more)
    assert decision.call is not None
    return decision.call


async def say(client: LLMClient, text: str = "Hi") -> tuple[ChatReply, CallRecord]:
    return await client.converse([Message("user", text)])


async def failure_of(client: LLMClient, **more: Any) -> LLMFailureException:
    with pytest.raises(LLMFailureException) as caught:
        await decide(client, **more)
    return caught.value


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds that another thread brings about."""
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came to that")
