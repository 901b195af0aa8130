"""What goes to the model the second time, word for word, and what is told of a call that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallRecord, ChatReply, Message

GOOD = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.8}
AGAIN = "Reply again with one complete JSON object of the required form and nothing else."
PROMPT = (Message("user", "What now?"),)
NO_JSON = "the reply is not valid JSON: there is no JSON object in it"


def scripted(*replies: Any, **config: Any) -> tuple[LLMClient, ScriptedBackend]:
    backend = ScriptedBackend(list(replies))
    return LLMClient(LLMConfig(**{"model": "m", "retry_wait_s": 0} | config), backend), backend


async def decide(client: LLMClient, **more: Any) -> CallRecord:
    decision = await client.call_with_retry(
        prompt="What now?", response_model=PolicyDecision, **more
    )
    assert decision.call is not None
    return decision.call


async def failure_of(client: LLMClient, **more: Any) -> LLMFailureException:
    with pytest.raises(LLMFailureException) as caught:
        await decide(client, **more)
    return caught.value


async def shown_after(reply: Any, **more: Any) -> tuple[str, str]:
    """What the model is shown of its reply, and what it is told of it."""
    client, backend = scripted(reply, GOOD)
    assert (await decide(client, **more)).status == "repaired"
    first, second = backend.requests
    assert second.messages[:-2] == first.messages == PROMPT
    assert second == replace(first, messages=second.messages, attempt=2)
    own, note = second.messages[-2:]
    assert (own.role, note.role) == ("assistant", "user")
    return own.content, note.content


async def test_an_invalid_reply_is_shown_whole_with_the_complaint() -> None:
    text = '{"action": "Hold", "reasoning": "Calm.", "confidence": 1.2}'
    assert await shown_after(text) == (
        text,
        "That reply was not valid: confidence: Input should be less than or equal to 1 "
        f"(it is 1.2).\n{AGAIN}",
    )


async def test_a_reply_cut_by_the_token_limit_asks_to_be_brief_not_to_raise_limits() -> None:
    text = " ".join(f"point {number}," for number in range(200))
    assert await shown_after(ChatReply(text=text, done_reason="length")) == (
        text[:400].rstrip() + " …",
        f"That reply was too long and was cut off. Be brief.\n{AGAIN}",
    )


# Which limit cut a reply


FULL = ChatReply(text="I would say that", done_reason="length", prompt_tokens=950, reply_tokens=74)


async def test_a_reply_that_is_cut_off_twice_is_reported_once_with_the_way_out() -> None:
    client, _ = scripted(FULL, FULL, num_ctx=1024)
    assert str(await failure_of(client)) == (
        "invalid_response after 2 attempts: the reply was cut off after 74 tokens, the prompt "
        "having 950 (max_tokens=512, num_ctx=1024); raise the limit that was reached, shorten the "
        f"prompt, or ask for less ({NO_JSON})"
    )


# What is told


async def test_the_last_fault_is_reported() -> None:
    client, _ = scripted({"action": "Hold", "reasoning": "Calm."}, "I would rather not.")
    assert str(await failure_of(client)) == f"invalid_response after 2 attempts: {NO_JSON}"
