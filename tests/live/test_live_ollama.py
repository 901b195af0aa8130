"""What only a real Ollama can show: that it does what the backend and ``FakeOllama`` expect."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import ollama
import pytest

from llmsim_lab import connect
from llmsim_lab.errors import BackendError
from llmsim_lab.llm.ollama import OllamaBackend
from llmsim_lab.types import ChatRequest, Message
from tests.live.conftest import Live

RATES = [3.5, 3.75, 4.0, 4.25, 4.5]


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def ask(text: str = "What is the capital of France?", **changes: Any) -> ChatRequest:
    options = {"num_ctx": 1024, "num_predict": 60, "temperature": 0.9, "seed": 7}
    options |= changes.pop("options", {})
    return replace(
        ChatRequest(model="", messages=(Message("user", text),), options=options, timeout_s=240),
        **changes,
    )


async def test_auto_finds_the_server_and_says_what_it_chose(live: Live) -> None:
    async with connect("auto", host=live.host, quiet=True) as client:
        assert f"on Ollama {live.version} at {live.host}" in client.chosen


async def test_what_identifies_the_model_is_known(backend: OllamaBackend, live: Live) -> None:
    info = await backend.model_info()
    assert (info.backend, info.version, len(info.digest or "")) == ("ollama", live.version, 64)


async def test_a_reply_has_a_text_and_counts_its_tokens(backend: OllamaBackend) -> None:
    reply = await backend.chat(ask())
    assert reply.text
    assert reply.done_reason in ("stop", "length")
    assert 5 <= (reply.prompt_tokens or 0) < 400
    assert 1 <= (reply.reply_tokens or 0) <= 60


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_numbers_of_an_enum_are_enforced(backend: OllamaBackend, seed: int) -> None:
    schema = an_object(rate={"type": "number", "enum": RATES})
    options = {"temperature": 1.5, "seed": seed}
    reply = await backend.chat(ask("Say the rate 9.99 in JSON.", schema=schema, options=options))
    assert json.loads(reply.text)["rate"] in RATES


async def test_a_prompt_that_does_not_fit_is_an_error_and_not_cut(backend: OllamaBackend) -> None:
    with pytest.raises(BackendError, match="256") as caught:
        await backend.chat(ask("rates and prices " * 300, options={"num_ctx": 256}))
    assert caught.value.reason == "context_overflow"


async def test_a_tool_is_called_by_its_name_with_an_object(
    backend: OllamaBackend, live: Live
) -> None:
    with ollama.Client(live.host) as client:
        known = client.show(live.model).capabilities or ()
    if "tools" not in known:
        pytest.skip("the model cannot call tools; name one that can in LLMSIM_LIVE_MODEL")
    function = {"name": "get_weather", "parameters": an_object(city={"type": "string"})}
    tool = {"type": "function", "function": function}
    reply = await backend.chat(ask("What is the weather in Paris? Use the tool.", tools=(tool,)))
    assert [call.name for call in reply.tool_calls] == ["get_weather"]
    assert set(reply.tool_calls[0].arguments) == {"city"}


async def test_a_request_can_be_cancelled_and_the_server_answers_on(backend: OllamaBackend) -> None:
    await backend.chat(ask())
    asking = asyncio.create_task(backend.chat(ask("Write a story.", options={"num_predict": 900})))
    await asyncio.sleep(0.001)  # it is on its way
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await backend.chat(ask())).text
