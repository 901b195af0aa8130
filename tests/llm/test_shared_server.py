"""A server that others use too, or that is restarted while a run is going on."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from fake_ollama import FakeOllama

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.llm._openai import OpenAIBackend
from llmsim_lab.llm._scope import scoped
from llmsim_lab.types import ChatReply, Message


def client_of(host: str, **config: Any) -> LLMClient:
    settings = {"model": "llama3.2", "retry_wait_s": 0.01, "wait_for_server_s": 5} | config
    return LLMClient(LLMConfig(**settings), OllamaBackend(host=host))


async def say(client: LLMClient) -> ChatReply:
    return (await client.converse([Message("user", "Hello")]))[0]


async def failure_of(client: LLMClient) -> LLMFailureException:
    with pytest.raises(LLMFailureException) as caught:
        await say(client)
    return caught.value


@pytest.fixture
def gone() -> str:
    """The address of a server that was stopped."""
    with FakeOllama() as server:
        return server.host


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


# Taking turns


async def test_nothing_is_asked_that_makes_a_server_load_the_model_anew_for_us() -> None:
    with FakeOllama() as server:
        async with client_of(server.host) as client:
            await say(client)
    assert "shift" not in server.requests[0].body


async def test_after_an_answer_past_the_window_the_same_is_asked_with_another_seed() -> None:
    with FakeOllama(reply=["one two " * 300, "Brief."]) as server:
        async with client_of(server.host, num_ctx=512, max_tokens=511, seed=7) as client:
            reply, call = await client.converse([Message("user", "Count.")])
    assert (reply.text, call.attempts) == ("Brief.", 2)
    assert call.history[0].reason == "context_overflow"
    first, second = (request.body for request in server.requests)
    assert first["messages"] == second["messages"]
    assert first["options"]["seed"] != second["options"]["seed"]


# Restarts


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_a_call_waits_for_a_server_that_is_being_restarted(
    gone: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(gone)
    if kind == "openai":
        client.backend = OpenAIBackend("llama3.2", base_url=f"{gone}/v1")
    asking = asyncio.gather(say(client), say(client), return_exceptions=True)
    await asyncio.sleep(0.3)
    assert not asking.done()
    with FakeOllama(reply="Back.", port=int(gone.rpartition(":")[2])):
        for reply in await asking:
            if kind == "ollama":
                assert reply.text == "Back."
            else:  # it answers, though this fake does not speak that protocol
                assert "404" in str(reply)
        await client.aclose()
    assert all("waiting up to 5 s" in line for line in told(caplog)[:2])
    assert 1 <= len(told(caplog)) <= 2


async def test_a_server_that_stays_away_is_waited_for_no_longer_than_is_set(gone: str) -> None:
    began = time.perf_counter()
    failure = await failure_of(client_of(gone, wait_for_server_s=0.3))
    assert 0.3 <= time.perf_counter() - began < 4
    assert str(failure) == (
        f"connection_error after 2 attempts: no Ollama server answers at {gone}; start it with: "
        "ollama serve, or set OLLAMA_HOST"
    )


@pytest.mark.parametrize("config", [{"retry_wait_s": 0}, {"wait_for_server_s": 0}])
async def test_without_a_wait_a_server_that_is_away_ends_the_call_at_once(
    gone: str, config: dict[str, Any]
) -> None:
    began = time.perf_counter()
    await failure_of(client_of(gone, **config))
    assert time.perf_counter() - began < 1


async def test_who_waits_for_a_server_can_stop_waiting(gone: str) -> None:
    asking = asyncio.create_task(say(client_of(gone)))
    await asyncio.sleep(0.2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asking, 1)
    with scoped(deadline=time.monotonic() + 0.3):
        failure = await failure_of(client_of(gone))
    assert "the caller waits no longer" in str(failure)
