"""Connections to MCP servers: started when needed, started again when a server has died.

A connection belongs to one event loop and one task. So all connections live on one loop in a thread
of its own, and callers on any loop or thread submit their calls to it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, TextIO, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, Tool, ToolListChangedNotification

from llmsim_lab._util.text import clip, log_event
from llmsim_lab._util.waiting import PrivateLoop
from llmsim_lab.assistant._types import ToolServerError
from llmsim_lab.errors import ConfigError

T = TypeVar("T")

logger = logging.getLogger(__name__)

Target = StdioServerParameters | MCPServer[Any] | Server[Any]
"""What can be connected to: a command to start, or a server in this process."""
_PING_S = 2.0
"""How long a server that let a call time out has to show that it still answers, seconds."""
_MAX_STDERR_CHARS = 2_000
# A server whose cursors lead in a circle would be asked for ever.
_MAX_PAGES = 100
_NO_PROGRAM = (FileNotFoundError, PermissionError, NotADirectoryError)
_SDK_ERRORS = (MCPError, ValueError, RuntimeError)
"""What the library raises where a server does not keep to the protocol, or has gone."""
_CLOSED = "these tools were closed; make the executor again"
_AT_EXIT_S = 10.0
"""How long the end of the program waits for its servers to end; killing one takes up to 6 s."""

_alive: set[MCPConnection] = set()
"""The connections that have not ended, wanted or not."""
_links: weakref.WeakSet[ServerLink] = weakref.WeakSet()

_loop = PrivateLoop()


class ServerLink:
    """Keeps one connection to a server, for callers on any thread and event loop.

    Args:
        target: the server.
        start_timeout_s: longest wait for it to start, and for a list of its tools, seconds.
    """

    def __init__(self, target: Target, *, start_timeout_s: float) -> None:
        self.target = target
        self.start_timeout_s = start_timeout_s
        self._connection: MCPConnection | None = None
        self._tools: list[Tool] | None = None
        self._closed = False
        self._at_end: weakref.finalize[Any, Any] | None = None
        _prepare_exit()
        _links.add(self)

    def submit(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], *, timeout_s: float
    ) -> Future[CallToolResult]:
        """Call a tool; cancelling the future cancels the call.

        The future raises ``ToolServerError`` if no server could be started, ``TimeoutError`` if
        there was no answer, ``ValueError`` if there was only output that is not a message, and
        otherwise what the ``mcp`` library raises.

        Args:
            name: the tool.
            arguments: its arguments.
            meta: the request's metadata.
            timeout_s: longest wait for the answer once there is a server, seconds.
        """
        return self._on_loop(self._call(name, arguments, meta, timeout_s))

    def prepare(self, *, fresh: bool = False) -> Future[list[Tool]]:
        """Connect, if need be, and return the server's tools.

        The future raises ``ToolServerError`` if no server could be started or it does not list its
        tools, ``ConfigError`` if the program does not exist.

        Args:
            fresh: whether to ask a server again that has listed its tools before.
        """
        return self._on_loop(self._listed(fresh))

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        future = asyncio.run_coroutine_threadsafe(work, _loop.get())
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, work: Future[Any]) -> None:
        # In the callback of the future, which runs on the thread that cancels it: the task on the
        # loop learns of it later, and the next caller might be ahead of that.
        if work.cancelled() and (connection := self._connection) is not None:
            connection.caller_left()

    def known_tools(self) -> list[Tool] | None:
        """Return the server's tools without asking it; None if it has to be asked.

        Raises:
            ConfigError: the link was closed.
        """
        if self._closed:
            raise ConfigError(_CLOSED)
        connection = self._connection
        return None if connection is not None and connection.stale else self._tools

    def wait_for_tools(self) -> list[Tool]:
        """Do as ``prepare`` does, and block until it is done.

        Raises:
            ToolServerError: no server could be started, or it does not list its tools.
            ConfigError: the program does not exist; or the caller is itself a tool of a server in
                this process, on the loop that it would block.
        """
        _check_may_block("asks another server for its tools", instead="await ready() first")
        return self.prepare().result()

    def stderr_tail(self) -> str:
        """Return the end of what the current server wrote to standard error."""
        connection = self._connection
        return "" if connection is None else connection.stderr_tail()

    def close_and_wait(self) -> None:
        """Do as ``close`` does, and block until the server has ended.

        Raises:
            ConfigError: the caller is itself a tool, as for ``wait_for_tools``.
        """
        _check_may_block("ends another server", instead="await aclose()")
        self.close().result()

    def close(self) -> Future[None]:
        """End the server; the future is done when it has ended."""
        self._closed = True
        return asyncio.run_coroutine_threadsafe(self._finish(), _loop.get())

    # --- from here on everything runs on the loop of all connections --------------------------

    async def _call(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], timeout_s: float
    ) -> CallToolResult:
        connection = await self._connected()
        return await connection.call(name, arguments, meta, timeout_s=timeout_s)

    async def _listed(self, fresh: bool) -> list[Tool]:
        before = self._connection
        connection = await self._connected()
        if connection.stale or (fresh and connection is before):
            await connection.refresh()
            self._tools = connection.tools
        return connection.tools

    async def _connected(self) -> MCPConnection:
        """Return a connection that works as far as is known, made now if need be."""
        if (known := self._connection) is not None and known.doubtful:
            await known.settle_doubt()
        # Several callers may have waited above: the link may be closed by now, or another caller
        # have replaced the connection.
        if self._closed:
            raise ConfigError(_CLOSED)
        if known is not None and self._connection is known and not known.usable:
            log_event(
                logger,
                logging.WARNING,
                "tool_server_restart",
                server=str(self),
                stderr_tail=clip(known.stderr_tail(), 300),
            )
            known.end()
            self._connection = None
        if (connection := self._connection) is None:
            connection = self._connection = MCPConnection(
                self.target, name=str(self), start_timeout_s=self.start_timeout_s
            )
            # A finalizer keeps what it is given alive, so the former connection's has to go, and
            # the new one gets the connection alone, never the link.
            if self._at_end is not None:
                self._at_end.detach()
            self._at_end = weakref.finalize(self, connection.end_soon)
            self._at_end.atexit = False  # _end_all does that, and waits
        try:
            await connection.started()
        except Exception:
            # The next caller starts it anew, unless another one has done so already.
            if self._connection is connection:
                self._connection = None
            raise
        self._tools = connection.tools
        return connection

    async def _finish(self) -> None:
        if (connection := self._connection) is not None:
            self._connection = None
            connection.end()
            await connection.ended.wait()

    def __str__(self) -> str:
        if isinstance(self.target, StdioServerParameters):
            return " ".join([self.target.command, *self.target.args])
        return f"{self.target.name} in memory"


def _check_may_block(what: str, *, instead: str) -> None:
    if _loop.is_here():
        raise ConfigError(f"an async tool cannot block while it {what}; have it {instead}")


# --- one start of a server ------------------------------------------------------------------------


class MCPConnection:
    """One start of an MCP server; made, used and ended on the loop of all connections.

    The ``mcp`` library wants a client opened and closed in one task, so a task of the connection's
    own opens it and holds it until ``end``.

    Args:
        target: the server.
        name: what messages call it.
        start_timeout_s: longest wait for it to start, and for a list of its tools, seconds.

    Attributes:
        tools: the server's tools as last listed.
        doubtful: whether a request timed out or was cancelled, and the server has not shown since
            that it still answers.
        fault: why the server could not be started.
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
        self._bad_lines = self._under_way = self._changes = self._changes_known = 0
        self._incoming: MemoryObjectReceiveStream[Any] | None = None
        self._stderr: FileIO | None = None
        self._reading = threading.Lock()
        self._stderr_tail = ""
        self._task = asyncio.create_task(self._serve_until_over())
        _alive.add(self)

    async def started(self) -> None:
        """Wait until the server has started.

        Raises:
            ToolServerError: it could not start.
            ConfigError: the program does not exist.
        """
        await self._ready.wait()
        if self.fault is not None:
            raise self.fault

    def end(self) -> None:
        """Tell the server to end soon, even if it is still starting."""
        self._over.set()
        # Until it is ready its task waits for the server, not for ``_over``.
        if not self._ready.is_set():
            self._start.cancel()

    def end_soon(self) -> None:
        """Do as ``end`` does, for a link that was garbage-collected, on whatever thread that is."""
        # Not by ``_loop.get``: the collector may run on a thread that holds its lock just now.
        with suppress(RuntimeError):  # the loop was closed, and all servers ended before it
            self._task.get_loop().call_soon_threadsafe(self.end)

    @property
    def usable(self) -> bool:
        """Whether calls can be made: false once the server's output has ended."""
        if self.doubtful or self._over.is_set() or self.ended.is_set():
            return False
        # The stream of a program's output has no sender left once that has ended; a server in
        # this process has no such stream.
        incoming = self._incoming
        return incoming is None or incoming.statistics().open_send_streams > 0

    @property
    def stale(self) -> bool:
        """Whether the tools may have changed: the server said so, or failed to list them."""
        return self._changes_known != self._changes

    async def call(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], *, timeout_s: float
    ) -> CallToolResult:
        """Call a tool.

        Raises:
            TimeoutError: there was no answer.
            ValueError: there was only output that is not a message.
            MCPError, RuntimeError: as the ``mcp`` library raises them.
        """
        before = self._bad_lines
        self._under_way += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._client.call_tool(name, arguments, meta=meta)  # type: ignore[arg-type]
        except TimeoutError:
            # The tool may be slow, or the server hang: the next caller asks it before a call.
            self.doubtful = True
            if lines := self._bad_lines - before:
                raise ValueError(f"the server wrote {lines} lines that are not messages") from None
            raise
        except asyncio.CancelledError:
            self.doubtful = True  # this may end before ``caller_left`` looks
            raise
        finally:
            self._under_way -= 1

    async def refresh(self) -> None:
        """Ask the server for its tools.

        Raises:
            ToolServerError: it does not list them.
        """
        changes = self._changes  # read before asking, or a change meanwhile would be missed
        self._under_way += 1
        try:
            async with asyncio.timeout(self._start_timeout_s):
                self.tools = await _all_tools(self._client)
            self._changes_known = changes
        except asyncio.CancelledError:
            self.doubtful = True  # this may end before ``caller_left`` looks
            raise
        except (TimeoutError, *_SDK_ERRORS) as error:
            # No count of changes is negative, so the list stays stale until one arrives.
            self._changes_known = -1
            self.doubtful = True
            why = str(error) or f"no answer within {self._start_timeout_s:g} s"
            raise ToolServerError(
                f"the tool server {self._name!r} does not list its tools: {why}"
            ) from error
        finally:
            self._under_way -= 1

    def caller_left(self) -> None:
        """Record, from any thread, that a caller stopped waiting: the server may be silent."""
        if self._under_way:
            self.doubtful = True

    async def settle_doubt(self) -> None:
        """Find out whether the server still answers; it stays doubtful if it does not."""
        # Shielded, so that the question outlives a caller who is cancelled and the next caller
        # gets its answer instead of asking again.
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
            # Only after an answer: a silent server is not asked a second time but started anew.
            self.doubtful, self._question = False, None

    def stderr_tail(self) -> str:
        """Return the end of what the server wrote to standard error."""
        with self._reading:  # callers may be on any thread
            if (file := self._stderr) is None:
                return self._stderr_tail
            # A character has at most four bytes in UTF-8.
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _MAX_STDERR_CHARS))
            return file.read().decode(errors="replace").strip()[-_MAX_STDERR_CHARS:]

    async def _serve_until_over(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            self._record_failure(error)
        finally:
            _alive.discard(self)
            self._ready.set()
            self.ended.set()

    async def _serve(self) -> None:
        # The library checks results with jsonschema: a first call should not wait for its import.
        await asyncio.to_thread(import_module, "jsonschema")
        with self._start as scope:
            scope.deadline = anyio.current_time() + self._start_timeout_s
            # The deadline is for the start alone; afterwards the scope stays open without one.
            target: Any = self._target
            if isinstance(target, StdioServerParameters):
                target = self._process(target)
            async with Client(target, message_handler=self._on_message, cache=None) as self._client:
                self.tools = await _all_tools(self._client)
                scope.deadline = math.inf
                self._ready.set()
                await self._over.wait()
        if not self._ready.is_set():
            raise TimeoutError(
                "it was closed before it had started"
                if self._over.is_set()
                else f"it did not answer within {self._start_timeout_s:g} s; start_timeout_s gives "
                "a slow one longer"
            )

    @asynccontextmanager
    async def _process(self, command: StdioServerParameters) -> AsyncIterator[Any]:
        """Start the program, and keep the stream that ends when it does."""
        path, file, self._stderr = _new_file()
        try:
            with file as stderr:
                async with stdio_client(command, errlog=stderr) as (incoming, outgoing):
                    self._incoming = incoming  # type: ignore[assignment]
                    yield incoming, outgoing
        finally:
            # While the file is open: the last words of a server often say why it ended.
            self._stderr_tail = self.stderr_tail()
            with self._reading, self._stderr:
                self._stderr = None
            with suppress(OSError):  # Windows cannot delete what another program has open
                path.unlink(missing_ok=True)

    async def _on_message(self, message: object) -> None:
        if isinstance(message, Exception):
            self._bad_lines += 1
        elif isinstance(message, ToolListChangedNotification):
            self._changes += 1

    def _record_failure(self, error: Exception) -> None:
        if self._ready.is_set():
            log_event(
                logger, logging.WARNING, "tool_server_end", server=self._name, detail=repr(error)
            )
            return
        # anyio wraps what fails in its task groups, once for each of them.
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        stderr = self.stderr_tail()
        what = f"the tool server {self._name!r} could not be started: {error}"
        if stderr:
            what += f"; its standard error: {clip(stderr, 500)}"
        self.fault = ConfigError(what) if isinstance(error, _NO_PROGRAM) else ToolServerError(what)
        self.fault.__cause__ = error


async def _all_tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        # Past the library's cache, which would hide that the tools have changed.
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += page.tools
        if not (cursor := page.next_cursor):
            return found
    raise ValueError(f"its list of tools has more than {_MAX_PAGES} pages")


def _new_file() -> tuple[Path, TextIO, FileIO]:
    """Return a private file, to write and to read.

    Where the system allows it the file has no name any more, so that nothing is left of it if this
    program is killed.
    """
    handle, name = tempfile.mkstemp(prefix="llmsim-lab-", suffix=".txt")
    path = Path(name)
    written, read = os.fdopen(handle, "w", encoding="utf-8"), path.open("rb", buffering=0)
    with suppress(OSError):  # Windows keeps the names of open files
        path.unlink()
    return path, written, read


# --- the end of the program, and its forks --------------------------------------------------------


@cache
def _prepare_exit() -> None:
    """Register the end of all servers at exit, which must come before that of their loop."""
    _loop.get()  # first, since atexit runs what was registered last before the rest
    atexit.register(_end_all)
    if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no forks
        os.register_at_fork(after_in_child=_forget)


def _end_all() -> None:
    if _alive:
        wait([asyncio.run_coroutine_threadsafe(_all_ended(), _loop.get())], _AT_EXIT_S)


async def _all_ended() -> None:
    connections = list(_alive)
    for connection in connections:
        connection.end()
    for connection in connections:
        await connection.ended.wait()


def _forget() -> None:  # pragma: no cover - only ever runs in a process of its own
    """Leave the servers to the parent in a forked process, where their loop does not run."""
    _alive.clear()
    for link in list(_links):
        link._connection = None
