"""A server that is restarted while a run is going on is waited for."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from builders import until
from client_kit import Answer, Served, failure_of, say
from fake_ollama import FakeOllama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, LLMConfig, OpenAIBackend, ScriptedBackend
from llmsim_lab.llm.calls import queued
from llmsim_lab.llm.ollama import OllamaBackend
from llmsim_lab.llm.scope import scoped
from llmsim_lab.types import ChatRequest


def client_of(host: str, **config: Any) -> LLMClient:
    settings = {"model": "llama3.2", "retry_wait_s": 0.01, "wait_for_server_s": 5} | config
    return LLMClient(LLMConfig(**settings), OllamaBackend(host=host))


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that was stopped."""
    monkeypatch.setattr(queued, "KNOCK_S", 0.05)
    with FakeOllama() as server:
        return server.host


async def test_a_call_waits_for_a_server_that_is_being_restarted(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(gone)
    asking = asyncio.gather(say(client), say(client), return_exceptions=True)
    await until(lambda: bool(caplog.records))
    assert not asking.done()
    with FakeOllama(reply="Back.", port=int(gone.rpartition(":")[2])):
        answers = await asking
        await client.aclose()
    assert all("Back." in repr(answer) for answer in answers)
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert 1 <= len(lines) <= 2
    assert all("waiting up to 5 s" in line for line in lines)


async def test_a_call_waits_for_a_server_that_says_that_it_loads_its_model(
    says: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As llama.cpp's server says it."""
    monkeypatch.setattr(queued, "KNOCK_S", 0.01)
    error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
    loads = Answer(json.dumps({"error": error}).encode(), 503)
    good = b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\n'
    says.answers = [loads, loads, loads, Answer(good)]
    backend = OpenAIBackend("m", base_url="http://box:1/v1")
    reply, call = await say(LLMClient(LLMConfig(model="m", retry_wait_s=0.01), backend))
    assert (reply.text, [attempt.reason for attempt in call.history]) == (
        "Hi",
        ["server_error", None],
    )


async def test_eight_requests_at_once_are_all_answered_by_a_server_whose_queue_takes_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ollama with OLLAMA_MAX_QUEUE=2 while it loads its model."""
    monkeypatch.setattr(queued, "KNOCK_S", 0.01)
    in_flight = refused = 0

    async def answer(_: ChatRequest) -> str:
        nonlocal in_flight, refused
        if in_flight == 3:
            refused += 1
            full = "server busy, please try again.  maximum pending requests exceeded"
            raise BackendError(full, reason="server_error", status_code=503, retry=True)
        in_flight += 1
        await until(lambda: refused >= 5)
        in_flight -= 1
        return "Yes."

    client = LLMClient(LLMConfig(model="m", retry_wait_s=0.01), ScriptedBackend(answer))
    answers = await asyncio.gather(*(say(client) for _ in range(8)))
    assert [reply.text for reply, _ in answers] == ["Yes."] * 8
    assert refused >= 5
    assert client.limits.at_once < 8


async def test_a_server_that_stays_away_is_waited_for_no_longer_than_is_set(gone: str) -> None:
    began = time.perf_counter()
    failure = await failure_of(client_of(gone, wait_for_server_s=0.1))
    assert time.perf_counter() - began >= 0.1
    assert str(failure) == (
        "agent of Aland in turn 1: connection_error after 2 attempts: no Ollama server answers at "
        f"{gone}; start it with: ollama serve, or set OLLAMA_HOST"
    )


@pytest.mark.parametrize("config", [{"retry_wait_s": 0}, {"wait_for_server_s": 0}])
async def test_without_a_wait_a_server_that_is_away_ends_the_call_at_once(
    gone: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await failure_of(client_of(gone, **config))
    assert "waiting up to" not in caplog.text


async def test_who_waits_for_a_server_can_stop_waiting(gone: str) -> None:
    asking = asyncio.create_task(say(client_of(gone)))
    await asyncio.sleep(0.1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asking, 30)
    with scoped(deadline=time.monotonic() + 0.1):
        assert "the caller waits no longer" in str(await failure_of(client_of(gone)))
