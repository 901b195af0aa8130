"""Each duration that is reported is its end minus its beginning, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from builders import make_client
from fake_ollama import FakeOllama

from llmsim_lab.llm.ollama import OllamaBackend
from llmsim_lab.types import ChatRequest, Message


def clock(monkeypatch: pytest.MonkeyPatch, module: str, *moments: float) -> None:
    """Let a module's clock show these moments, and from the last one on stand still."""
    shown = itertools.chain(moments, itertools.repeat(moments[-1]))
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(perf_counter=lambda: next(shown)))


async def test_the_attempts_of_a_call() -> None:
    async def late(request: ChatRequest) -> str:
        await asyncio.sleep(0.02)
        if request.attempt == 1:
            raise TimeoutError
        return "Hi"

    _, record = await make_client(late).converse([Message("user", "Hi")])
    first, second = (attempt.seconds for attempt in record.history)
    assert min(first, second) >= 0.02
    assert record.seconds == first + second


async def test_a_reply_of_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, "llmsim_lab.llm._http", 100.0, 102.5)
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host)
        asked = ChatRequest(model="llama3.2", messages=(Message("user", "Hi"),))
        assert (await backend.chat(asked)).seconds == 2.5
