"""Connections to MCP servers that read only so much.

The ``mcp`` library reads a line of a server's standard output for as long as it is, and copies what
it has with each piece; it takes messages and answers of HTTP without end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import IO, Any

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, Process
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from llmsim_lab._util.text import log_event
from llmsim_lab.llm.wire_limits import TooMuchSentError, bound, proxy_url, reading_head

logger = logging.getLogger(__name__)

_MAX_BYTES = 16 * 2**20
"""Of one message: a result with a large picture has some 5 MB."""
_MAX_VALUES = 250_000
"""Of one message, counted by commas and opening brackets: a table of 25,000 rows and ten columns.
As objects of Python's, several times over, they take 300 MB."""
_MAX_MESSAGES = 2_500
"""For each request, and as many more in a minute: a call that tells its progress a hundred times a
second for 25 s."""
_MESSAGES_AN_EXCHANGE = 25
"""As so many messages counts a request of HTTP: an answer to the server, or for a further part."""
_WINDOW_S = 60.0
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_MAX_STDERR_BYTES = 500
_READ_BYTES = 65_536
_PATIENCE_S = 2.0
"""How long a server may take to end, first once its input is closed, then once it is told to."""

Streams = tuple[Any, Any]
"""Of messages, from the server and to it."""


class Received:
    """Counts what a tool server sends.

    Each request to it allows one message of the largest size, and messages beside it; beyond that
    it may send some in a minute, and calls that run at once do not take each other's.

    Attributes:
        fault: what it sent too much of; empty if it did not.
    """

    def __init__(self) -> None:
        self.fault = ""
        self._since = time.monotonic()
        self._bytes = 0
        self._messages = 0

    def allow(self) -> None:
        """Allow what answers a request; not more than two at once, or calls would save it up."""
        self._bytes = max(self._bytes - _MAX_BYTES, -2 * _MAX_BYTES)
        self._messages = max(self._messages - _MAX_MESSAGES, -2 * _MAX_MESSAGES)

    def add(self, size: int = 0, messages: int = 0) -> None:
        """Count what was received.

        Raises:
            TooMuchSentError: there is too much.
        """
        # A connection that is not used for days may be kept open by a word now and then.
        if time.monotonic() - self._since > _WINDOW_S:
            self._since = time.monotonic()
            self._bytes = min(0, self._bytes)
            self._messages = min(0, self._messages)
        self._bytes += size
        self._messages += messages
        if self._bytes > _MAX_BYTES // 2:
            self._end(f"it sent more than {_MAX_BYTES:,} bytes for each request")
        if self._messages > _MAX_MESSAGES:
            self._end(f"it sent more than {_MAX_MESSAGES:,} messages for each request")

    def check(self, size: int, message: bytes = b"") -> None:
        """Compare a message, or its size as far as it is known, with what is read.

        Raises:
            TooMuchSentError: it is too large.
        """
        if size > _MAX_BYTES:
            self._end(f"it sent a message of more than {_MAX_BYTES:,} bytes")
        if has_many_values(message):
            self._end(f"it sent a message of more than {_MAX_VALUES:,} values")

    def _end(self, fault: str) -> None:
        self.fault = fault
        raise TooMuchSentError(fault)


def has_many_values(content: bytes) -> bool:
    """Return True if JSON has more values than are read."""
    # Twice, since to leave out texts, which have commas too, takes longer.
    return _values_in(content) > _MAX_VALUES and (
        _values_in(_STRINGS.sub(b"", content)) > _MAX_VALUES
    )


