"""A model that the server stops because it repeats itself: told apart, kept, asked once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fake_ollama import FakeOllama, Fault
from fake_ollama._fake_ollama import pieces_of

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallSite, Message

TEXT = '{"action": "ha' + " ha" * 30
STOPPED = Fault.end_stream(after=len(pieces_of(TEXT)))
"""As a server ends a reply that repeats itself."""
GOOD = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.8}
SITE = CallSite(component="agent", agent="Aland", turn=1)
NOTE = (
    "That reply was stopped before it was complete.\n"
    "Reply again with one complete JSON object of the required form and nothing else."
)
SHOWN = (Message("assistant", TEXT), Message("user", NOTE))


def told(host: str, text: str) -> str:
    return (
        f"Ollama at {host} stopped the model before it was done, after {text!r}; change the "
        "prompt, raise the temperature, or use another model"
    )


def client_of(server: FakeOllama, **config: Any) -> LLMClient:
    settings = {"model": "llama3.2", "retry_wait_s": 0, **config}
    return LLMClient(LLMConfig(**settings), OllamaBackend(host=server.host))


async def decide(client: LLMClient) -> PolicyDecision:
    async with client:
        return await client.call_with_retry(
            prompt="What now?", response_model=PolicyDecision, site=SITE
        )


def messages_of(body: Mapping[str, Any]) -> tuple[Message, ...]:
    return tuple(Message(m["role"], m["content"]) for m in body["messages"])


async def test_a_stopped_model_learns_it_and_is_asked_with_another_seed() -> None:
    with FakeOllama(reply=[TEXT, GOOD]) as server:
        server.fail_next(STOPPED)
        host = server.host
        decision = await decide(client_of(server, seed=7))
    assert decision.action == GOOD["action"]
    assert decision.call is not None
    assert (decision.call.status, decision.call.attempts) == ("repaired", 2)
    first = decision.call.history[0]
    assert first.reply is not None
    assert (first.reply.text, first.reply.done_reason) == (TEXT, "aborted")
    assert (first.reason, first.status_code, first.retry) == ("generation_stopped", 200, True)
    assert first.detail == told(host, TEXT)
    asked, again = (request.body for request in server.requests)
    assert messages_of(again) == (*messages_of(asked), *SHOWN)
    assert (asked["options"]["seed"], again["options"]["seed"]) == (7, 450017278)
    assert {**again["options"], "seed": 7} == asked["options"]


async def test_a_model_stopped_twice_is_a_failure_that_keeps_both_texts() -> None:
    with FakeOllama(reply=TEXT) as server:
        server.fail_next(STOPPED, STOPPED)
        host = server.host
        with pytest.raises(LLMFailureException) as caught:
            await decide(client_of(server))
    failure = caught.value
    assert (failure.reason, failure.attempts, failure.status_code) == ("generation_stopped", 2, 200)
    assert str(failure) == (
        f"agent: generation_stopped after 2 attempts (HTTP 200): {told(host, TEXT)}"
    )
    assert failure.call is not None
    assert [attempt.reply.text for attempt in failure.call.history] == [TEXT, TEXT]


async def test_a_text_that_would_do_is_not_taken_where_the_model_was_stopped() -> None:
    ready = PolicyDecision(**GOOD).model_dump_json() + " ha" * 40
    with FakeOllama(reply=[ready, GOOD]) as server:
        server.fail_next(Fault.end_stream(after=len(pieces_of(ready))))
        decision = await decide(client_of(server))
    assert decision.call is not None
    assert decision.call.history[0].reason == "generation_stopped"
