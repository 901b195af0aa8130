"""An Ollama server's JSON, checked before the official client reads it.

That client parses with no limit of depth or size of numbers, takes ``true`` for a count of 1, and
puts the server's words into exceptions as they are. So it is given JSON that was read already.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from llmsim_lab.llm.transport import MAX_TOKENS, count, error_text, read_json

__all__ = ["CheckedTransport"]

_MAX_NANOSECONDS = 10**18
_COUNTS = {
    "prompt_eval_count": MAX_TOKENS,
    "eval_count": MAX_TOKENS,
    "total_duration": _MAX_NANOSECONDS,
    "load_duration": _MAX_NANOSECONDS,
    "prompt_eval_duration": _MAX_NANOSECONDS,
    "eval_duration": _MAX_NANOSECONDS,
}


class CheckedTransport(httpx.AsyncBaseTransport):
    """Hands on answers whose JSON is sound; an error's text is made harmless.

    Args:
        inner: makes the requests and bounds the answers, as ``GuardedTransport`` does.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request.

        Raises:
            ValueError: the answer is not sound JSON, or a count in it is not a count.
        """
        response = await self._inner.handle_async_request(request)
        if response.is_error:
            return httpx.Response(
                response.status_code,
                headers={"Retry-After": response.headers.get("retry-after", "")},
                json={"error": _explanation(response.content)},
            )
        if request.extensions.get("streamed") and response.is_success:
            return httpx.Response(
                response.status_code,
                headers=response.headers,
                stream=_Lines(response),
                extensions=response.extensions,
            )
        return _Document(response.status_code, _checked(response.content))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Document(httpx.Response):
    """An answer whose JSON was read already."""

    def __init__(self, status_code: int, value: Any) -> None:
        super().__init__(status_code)
        self._value = value

    def json(self, **_: Any) -> Any:
        """Return what the answer says."""
        return self._value


class _Lines(httpx.AsyncByteStream):
    """A streamed answer, each line read, checked and written anew."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        async for block in self._response.stream:
            lines = [_checked_line(line) for line in block.split(b"\n") if line.strip()]
            if lines:
                yield b"\n".join(lines) + b"\n"

    async def aclose(self) -> None:
        await self._response.aclose()


def _checked_line(line: bytes) -> bytes:
    value = _checked(line)
    # In ASCII, since the client also ends lines at characters that JSON may hold as they are.
    as_it_is = line.isascii() and isinstance(value, dict) and "error" not in value
    return line if as_it_is else json.dumps(value).encode()


def _checked(content: bytes) -> Any:
    value = read_json(content)
    if not isinstance(value, dict):
        return value
    for name in _COUNTS.keys() & value.keys():
        count(value[name], name, most=_COUNTS[name])
    if value.get("error"):
        # The client looks for JSON within the text, so what it finds there is ours.
        value["error"] = json.dumps({"error": _text(value["error"])})
    return value


def _explanation(content: bytes) -> str:
    try:
        value = read_json(content)
    except ValueError:
        value = None
    if isinstance(value, dict) and "error" in value:
        return _text(value["error"])
    return error_text(content.decode(errors="replace"))


def _text(error: Any) -> str:
    return error_text(error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
