"""Answers that no Ollama server should give: each is one error of ours, and goes no further."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import _http, connect
from llmsim_lab.llm._ollama import OllamaBackend, look
from llmsim_lab.types import ChatRequest, Message

REQUEST = ChatRequest(
    model="llama3.2", messages=(Message("user", "A secret plan."),), options={"num_ctx": 4096}
)
EVIL = "\x1b[31mred\x07 \u202eback\x9b2J"
TAME = "[31mred back2J"


@asynccontextmanager
async def answering(body: bytes, *head: str, status: str = "200 OK") -> AsyncIterator[str]:
    """Run a server that says one thing, whatever it is asked; gives its address."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *head]
    talks: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        try:
            await reader.read()  # until the client has what it wants
        except ConnectionError:
            return  # nor does it have to read everything
        finally:
            writer.transport.abort()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.create_task(talk(reader, writer)))

    async with await asyncio.start_server(start, "127.0.0.1", 0) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            for task in talks:
                task.cancel()
            await asyncio.gather(*talks, return_exceptions=True)


async def failure(host: str) -> BackendError:
    backend = OllamaBackend("llama3.2", host=host)
    with pytest.raises(BackendError) as caught:
        await backend.chat(REQUEST)
    return caught.value


def said(message: str = '{"role": "assistant", "content": "Hm."}', counts: str = "") -> bytes:
    """Write a whole answer, which also is a stream's only line."""
    return (
        f'{{"model": "llama3.2", "message": {message}, "done": true, "done_reason": "stop"'
        f"{counts}}}\n"
    ).encode()


# Where a prompt goes


@pytest.mark.parametrize("status", ["301 Moved Permanently", "307 Temporary Redirect"])
async def test_a_redirect_is_an_error_that_names_where_it_leads(status: str) -> None:
    with FakeOllama(reply="from elsewhere") as other:
        elsewhere = other.host
        target = elsewhere.replace("http://", "http://me:secret@") + "/api/chat"
        async with answering(b"", f"Location: {target}", status=status) as host:
            error = await failure(host)
            with pytest.raises(ConfigError, match=f"redirects to {elsewhere}"):
                await asyncio.to_thread(connect, "ollama", host=host)
    assert (error.reason, error.status_code, error.retry) == (
        "client_error",
        int(status[:3]),
        False,
    )
    assert f"Ollama at {host} redirects to {elsewhere}, which is not followed" in str(error)
    assert "secret" not in str(error)
    assert other.request_lines == []


async def test_a_redirect_to_nowhere_is_reported_too() -> None:
    async with answering(b"", "Location: http://[::1/", status="308 Permanent Redirect") as host:
        error = await failure(host)
    assert "redirects to an address that makes no sense" in str(error)


# Size


async def test_a_compressed_reply_is_not_unpacked() -> None:
    body = gzip.compress(said() + b" " * 50_000_000, compresslevel=1)
    async with answering(body, "Content-Encoding: gzip") as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert "sent a compressed reply (gzip) although asked not to" in str(error)


async def test_no_compression_is_asked_for() -> None:
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host)
        await backend.chat(REQUEST)
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_a_document_or_line_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, too_large = (said(json.dumps({"role": "assistant", "content": "x" * n})) for n in (9, 10))
    assert _http.MAX_REPLY_BYTES == 1_048_576
    monkeypatch.setattr(_http, "MAX_REPLY_BYTES", len(fits))
    async with answering(fits) as host:
        backend = OllamaBackend("llama3.2", host=host)
        assert (await backend.chat(REQUEST)).text == "x" * 9
    async with answering(too_large) as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert f"sent more than {len(fits)} bytes, the most that is read of one document" in str(error)


async def test_a_stream_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"model": "m", "message": {"role": "assistant", "content": "x"}, "done": false}\n'
    whole = 20 * line + said()
    assert _http.MAX_STREAM_BYTES == 16_777_216
    monkeypatch.setattr(_http, "MAX_STREAM_BYTES", len(whole))
    async with answering(whole) as host:
        backend = OllamaBackend("llama3.2", host=host)
        assert (await backend.chat(REQUEST)).text == "x" * 20 + "Hm."
    async with answering(b"\n" + whole) as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert f"sent more than {len(whole):,} bytes, the most that is read of a stream" in str(error)


async def test_what_a_model_says_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"model": "m", "message": {"role": "assistant", "content": "x"}, "done": false}\n'
    assert _http.MAX_TEXT_CHARS == 1_048_576
    monkeypatch.setattr(_http, "MAX_TEXT_CHARS", 23)
    async with answering(20 * line + said()) as host:
        backend = OllamaBackend("llama3.2", host=host)
        assert (await backend.chat(REQUEST)).text == "x" * 20 + "Hm."
    async with answering(21 * line + said()) as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, False)
    assert "wrote 24 characters; 23 are the most that is read of a reply" in str(error)


