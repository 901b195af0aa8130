"""How long a client waits before its one retry: its own bounds, and what the server asks for."""

from __future__ import annotations

import asyncio
import random

import pytest
from builders import make_client
from fake_ollama import FakeOllama, Fault

from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.llm._retry import retry_after_s
from llmsim_lab.types import CallRecord, ChatRequest, Message


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits asked for, none of which is waited out."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return asked


def busy(seconds: float | None) -> BackendError:
    return BackendError("busy", reason="rate_limited", retry=True, retry_after_s=seconds)


async def talk(client: LLMClient) -> CallRecord:
    return (await client.converse([Message("user", "Hi")]))[1]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("-7", None),
        ("1.5", None),
        ("\u0667", None),
        ("Sun, 22 Nov 2026 12:00:30 GMT", None),
        ("", None),
        (None, None),
    ],
)
def test_a_header_holds_whole_seconds(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


@pytest.mark.parametrize("status", [429, 503])
async def test_ollamas_answer_says_how_long_to_wait(status: int) -> None:
    with FakeOllama() as server:
        server.fail_next(Fault.status(status, retry_after="7"))
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ChatRequest(model="llama3.2", messages=(Message("user", "Hi"),)))
    assert (caught.value.retry, caught.value.retry_after_s) == (True, 7.0)


async def test_the_wait_draws_nothing_from_the_numbers_of_a_users_own_code(
    waits: list[float],
) -> None:
    before = random.getstate()
    await talk(make_client([TimeoutError(), "Hi"], retry_wait_s=(2.0, 3.0)))
    assert (len(waits), random.getstate()) == (1, before)


async def test_the_server_is_given_the_time_it_asks_for(waits: list[float]) -> None:
    record = await talk(make_client([busy(7.0), "Hi"], retry_wait_s=(0.0, 5.0)))
    assert (waits, record.attempts) == ([7.0], 2)


async def test_the_wait_is_no_longer_than_the_timeout(waits: list[float]) -> None:
    await talk(make_client([busy(3_600.0), "Hi"], timeout_s=30.0))
    assert waits == [30.0]
