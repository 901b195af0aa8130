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
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.types import ChatRequest, Message

Says = Callable[..., None]

HOST = "http://box:1"
REQUEST = ChatRequest(
    model="llama3.2", messages=(Message("user", "A secret plan."),), options={"num_ctx": 4096}
)
EVIL = "\x1b[31mred\x07 \u202eback\x9b2J"
TAME = "[31mred back2J"
LINE = b'{"model": "m", "message": {"role": "assistant", "content": "x"}, "done": false}\n'


async def text() -> str:
    return (await OllamaBackend("llama3.2", host=HOST).chat(REQUEST)).text


async def failure() -> BackendError:
    with pytest.raises(BackendError) as caught:
        await text()
    return caught.value


def said(message: str = '{"role": "assistant", "content": "Hm."}', counts: str = "") -> bytes:
    """Write a whole answer, which also is a stream's only line."""
    return (
        f'{{"model": "llama3.2", "message": {message}, "done": true, "done_reason": "stop"'
        f"{counts}}}\n"
    ).encode()


def test_the_official_client_follows_no_redirect_either(says: Says) -> None:
    says(b"", 307, location="http://me:secret@other/")
    with pytest.raises(ConfigError, match=r"redirects to http://\*\*\*, which is not followed"):
        connect("ollama", host=HOST)


# Size


async def test_a_document_or_line_has_a_largest_size(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, too_large = (said(json.dumps({"role": "assistant", "content": "x" * n})) for n in (9, 10))
    assert _http.MAX_REPLY_BYTES == 1_048_576
    monkeypatch.setattr(_http, "MAX_REPLY_BYTES", len(fits) - 1)
    says(fits)
    assert await text() == "x" * 9
    says(too_large)
    error = await failure()
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert f"sent more than {len(fits) - 1} bytes" in str(error)
    with pytest.raises(ConfigError, match=f"sent more than {len(fits) - 1} bytes"):
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
    seen: list[str] = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in (b"on", b"e\ntwo\nth", b"ree"):
                seen.append(f"sent {chunk!r}")
                yield chunk

    server = OllamaBackend(host=HOST).server
    async for line in server.lines(httpx.Response(200, stream=Body())):
        seen += [f"got {line!r}"]
    assert seen == [
        "sent b'on'",
        "sent b'e\\ntwo\\nth'",
        "got b'one'",
        "got b'two'",
        "sent b'ree'",
        "got b'three'",
    ]


# JSON


@pytest.mark.parametrize(
    "value",
    ["[" * 300 + "]" * 300, "NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud800"'],
    ids=["deep", "nan", "infinity", "1e999", "5000 digits", "surrogate"],
)
async def test_json_that_is_not_sound_is_the_servers_fault(says: Says, value: str) -> None:
    call = f'{{"function": {{"name": "f", "arguments": {{"x": {value}}}}}}}'
    says(said(f'{{"role": "assistant", "content": "", "tool_calls": [{call}]}}'))
    error = await failure()
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, True)
    assert "not JSON as an Ollama server sends it" in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    "counts",
    ['"eval_count": -1', '"eval_count": true', '"eval_count": "12"', '"prompt_eval_count": 1.5'],
)
async def test_a_count_is_a_whole_number(says: Says, counts: str) -> None:
    says(said(counts=f", {counts}"))
    error = await failure()
    assert (error.reason, error.retry) == ("server_error", True)
    assert f"{counts.split(chr(34))[1]} is " in str(error)


async def test_a_line_may_hold_what_ends_lines_elsewhere(says: Says) -> None:
    says(said('{"role": "assistant", "content": "a\x85b\u2028c"}'))
    assert await text() == "a\x85b\u2028c"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("context_length", {"model_info": {"llama.context_length": True}}),
        ("version", {"version": 5}),
    ],
)
async def test_details_that_make_no_sense_are_not_understood(
    says: Says, path: str, value: Any
) -> None:
    sound = {"version": "0.32.15", "models": [], "model_info": {}}
    says(json.dumps(sound | value).encode())
    with pytest.raises(BackendError, match=f"not JSON as an Ollama server sends it.*{path}"):
        await OllamaBackend("llama3.2", host=HOST).model_info()


# Words


def words(error: BaseException | None) -> str:
    """Return what a traceback shows of an error and all behind it."""
    found = []
    while error is not None:
        found.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(found)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, json.dumps({"error": json.dumps({"error": EVIL})})),
        (500, json.dumps({"error": {"message": EVIL}})),
        (502, EVIL),
        (400, json.dumps({"error": EVIL})),
        (429, json.dumps({"error": EVIL})),
        # In a stream; a letter of the name is escaped, as JSON allows.
        (200, json.dumps({"error": EVIL}).replace("error", "\\u0065rror", 1)),
    ],
)
async def test_an_errors_text_has_nothing_that_a_terminal_obeys(
    says: Says, status: int, body: str
) -> None:
    says(body.encode(), status)
    error = await failure()
    assert TAME in str(error)
    assert words(error).replace("\n", "").isprintable()
