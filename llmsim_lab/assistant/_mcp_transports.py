"""Connections to MCP servers that read only so much.

The ``mcp`` library reads a line of a server's standard output for as long as it is, and copies what
it has with each piece; it takes messages and pages of HTTP without end. A server that sends more
than any honest one has its connection closed, and the call's result says why.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, Process
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from llmsim_lab._util.text import log_event
from llmsim_lab.llm.wire_limits import (
    BoundedNetwork,
    TooMuchSentError,
    proxy_url,
    reading_head,
)

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 2**20
"""Of one message: a result with a large picture has some 5 MB."""
_MAX_VALUES = 250_000
"""Commas and opening brackets of one message: a table of 25,000 rows and ten columns. As objects of
Python's, several times over, they take 300 MB."""
_MAX_BYTES = 24 * 2**20
"""Of all that a server sends after a request to it, or in a minute."""
_MAX_MESSAGES = 5_000
"""Messages after a request to it, or in a minute; a call that tells its progress a hundred times a
second for 25 s sends half of that."""
_MAX_EXCHANGES = 200
"""Requests of HTTP for one of the protocol's, or in a minute: answers to what the server asks, and
further parts of a stream."""
_WINDOW_S = 60.0
_MAX_STDERR_BYTES = 500
_READ_BYTES = 65_536
_PATIENCE_S = 2.0
"""How long a server may take to end, first once its input is closed, then once it is told to."""
_READ_TIMEOUT_S = 300.0

Streams = tuple[Any, Any]
"""Of messages, from the server and to it."""


class Received:
    """Counts what a tool server sends after each request to it.

    Attributes:
        fault: what it sent too much of; empty if it did not.
        is_too_much: set then.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.is_too_much = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Count from now on, since the server is asked something."""
        self._since = time.monotonic()
        self._bytes = 0
        self._messages = 0
        self._exchanges = 0

    def add(self, content: bytes) -> None:
        """Count bytes.

        Raises:
            TooMuchSentError: there are too many.
        """
        # A connection that is not used for days may be kept open by a word now and then.
        if time.monotonic() - self._since > _WINDOW_S:
            self.begin()
        self._bytes += len(content)
        self._limit(self._bytes, _MAX_BYTES, "bytes for one request")

    def add_message(self) -> None:
        """Count a message.

        Raises:
            TooMuchSentError: there are too many.
        """
        self._messages += 1
        self._limit(self._messages, _MAX_MESSAGES, "messages for one request")

    def add_exchange(self) -> None:
        """Count a request of HTTP.

        Raises:
            TooMuchSentError: there are too many.
        """
        self._exchanges += 1
        self._limit(self._exchanges, _MAX_EXCHANGES, "questions or parts for one request")

    def check(self, message_bytes: int, values: int) -> None:
        """Compare the size of one message with what is read.

        Raises:
            TooMuchSentError: it is too large.
        """
        self._limit(message_bytes, MAX_MESSAGE_BYTES, "bytes in one message")
        self._limit(values, _MAX_VALUES, "values in one message")

    def _limit(self, size: int, limit: int, unit: str) -> None:
        if size > limit:
            self.fault = self.fault or f"it sent more than {limit:,} {unit}"
            self.is_too_much.set()
            raise TooMuchSentError(self.fault)


def _values_in(content: bytes) -> int:
    """Return the most values that JSON of these bytes can have."""
    return content.count(b",") + content.count(b"[") + content.count(b"{")


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

    def __str__(self) -> str:
        return self._content.decode(errors="replace")

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
    assert process.stdout is not None
    assert process.stderr is not None
    to_session, messages = anyio.create_memory_object_stream[SessionMessage](0)
    requests, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_session:
            try:
                async for line in _lines(process.stdout, received):
                    message = _message_in(line.decode(command.encoding, "replace"))
                    if message is not None:
                        # Where nobody listens any more, the server ends, and may say more.
                        with suppress(anyio.BrokenResourceError):
                            await to_session.send(message)
            except TooMuchSentError:
                _kill(process, signal.SIGKILL)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # it has ended

    async def write() -> None:
        assert process.stdin is not None
        async with from_session:
            async for message in from_session:
                if isinstance(message.message, JSONRPCRequest):
                    received.begin()
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await process.stdin.send(f"{text}\n".encode(errors="replace"))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                    # The session would wait for its answer for ever.
                    await to_session.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        tasks.start_soon(last_words.keep, process.stderr)
        try:
            yield messages, requests
        finally:
            with anyio.CancelScope(shield=True):
                messages.close()
                requests.close()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _lines(stream: ByteReceiveStream | None, received: Received) -> AsyncIterator[bytes]:
    """Yield what is not an empty line.

    Raises:
        TooMuchSentError: there are too many lines or bytes.
    """
    assert stream is not None
    begun: list[bytes] = []  # the pieces of a line that has not ended
    begun_bytes = 0
    begun_values = 0
    async for piece in stream:
        received.add(piece)
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun = []
            begun_bytes = 0
            begun_values = 0
        begun.append(rest)
        begun_bytes += len(rest)
        begun_values += _values_in(rest)
        received.check(begun_bytes, begun_values)
        for line in filter(None, map(bytes.strip, ended)):
            received.add_message()
            yield line


