"""The server side of HTTP/1.1, for one connection: requests in, answers out, framed as Go does it.

Written by hand, since tests need what no library does: answers that break off at a given byte.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

SMALL = 2048
"""Bodies up to this many bytes get a Content-Length, longer ones are chunked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One HTTP answer.

    Attributes:
        status: the status code.
        headers: all but Date and those about framing.
        chunks: the body, in the pieces it is sent in.
        chunked: True to send even a short body as chunks.
        cut: drop the connection after the chunks (before anything, if there are none).
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    chunked: bool = False
    cut: bool = False


def dumps(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _head(response: Response, framing: str) -> bytes:
    reason = HTTPStatus(response.status).phrase
    lines = [f"HTTP/1.1 {response.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    lines += [f"Date: {formatdate(usegmt=True)}", framing]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Connection(asyncio.Protocol):
    """One client's connection; the work on a request ends when its client goes away."""

    def __init__(
        self, answer: Callable[[Request], Awaitable[Response]], open_ones: set[Connection]
    ) -> None:
        self._answer = answer
        self._open_ones = open_ones
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back to the client."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(self)

    def data_received(self, data: bytes) -> None:
        """Collect bytes; start on a request once it is whole."""
        self._buffer += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop working for a client that has gone."""
        self._open_ones.discard(self)
        if self._task:
            self._task.cancel()

    def abort(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def _next(self) -> None:
        # One at a time: a client may send the next request before it has this one's answer.
        if self._task is None and (request := self._take_request()):
            self._task = asyncio.get_running_loop().create_task(self._serve(request))

    def _take_request(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *rest = self._buffer[:end].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        if len(self._buffer) < end + 4 + length:
            return None
        content = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        # With spaces after it also a line that lacks something has three parts.
        method, target, _ = (first + "  ").split(" ", 2)
        return Request(
            method=method, path=target.partition("?")[0], headers=headers, content=content
        )

    async def _serve(self, request: Request) -> None:
        try:
            response = await self._answer(request)
        except BaseException:
            self._transport.abort()
            raise
        if response.cut and not response.chunks and not response.chunked:
            self._transport.abort()
            return
        await self._send(response)
        self._task = None
        if response.cut or request.headers.get("connection", "").lower() == "close":
            self._transport.close()
        else:
            self._next()

    async def _send(self, response: Response) -> None:
        write = self._transport.write
        size = sum(map(len, response.chunks))
        if not response.chunked and size <= SMALL:
            # Twice as many bytes as will come: so the client notices that the connection was cut.
            declared = size * (2 if response.cut else 1)
            write(_head(response, f"Content-Length: {declared}") + b"".join(response.chunks))
        else:
            write(_head(response, "Transfer-Encoding: chunked"))
            for chunk in response.chunks:
                write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await asyncio.sleep(0)  # so that chunks leave one by one, as from a model
            write(b"" if response.cut else b"0\r\n\r\n")
