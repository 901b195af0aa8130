"""Servers without a socket, which give every request the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let all servers give one answer, or raise an error, until they are told another.

    An Ollama's version is a new one, unless the answer has one.
    """
    now: dict[str, Any] = {}

    def handle(request: httpx.Request) -> httpx.Response:
        body = now["body"]
        if isinstance(body, Exception):
            raise body
        if request.url.path == "/api/version" and b"version" not in body:
            return httpx.Response(200, json={"version": "0.32.15"})
        return httpx.Response(now["status"], headers=now["headers"], stream=httpx.ByteStream(body))

    def answer(body: bytes | Exception, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        now.update(body=body, status=status, headers=named)

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(handle))
    return answer