def _values_in(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


@asynccontextmanager
async def bounded(
    transport: AbstractAsyncContextManager[Streams],
    received: Received,
) -> AsyncIterator[Streams]:
    """Count the messages of a connection, which ends where there are too many."""
    async with transport as (from_server, to_server), anyio.create_task_group() as tasks:
        to_session, messages = anyio.create_memory_object_stream[Any](0)
        requests, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with to_session:
                with suppress(TooMuchSentError, anyio.BrokenResourceError):
                    async for message in from_server:
                        received.add(messages=1)
                        _simplify_outputs(message)
                        await to_session.send(message)

        async def write() -> None:
            async with from_session:
                async for message in from_session:
                    if isinstance(message.message, JSONRPCRequest):
                        received.allow()
                    await to_server.send(message)

        tasks.start_soon(read)
        tasks.start_soon(write)
        async with messages, requests:
            yield messages, requests
        tasks.cancel_scope.cancel()


def _simplify_outputs(message: object) -> None:
    """Leave of the schemas of tools' results the names of properties alone.

    The library checks each result by its schema, which may have a regular expression that takes for
    ever, in which no other thread runs either.
    """
    answer = getattr(message, "message", None)
    if not isinstance(answer, JSONRPCResponse):
        return
    tools = answer.result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        schema = tool.get("outputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict):
            properties = schema.get("properties")
            names = properties if isinstance(properties, dict) else {}
            tool["outputSchema"] = {"type": "object", "properties": {name: {} for name in names}}


# --- programs -------------------------------------------------------------------------------------


class LastWords:
    """The end of what a server writes to standard error."""

    def __init__(self) -> None:
        self._content = b""
        self._file: IO[bytes] | None = None

    def __str__(self) -> str:
        if self._file is not None:
            size = self._file.seek(0, os.SEEK_END)
            self._file.seek(max(0, size - _MAX_STDERR_BYTES))
            self._content = self._file.read()
        return self._content.decode(errors="replace")

    def file(self) -> IO[bytes]:
        """Return a file to write them to, where they are not read as they come."""
        self._file = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - closed with this
        return self._file

    async def keep(self, stream: ByteReceiveStream) -> None:
        """Read a server's errors to their end."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for piece in stream:
                self._content = (self._content + piece)[-_MAX_STDERR_BYTES:]
                # Who writes without end waits for this program, not this program for it.
                if len(piece) >= _READ_BYTES:
                    await anyio.sleep(0.002)


@asynccontextmanager
async def program(
    command: StdioServerParameters,
    received: Received,
    last_words: LastWords,
) -> AsyncIterator[Streams]:
    """Start a program that speaks MCP, and end it with all that it has started.

    Args:
        command: starts it.
        received: counts what it sends.
        last_words: is given what it writes to standard error.
    """
    process = await anyio.open_process(
        [command.command, *command.args],
        env=get_default_environment() | (command.env or {}),
        cwd=command.cwd,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin = process.stdin
    lines = _lines(process.stdout, received)
    to_session, messages = anyio.create_memory_object_stream[SessionMessage](0)
    requests, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_session:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, TooMuchSentError):
                async for line in lines:
                    message = _message_in(line.decode(command.encoding, "replace"))
                    if message is None:
                        received.add(messages=1)
                    else:
                        # Where nobody listens any more, the server is ending, and may say more.
                        with suppress(anyio.BrokenResourceError):
                            await to_session.send(message)

    async def write() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for message in from_session:
                fields = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                # Not by pydantic's own JSON, which has no place for half a character.
                await stdin.send(f"{json.dumps(fields)}\n".encode())
        # It takes no more, and the session would wait for its answer for ever.
        await to_session.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        tasks.start_soon(last_words.keep, process.stderr)
        try:
            yield messages, requests
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            for stream in (messages, requests, to_session, from_session):
                stream.close()
            tasks.cancel_scope.cancel()


async def _lines(stream: ByteReceiveStream, received: Received) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream that are not empty.

    Raises:
        TooMuchSentError: there are too many lines or bytes.
    """
    begun: list[bytes] = []  # the pieces of a line that has not ended
    begun_bytes = 0
    async for piece in stream:
        received.add(len(piece))
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun = []
            begun_bytes = 0
        begun.append(rest)
        begun_bytes += len(rest)
        received.check(begun_bytes)
        for line in filter(None, map(bytes.strip, ended)):
            received.check(len(line), line)
            yield line


def _message_in(line: str) -> SessionMessage | None:
    """Return the message that a line is, if it is one."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        # Many a program prints something before it serves.
        log_event(
            logger,
            logging.DEBUG,
            "tool_server_line_ignored",
            detail=str(error),
        )
        return None


async def _end(process: Process) -> None:
    """End a server: by the end of its input, else by a signal, else by force."""
    if sys.platform == "win32":
        raise NotImplementedError("processes have no groups on Windows; the library ends a server")
    if process.stdin is not None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(_PATIENCE_S):
            # Not by ``wait``, which waits for whoever holds the output open as well.
            while process.returncode is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        if process.returncode is not None:
            break
    # What it wrote at last is read before its streams are closed.
    await anyio.sleep(0.01)
    await process.aclose()


# --- HTTP -----------------------------------------------------------------------------------------


@asynccontextmanager
async def http(url: str, received: Received) -> AsyncIterator[Streams]:
    """Connect to a server that speaks MCP over HTTP.

    Args:
        url: its address.
        received: counts what it sends.
    """
    async with (
        httpx2.AsyncClient(
            transport=_BoundedHTTP(url, received),
            timeout=httpx2.Timeout(30.0, read=300.0),
        ) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class _BoundedHTTP(httpx2.AsyncHTTPTransport):
    """HTTP of which only so much is read, as it comes: nothing is decompressed."""

    def __init__(self, url: str, received: Received) -> None:
        super().__init__(proxy=proxy_url(url))
        bound(self, most_bytes=None)
        self._received = received

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request."""
        self._received.add(messages=_MESSAGES_AN_EXCHANGE)
        request.headers["Accept-Encoding"] = "identity"
        # By a DELETE a session is ended, which need not be known to have worked.
        longest_s = _PATIENCE_S if request.method == "DELETE" else None
        async with asyncio.timeout(longest_s):
            with reading_head():
                response = await super().handle_async_request(request)
        response.headers.pop("content-encoding", None)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        # The library bounds each event of a stream, which may stay open for days.
        is_stream = "event-stream" in response.headers.get("content-type", "")
        response.stream = _CountedBody(response.stream, self._received, is_stream=is_stream)
        return response


class _CountedBody(httpx2.AsyncByteStream):
    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        received: Received,
        *,
        is_stream: bool,
    ) -> None:
        self._inner = inner
        self._received = received
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        message = bytearray()
        async for piece in self._inner:
            self._received.add(len(piece))
            if not self._is_stream:
                message += piece
                self._received.check(len(message))
            yield piece
        self._received.check(len(message), bytes(message))

    async def aclose(self) -> None:
        await self._inner.aclose()