async def test_of_a_large_error_only_the_beginning_is_read() -> None:
    body = b"<html>" + b"x" * 5_000_000
    async with answering(body, status="502 Bad Gateway") as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 502, True)
    assert len(str(error)) < 700


async def test_a_streams_lines_are_handed_on_as_they_come() -> None:
    seen: list[str] = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in (b"on", b"e\ntwo\nth", b"ree"):
                seen.append(f"sent {chunk!r}")
                yield chunk

    response = httpx.Response(200, stream=Body())
    async for line in _http.Transport("http://x.test", "it").lines(response):
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
    [
        "[" * 100_000 + "]" * 100_000,
        "[" * 300 + "]" * 300,
        "NaN",
        "-Infinity",
        "1e999",
        "9" * 5000,
        "9" * 400,
        '"\\ud800"',
        "[" + "0," * 49_990 + "0]",
    ],
    ids=[
        "deep",
        "nested",
        "nan",
        "infinity",
        "1e999",
        "5000 digits",
        "400 digits",
        "surrogate",
        "many",
    ],
)
async def test_json_that_is_not_sound_is_the_servers_fault(value: str) -> None:
    call = f'{{"function": {{"name": "f", "arguments": {{"x": {value}}}}}}}'
    body = said(f'{{"role": "assistant", "content": "", "tool_calls": [{call}]}}')
    async with answering(body) as host:
        error = await failure(host)
    assert (error.reason, error.status_code, error.retry) == ("server_error", 200, True)
    assert "not valid JSON of Ollama's form" in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1e999", "it has a number that needs more than 64 bits"),
        (str(2**64), "it has a number of 20 digits"),
        (str(-(2**63) - 1), "it has a number of 19 digits"),
        ("[" + "0," * 49_999 + "0]", "it has more than 50,000 values"),
    ],
)
def test_json_beyond_a_limit_is_rejected_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        _http.read_json(text)


def test_json_at_the_limits_is_read() -> None:
    numbers = [2**64 - 1, -(2**63), *[0] * 49_997]
    assert _http.read_json(json.dumps(numbers)) == numbers


@pytest.mark.parametrize(
    "counts",
    [
        '"eval_count": -1',
        '"eval_count": true',
        '"eval_count": "12"',
        '"prompt_eval_count": 1.5',
        '"prompt_eval_count": 1000000001',
        '"load_duration": -1',
        '"load_duration": 1000000000000000001',
    ],
)
async def test_a_count_is_a_whole_number_within_reason(counts: str) -> None:
    async with answering(said(counts=f", {counts}")) as host:
        error = await failure(host)
    assert (error.reason, error.retry) == ("server_error", True)
    name, value = counts.replace('"', "").split(": ")
    assert f"{name} is " in str(error)
    assert value.title() in str(error).replace("'", "").title()


async def test_a_line_may_hold_what_ends_lines_elsewhere() -> None:
    async with answering(said('{"role": "assistant", "content": "a\x85b\u2028c"}')) as host:
        backend = OllamaBackend("llama3.2", host=host)
        assert (await backend.chat(REQUEST)).text == "a\x85b\u2028c"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("context_length", {"model_info": {"llama.context_length": True}}),
        ("version", {"version": 5}),
    ],
)
async def test_details_that_make_no_sense_are_not_understood(path: str, value: Any) -> None:
    sound = {"version": "0.32.15", "models": [], "model_info": {}}
    async with answering(json.dumps(sound | value).encode()) as host:
        backend = OllamaBackend("llama3.2", host=host)
        with pytest.raises(BackendError, match=f"not valid JSON of Ollama's form.*{path}"):
            await backend.model_info()


# Words


def texts(error: BaseException | None) -> str:
    """Return what a traceback shows of an error and all behind it."""
    found = []
    while error is not None:
        found.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(found)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("500 Internal Server Error", json.dumps({"error": EVIL})),
        ("500 Internal Server Error", json.dumps({"error": json.dumps({"error": EVIL})})),
        ("500 Internal Server Error", json.dumps({"error": {"message": EVIL}})),
        ("502 Bad Gateway", EVIL),
        ("400 Bad Request", json.dumps({"error": EVIL})),
        ("429 Too Many Requests", json.dumps({"error": EVIL})),
    ],
)
async def test_an_errors_text_has_nothing_that_a_terminal_obeys(status: str, body: str) -> None:
    async with answering(body.encode(), status=status) as host:
        error = await failure(host)
    assert error.status_code == int(status[:3])
    assert TAME in str(error)
    assert texts(error).replace("\n", "").isprintable()


