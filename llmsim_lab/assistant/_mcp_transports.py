"""Connections to MCP servers that read only so much.

The ``mcp`` library reads a line of a server's standard output for as long as it is, and copies what
it has with each piece; it takes messages and answers of HTTP without end. So all that a server
sends counts in one place, and ends the connection where it is too much.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
from anyio.abc import (
    ByteReceiveStream,
    ByteSendStream,
    ObjectReceiveStream,
    ObjectSendStream,
    Process,
)
from mcp import StdioServerParameters, stdio_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from llmsim_lab._util.text import log_event
from llmsim_lab.llm.wire_limits import TooMuchSentError, bound, proxy_url, reading_head

logger = logging.getLogger(__name__)

_MAX_BYTES = 16 * 2**20
"""Of one message: a result with a large picture has some 5 MB."""
_MAX_VALUES = 250_000
"""Of one message, counted by commas and opening brackets: a table of 25,000 rows and ten columns.
As objects of Python's, several times over, they take 300 MB."""
_ALLOWED_BYTES = 2 * _MAX_BYTES
"""For each request, and as many more in a minute."""
_BYTES_A_MESSAGE = 10_000
"""What a message counts beside its size, since each takes time: a call may tell its progress a
hundred times a second for 25 s."""
_BYTES_AN_EXCHANGE = 25 * _BYTES_A_MESSAGE
"""What a request of HTTP counts: an answer to the server, or for a further part."""
_WINDOW_S = 60.0
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_MAX_STDERR_BYTES = 500
_READ_BYTES = 65_536
_PATIENCE_S = 2.0
"""How long a server may take to end, first once its input is closed, then once it is told to."""


