"""A connection to one MCP server: started when needed, started again when it has died.

A connection belongs to one event loop and one task. So all connections live on a loop in a thread
of its own, and callers on any loop or thread hand their calls over to it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import tempfile
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, Tool, ToolListChangedNotification

from llmsim_lab.assistant.errors import ToolServerError
from llmsim_lab.concurrency import PrivateLoop
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event
from llmsim_lab.text import clip

__all__ = ["ServerLink", "Target"]

logger = logging.getLogger(__name__)

Target = StdioServerParameters | MCPServer[Any] | Server[Any]
"""What a link connects to: a command to start, or a server in this process."""

_PING_S = 2.0
"""How long a server that let a call time out has to show that it still answers, seconds."""
_MAX_WORDS = 2_000
_MAX_PAGES = 100
_AT_EXIT_S = 5.0
_NO_PROGRAM = (FileNotFoundError, PermissionError, NotADirectoryError)

_loop = PrivateLoop()


class ServerLink:
    """Keeps a connection to a server.

    Args:
        target: the server.
        start_timeout_s: longest wait for it to start and to list its tools, seconds.
    """

    def __init__(self, target: Target, *, start_timeout_s: float) -> None:
        self.target = target
        self.start_timeout_s = start_timeout_s
        self._connection: _Connection | None = None
        self._ended = False
        self._at_end: weakref.finalize[Any, Any] | None = None
        self.tools: list[Tool] | None = None
        """The server's tools as last listed; None before the first connection."""
        _close_at_exit()
        _links.add(self)

    def submit(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], *, timeout_s: float
    ) -> Future[CallToolResult]:
        """Have a tool called; cancelling the future gives the call up.

        The future raises ``ToolServerError`` where no server could be started, ``TimeoutError``
        where there was no answer, ``ValueError`` where there was only garbage, and otherwise what
        the ``mcp`` library raises.

        Args:
            name: the tool.
            arguments: its arguments.
            meta: the request's metadata.
            timeout_s: longest wait for the answer once there is a server, seconds.
        """
        work = self._call(name, arguments, meta, timeout_s)
        return asyncio.run_coroutine_threadsafe(work, _loop.get())

    def prepare(self, *, fresh: bool = False) -> Future[list[Tool]]:
        """Have it connect, if need be, and list its tools.

        The future raises ``ToolServerError`` where no server could be started, ``ConfigError``
        where there is no such program.
        """
        if _loop.is_here():
            raise ConfigError("a tool cannot ask for the tools of another server and wait")
        return asyncio.run_coroutine_threadsafe(self._listed(fresh), _loop.get())

    @property
    def tools_changed(self) -> bool:
        """Whether the server has said that its tools are others now."""
        connection = self._connection
        return connection is not None and connection.stale

    def last_words(self) -> str:
        """Return the end of what the present server wrote to standard error."""
        connection = self._connection
        return "" if connection is None else connection.last_words()

    def close(self, *, timeout_s: float | None = None) -> None:
        """End the server; blocks until it has ended.

        Raises:
            TimeoutError: it has not within the time.
        """
        self._ended = True
        if self._connection is not None:
            asyncio.run_coroutine_threadsafe(self._finish(), _loop.get()).result(timeout_s)

    # --- from here on, all runs on the loop of all links ---------------------------------------

    async def _call(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], timeout_s: float
    ) -> CallToolResult:
        connection = await self._connected()
        garbage = connection.garbage
        try:
            async with asyncio.timeout(timeout_s):
                return await connection.client.call_tool(name, arguments, meta=meta)  # type: ignore[arg-type]
        except TimeoutError:
            connection.doubtful = True
            if lines := connection.garbage - garbage:
                raise ValueError(f"the server wrote {lines} lines that are no messages") from None
            raise

    async def _listed(self, fresh: bool) -> list[Tool]:
        connection = await self._connected()
        if fresh or connection.stale:
            connection.stale = False
            self.tools = await _all_tools(connection.client)
        return self.tools or []

    async def _connected(self) -> _Connection:
        """Return a connection that works as far as one can tell, made now if need be."""
        if self._ended:
            raise ConfigError("these tools were closed; make the executor again")
        if (known := self._connection) is not None and known.doubtful:
            known.doubtful = not await known.answers()
        if known is not None and self._connection is known and not known.usable:
            log_event(
                logger,
                logging.WARNING,
                "tool_server_restart",
                server=str(self),
                last_words=clip(known.last_words(), 300),
            )
            known.over.set()
            self._connection = None
        if (connection := self._connection) is None:
            connection = self._connection = _Connection(self)
            connection.begin()
            if self._at_end is not None:
                self._at_end.detach()
            self._at_end = weakref.finalize(self, _end_soon, connection)
            self._at_end.atexit = False
        await connection.ready.wait()
        if connection.fault is not None:
            if self._connection is connection:
                self._connection = None
            raise connection.fault
        return connection

    async def _finish(self) -> None:
        if (connection := self._connection) is not None:
            self._connection = None
            connection.over.set()
            await connection.ended.wait()

    def __str__(self) -> str:
        if isinstance(self.target, StdioServerParameters):
            return " ".join([self.target.command, *self.target.args])
        return f"{self.target.name} in memory"


