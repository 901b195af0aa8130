"""The backend for OpenAI's protocol against a real server: the embedded model's own speaks it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, LLMConfig, OpenAIBackend, connect
from llmsim_lab.llm._embedded.server import ChildProcess
from llmsim_lab.llm._embedded.weights import usable_cores
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatRequest, Message

pytestmark = [pytest.mark.embedded, pytest.mark.process]

REQUEST = ChatRequest(
    model="smollm2",
    messages=(Message("user", "Name the capital of France."),),
    options={"temperature": 0, "seed": 1, "num_ctx": 1024, "num_predict": 5},
)


@pytest.fixture(scope="module")
def server(small_model: Path) -> Iterator[ChildProcess]:
    child = ChildProcess(small_model, num_ctx=1024, threads=usable_cores(), timeout_s=120)
    yield child
    child.stop()


def key_of(server: ChildProcess) -> str:
    key = server.backend._key
    assert isinstance(key, SecretStr)
    return key.get_secret_value()


def backend_of(server: ChildProcess) -> OpenAIBackend:
    return OpenAIBackend("smollm2", base_url=server.backend.base_url, api_key=key_of(server))


async def test_a_decision_is_held_to_its_schema(server: ChildProcess) -> None:
    config = LLMConfig(model="smollm2", temperature=0, seed=1, num_ctx=1024, max_tokens=200)
    async with LLMClient(config, backend=backend_of(server)) as client:
        decision = await client.call_with_retry(
            prompt="Inflation is 6 %, the target 2 %. What do you do?",
            response_model=PolicyDecision,
        )
    call = decision.call
    assert call is not None
    assert (call.status, call.attempts) == ("ok", 1)
    assert call.prompt_tokens > 20
    assert 0 < call.reply_tokens <= 200


async def test_the_same_seed_gives_the_same_answer(server: ChildProcess) -> None:
    backend = backend_of(server)
    warm = replace(REQUEST, options={**REQUEST.options, "temperature": 1.5})
    texts = [(await backend.chat(warm)).text for _ in range(2)]
    other = await backend.chat(replace(warm, options={**warm.options, "seed": 2}))
    assert texts[0] == texts[1] != other.text


async def test_the_first_tokens_alternatives_have_probabilities(server: ChildProcess) -> None:
    backend = backend_of(server)
    one = replace(REQUEST, options={**REQUEST.options, "num_predict": 1}, top_logprobs=20)
    reply = await backend.chat(one)
    tokens, logs = zip(*reply.top_logprobs, strict=True)
    assert len(tokens) == 20
    assert tokens[0] == reply.text
    assert list(logs) == sorted(logs, reverse=True)
    assert 0.2 < sum(map(math.exp, logs)) <= 1


async def test_the_pieces_of_a_reply_are_its_text(server: ChildProcess) -> None:
    backend = backend_of(server)
    pieces: list[str] = []
    reply = await backend.chat(REQUEST, on_text=pieces.append)
    assert "".join(pieces) == reply.text
    assert reply.done_reason == "length"
    assert reply.reply_tokens == 5 >= len([*filter(None, pieces)]) > 2


async def test_a_prompt_that_does_not_fit_is_told_apart(server: ChildProcess) -> None:
    backend = backend_of(server)
    with pytest.raises(BackendError, match=r"the context window .*\(1024 tokens\)") as caught:
        await backend.chat(replace(REQUEST, messages=(Message("user", "word " * 1500),)))
    assert caught.value.reason == "context_overflow"


async def test_a_wrong_key_is_the_users_to_correct(server: ChildProcess) -> None:
    backend = OpenAIBackend("smollm2", base_url=server.backend.base_url, api_key="sk-a-wrong-key")
    with pytest.raises(BackendError, match="answers 401: Invalid API Key") as caught:
        await backend.chat(REQUEST)
    assert (caught.value.reason, caught.value.status_code) == ("client_error", 401)


async def test_connect_finds_the_servers_only_model(server: ChildProcess) -> None:
    client = await asyncio.to_thread(
        connect,
        "openai",
        base_url=server.backend.base_url,
        api_key=lambda: key_of(server),
        quiet=True,
    )
    async with client:
        info = await client.model_info()
    assert info.name.endswith(".gguf")
    assert (info.backend, info.digest) == ("openai", None)
    assert info.context_length == 8192
