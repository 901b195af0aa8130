"""One fault is the same failure, in the same words, whichever server it comes from."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from llmsim_lab.errors import BackendError, FailureReason
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.llm.embedded.wire import extend
from llmsim_lab.types import ChatRequest, Message

ASKED = ChatRequest(
    model="m", messages=(Message("user", "Hello"),), options={"num_ctx": 4096, "num_predict": 8}
)
URL = "http://box:1/v1"
LOST, FAILED, WRONG = "connection_error", "server_error", "client_error"
AWAY, LATER = {"Location": "http://other/"}, {"Retry_After": "7"}
DATED = {"Retry_After": "Sun, 22 Nov 2026 12:00:30 GMT"}
PACKED = {"Content_Encoding": "gzip"}
GZIP = gzip.compress(b" " * 5_000_000, 1)
DEEP = b"data:" + b"[" * 300 + b"]" * 300


def error(text: str) -> bytes:
    return json.dumps({"error": {"message": text}}).encode()


FAULTS: dict[str, tuple[Any, int, dict[str, str], Any, bool, str]] = {
    "refused": (httpx.ConnectError("no"), 200, {}, LOST, True, "no KIND answers at URL"),
    "broke": (httpx.ReadError("gone"), 200, {}, LOST, True, "connection to WHO broke: gone"),
    "late": (httpx.ConnectTimeout(""), 200, {}, LOST, True, "no KIND answers at URL"),
    "empty": (b"", 200, {}, LOST, True, "before it was done"),
    "redirect": (b"", 307, AWAY, WRONG, False, "WHO redirects to http://other/, which is not foll"),
    "gzip": (GZIP, 200, PACKED, FAILED, True, "the answer of URL is not JSON as an KIND sends it"),
    "large": (b"x" * 2**21, 200, {}, FAILED, False, "WHO sent more than 1,048,576 bytes"),
    "deep": (DEEP, 200, {}, FAILED, True, "the answer of URL is not JSON as an KIND sends it"),
    "busy": (error("slow"), 429, LATER, "rate_limited", True, "WHO limits the rate: slow"),
    "dated": (error("slow"), 429, DATED, "rate_limited", True, "WHO limits the rate: slow"),
    "down": (error("later"), 503, {}, FAILED, True, "WHO failed for 'm': later"),
    "wrong": (error("bad"), 422, {}, WRONG, False, "WHO rejects the request for 'm': bad"),
    "origin": (b"", 403, {}, WRONG, False, "request for 'm': no explanation; WAY IN"),
    "terminal": (error("\x1b[31mred"), 500, {}, FAILED, True, "WHO failed for 'm': [31mred"),
}


def backend_of(kind: str) -> Any:
    if kind == "ollama":
        return OllamaBackend("m", host="http://box:1")
    return OpenAIBackend("m", base_url=URL, extend=extend if kind == "embedded" else None)


@pytest.mark.parametrize("kind", ["ollama", "openai", "embedded"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_the_same_failure_in_the_same_words(
    kind: str, fault: str, says: Callable[..., None]
) -> None:
    body, status, headers, reason, retry, words = FAULTS[fault]
    says(body, status, **headers)
    backend = backend_of(kind)
    with pytest.raises(BackendError) as caught:
        await backend.chat(ASKED)
    text = str(caught.value).replace(backend.server.name, "WHO").replace(backend.server.url, "URL")
    text = text.replace(backend.server.if_refused, "WAY IN")
    assert words in text.replace(backend.server.kind, "KIND")
    assert (caught.value.reason, caught.value.retry) == (reason, retry)
    assert caught.value.retry_after_s == (7.0 if fault == "busy" else None)


DOCUMENTED: list[tuple[int, str | None, str, FailureReason, bool]] = [
    (401, "invalid_api_key", "Incorrect API key provided", "client_error", False),
    (401, None, "You must be a member of an organization", "client_error", False),
    (403, "unsupported_country_region_territory", "not supported", "client_error", False),
    (404, "model_not_found", "The model `m` does not exist", "model_not_found", False),
    (400, "context_length_exceeded", "maximum context length", "context_overflow", False),
    (429, "rate_limit_exceeded", "Rate limit reached", "rate_limited", True),
    (429, "insufficient_quota", "You exceeded your quota", "rate_limited", False),
    (500, None, "The server had an error", "server_error", True),
    (503, None, "The engine is currently overloaded", "server_error", True),
]
"""OpenAI's error codes: https://platform.openai.com/docs/guides/error-codes, November 2026."""


@pytest.mark.parametrize(("status", "code", "message", "reason", "retry"), DOCUMENTED)
async def test_what_openai_documents_has_one_reason_each(
    status: int,
    code: str | None,
    message: str,
    reason: FailureReason,
    retry: bool,
    says: Callable[..., None],
) -> None:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    said = {"message": message, "type": kind, "param": None, "code": code}
    says(json.dumps({"error": said}).encode(), status)
    with pytest.raises(BackendError) as caught:
        await OpenAIBackend("m", base_url=URL).chat(ASKED)
    assert (caught.value.reason, caught.value.retry) == (reason, retry)
    assert caught.value.status_code == status
    assert ("api_key" in str(caught.value)) == (status == 401)
