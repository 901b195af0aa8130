"""Keys and passwords: in no error, none of its frames' local variables, and no pickle."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest
from client_kit import Served
from worlds import PublicGoods

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, OpenAIBackend, connect
from llmsim_lab.models import PolicyDecision
from llmsim_lab.types import ChatRequest, Message

KEY = "sk-secret-0123456789"
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those behind it, also those that tracebacks leave out."""
    waiting, seen = [error], set[int]()
    while waiting:
        if (one := waiting.pop()) is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def everything(error: BaseException) -> str:
    """Return all that tools for debugging show of an error, but for this file's own frames."""
    texts = []
    for one in chain(error):
        texts += [repr(one), str(one), repr(getattr(one, "__dict__", None))]
        at = one.__traceback__
        while at is not None:
            if at.tb_frame.f_code.co_filename != __file__:
                held = at.tb_frame.f_locals
                texts += map(repr, held.items())
                # httpx shows a request without its headers, but they are there.
                sent = (one.headers for one in held.values() if isinstance(one, httpx.Request))
                texts += [headers.get("authorization", "") for headers in sent]
            at = at.tb_next
    return "\n".join(texts)


@asynccontextmanager
async def serving(answer: bytes) -> Any:
    """Serve an answer to each request, then close the connection; without one, keep it waiting.

    In the answer ``AUTH`` stands for what the request showed, ``HALF`` for its first eight bytes,
    ``REST`` for the others, and ``FORMS`` for how else servers write it.
    """

    answering = set[asyncio.Task[None] | None]()

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if not answer:
                await reader.read()
            shown = head.partition(b"uthorization: ")[2].partition(b"\r\n")[0].partition(b" ")[2]
            login = base64.b64decode(shown) if b"Basic" in head else shown
            forms = [quote(login, safe=""), quote_plus(login), base64.b64encode(login).decode()]
            forms += [html.escape(login.decode()), json.dumps(login.decode())[1:-1].upper()]
            written = answer.replace(b"AUTH", shown).replace(b"HALF", shown[:8])
            written = written.replace(b"REST", shown[8:]).replace(
                b"FORMS", " ".join(forms).encode()
            )
            if b"/api/version" in head:
                written = HEAD % b"200 OK" + b'Content-Length: 20\r\n\r\n{"version":"0.32.1"}\n'
            writer.write(written)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*filter(None, answering))


OK = HEAD % b"200 OK"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = OK + b"Connection: close\r\n\r\n"
LONG = b"x" * 480
ANSWERS: list[tuple[bytes, str]] = [
    (b"", "timeout"),
    (b"nonsense\r\n\r\n", "connection_error"),
    (b"BAD AUTH\r\n\r\n", "connection_error"),
    (OK + b"Bad AUTH\r\n\r\n", "connection_error"),
    (b"HTTP/1.1 200 AUTH FORMS\r\nX-Key: AUTH\r\n\r\n[AUTH]", "server_error"),
    (CHUNKED + b"AUTH\r\n\r\n", "connection_error"),
    (CHUNKED + b"2\r\n{}\r\n0\r\nAUTH\r\n\r\n", "connection_error"),
    (OK + b'Content-Length: 900\r\n\r\n{"AUTH', "connection_error"),
    (WHOLE + b"null", "server_error"),
    (WHOLE + b'data: {"error": "AUTH"}\n{"error": "AUTH FORMS"}', "server_error"),
    (WHOLE + b'data: {"choices": "' + LONG[:40] + b'AUTH"}', "server_error"),
    (HEAD % b"307 Away" + b"Location: http://127.0.0.1:9/AUTH\r\n\r\n", "client_error"),
    (HEAD % b"302 X" + b"Location: /" + LONG[:160] + b"FORMS\r\n\r\n", "client_error"),
    (HEAD % b"401 No" + b"\r\n" + LONG + b"AUTH FORMS", "client_error"),
    (HEAD % b"422 No" + b'\r\n{"error": {"message": "No AUTH", "param": "AUTH"}}', "client_error"),
    (HEAD % b"500 AUTH" + b"X-Key: AUTH\r\n\r\nAUTH\x00FORMS", "server_error"),
]
SECRETS = [KEY, 'se/cret&"9', "ann:se", base64.b64encode(b'ann:se/cret&"9').decode()]


def secret_in(text: str) -> bool:
    """Return True if a text has a part of one of the secrets, in one of the usual forms."""
    parts = [KEY[:12], "se/cret", "se%2Fcret", "se%2fcret", "SE/CRET", SECRETS[-1][:12]]
    return any(part in text for part in parts)


