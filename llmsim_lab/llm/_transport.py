"""Checks of every server's answer before a client reads it.

A prompt goes only where its user sent it, so redirects are not followed. Nothing is decompressed,
and nothing is read beyond a limit. The limits also bound how long parsing an answer blocks the
event loop; a thread would not help, since the parsers hold Python's lock for a whole document.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import httpx
from pydantic_core import from_json

from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import BackendError
from llmsim_lab.types import OnText

MAX_REPLY_BYTES = 2**20
"""Of one document, and of one line of a stream: more than models write."""
MAX_STREAM_BYTES = 16 * 2**20
"""Of a streamed reply, which needs some 150 bytes for each token."""
MAX_TEXT_CHARS = 2**20
"""Of a streamed reply's text; all of it is parsed at once."""
MAX_ERROR_BYTES = 64 * 2**10
"""What is read of the body of an error; the rest is left."""
MAX_VALUES = 50_000
"""In one JSON document; a list of a thousand models has fewer."""
MAX_TOKENS = 10**9
"""What a server may report as a number of tokens."""
STREAMED: dict[str, Any] = {"streamed": True}
"""An httpx request's ``extensions`` where the reply is passed on line by line."""

_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**64 - 1


def read_json(text: str | bytes) -> Any:
    """Return the value of a server's JSON text.

    Raises:
        ValueError: it is not JSON (``NaN`` is not either), is nested more than 200 deep, has more
            than ``MAX_VALUES`` values, or a number that needs more than 64 bits.
    """
    value = from_json(text, allow_inf_nan=False)
    # Without recursion, since the server chooses how deep it goes.
    waiting, values = [value], 1
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            continue
        if isinstance(item, dict | list):
            values += len(item)
            if values > MAX_VALUES:
                raise ValueError(f"it has more than {MAX_VALUES:,} values")
            waiting.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise ValueError("it has a number that needs more than 64 bits")
        elif isinstance(item, int) and not _LEAST_INTEGER <= item <= _LARGEST_INTEGER:
            raise ValueError(f"it has a number of {len(str(abs(item)))} digits")
    return value


def count(value: object, name: str, *, most: int = MAX_TOKENS) -> int | None:
    """Return a count as a server reported it; None where it did not.

    Raises:
        ValueError: it is not a whole number from 0 to ``most``.
    """
    # The type itself, since ``True`` is an int and pydantic would take it for 1.
    if value is None or (type(value) is int and 0 <= value <= most):
        return value
    raise ValueError(
        f"{name} is {clip(repr(value), 60)}, which is not a whole number from 0 to {most:,}"
    )


def check_length(chars: int, *, who: str) -> None:
    """Raise BackendError if a streamed reply has more text than is read of one."""
    if chars > MAX_TEXT_CHARS:
        raise BackendError(
            f"{who} wrote {chars:,} characters; {MAX_TEXT_CHARS:,} are the most that is read of a "
            "reply: lower max_tokens",
            reason="server_error",
            status_code=200,
        )


async def lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream that comes in blocks of whole lines, without their ends.

    Not by ``splitlines``, as httpx does: JSON may have other ends of lines in it, such as U+2028.
    """
    async for block in blocks:
        for line in block.split(b"\n"):
            yield line.strip()


class Telling:
    """Passes on what a server streams; thinking that it separates goes between ``<think>`` tags.

    Args:
        on_text: is given each piece; None if nobody wants them.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._thinking = False

    def __call__(self, text: str, thinking: str = "") -> None:
        """Pass on a piece."""
        if self._on_text is None or not (text or thinking):
            return
        piece = ""
        if thinking:
            piece = thinking if self._thinking else f"<think>{thinking}"
            self._thinking = True
        if text and self._thinking:
            piece += "</think>"
            self._thinking = False
        self._on_text(piece + text)


def is_framed(response: httpx.Response) -> bool:
    """Return True if a response says where it ends.

    If it does not, a connection that breaks looks like the end.
    """
    return bool({"content-length", "transfer-encoding"} & response.headers.keys())


def error_text(text: str) -> str:
    """Return a server's explanation without characters that control a terminal."""
    return printable(text[:MAX_ERROR_BYTES], keep="\n").strip()


