"""Choices: what a request for probabilities is, and what a model's choice is measured as."""

from __future__ import annotations

import asyncio

from llmsim_lab.llm import ChatReply, ChatRequest, OllamaBackend
from llmsim_lab.tape._codec import SettingsCache, encode_request
from llmsim_lab.testing import FakeOllama
from llmsim_lab.types import Message

QUESTION = ChatRequest(model="tiny", messages=(Message("user", "A or B?"),), top_logprobs=5)


def test_ollama_gives_the_alternatives_of_the_first_token() -> None:
    async def asked(host: str) -> ChatReply:
        backend = OllamaBackend(host=host)
        try:
            return await backend.chat(QUESTION)
        finally:
            await backend.aclose()

    with FakeOllama(["tiny"], reply="Well") as fake:
        reply = asyncio.run(asked(fake.host))
    assert [value for _, value in reply.top_logprobs] == [-0.5, -1.5, -2.5, -3.5, -4.5]
    body = fake.requests[0].body
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)


def test_a_request_without_alternatives_keeps_the_key_it_had() -> None:
    plain = ChatRequest(model="tiny", messages=(Message("user", "A or B?"),))
    cache = SettingsCache()
    assert encode_request(plain, cache).key.hex() == "a597bbdfda01a1fcc42def664c3e0255"
    assert encode_request(QUESTION, cache).key != encode_request(plain, cache).key
