"""Tools of a server that speaks MCP, the Model Context Protocol.

A connection belongs to one event loop and one task of the ``mcp`` library's. So all connections
live on one loop in a thread of its own, and callers on any loop or thread hand it their calls.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio

from llmsim_lab._util.text import clip, end_of, log_event
from llmsim_lab._util.waiting import PrivateLoop
from llmsim_lab.assistant._toolbox import (
    ERROR_KEY,
    IDENTITY,
    USER_KEY,
    failed_result,
    reads_by_name,
    untitled,
)
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult, ToolServerError
from llmsim_lab.errors import ConfigError

try:
    from mcp import Client, MCPError, StdioServerParameters, stdio_client
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, CallToolResult, TextContent, Tool
except ImportError as error:
    raise ImportError(
        f"MCPToolExecutor needs the mcp library: pip install 'llmsim-lab[tools]' ({error})"
    ) from error

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MAX_ERROR_CHARS = 1_000
_MAX_STDERR_CHARS = 500
_AT_EXIT_S = 10.0
"""How long the end of the program waits for its servers to end; killing one takes up to 6 s."""
_SERVER_CODES = ("INVALID_PARAMETERS", "NOT_FOUND", "TOOL_ERROR")
"""How a server's tool fails: wrong arguments, something they name is missing, or other."""
_MAYBE = "it may have been done anyway"

_loop = PrivateLoop()
_alive: set[_Connection] = set()


