"""Answers that no Ollama server should give: each is one error of ours, and goes no further."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import _http, connect
from llmsim_lab.llm.ollama import OllamaBackend
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

    answer = _http.HttpAnswer(httpx.Response(200, stream=Body()), "it", _http.NO_MASK)
    async for line in answer.lines():
        seen += [line]
    assert seen[:4] == [b"sent on", b"sent e\ntwo\nth", b"one", b"two"]
    assert seen[4:] == [b"sent ree", b"three"]


class Body(httpx.AsyncByteStream):
    """A body that comes in these pieces, all of which are there at once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


async def read(pieces: Iterable[bytes]) -> list[bytes]:
    answer = _http.HttpAnswer(httpx.Response(200, stream=Body(pieces)), "it", _http.NO_MASK)
    return [line async for line in answer.lines()]


async def test_lines_are_put_together_from_pieces_of_any_size() -> None:
    text = b"one\r\n\n\xc3\xa9t\xe2\x80\xa8wo\n three"
    expected = [b"one", b"\xc3\xa9t\xe2\x80\xa8wo", b"three"]
    for size in (1, 2, 3, 5, 8, 100):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert await read(pieces) == expected


@pytest.mark.parametrize(
    ("limit", "pieces", "words"),
    [
        ("MAX_STREAM_LINES", [b"{}\n{}\n", b"{}\n{}\n"], "it sent more than 3 lines"),
        ("MAX_STREAM_LINES", [b": x\n"] * 4, "it sent more than 3 lines"),
        ("MAX_CHUNKS", [b"x"] * 4, "it sent more than 3 pieces"),
        ("MAX_CHUNKS", [b"\n"] * 4, "it sent more than 3 pieces"),
        ("MAX_REPLY_BYTES", [b"a", b"bc", b"d\n"], "it sent more than 3 bytes"),
    ],
)
async def test_a_stream_is_given_up_by_what_it_yields(
    limit: str, pieces: list[bytes], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(_http, limit) > 100_000
    monkeypatch.setattr(_http, limit, 3)
    with pytest.raises(BackendError, match=words):
        await read(pieces)


@pytest.mark.parametrize("pieces", [[b"{}\n" * 50], [b"x"] * 50])
async def test_others_have_their_turn_while_there_is_always_more_to_read(
    pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    monkeypatch.setattr(_http, "_GIVE_BACK_S", 1e9)
    await read(pieces)
    assert turns == 0
    monkeypatch.setattr(_http, "_GIVE_BACK_S", -1.0)
    await read(pieces)
    beside.cancel()
    assert turns >= 50


@pytest.mark.parametrize(
    ("limit", "words"),
    [("MAX_CALLS", "2 calls of tools"), ("MAX_ARGUMENTS_BYTES", "2 bytes of arguments of tools")],
)
async def test_calls_of_tools_are_few_and_small(
    says: Says, limit: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = json.dumps({"function": {"name": "f", "arguments": {"x": 1}}})
    says(said(more=f', "tool_calls": [{", ".join([call] * 3)}]'))
    assert await text() == "Hm."
    monkeypatch.setattr(_http, limit, 2)
    error = await failure()
    assert f"sent more than {words}; lower max_tokens" in str(error)
    assert (error.reason, error.retry) == ("server_error", False)


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
