"""Replies that are read while they are written: who gets the text, and that giving up stops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_ollama import FakeOllama

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.llm._scope import InFlight, scoped
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import CallSite, ChatReply, ChatRequest, Message, OnText

TEXT = "Raise the rate, and say why."
GOOD = {"action": "Raise the rate", "reasoning": "Prices rise.", "confidence": 0.8}
SITE = CallSite(component="agent", agent="Aland", turn=1)
REQUEST = ChatRequest(model="llama3.2", messages=(Message("user", "What now?"),))


class Writer:
    """A backend that writes its text in small pieces."""

    streams = True

    def __init__(self, text: str) -> None:
        self.text = text

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        assert on_text is not None
        for at in range(0, len(self.text), 5):
            on_text(self.text[at : at + 5])
            await asyncio.sleep(0)
        return ChatReply(text=self.text)


def client_of(backend: Any, **config: Any) -> LLMClient:
    return LLMClient(LLMConfig(**{"model": "llama3.2", "retry_wait_s": 0} | config), backend)


async def decide(client: LLMClient) -> PolicyDecision:
    return await client.call_with_retry(
        prompt="What now?", response_model=PolicyDecision, site=SITE
    )


# Ollama


async def ask(server: FakeOllama, on_text: OnText | None = None) -> ChatReply:
    backend = OllamaBackend(host=server.host)
    return await backend.chat(REQUEST, on_text=on_text)


@pytest.mark.parametrize(
    "reply", [TEXT, "", ChatReply(text="Raise.", thinking="Hm, well."), "Zwölf Prüfungen 🎉"]
)
async def test_a_streamed_reply_is_the_same_reply(reply: Any) -> None:
    pieces: list[str] = []
    with FakeOllama(reply=reply) as server:
        plain, streamed = await ask(server), await ask(server, pieces.append)
    for field in ("text", "thinking", "done_reason", "prompt_tokens", "reply_tokens"):
        assert getattr(streamed, field) == getattr(plain, field)
    thought = f"<think>{plain.thinking}</think>" if plain.thinking else ""
    assert "".join(pieces) == thought + plain.text


class Endless:
    """An Ollama that writes without end: its address, and by request whether its client left."""

    def __init__(self) -> None:
        self.host = ""
        self.asked = asyncio.Event()
        self.left: list[asyncio.Event] = []

    async def are_all_gone(self) -> bool:
        """Wait until all clients have left; returns True if there was one."""
        for left in self.left:
            await left.wait()
        return bool(self.left)


@asynccontextmanager
async def endless(piece: str) -> AsyncIterator[Endless]:
    """Run such a server."""
    ollama = Endless()
    line = {"model": "llama3.2", "message": {"role": "assistant", "content": piece}, "done": False}
    chunk = json.dumps(line).encode() + b"\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
        await reader.read(65536)
        ollama.left.append(left)
        ollama.asked.set()
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while not reader.at_eof():
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass
        finally:
            left.set()
            writer.transport.abort()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        ollama.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield ollama


@pytest.mark.parametrize("how", ["cancelled", "timeout", "deadline"])
async def test_giving_up_closes_the_connection_at_once(how: str) -> None:
    async with endless(" ") as ollama:
        backend = OllamaBackend(host=ollama.host)
        client = client_of(backend, total_timeout_s=0.1 if how == "timeout" else 60)
        with scoped(deadline=time.monotonic() + (0.1 if how == "deadline" else 60)):
            task = asyncio.create_task(decide(client))
            await ollama.asked.wait()
            if how == "cancelled":
                task.cancel()
            with pytest.raises((asyncio.CancelledError, LLMFailureException)) as caught:
                await task
        assert await ollama.are_all_gone()
        await client.aclose()
    assert (caught.type is asyncio.CancelledError) == (how == "cancelled")
    if isinstance(caught.value, LLMFailureException):
        assert caught.value.reason == "timeout"


# Who gets the text


async def test_whoever_watches_sees_the_text_grow() -> None:
    calls, seen = InFlight(), list[str]()

    class Seen(Writer):
        async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
            assert on_text is not None

            def and_look(piece: str) -> None:
                on_text(piece)
                seen.append(calls.waiting[0].text)

            return await super().chat(request, on_text=and_look)

    with scoped(watch=calls):
        await decide(client_of(Seen(json.dumps(GOOD))))
    assert seen == [json.dumps(GOOD)[: 5 * n] for n in range(1, len(seen) + 1)]
    assert len(seen) > 10
    assert calls.waiting == ()