class MCPToolExecutor:
    """Runs the tools of one MCP server, from any thread and event loop, several at once.

    The server is connected to when it is first needed, and again when the connection was closed,
    as by its death. The user that a tool acts for is in each request's metadata, under
    ``llmsim-lab/user_id``, and in the argument ``user_id`` if the tool has one.

    Args:
        server: a command to start, as a list of words, or ``mcp.StdioServerParameters`` where it
            needs a folder or environment variables; the URL of a server; or a server of the
            ``mcp`` library's in this process.
        timeout_s: longest wait for a tool's answer, seconds; below the limit of whoever waits for
            it, who would otherwise not learn what went wrong.
        start_timeout_s: longest wait for the server to start, and for a list of its tools, seconds.

    Raises:
        ConfigError: ``server`` is a text and not a URL.

    Example:
        >>> tools = MCPToolExecutor(["llmsim-lab-tasks", "--db", "tasks.db"])
        >>> result = await tools.execute("add_task", {"description": "Buy milk"}, user_id="ann")
    """

    def __init__(
        self,
        server: Sequence[str] | StdioServerParameters | MCPServer[Any] | Server[Any] | str,
        *,
        timeout_s: float = 20.0,
        start_timeout_s: float = 60.0,
    ) -> None:
        if isinstance(server, str) and "://" not in server:
            raise ConfigError(
                f"server={server!r} is not a URL; give a command as a list of words, such as "
                "['llmsim-lab-tasks', '--db', 'tasks.db']"
            )
        if isinstance(server, list | tuple):
            server = StdioServerParameters(
                command=server[0],
                args=server[1:],
                encoding_error_handler="replace",  # not UTF-8 would end the connection
            )
        self.timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._target: Any = server
        self._closed = False
        self._connection: _Connection | None = None
        self._tools: dict[str, Tool] | None = None
        _prepare()

    @classmethod
    def tasks(cls, db: Path | str | None = None) -> Self:
        """Return the tools of the shipped task server, started as another program.

        Args:
            db: the SQLite file; None keeps the tasks only as long as the server runs.
        """
        command = [sys.executable, "-m", "llmsim_lab.assistant.tasks"]
        if db is not None:
            command += ["--db", str(Path(db).absolute())]  # a restart may be in another folder
        return cls(command)

    def get_available_tools(self) -> list[str]:
        """Return the names of the server's tools; the first time this waits for its start.

        Async code should await ``ready`` first, which does not block its event loop.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        return list(self._known())

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the server has them."""
        known = self._known()
        return [declaration_of(known[name]) for name in names if name in known]

    async def ready(self) -> None:
        """Ask the server for its tools, without blocking the event loop.

        Afterwards names and declarations are returned at once.

        Raises:
            ToolServerError: the server could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        await asyncio.wrap_future(_submit(self._list()))

    start = ready

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool for a user; its failures are results.

        A call is made once. If the server dies or stays silent during a call, nobody knows whether
        it took effect, and the result says so.

        The codes of failed results: ``INVALID_PARAMETERS``, ``NOT_FOUND`` and ``TOOL_ERROR`` are
        the tool's own, the first two where the server tells them apart; ``TOOL_NOT_FOUND``;
        ``TIMEOUT``, ``SERVER_DIED`` and ``INVALID_RESULT`` are the server's faults.

        Args:
            tool_name: the tool.
            parameters: its arguments, without the user's identity.
            user_id: who it acts for, as authenticated.
        """
        call = self._call(tool_name, parameters, user_id)
        try:
            return await asyncio.wrap_future(_submit(call))
        except TimeoutError:
            what, code = f"it gave no answer within {self.timeout_s:g} s; {_MAYBE}", "TIMEOUT"
        except (ToolServerError, ConfigError) as error:
            log_event(logger, logging.ERROR, "tool_server_down", detail=str(error))
            what, code = "the tools cannot be reached now", "SERVER_DIED"
        except MCPError as error:
            what = error.message
            code = "INVALID_PARAMETERS" if error.code == INVALID_PARAMS else "TOOL_ERROR"
            if error.code == CONNECTION_CLOSED:
                what = f"the tools stopped working before it answered; {_MAYBE}"
                code = "SERVER_DIED"
        except (ValueError, RuntimeError) as error:
            log_event(logger, logging.WARNING, "tool_result_invalid", detail=str(error))
            what, code = "its answer makes no sense", "INVALID_RESULT"
        return failed_result(clip(what, _MAX_ERROR_CHARS), code)

    async def aclose(self) -> None:
        """End the server, and wait until it has ended; these tools cannot be used again."""
        await asyncio.wrap_future(_submit(self._close()))

    def close(self) -> None:
        """Do as ``aclose`` does, from plain code."""
        _submit(self._close()).result()

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPToolExecutor({_name(self._target)})"

    def _known(self) -> dict[str, Tool]:
        if self._tools is None or self._closed:
            return _submit(self._list()).result()
        return self._tools

    # On the loop of all connections:

    async def _call(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        tool = (self._tools or {}).get(tool_name) or (await self._list()).get(tool_name)
        if tool is None:
            return failed_result(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        # Set last, so that it replaces whatever a caller left in the arguments.
        wants_user = IDENTITY in _properties(tool.input_schema)
        arguments = parameters | {IDENTITY: user_id} if wants_user else parameters
        connection = await self._connected()
        try:
            async with asyncio.timeout(self.timeout_s):
                meta: Any = {USER_KEY: user_id}
                reply = await connection.client.call_tool(tool_name, arguments, meta=meta)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                what = f"{_name(self._target)}{connection.last_words()}"
                log_event(logger, logging.WARNING, "tool_server_died", server=what)
                connection.end()
            raise
        return result_of(tool, reply)

    async def _list(self) -> dict[str, Tool]:
        """Ask the server for its tools, page by page."""
        connection = await self._connected()
        try:
            async with asyncio.timeout(self._start_timeout_s):
                page = await connection.client.list_tools()
                found = list(page.tools)
                while cursor := page.next_cursor:
                    page = await connection.client.list_tools(cursor=cursor)
                    found += page.tools
        except (TimeoutError, MCPError, ValueError, RuntimeError) as error:
            said = str(error) or f"no answer within {self._start_timeout_s:g} s"
            said += connection.last_words()
            connection.end()
            raise ToolServerError(
                f"the tool server {_name(self._target)!r} does not list its tools: {said}"
            ) from error
        self._tools = {tool.name: tool for tool in found}
        return self._tools

    async def _connected(self) -> _Connection:
        """Return the connection; a new one if there is none or it was closed."""
        if self._closed:
            raise ConfigError("these tools were closed; make the executor again")
        known = self._connection
        if known is None or not known.usable:
            known = self._connection = _Connection(self._target, self._start_timeout_s)
            # An executor that was collected ends its server; at exit _end_all does, and waits.
            weakref.finalize(self, known.end_soon).atexit = False
        await known.ready.wait()
        if known.fault is not None:
            raise known.fault
        return known

    async def _close(self) -> None:
        self._closed = True
        if (connection := self._connection) is not None:
            connection.end()
            await connection.ended.wait()


def _name(target: Any) -> str:
    if isinstance(target, StdioServerParameters):
        return " ".join([target.command, *target.args])
    return target if isinstance(target, str) else f"{target.name} in memory"


# --- on the loop of all connections ---------------------------------------------------------------


def _submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, _loop.get())


class _Connection:
    """One connection to a server, held open by a task of its own until ``end``.

    Attributes:
        client: the library's.
        ready: set once the server has started, or could not be.
        fault: why it could not.
        ended: set once the server has ended.
    """

    def __init__(self, target: Any, start_timeout_s: float) -> None:
        self.client: Client
        self.ready, self.ended = asyncio.Event(), asyncio.Event()
        self.fault: ConfigError | ToolServerError | None = None
        self.loop = asyncio.get_running_loop()
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + start_timeout_s)
        self._stderr: Any = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115
        self._task = asyncio.create_task(self._hold(target, start_timeout_s))
        _alive.add(self)

    def end(self) -> None:
        """Tell the server to end soon, even if it is still starting."""
        self._scope.cancel()

    def end_soon(self) -> None:
        """Do as ``end`` does, from any thread."""
        with suppress(RuntimeError):  # the loop was closed, and all servers ended before it
            self.loop.call_soon_threadsafe(self.end)

    @property
    def usable(self) -> bool:
        """Whether calls can be made."""
        # A process that was forked has the connections of its parent, but not their loop.
        here = self.loop is asyncio.get_running_loop()
        return here and not (self._scope.cancel_called or self.ended.is_set())

    def last_words(self) -> str:
        """Return the end of what the server wrote to standard error, as the end of a message."""
        # The server appends, so that it does not mind where this reads.
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 4 * _MAX_STDERR_CHARS))
        said = end_of(self._stderr.read().decode(errors="replace"), _MAX_STDERR_CHARS)
        return f"; its standard error: {said}" if said else ""

    async def _hold(self, target: Any, start_timeout_s: float) -> None:
        name = _name(target)
        try:
            with self._scope:
                if isinstance(target, StdioServerParameters):
                    target = stdio_client(_with_its_group(target), errlog=self._stderr)
                async with Client(target, cache=None) as self.client:
                    self._scope.deadline = math.inf  # it is for the start alone
                    self.ready.set()
                    await anyio.sleep_forever()
            if not self.ready.is_set():
                raise TimeoutError(
                    f"it did not answer within {start_timeout_s:g} s, or was closed before; "
                    "start_timeout_s gives a slow one longer"
                )
        except ConfigError as error:
            self.fault = error
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            if self.ready.is_set():
                log_event(logger, logging.WARNING, "tool_server_end", detail=repr(error))
            # anyio wraps what fails in its task groups, once for each of them.
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            what = f"the tool server {name!r} could not be started: {error}{self.last_words()}"
            self.fault = ToolServerError(what)
            self.fault.__cause__ = error
        finally:
            _alive.discard(self)
            self._stderr.close()
            self.ready.set()
            self.ended.set()