@pytest.mark.parametrize("text", [EVIL, json.dumps({"error": EVIL}), {"message": EVIL}])
async def test_nor_has_an_error_in_a_stream(text: Any) -> None:
    # A letter of the name is escaped, as JSON allows.
    body = json.dumps({"error": text}).replace("error", "\\u0065rror", 1)
    async with answering(body.encode() + b"\n") as host:
        error = await failure(host)
    assert (error.reason, TAME in str(error)) == ("server_error", True)
    assert texts(error).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "body",
    [b"[1]", b"12", b"[" * 60_000, json.dumps({"error": '{"error": ' + "[" * 60_000}).encode()],
    ids=["list", "number", "deep", "deep within"],
)
async def test_an_error_that_is_not_an_object_keeps_its_status(body: bytes) -> None:
    async with answering(body, status="503 Service Unavailable") as host:
        error = await failure(host)
    assert (error.reason, error.status_code) == ("server_error", 503)


@pytest.mark.parametrize("text", ["[" * 60_000, "[1]", "12"])
async def test_an_error_line_is_reported_whatever_it_looks_like(text: str) -> None:
    async with answering(json.dumps({"error": text}).encode() + b"\n") as host:
        error = await failure(host)
    assert f"failed on 'llama3.2': {text[:20]}" in str(error)


async def test_an_overflow_with_numbers_that_are_none_still_names_the_window() -> None:
    told = {"type": "exceed_context_size_error", "n_prompt_tokens": EVIL, "n_ctx": EVIL}
    async with answering(json.dumps({"error": told}).encode(), status="400 Bad Request") as host:
        error = await failure(host)
    assert error.reason == "context_overflow"
    assert "the prompt has 14 characters, more than num_ctx=4096" in str(error)
    assert str(error).isprintable()


async def test_names_and_versions_are_harmless_as_well() -> None:
    everything = {"version": EVIL, "models": [{"model": EVIL, "digest": EVIL}], "model_info": {}}
    everything["capabilities"] = [EVIL, "completion"]
    async with answering(json.dumps(everything).encode()) as host:
        backend = OllamaBackend("llama3.2", host=host)
        info = await backend.model_info()
        [model] = await backend.list_models()
        found = await asyncio.to_thread(look, host)
        with pytest.raises(ConfigError) as caught:
            await asyncio.to_thread(connect, "ollama:nope", host=host)
    assert (info.version, info.capabilities) == (TAME, (TAME, "completion"))
    assert (model.name, model.digest) == (TAME, TAME)
    assert (found.version, found.models, found.model) == (TAME, (TAME,), TAME)
    assert str(caught.value).isprintable()


# TLS


async def test_https_to_a_plain_port_says_what_to_write() -> None:
    async with answering(b"", status="400 Bad Request") as host:
        https = host.replace("http:", "https:")
        error = await failure(https)
        with pytest.raises(ConfigError, match=f"if it speaks plain http.* write {host}"):
            await asyncio.to_thread(connect, "ollama", host=https)
    assert (error.reason, error.retry) == ("connection_error", False)
    assert f"{https} does not answer in TLS" in str(error)
    assert str(error).endswith(f"write {host}")


async def test_https_to_a_plain_port_that_waits_says_it_too() -> None:
    with FakeOllama() as server:
        https = server.host.replace("http:", "https:")
        with pytest.raises(BackendError, match="nothing answered in time") as caught:
            await asyncio.to_thread(look, https, timeout_s=0.1)
    assert str(caught.value).endswith(f"if it speaks plain http, write {https.replace('s:', ':')}")


def lost(error: httpx.TransportError) -> BackendError:
    backend = OllamaBackend(host="https://gpu-box:443")
    with pytest.raises(BackendError) as caught, backend.server.translated():
        raise error
    return caught.value


def test_a_connection_that_breaks_later_is_not_taken_for_a_fault_of_tls() -> None:
    broken = httpx.ReadError("gone")
    broken.__context__ = ssl.SSLWantReadError()
    error = lost(broken)
    assert str(error) == "the connection to Ollama at https://gpu-box:443 broke: gone"
    assert error.retry


def test_a_certificate_that_is_not_trusted_is_named_as_such() -> None:
    refused = httpx.ConnectError("")
    refused.__cause__ = fault = ssl.SSLCertVerificationError()
    fault.verify_message = "self-signed certificate"
    error = lost(refused)
    assert "not trusted (self-signed certificate)" in str(error)
    assert "SSL_CERT_FILE" in str(error)
    assert not error.retry


async def test_https_where_nobody_listens_says_it_as_well() -> None:
    error = await failure("https://127.0.0.1:9")
    assert "no Ollama server answers at https://127.0.0.1:9" in str(error)
    assert str(error).endswith("if it speaks plain http, write http://127.0.0.1:9")
