"""Answers that no Ollama server should give: each is one error of ours, and goes no further."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import _http, connect
from llmsim_lab.llm._access import Mask
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.types import ChatRequest, Message

Says = Callable[..., None]

HOST = "http://box:1"
REQUEST = ChatRequest(
    model="llama3.2", messages=(Message("user", "A secret plan."),), options={"num_ctx": 4096}
)
LINE = b'{"model": "m", "message": {"role": "assistant", "content": "x"}, "done": false}\n'


async def text() -> str:
    return (await OllamaBackend("llama3.2", host=HOST).chat(REQUEST)).text


async def failure() -> BackendError:
    with pytest.raises(BackendError) as caught:
        await text()
    return caught.value


def said(content: str = "Hm.", more: str = "", **values: Any) -> bytes:
    """Write a whole answer, which also is a stream's only line."""
    message = json.dumps({"role": "assistant", "content": content}, ensure_ascii=False)
    rest = json.dumps({"done": True, "done_reason": "stop", **values})
    return f'{{"model": "m", "message": {message[:-1]}{more}}}, {rest[1:]}\n'.encode()


def test_the_official_client_follows_no_redirect_either(says: Says) -> None:
    says(b"", 307, location="http://me:secret@other/")
    with pytest.raises(ConfigError, match=r"redirects to http://\*\*\*, which is not followed"):
        connect("ollama", host=HOST)


# Size


async def test_a_document_or_line_has_a_largest_size(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = len(said("x" * 9)) - 1
    assert _http.MAX_REPLY_BYTES == 1_048_576
    monkeypatch.setattr(_http, "MAX_REPLY_BYTES", most)
    says(said("x" * 9))
    assert await text() == "x" * 9
    says(said("x" * 10))
    error = await failure()
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert f"sent more than {most} bytes" in str(error)
    with pytest.raises(ConfigError, match=f"sent more than {most} bytes"):
        await asyncio.to_thread(connect, "ollama", host=HOST)


async def test_a_stream_has_a_largest_size(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 20 * LINE + said()
    assert _http.MAX_STREAM_BYTES == 16_777_216
    monkeypatch.setattr(_http, "MAX_STREAM_BYTES", len(whole))
    says(whole)
    assert await text() == "x" * 20 + "Hm."
    says(b"\n" + whole)
    error = await failure()
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert f"sent more than {len(whole):,} bytes" in str(error)


async def test_a_streams_lines_are_handed_on_as_they_come() -> None:
    seen: list[bytes] = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in (b"on", b"e\ntwo\nth", b"ree"):
                seen.append(b"sent " + chunk)
                yield chunk

    answer = _http.HttpAnswer(httpx.Response(200, stream=Body()), "it", Mask(None))
    async for line in answer.lines():
        seen += [line]
    assert seen[:4] == [b"sent on", b"sent e\ntwo\nth", b"one", b"two"]
    assert seen[4:] == [b"sent ree", b"three"]


# JSON


@pytest.mark.parametrize(
    "value",
    ["[" * 300 + "]" * 300, "NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud800"'],
    ids=["deep", "nan", "infinity", "1e999", "5000 digits", "surrogate"],
)
async def test_json_that_is_not_sound_is_the_servers_fault(says: Says, value: str) -> None:
    call = f'{{"function": {{"name": "f", "arguments": {{"x": {value}}}}}}}'
    says(said(more=f', "tool_calls": [{call}]'))
    error = await failure()
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, True)
    assert "not JSON as an Ollama server sends it" in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("eval_count", value) for value in (-1, True, "12")), ("prompt_eval_count", 1.5)],
)
async def test_a_count_is_a_whole_number(says: Says, name: str, value: Any) -> None:
    says(said(**{name: value}))
    error = await failure()
    assert (error.reason, error.retry) == ("server_error", True)
    assert f"{name} is " in str(error)
