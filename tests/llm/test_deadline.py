"""A caller's limit on a call as a whole: kept by the client, with its mark in the history."""

from __future__ import annotations

import asyncio
import time

import pytest
from builders import make_client

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import scoped
from llmsim_lab.types import ChatRequest, Message

LONG_S = 60.0
SHORT_S = 0.05


async def hang(_: ChatRequest) -> str:
    await asyncio.sleep(LONG_S)
    return "too late"


async def failure_within(client: LLMClient, seconds: float) -> LLMFailureException:
    deadline = time.monotonic() + seconds
    with scoped(deadline=deadline), pytest.raises(LLMFailureException) as caught:
        await client.converse([Message("user", "Hi")])
    return caught.value


async def test_a_call_is_given_up_at_the_limit_and_not_made_again() -> None:
    failure = await failure_within(make_client(hang, timeout_s=LONG_S), SHORT_S)
    assert (failure.reason, failure.attempts) == ("timeout", 1)
    assert "the caller waits no longer" in str(failure)
    assert failure.call is not None
    [attempt] = failure.call.history
    assert (attempt.reason, attempt.retry, attempt.reply) == ("timeout", False, None)


async def test_the_retry_is_given_up_at_the_limit_too() -> None:
    asked = 0

    async def busy_then_hang(request: ChatRequest) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionError("lost")
        return await hang(request)

    failure = await failure_within(make_client(busy_then_hang, timeout_s=LONG_S), 0.3)
    assert (failure.reason, failure.attempts, asked) == ("timeout", 2, 2)


async def test_waiting_for_ones_turn_counts() -> None:
    client = make_client(hang, timeout_s=LONG_S, max_concurrency=1)
    first = asyncio.create_task(client.converse([Message("user", "first")]))
    await asyncio.sleep(0)
    failure = await failure_within(client, SHORT_S)
    assert failure.reason == "timeout"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
