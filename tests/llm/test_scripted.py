"""The scripted backend, as tests and lessons use it."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import ScriptedBackend
from llmsim_lab.models import GlobalState
from llmsim_lab.types import CallSite, ChatReply, ChatRequest, Message

REQUEST = ChatRequest(
    model="m", messages=(Message("user", "Hi"),), site=CallSite(component="agent", agent="A")
)


async def text_of(backend: ScriptedBackend) -> str:
    return (await backend.chat(REQUEST)).text


async def test_a_list_is_used_up_in_order_and_its_end_is_an_error() -> None:
    backend = ScriptedBackend(["one", "two"])
    assert [await text_of(backend), await text_of(backend)] == ["one", "two"]
    with pytest.raises(ConfigError, match=r"script has come to its end: request 3 .*agent='A'"):
        await backend.chat(REQUEST)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("plain", "plain"),
        ({"a": 1}, '{"a": 1}'),
        (GlobalState(), GlobalState().model_dump_json()),
        (ChatReply(text="whole"), "whole"),
        (lambda request: request.messages[0].content, "Hi"),
    ],
)
async def test_a_single_reply_serves_every_request(reply: Any, text: str) -> None:
    backend = ScriptedBackend(reply)
    assert [await text_of(backend), await text_of(backend)] == [text, text]


async def test_a_function_may_be_async_and_stand_in_a_list() -> None:
    async def answer(request: ChatRequest) -> str:
        return request.messages[0].content * 2

    backend = ScriptedBackend([answer, 42], name="puppet")
    assert (await text_of(backend), backend.requests) == ("HiHi", [REQUEST])
    with pytest.raises(ConfigError, match="not 42"):
        await backend.chat(REQUEST)
    assert (await backend.model_info()).name == "puppet"