def _message_in(line: str) -> SessionMessage | None:
    """Return the message that a line is, if it is one."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        # Many a program prints something before it serves.
        log_event(
            logger,
            logging.DEBUG,
            "tool_server_line_ignored",
            detail=str(error),
        )
        return None
    read = SessionMessage(message)
    _simplify_outputs(read)
    return read


async def _end(process: Process) -> None:
    """End a server: by the end of its input, else by a signal, else by force."""
    if process.stdin is not None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _kill(process, number)
        with anyio.move_on_after(_PATIENCE_S):
            # Not by ``wait``, which waits for whoever holds the output open as well.
            while process.returncode is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        if process.returncode is not None:
            break
    # What it wrote at last is read before its streams are closed.
    await anyio.sleep(0.01)
    await process.aclose()


def _kill(process: Process, number: signal.Signals) -> None:
    """Send a signal to a server and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# --- HTTP -----------------------------------------------------------------------------------------


@asynccontextmanager
async def http(url: str, received: Received) -> AsyncIterator[Streams]:
    """Connect to a server that speaks MCP over HTTP.

    Args:
        url: its address.
        received: counts what it sends.
    """
    timeout = httpx2.Timeout(30.0, read=_READ_TIMEOUT_S)
    transport = _BoundedHTTP(url, received)
    async with (
        httpx2.AsyncClient(transport=transport, timeout=timeout) as client,
        streamable_http_client(url, http_client=client) as (from_server, to_server),
        anyio.create_task_group() as tasks,
    ):
        to_session, messages = anyio.create_memory_object_stream[Any](0)
        requests, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        reading = anyio.CancelScope()

        async def read() -> None:
            async with to_session:
                with reading, suppress(TooMuchSentError, anyio.BrokenResourceError):
                    async for message in from_server:
                        received.add_message()
                        _simplify_outputs(message)
                        await to_session.send(message)

        async def watch() -> None:
            # The library would ask again for what was cut off.
            await received.is_too_much.wait()
            reading.cancel()

        async def write() -> None:
            async with from_session:
                async for message in from_session:
                    if isinstance(message.message, JSONRPCRequest):
                        received.begin()
                    await to_server.send(message)

        tasks.start_soon(read)
        tasks.start_soon(write)
        tasks.start_soon(watch)
        try:
            yield messages, requests
        finally:
            messages.close()
            requests.close()
            tasks.cancel_scope.cancel()


class _BoundedHTTP(httpx2.AsyncHTTPTransport):
    """HTTP of which only so much is read, as it comes: nothing is decompressed."""

    def __init__(self, url: str, received: Received) -> None:
        super().__init__(proxy=proxy_url(url))
        network: Any = BoundedNetwork(self._pool._network_backend)
        self._pool._network_backend = network
        self._received = received

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request."""
        self._received.add_exchange()
        request.headers["Accept-Encoding"] = "identity"
        # By a DELETE a session is ended, which need not be known to have worked.
        longest_s = _PATIENCE_S if request.method == "DELETE" else None
        try:
            async with asyncio.timeout(longest_s):
                with reading_head():
                    response = await super().handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer") from error
        response.headers.pop("content-encoding", None)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        # The library bounds each event of a stream, which may stay open for days.
        is_whole = "event-stream" not in response.headers.get("content-type", "")
        response.stream = _Counted(response.stream, self._received, is_whole=is_whole)
        return response


class _Counted(httpx2.AsyncByteStream):
    """A body of which only so much is read.

    Args:
        inner: the body.
        received: counts it.
        is_whole: whether it is one message.
    """

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        received: Received,
        *,
        is_whole: bool,
    ) -> None:
        self._inner = inner
        self._received = received
        self._is_whole = is_whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        values = 0
        async for piece in self._inner:
            size += len(piece)
            values += _values_in(piece)
            try:
                self._received.add(piece)
                if self._is_whole:
                    self._received.check(size, values)
            except TooMuchSentError as error:
                # Of a kind that the library expects.
                raise httpx2.StreamError(str(error)) from error
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
