"""A connection to one MCP server: started when needed, started again when it has died.

A connection belongs to one event loop and one task. So all connections live on a loop in a thread
of its own, and callers on any loop or thread hand their calls over to it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from functools import cache
from typing import Any, TypeVar

from mcp import StdioServerParameters
from mcp_types import CallToolResult, Tool

from llmsim_lab.assistant.mcp_connection import Connection, Target, alive
from llmsim_lab.concurrency import PrivateLoop
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event
from llmsim_lab.text import clip

__all__ = ["ServerLink"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CLOSED = "these tools were closed; make the executor again"
_AT_EXIT_S = 10.0
"""How long the end of the program waits for its servers to end; killing one takes up to 6 s."""

_loop = PrivateLoop()


class ServerLink:
    """Keeps a connection to a server.

    Args:
        target: the server.
        start_timeout_s: longest wait for it to start, and for a list of its tools, seconds.
    """

    def __init__(self, target: Target, *, start_timeout_s: float) -> None:
        self.target = target
        self.start_timeout_s = start_timeout_s
        self._connection: Connection | None = None
        self._tools: list[Tool] | None = None
        self._closed = False
        self._at_end: weakref.finalize[Any, Any] | None = None
        _prepare_exit()
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
        return self._work(self._call(name, arguments, meta, timeout_s))

    def prepare(self, *, fresh: bool = False) -> Future[list[Tool]]:
        """Have it connect, if need be, and return the server's tools.

        The future raises ``ToolServerError`` where no server could be started or it does not list
        its tools, ``ConfigError`` where there is no such program.

        Args:
            fresh: whether to ask a server that has told its tools already.
        """
        return self._work(self._listed(fresh))

    def _work(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        future = asyncio.run_coroutine_threadsafe(work, _loop.get())
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, work: Future[Any]) -> None:
        # Here and not where the work is cancelled, of which the next caller might be ahead.
        if work.cancelled() and (connection := self._connection) is not None:
            connection.give_up()

    def known_tools(self) -> list[Tool] | None:
        """Return the server's tools without asking it; None where that has to be done.

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
            ConfigError: there is no such program; or the caller is itself a tool of a server in
                this process, and so would wait for itself.
        """
        if _loop.is_here():
            raise ConfigError(
                "an async tool cannot block while it asks another server for its tools; have it "
                "await ready() first"
            )
        return self.prepare().result()

    @property
    def usable(self) -> bool:
        """Whether there is a server that calls can be made to, as far as one can tell."""
        connection = self._connection
        return connection is not None and connection.usable

    def last_words(self) -> str:
        """Return the end of what the present server wrote to standard error."""
        connection = self._connection
        return "" if connection is None else connection.last_words()

    def close(self) -> Future[None]:
        """Have the server ended; the future waits until it has."""
        self._closed = True
        return asyncio.run_coroutine_threadsafe(self._finish(), _loop.get())

    # --- from here on, all runs on the loop of all links ---------------------------------------

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

    async def _connected(self) -> Connection:
        """Return a connection that works as far as one can tell, made now if need be."""
        if (known := self._connection) is not None and known.doubtful:
            await known.settle_doubt()
        if self._closed:
            raise ConfigError(_CLOSED)
        if known is not None and self._connection is known and not known.usable:
            log_event(
                logger,
                logging.WARNING,
                "tool_server_restart",
                server=str(self),
                last_words=clip(known.last_words(), 300),
            )
            known.end()
            self._connection = None
        if (connection := self._connection) is None:
            connection = self._connection = Connection(
                self.target, name=str(self), start_timeout_s=self.start_timeout_s
            )
            if self._at_end is not None:
                self._at_end.detach()
            self._at_end = weakref.finalize(self, _end_soon, connection)
            self._at_end.atexit = False
        try:
            await connection.started()
        except Exception:
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


def _end_soon(connection: Connection) -> None:
    """End the connection of a link that nobody can reach any more, without waiting for it."""
    _loop.get().call_soon_threadsafe(connection.end)


# --- the end of the program, and its forks -----------------------------------------------------

_links: weakref.WeakSet[ServerLink] = weakref.WeakSet()


@cache
def _prepare_exit() -> None:
    """Have all servers ended at exit before their loop is, which is the first thing there."""
    _loop.get()
    atexit.register(_end_all)
    if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no forks
        os.register_at_fork(after_in_child=_forget)


def _end_all() -> None:
    if alive:
        wait([asyncio.run_coroutine_threadsafe(_all_ended(), _loop.get())], _AT_EXIT_S)


async def _all_ended() -> None:
    connections = list(alive)
    for connection in connections:
        connection.end()
    for connection in connections:
        await connection.ended.wait()


def _forget() -> None:  # pragma: no cover - only ever runs in a process of its own
    """Leave the servers to the parent in a forked process, where their loop does not run."""
    alive.clear()
    for link in list(_links):
        link._connection = None
