"""Keys and passwords: in no error, none of its frames' local variables, and no pickle."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OpenAIBackend, connect
from llmsim_lab.models import PolicyDecision

KEY = "sk-secret-0123456789"
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "Hm"}}]}\n\n'


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
    """Serve one answer, then close the connection; without one, keep it waiting."""

    answering = set[asyncio.Task[None] | None]()

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if not answer:
                await reader.read()
            writer.write(answer)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await asyncio.gather(*filter(None, answering))


ANSWERS = [
    (b"nonsense\r\n\r\n", "connection_error"),
    (HEAD % b"200 OK" + b"Content-Length: 900\r\n\r\n" + EVENT, "connection_error"),
    (HEAD % b"200 OK" + b"Content-Length: 4\r\n\r\nnull", "server_error"),
    (HEAD % b"307 Away" + b"Location: http://127.0.0.1:9/\r\n\r\n", "client_error"),
    (HEAD % b"401 No" + b"Content-Length: 20\r\n\r\n" + KEY.encode(), "client_error"),
    (HEAD % b"200 OK" + b"Content-Length: 23\r\n\r\n" + b'data: {"error": "full"}', "server_error"),
    (HEAD % b"500 Oops" + b"X-Key: " + KEY.encode() + b"\r\n\r\n", "server_error"),
]


@pytest.mark.parametrize(("answer", "reason"), [(b"", "timeout"), *ANSWERS])
async def test_the_key_is_not_in_what_a_failed_call_leaves(answer: bytes, reason: str) -> None:
    async with serving(answer) as url:
        backend = OpenAIBackend("m", base_url=url, api_key=KEY)
        config = LLMConfig(model="m", timeout_s=30 if answer else 0.3, retry_wait_s=0)
        client = LLMClient(config, backend=backend)
        with pytest.raises(LLMFailureException) as caught:
            await client.call_with_retry(prompt="And?", response_model=PolicyDecision)
        await client.aclose()
    assert caught.value.reason == reason
    assert KEY not in everything(caught.value)
    assert KEY.encode() not in pickle.dumps(caught.value)


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
        ("openai:m", {"key": KEY}),
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key=KEY)
    pickled = pickle.dumps(backend)
    assert KEY.encode() not in pickled
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-other-process")
    there = pickle.loads(pickled)
    assert (there._model, there.base_url) == ("m", "http://127.0.0.1:9/v1")
    secret = await there._secret()
    assert secret.get_secret_value() == "sk-of-the-other-process"