class Received:
    """What a tool server has sent.

    Attributes:
        fault: what it sent too much of; empty if it did not.
        last_words: the end of what it wrote to standard error.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.last_words = b""
        self._left_bytes = float(_ALLOWED_BYTES)
        self._counted_at = time.monotonic()

    def allow(self, requests: float = 1.0) -> None:
        """Allow what answers a request: not more than two at once, or calls would save it up."""
        allowed_bytes = self._left_bytes + requests * _ALLOWED_BYTES
        self._left_bytes = min(allowed_bytes, 2 * _ALLOWED_BYTES)

    def add(self, size_bytes: int) -> None:
        """Count what was received.

        Raises:
            TooMuchSentError: there is too much.
        """
        # A connection that is not used for days may be kept open by a word now and then.
        now = time.monotonic()
        self.allow((now - self._counted_at) / _WINDOW_S)
        self._counted_at = now
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            self._end(
                f"it sent more than {_ALLOWED_BYTES:,} bytes for a request, where each message "
                f"counts {_BYTES_A_MESSAGE:,} more"
            )

    def check(self, message: bytes) -> None:
        """Compare a message with what is read of one.

        Raises:
            TooMuchSentError: it is too large.
        """
        self.check_size(len(message))
        if has_many_values(message):
            self._end(f"it sent a message of more than {_MAX_VALUES:,} values")

    def check_size(self, size_bytes: int) -> None:
        """Compare the size of a message, of which more may come, with what is read of one.

        Raises:
            TooMuchSentError: it is too large.
        """
        if size_bytes > _MAX_BYTES:
            self._end(f"it sent a message of more than {_MAX_BYTES:,} bytes")

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


class _Messages(ObjectReceiveStream[Any], ObjectSendStream[Any]):
    """The messages of a connection, from its server and to it, which are counted.

    Args:
        from_server: yields messages, and an error for what the server sent that is none.
        send_to_server: sends one.
        received: counts them.
    """

    def __init__(
        self,
        from_server: AsyncIterator[SessionMessage | Exception],
        send_to_server: Callable[[SessionMessage], Awaitable[None]],
        received: Received,
    ) -> None:
        self._from_server = from_server
        self._send_to_server = send_to_server
        self._received = received
        # One after the other: if the server does not read, thousands of answers may be waiting.
        self._sending = anyio.Lock()

    async def receive(self) -> SessionMessage:
        with suppress(TooMuchSentError):
            async for message in self._from_server:
                self._received.add(_BYTES_A_MESSAGE)
                # Thousands may have come at once, and others wait for this loop.
                await anyio.lowlevel.checkpoint()
                if isinstance(message, SessionMessage):
                    _simplify_outputs(message.message)
                    return message
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._received.allow()
        async with self._sending:
            await self._send_to_server(item)

    async def aclose(self) -> None:
        """Do nothing: ``program`` and ``http`` close the connection, and read its last words."""


def _simplify_outputs(message: JSONRPCMessage) -> None:
    """Leave of the schemas of tools' results the names of properties alone.

    The library checks each result by its schema, which may have a regular expression that takes for
    ever, in which no other thread runs either.
    """
    tools = message.result.get("tools") if isinstance(message, JSONRPCResponse) else None
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"outputSchema": {"properties": dict(properties)}}:
                names: dict[str, object] = {name: {} for name in properties}
                tool["outputSchema"] = {"type": "object", "properties": names}
            case {"outputSchema": dict()}:
                tool["outputSchema"] = {"type": "object"}


Streams = tuple[_Messages, _Messages]
"""From a server and to it, as the library wants them."""


# --- programs -------------------------------------------------------------------------------------


@asynccontextmanager
async def program(command: StdioServerParameters, received: Received) -> AsyncIterator[Streams]:
    """Start a program that speaks MCP, and end it with all that it has started.

    Args:
        command: starts it.
        received: counts what it sends, and is given what it writes to standard error.
    """
    if sys.platform == "win32":
        # There processes have no groups, and the library's own connection ends all with it.
        with tempfile.TemporaryFile("a+b", buffering=0) as file:
            errors: Any = file
            try:
                async with stdio_client(command, errlog=errors) as (from_server, to_server):
                    messages = _Messages(from_server, to_server.send, received)
                    yield messages, messages
            finally:
                size_bytes = file.seek(0, os.SEEK_END)
                file.seek(max(0, size_bytes - _MAX_STDERR_BYTES))
                received.last_words = file.read()
        return
    process = await anyio.open_process(
        [command.command, *command.args],
        env=get_default_environment() | (command.env or {}),
        cwd=command.cwd,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    lines = _messages_of(process.stdout, command.encoding, received)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_last_words, process.stderr, received)
        messages = _Messages(lines, partial(_write, process.stdin), received)
        try:
            yield messages, messages
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, process.stdin)
            tasks.cancel_scope.cancel()


async def _messages_of(
    stream: ByteReceiveStream,
    encoding: str,
    received: Received,
) -> AsyncGenerator[SessionMessage | Exception, None]:
    """Yield the messages of a program, which writes one a line; an error for what is none.

    Raises:
        TooMuchSentError: there are too many, or one is too large.
    """
    unread = bytearray()
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for piece in stream:
            received.add(len(piece))
            unread += piece
            received.check_size(len(unread))
            # A long line has many pieces, and would be copied with each.
            if b"\n" not in piece:
                continue
            *lines, unread = unread.split(b"\n")
            for line in filter(bytes.strip, map(bytes, lines)):
                received.check(line)
                text = line.decode(encoding, "replace")
                try:
                    yield SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
                except ValueError as error:
                    # Many programs print something before they serve.
                    log_event(
                        logger,
                        logging.DEBUG,
                        "tool_server_line_ignored",
                        detail=str(error),
                    )
                    yield error


async def _write(stdin: ByteSendStream, message: SessionMessage) -> None:
    """Send a message to a program.

    Raises:
        BrokenResourceError: it takes no more.
    """
    fields = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
    try:
        # Not by pydantic's own JSON, which has no place for half a character.
        await stdin.send(f"{json.dumps(fields)}\n".encode())
    except OSError as error:
        raise anyio.BrokenResourceError from error


async def _keep_last_words(stderr: ByteReceiveStream, received: Received) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for piece in stderr:
            received.last_words = (received.last_words + piece)[-_MAX_STDERR_BYTES:]
            # Who writes without end waits for this program, not this program for it.
            if len(piece) >= _READ_BYTES:
                await anyio.sleep(0.002)


async def _end(process: Process, stdin: ByteSendStream) -> None:
    """End a server: by the end of its input, else by a signal, else by force."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.aclose()
    with anyio.move_on_after(_PATIENCE_S):
        # Not by ``wait``, which waits for whoever holds the output open as well.
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    if process.returncode is None:
        await terminate_posix_process_tree(process, _PATIENCE_S)
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
            headers={"Accept-Encoding": "identity"},
        ) as client,
        streamable_http_client(url, http_client=client) as (from_server, to_server),
    ):
        messages = _Messages(from_server, to_server.send, received)
        yield messages, messages


class _BoundedHTTP(httpx2.AsyncHTTPTransport):
    """HTTP of which only so much is read, as it comes: nothing is decompressed."""

    def __init__(self, url: str, received: Received) -> None:
        super().__init__(proxy=proxy_url(url))
        bound(self, most_bytes=None, count=received.add)
        self._received = received

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request."""
        self._received.add(_BYTES_AN_EXCHANGE)
        # By a DELETE a session is ended, which need not be known to have worked.
        longest_s = _PATIENCE_S if request.method == "DELETE" else None
        async with asyncio.timeout(longest_s):
            with reading_head():
                response = await super().handle_async_request(request)
            response.headers.pop("content-encoding", None)
            # The library bounds each event of a stream, which may stay open for days.
            if response.headers.get("content-type", "").lower().startswith("application/json"):
                self._received.check(await response.aread())
        return response