def unwrapped(error: Any) -> tuple[str, dict[str, Any]]:
    """Return the innermost text of an error that a server reports, and all that comes with it.

    Servers have it bare, under several names, and as JSON within JSON. Of what several objects
    say, the innermost counts: it comes from whoever failed, and others pass it on.
    """
    details: dict[str, Any] = {}
    while True:
        if isinstance(error, str) and error.lstrip().startswith("{"):
            with suppress(ValueError):
                error = read_json(error)
        if not isinstance(error, dict):
            text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
            return text.strip(), details
        details |= {name: value for name, value in error.items() if value is not None}
        inner = (error[name] for name in ("error", "message", "detail") if error.get(name))
        if (found := next(inner, None)) is None:
            return json.dumps(error, ensure_ascii=False), details
        error = found


class OuterTransport(httpx.AsyncBaseTransport):
    """A transport around another one, which makes the requests."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Blocks(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response, blocks: AsyncIterator[bytes]) -> None:
        self._response = response
        self._blocks = blocks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._blocks

    async def aclose(self) -> None:
        await self._response.aclose()


def streamed(
    response: httpx.Response, change: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
) -> httpx.Response:
    """Return a response whose body is changed block by block as it is read."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=_Blocks(response, change(_chunks(response))),
        extensions=response.extensions,
    )


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for chunk in response.stream:
        yield chunk


class GuardedTransport(OuterTransport):
    """Lets through only uncompressed answers of a bounded size, and no redirects.

    Answers are read whole, but for those to requests with ``extensions=STREAMED``: they come in
    blocks of whole lines.

    Args:
        inner: makes the requests.
        who: the server, for messages.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, who: str) -> None:
        super().__init__(inner)
        self._who = who

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request.

        Raises:
            BackendError: the answer redirects, is compressed, or is too large.
        """
        # Decompressed, a small answer may have gigabytes.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        try:
            self._check_head(request, response)
            if request.extensions.get("streamed") and response.is_success:
                return streamed(response, self._whole_lines)
            content = await self._whole(response)
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        return httpx.Response(response.status_code, headers=response.headers, content=content)

    def _check_head(self, request: httpx.Request, response: httpx.Response) -> None:
        if response.has_redirect_location:
            raise BackendError(
                f"{self._who} redirects to {_target(request, response)}, which is not followed: "
                "prompts go only to the address given; if that is the right one, give it instead",
                reason="client_error",
                status_code=response.status_code,
            )
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            raise BackendError(
                f"{self._who} sent a compressed reply ({clip(printable(encoding), 40)}) although "
                "asked not to, and it is not decompressed; turn compression off there, or in the "
                "proxy in between",
                reason="server_error",
                status_code=response.status_code,
            )

    async def _whole(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for chunk in _chunks(response):
            content += chunk
            if response.is_error and len(content) >= MAX_ERROR_BYTES:
                break
            if len(content) > MAX_REPLY_BYTES:
                raise self._too_large(response.status_code, MAX_REPLY_BYTES)
        return bytes(content[:MAX_ERROR_BYTES] if response.is_error else content)

    async def _whole_lines(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield an answer's body in blocks of whole lines, within the limits."""
        waiting, total = bytearray(), 0
        async for chunk in chunks:
            total += len(chunk)
            waiting += chunk
            # Searched in the new bytes only: with a long line in many pieces, searching all of them
            # each time would take quadratic time.
            end = waiting.rfind(b"\n", len(waiting) - len(chunk)) + 1
            if total > MAX_STREAM_BYTES:
                raise self._too_large(200, MAX_STREAM_BYTES)
            if max(end, len(waiting) - end) > MAX_REPLY_BYTES:
                raise self._too_large(200, MAX_REPLY_BYTES)
            if end:
                yield bytes(waiting[:end])
                del waiting[:end]
        if waiting:
            yield bytes(waiting)

    def _too_large(self, status: int, limit: int) -> BackendError:
        what = "a streamed reply" if limit == MAX_STREAM_BYTES else "one document or line"
        return BackendError(
            f"{self._who} sent more than {limit:,} bytes, the most that is read of {what}; "
            "lower max_tokens, or see what answers at that address",
            reason="server_error",
            status_code=status,
        )


def _target(request: httpx.Request, response: httpx.Response) -> str:
    """Return where a redirect leads, without path and password."""
    try:
        url = request.url.join(response.headers["location"])
        return clip(printable(f"{url.scheme}://{url.netloc.decode()}"), 200)
    except (httpx.InvalidURL, ValueError):
        return "an address that makes no sense"