def _with_its_group(command: StdioServerParameters) -> StdioServerParameters:
    """Return a command whose process group ends with it, however it ends.

    The library kills the group of a server that it ends, but leaves it where the server ends by
    itself or is killed. On Windows it has them end together.

    Raises:
        ConfigError: there is no such program.
    """
    path = (command.env or {}).get("PATH")
    if command.cwd is None and shutil.which(command.command, path=path) is None:
        raise ConfigError(
            f"there is no program {command.command!r} to start as a tool server; install it, or "
            "give its path"
        )
    if os.name != "posix":
        return command
    words = ["-c", '"$@"; kill -9 0', "sh", command.command, *command.args]
    return command.model_copy(update={"command": "/bin/sh", "args": words})


@cache
def _prepare() -> None:
    """Register the end of all servers at exit, which must come before that of their loop."""
    _loop.get()  # first, since atexit runs what was registered last before the rest
    atexit.register(_end_all)


def _end_all() -> None:
    if _alive:
        wait([_submit(_all_ended())], _AT_EXIT_S)


async def _all_ended() -> None:
    loop = asyncio.get_running_loop()
    here = [connection for connection in _alive if connection.loop is loop]
    for connection in here:
        connection.end()
    for connection in here:
        await connection.ended.wait()


# --- what servers say -----------------------------------------------------------------------------


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool's declaration for the model."""
    hints = tool.annotations
    destructive = hints.destructive_hint if hints else None
    reads = hints.read_only_hint if hints else None
    if destructive is None:  # MCP's default: a tool that does not only read may destroy
        destructive = not (reads_by_name(tool.name) if reads is None else reads)
    return ToolDeclaration(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=untitled(tool.input_schema),
        destructive=destructive,
    )


def _properties(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return a schema's properties; none where a server has something else in their place."""
    found = (schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def result_of(tool: Tool, reply: CallToolResult) -> ToolResult:
    """Return a call's result: what is structured, else its JSON, else its text."""
    texts = [block.text for block in reply.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if reply.is_error:
        text = text.removeprefix(f"Error executing tool {tool.name}: ")
        code = (reply.meta or {}).get(ERROR_KEY)
        if code not in _SERVER_CODES:  # a server that knows nothing of these codes
            code = "TOOL_NOT_FOUND" if text == f"Unknown tool: {tool.name}" else "TOOL_ERROR"
        text = clip(text or "the tool failed and does not say why", _MAX_ERROR_CHARS)
        return failed_result(text, str(code))
    data: Any = reply.structured_content
    if data is None:
        data = text
        with suppress(ValueError, RecursionError):
            data = json.loads(text)
        if left_out := [block.type for block in reply.content if block.type != "text"]:
            data = {"data": data, "left_out": left_out}
    # The protocol wants objects, so other results come wrapped in one with the key "result". The
    # tool's schema tells which: an object of just this form with any key is one of the tool's own.
    elif data.keys() == _properties(tool.output_schema).keys() == {"result"}:
        data = data["result"]
    return ToolResult(success=True, data=data)
