"""One start of an MCP server, from connecting to the end; a task of its own serves it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, Tool, ToolListChangedNotification

from llmsim_lab.assistant.errors import ToolServerError
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event
from llmsim_lab.text import clip

__all__ = ["Connection", "Target", "alive"]

logger = logging.getLogger(__name__)

Target = StdioServerParameters | MCPServer[Any] | Server[Any]
"""What can be connected to: a command to start, or a server in this process."""

_PING_S = 2.0
"""How long a server that let a call time out has to show that it still answers, seconds."""
_MAX_WORDS = 2_000
_MAX_PAGES = 100
_NO_PROGRAM = (FileNotFoundError, PermissionError, NotADirectoryError)
_SDK_ERRORS = (MCPError, ValueError, RuntimeError)
"""What the library raises where a server does not keep to the protocol, or has gone."""

alive: set[Connection] = set()
"""The connections that have not ended, whether anybody still wants them or not."""


class Connection:
    """One start of a server; made, used and ended on the loop of all connections.

    Args:
        target: the server.
        name: what messages call it.
        start_timeout_s: longest wait for it to start, and for a list of its tools, seconds.

    Attributes:
        tools: the server's tools as last listed.
        doubtful: whether something asked of it timed out or was given up, and it has not shown
            since that it still answers.
        fault: why it could not be started.
        ended: set once the server has ended.
    """

    def __init__(self, target: Target, *, name: str, start_timeout_s: float) -> None:
        self.tools: list[Tool] = []
        self.doubtful = False
        self.fault: ConfigError | ToolServerError | None = None
        self.ended = asyncio.Event()
        self._target = target
        self._name = name
        self._start_timeout_s = start_timeout_s
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._start = anyio.CancelScope()
        self._client: Client
        self._question: asyncio.Task[None] | None = None
        self._garbage = self._under_way = self._changes = self._changes_known = 0
        self._incoming: MemoryObjectReceiveStream[Any] | None = None
        self._stderr: FileIO | None = None
        self._reading = threading.Lock()
        self._last_words = ""
        self._task = asyncio.create_task(self._serve_until_over())
        alive.add(self)

    async def started(self) -> None:
        """Wait until the server has started.

        Raises:
            ToolServerError: it could not be.
            ConfigError: there is no such program.
        """
        await self._ready.wait()
        if self.fault is not None:
            raise self.fault

    def end(self) -> None:
        """Have the server ended soon, also where it is only starting."""
        self._over.set()
        if not self._ready.is_set():
            self._start.cancel()

    @property
    def usable(self) -> bool:
        """Whether calls can be made: false once the server's output has ended."""
        if self.doubtful or self._over.is_set() or self.ended.is_set():
            return False
        incoming = self._incoming
        return incoming is None or incoming.statistics().open_send_streams > 0

    @property
    def stale(self) -> bool:
        """Whether the tools may be others now: the server said so, or did not list them."""
        return self._changes_known != self._changes

    async def call(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], *, timeout_s: float
    ) -> CallToolResult:
        """Have a tool called.

        Raises:
            TimeoutError: there was no answer.
            ValueError: there was only garbage.
            MCPError, RuntimeError: as the ``mcp`` library raises them.
        """
        garbage = self._garbage
        self._under_way += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._client.call_tool(name, arguments, meta=meta)  # type: ignore[arg-type]
        except TimeoutError:
            self.doubtful = True
            if lines := self._garbage - garbage:
                raise ValueError(f"the server wrote {lines} lines that are no messages") from None
            raise
        except asyncio.CancelledError:
            self.doubtful = True  # also where this is over before ``give_up`` looks
            raise
        finally:
            self._under_way -= 1

    async def refresh(self) -> None:
        """Ask the server for its tools.

        Raises:
            ToolServerError: it does not tell them.
        """
        changes = self._changes  # before asking, so that a change meanwhile is not missed
        self._under_way += 1
        try:
            async with asyncio.timeout(self._start_timeout_s):
                self.tools = await _all_tools(self._client)
            self._changes_known = changes
        except (TimeoutError, *_SDK_ERRORS) as error:
            self._changes_known = -1
            self.doubtful = True
            why = str(error) or f"no answer within {self._start_timeout_s:g} s"
            raise ToolServerError(
                f"the tool server {self._name!r} does not list its tools: {why}"
            ) from error
        finally:
            self._under_way -= 1

    def give_up(self) -> None:
        """Note, on any thread, that a caller waits no more: perhaps for the server's silence."""
        if self._under_way:
            self.doubtful = True

    async def settle_doubt(self) -> None:
        """Find out whether the server still answers; it stays doubtful where it does not.

        The question goes on where who asked gives up, so that the next one has the answer.
        """
        if self._question is None:
            self._question = asyncio.create_task(self._ask())
        await asyncio.shield(self._question)

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_PING_S):
                await self._client.list_tools(cache_mode="bypass")
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            log_event(
                logger, logging.INFO, "tool_server_silent", server=self._name, detail=repr(error)
            )
        else:
            self.doubtful, self._question = False, None

    def last_words(self) -> str:
        """Return the end of what the server wrote to standard error."""
        with self._reading:  # callers may be on any thread
            if (file := self._stderr) is None:
                return self._last_words
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _MAX_WORDS))
            return file.read().decode(errors="replace").strip()[-_MAX_WORDS:]

    async def _serve_until_over(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            self._failed(error)
        finally:
            alive.discard(self)
            self._ready.set()
            self.ended.set()

    async def _serve(self) -> None:
        # Results are checked with it, and a first call should not have to wait for its import.
        await asyncio.to_thread(import_module, "jsonschema")
        with self._start as scope:
            scope.deadline = anyio.current_time() + self._start_timeout_s
            async with Client(
                self._transport(), message_handler=self._hear, cache=None
            ) as self._client:
                self.tools = await _all_tools(self._client)
                scope.deadline = math.inf
                self._ready.set()
                await self._over.wait()
        if not self._ready.is_set():
            raise TimeoutError(
                "it was closed meanwhile"
                if self._over.is_set()
                else f"it did not answer within {self._start_timeout_s:g} s"
            )

    def _transport(self) -> Any:
        if isinstance(self._target, StdioServerParameters):
            return self._process(self._target)
        return self._target

    @asynccontextmanager
    async def _process(self, command: StdioServerParameters) -> AsyncIterator[Any]:
        """Start the program, and keep hold of the stream that ends when it does."""
        path, file, self._stderr = _new_file()
        try:
            with file as stderr:
                async with stdio_client(command, errlog=stderr) as (incoming, outgoing):
                    self._incoming = incoming  # type: ignore[assignment]
                    yield incoming, outgoing
        finally:
            self._last_words = self.last_words()
            with self._reading, self._stderr:
                self._stderr = None
            with suppress(OSError):  # another program may look at it, which Windows minds
                path.unlink(missing_ok=True)

    async def _hear(self, message: object) -> None:
        if isinstance(message, Exception):
            self._garbage += 1
        elif isinstance(message, ToolListChangedNotification):
            self._changes += 1

    def _failed(self, error: Exception) -> None:
        if self._ready.is_set():
            log_event(
                logger, logging.WARNING, "tool_server_end", server=self._name, detail=repr(error)
            )
            return
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        words = self.last_words()
        what = f"the tool server {self._name!r} could not be started: {error}" + (
            f"; it said: {clip(words, 500)}" if words else ""
        )
        self.fault = ConfigError(what) if isinstance(error, _NO_PROGRAM) else ToolServerError(what)
        self.fault.__cause__ = error


async def _all_tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += page.tools
        if not (cursor := page.next_cursor):
            return found
    raise ValueError(f"its list of tools has more than {_MAX_PAGES} pages")


def _new_file() -> tuple[Path, TextIO, FileIO]:
    """Return a file that nobody else finds, to write and to read.

    It has no name any more where that is possible, so that nothing is left of it if this program
    is killed.
    """
    handle, name = tempfile.mkstemp(prefix="llmsim-lab-", suffix=".txt")
    path = Path(name)
    written, read = os.fdopen(handle, "w", encoding="utf-8"), path.open("rb", buffering=0)
    with suppress(OSError):  # Windows keeps the names of open files
        path.unlink()
    return path, written, read
