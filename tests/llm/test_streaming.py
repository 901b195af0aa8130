"""Replies that are read while they are written: who sees them, and that giving up stops them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from builders import until
from client_kit import GOOD, SITE, decide
from fake_ollama import FakeOllama, Fault

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm.ollama import OllamaBackend
from llmsim_lab.llm.scope import InFlight, scoped
from llmsim_lab.types import ChatReply, ChatRequest, Message, OnText

TEXT = json.dumps(GOOD)
REQUEST = ChatRequest(model="llama3.2", messages=(Message("user", "What now?"),))


@pytest.mark.parametrize("reply", ["", ChatReply(text="Ja 🎉", thinking="Hm, well."), TEXT])
async def test_a_streamed_reply_is_the_same_reply(reply: Any) -> None:
    pieces: list[str] = []
    with FakeOllama(reply=reply) as server:
        backend = OllamaBackend(host=server.host)
        plain = await backend.chat(REQUEST)
        streamed = await backend.chat(REQUEST, on_text=pieces.append)
    for field in ("text", "thinking", "done_reason", "prompt_tokens", "reply_tokens"):
        assert getattr(streamed, field) == getattr(plain, field)
    thought = f"<think>{plain.thinking}</think>" if plain.thinking else ""
    assert "".join(pieces) == thought + plain.text


@pytest.mark.parametrize(
    ("how", "fault"),
    [("cancelled", "hang"), *((how, "endless") for how in ("cancelled", "timeout", "deadline"))],
)
async def test_giving_up_closes_the_connection_at_once_and_frees_the_server(
    how: str, fault: str
) -> None:
    with FakeOllama() as server:
        server.fail_next(Fault(fault), times=2)
        limit_s = 0.4 if how == "timeout" else 60
        config = LLMConfig(model="llama3.2", total_timeout_s=limit_s, retry_wait_s=0)
        client = LLMClient(config, OllamaBackend(host=server.host))
        with scoped(deadline=time.monotonic() + (0.4 if how == "deadline" else 60)):
            task = asyncio.create_task(decide(client))
            await until(lambda: bool(server.requests))
            if how == "cancelled":
                task.cancel()
            with pytest.raises((asyncio.CancelledError, LLMFailureException)) as caught:
                await task
        await until(lambda: server.active == 0)
        await client.aclose()
    assert (caught.type is asyncio.CancelledError) == (how == "cancelled")


# Who sees them


class Writer:
    """A backend that writes in pieces, notes what is seen of them, and answers when it is let."""

    streams = True

    def __init__(self, calls: InFlight) -> None:
        self.calls, self.seen, self.let = calls, list[str](), asyncio.Event()

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        assert on_text is not None
        for at in range(0, len(TEXT), 5):
            on_text(TEXT[at : at + 5])
            self.seen.append(self.calls.waiting[0].text)
        await self.let.wait()
        return ChatReply(text=TEXT)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_is_in_flight_is_seen_with_its_place_time_and_text_until_it_ends(
    cancelled: bool,
) -> None:
    calls = InFlight()
    backend = Writer(calls)
    with scoped(watch=calls):
        task = asyncio.create_task(decide(LLMClient(LLMConfig(), backend)))  # type: ignore[arg-type]
        await until(lambda: len(backend.seen) > 10)
    [waiting] = calls.waiting
    assert (waiting.site, waiting.attempt, str(waiting)) == (SITE, 1, "agent of Aland")
    assert waiting.since + waiting.seconds <= time.monotonic()
    assert backend.seen == [TEXT[: 5 * n] for n in range(1, len(backend.seen) + 1)]
    assert calls.finished == 0
    if cancelled:
        task.cancel()
    else:
        backend.let.set()
    await asyncio.wait([task])
    assert (calls.waiting, calls.finished) == ((), 1)