class _Connection:
    """One start of the server, from connecting to the end; a task of its own serves it."""

    def __init__(self, link: ServerLink) -> None:
        self._link = weakref.proxy(link)
        self._name = str(link)
        self._target = link.target
        self._start_timeout_s = link.start_timeout_s
        self.ready, self.over, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.client: Client
        self.fault: Exception | None = None
        self.garbage = 0
        self.stale = False
        self.doubtful = False
        self._incoming: MemoryObjectReceiveStream[Any] | None = None
        self._stderr: Path | None = None
        self._last_words = ""
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._serve_until_over())

    @property
    def usable(self) -> bool:
        """Whether calls can be made: false once the server's output has ended."""
        if self.doubtful or self.fault is not None:
            return False
        incoming = self._incoming
        return incoming is None or incoming.statistics().open_send_streams > 0

    async def answers(self) -> bool:
        """Say whether the server still answers."""
        with anyio.move_on_after(_PING_S):
            try:
                await self.client.list_tools(cache_mode="bypass")
            except (MCPError, ValueError, RuntimeError):
                return False
            return True
        return False

    async def _serve_until_over(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            self._failed(error)
        finally:
            self.ready.set()
            self.ended.set()

    async def _serve(self) -> None:
        # Results are checked with it, and a first call should not have to wait for its import.
        await asyncio.to_thread(import_module, "jsonschema")
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self._start_timeout_s
            async with Client(
                self._transport(), message_handler=self._hear, cache=None
            ) as self.client:
                tools = await _all_tools(self.client)
                scope.deadline = math.inf
                self._link.tools = tools
                self.ready.set()
                await self.over.wait()
        if not self.ready.is_set():
            raise TimeoutError(f"it did not answer within {self._start_timeout_s:g} s")

    def _transport(self) -> Any:
        if isinstance(self._target, StdioServerParameters):
            return self._process(self._target)
        return self._target

    @asynccontextmanager
    async def _process(self, command: StdioServerParameters) -> AsyncIterator[Any]:
        """Start the program, and keep hold of the stream that ends when it does."""
        self._stderr, file = _new_file()
        try:
            with file as stderr:
                async with stdio_client(command, errlog=stderr) as (incoming, outgoing):
                    self._incoming = incoming  # type: ignore[assignment]
                    yield incoming, outgoing
        finally:
            self._last_words = self.last_words()
            with suppress(OSError):  # another program may look at it, which Windows minds
                self._stderr.unlink()

    async def _hear(self, message: object) -> None:
        if isinstance(message, Exception):
            self.garbage += 1
        elif isinstance(message, ToolListChangedNotification):
            self.stale = True

    def _failed(self, error: Exception) -> None:
        if self.ready.is_set():
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

    def last_words(self) -> str:
        """Return the end of what the server wrote to standard error."""
        if self._stderr is None or not self._stderr.exists():
            return self._last_words
        return self._stderr.read_text(encoding="utf-8", errors="replace").strip()[-_MAX_WORDS:]


async def _all_tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += page.tools
        if not (cursor := page.next_cursor):
            return found
    raise ToolServerError(f"the tool server's list of tools has more than {_MAX_PAGES} pages")


def _new_file() -> tuple[Path, TextIO]:
    handle, name = tempfile.mkstemp(prefix="llmsim-lab-", suffix=".txt")
    return Path(name), os.fdopen(handle, "w", encoding="utf-8")


def _end_soon(connection: _Connection) -> None:
    """End the connection of a link that nobody can reach any more, without waiting for it."""
    loop = _loop.get()
    if not loop.is_closed():
        loop.call_soon_threadsafe(connection.over.set)


_links: weakref.WeakSet[ServerLink] = weakref.WeakSet()


@cache
def _close_at_exit() -> None:
    """Have all servers ended at exit before their loop is, which is the first thing there."""
    _loop.get()
    atexit.register(_close_all)


def _close_all() -> None:
    for link in list(_links):
        with suppress(TimeoutError):
            link.close(timeout_s=_AT_EXIT_S)