BACKENDS: dict[str, Callable[[str], Any]] = {
    "openai": lambda at: OpenAIBackend("m", base_url=f"http://{at}/v1", api_key=KEY),
    "ollama": lambda at: OllamaBackend("m", host=at, key=KEY),
    "password": lambda at: OllamaBackend("m", host=f"ann:se%2Fcret&%229@{at}"),
}


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize(("answer", "reason"), ANSWERS)
async def test_a_secret_is_not_in_what_a_failed_call_leaves(
    answer: bytes, reason: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(answer) as at:
        backend = BACKENDS[kind](at)
        config = LLMConfig(model="m", first_piece_s=30 if answer else 0.1, retry_wait_s=0)
        client = LLMClient(config, backend=backend)
        with pytest.raises(LLMFailureException) as caught:
            await client.call_with_retry(prompt="And?", response_model=PolicyDecision)
    assert caught.value.reason == reason
    assert not secret_in(everything(caught.value))
    assert not secret_in(pickle.dumps(caught.value).decode("latin-1"))
    assert not secret_in(caplog.text + repr(client) + repr(vars(backend)))


async def test_a_key_that_comes_in_pieces_is_not_in_what_is_shown_meanwhile() -> None:
    seen: list[str] = []
    dotted = "\u0130" * 40  # of which each is two letters in lower case
    pieces = [*"I say: sk-", "x", " HALF", *"-no ", "HALF", "REST", " and AUTH."]
    pieces += [dotted, "HALF", "REST", "HA"]
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    async with serving(WHOLE + "".join([*lines, "data: [DONE]\n\n"]).encode()) as at:
        asked = ChatRequest(model="m", messages=(Message("user", "And?"),))
        reply = await BACKENDS["openai"](at).chat(asked, on_text=seen.append)
    assert reply.text == f"I say: sk-x {KEY[:8]}-no *** and ***.{dotted}***HA"
    assert "".join(seen) == reply.text


def test_a_reply_that_repeats_the_key_has_it_neither_in_the_run_nor_on_the_tape(
    tmp_path: Path,
) -> None:
    pieces = [
        {"reasoning_content": "AUTH"},
        {"content": '{"reasoning": "AUTH HALF'},
        {"content": 'REST", "amount": 1, "confidence": 1}'},
    ]
    events = [{"choices": [{"delta": piece}]} for piece in pieces]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    stream = "".join([*lines, "data: [DONE]\n\n"]).encode()

    async def played() -> PublicGoods:
        async with serving(WHOLE + stream) as at:
            client = LLMClient(LLMConfig(model="m"), BACKENDS["openai"](at))
            world = PublicGoods(llm_client=client, tape=tmp_path / "x.tape")
            await world.arun(1, progress=False)
            return world

    world = asyncio.run(played())
    assert world.calls[0].reply.text.startswith('{"reasoning": "*** ***"')
    assert not secret_in((tmp_path / "x.tape").read_text())
    assert not secret_in(world.page(tmp_path / "x.html").read_text())


@pytest.mark.parametrize("value", [f"{KEY}\nX-Other: yes", f"{KEY} …"])
async def test_what_a_function_returns_in_place_of_a_key_is_not_in_the_error(value: str) -> None:
    backend = OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key=lambda: value)
    with pytest.raises(LLMFailureException, match="characters that no key has") as caught:
        await LLMClient(LLMConfig(model="m"), backend=backend).call_with_retry(
            prompt="And?", response_model=PolicyDecision
        )
    assert KEY not in everything(caught.value)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("openai:m", {"base_url": f"https://127.0.0.1:9/v1?api_key={KEY}"}),
        ("openai:m", {"base_url": f"https://me:{KEY}@127.0.0.1:9/v1"}),
        ("openai:m", {"base_url": "http://127.0.0.1:9/v1", "api_key": KEY}),
        ("openai:m", {"base_url": "http://127.0.0.1:9/v1", "api_key": f"{KEY} …"}),
        ("openai:m", {"kee": KEY}),
        ("ollama", {"host": "http://127.0.0.1:9", "key": KEY}),
        ("ollama", {"host": "127.0.0.1:9", "key": f"{KEY} …"}),
        (f"https://me:{KEY}@127.0.0.1:9/v1", {}),
        ("ollama", {"host": f"http://127.0.0.1:9?api_key={KEY}"}),
        ("ollama", {"host": f"http://me:{KEY}@127.0.0.1:9"}),
        ("ollama:m", {"base_url": f"http://127.0.0.1:9/v1?api_key={KEY}"}),
        ("openai:m", {"api_key": KEY, "temprature": 1}),
        ("auto", {"host": f"http://127.0.0.1:9?api_key={KEY}"}),
    ],
)
def test_connect_has_no_key_or_password_in_its_errors(model: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(model, **settings)
    assert KEY not in everything(caught.value)


async def test_a_pickled_backend_takes_the_key_of_where_it_arrives(
    monkeypatch: pytest.MonkeyPatch, says: Served
) -> None:
    backend = OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key=KEY)
    pickled = pickle.dumps(backend)
    assert KEY.encode() not in pickled
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-other-process")
    there = pickle.loads(pickled)
    says(b"", 401)
    with pytest.raises(BackendError):
        await there.names()
    [request] = says.requests
    assert str(request.url) == "http://127.0.0.1:9/v1/models"
    assert request.headers["authorization"] == "Bearer sk-of-the-other-process"
