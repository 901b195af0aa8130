"""One fault is the same failure, in the same words, whichever server it comes from."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import BackendError, FailureReason
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.llm._embedded.wire import extend
from llmsim_lab.types import ChatRequest, Message

ASKED = ChatRequest(
    model="m", messages=(Message("user", "Hello"),), options={"num_ctx": 4096, "num_predict": 8}
)
URL = "http://box:1/v1"
Answer = httpx.Response | Exception


def refusal(status: int, text: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": text}}, headers=headers)


FAULTS: dict[str, tuple[Answer, FailureReason, bool, str]] = {
    "refused": (httpx.ConnectError("refused"), "connection_error", True, "no KIND answers at URL"),
    "broke": (
        httpx.ReadError("gone"),
        "connection_error",
        True,
        "connection to WHO broke: gone",
    ),
    "late": (httpx.ConnectTimeout(""), "connection_error", True, "no KIND answers at URL"),
    "redirect": (
        httpx.Response(307, headers={"Location": "http://other/"}),
        *("client_error", False, "WHO redirects to http://other/, which is not followed"),
    ),
    "gzip": (
        httpx.Response(
            200,
            headers={"Content-Encoding": "gzip"},
            stream=httpx.ByteStream(gzip.compress(b" " * 50_000_000, 1)),
        ),
        *("server_error", True, "the answer of URL is not JSON as an KIND sends it"),
    ),
    "large": (
        httpx.Response(200, content=b"x" * 2**21),
        *("server_error", False, "WHO sent more than 1,048,576 bytes"),
    ),
    "deep": (
        httpx.Response(200, content=b"data:" + b"[" * 300 + b"]" * 300),
        *("server_error", True, "the answer of URL is not JSON as an KIND sends it"),
    ),
    "busy": (
        refusal(429, "slow down", **{"Retry-After": "7"}),
        *("rate_limited", True, "WHO limits the rate: slow down"),
    ),
    "down": (refusal(503, "later"), "server_error", True, "WHO failed for 'm': later"),
    "wrong": (refusal(422, "bad"), "client_error", False, "WHO rejects the request for 'm': bad"),
    "terminal": (
        refusal(500, "\x1b[31mred"),
        "server_error",
        True,
        "WHO failed for 'm': [31mred",
    ),
    "empty": (httpx.Response(200, content=b""), "connection_error", True, "before it was done"),
}


def backend_of(kind: str) -> tuple[Any, dict[str, str]]:
    if kind == "ollama":
        backend: Any = OllamaBackend("m", host="http://box:1")
    else:
        backend = OpenAIBackend("m", base_url=URL, extend=extend if kind == "embedded" else None)
    server = backend.server
    return backend, {server.who: "WHO", server.kind: "KIND", server.url: "URL"}


@pytest.mark.parametrize("kind", ["ollama", "openai", "embedded"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_the_same_failure_in_the_same_words(
    kind: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, reason, retry, words = FAULTS[fault]

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/version":
            return httpx.Response(200, json={"version": "0.32.15"})
        if isinstance(answer, Exception):
            raise answer
        stream = httpx.ByteStream(answer.content) if answer.is_stream_consumed else answer.stream
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(handle))
    backend, names = backend_of(kind)
    with pytest.raises(BackendError) as caught:
        await backend.chat(ASKED)
    text = str(caught.value)
    for name, word in names.items():
        text = text.replace(name, word)
    assert words in text
    assert (caught.value.reason, caught.value.retry) == (reason, retry)
    assert caught.value.retry_after_s == (7.0 if fault == "busy" else None)


def said(code: str | None, message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


DOCUMENTED: list[tuple[int, dict[str, Any], FailureReason, bool]] = [
    (401, said("invalid_api_key", "Incorrect API key provided"), "client_error", False),
    (401, said(None, "You must be a member of an organization"), "client_error", False),
    (403, said("unsupported_country_region_territory", "not supported"), "client_error", False),
    (404, said("model_not_found", "The model `m` does not exist"), "model_not_found", False),
    (
        400,
        said("context_length_exceeded", "maximum context length"),
        "context_overflow",
        False,
    ),
    (429, said("rate_limit_exceeded", "Rate limit reached", "requests"), "rate_limited", True),
    (429, said("insufficient_quota", "You exceeded your quota"), "rate_limited", False),
    (500, said(None, "The server had an error", "server_error"), "server_error", True),
    (503, said(None, "The engine is currently overloaded"), "server_error", True),
]
"""OpenAI's error codes: https://platform.openai.com/docs/guides/error-codes, November 2026."""


@pytest.mark.parametrize(("status", "body", "reason", "retry"), DOCUMENTED)
async def test_what_openai_documents_has_one_reason_each(
    status: int,
    body: dict[str, Any],
    reason: FailureReason,
    retry: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/models"):
            return httpx.Response(200, json={"data": [{"id": "other"}]})
        return httpx.Response(status, stream=httpx.ByteStream(json.dumps(body).encode()))

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(handle))
    with pytest.raises(BackendError) as caught:
        await OpenAIBackend("m", base_url=URL).chat(ASKED)
    assert (caught.value.reason, caught.value.retry) == (reason, retry)
    assert caught.value.status_code == status
