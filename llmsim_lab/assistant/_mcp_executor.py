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
import signal
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    CallToolResult,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolListChangedNotification,
)
from pydantic_core import to_json

from llmsim_lab._util.text import clip, log_event
from llmsim_lab._util.waiting import PrivateLoop
from llmsim_lab.assistant._toolbox import (
    ERROR_KEY,
    IDENTITY,
    USER_KEY,
    failed_result,
    logged_failure,
    reads_by_name,
    untitled,
)
from llmsim_lab.assistant._types import (
    ServerErrorCode,
    ToolDeclaration,
    ToolResult,
    ToolServerError,
)
from llmsim_lab.errors import ConfigError

T = TypeVar("T")

logger = logging.getLogger(__name__)

Target = StdioServerParameters | MCPServer[Any] | Server[Any] | str
"""What can be connected to: a command to start, a server in this process, or a URL."""
_MAX_ERROR_CHARS = 1_000
_MAX_STDERR_BYTES = 500
_MARK = "LLMSIM_LAB_TOOL_SERVER"
"""The environment variable by which a server's process is known among those of this program."""
_LOOK_S = 0.2
"""How often a server's process is looked at, seconds."""
_PING_S = 2.0
"""How long a server that let a call time out has to show that it still answers, seconds."""
_AT_EXIT_S = 10.0
"""How long the end of the program waits for its servers to end; killing one takes up to 6 s."""
_NO_PROGRAM = (FileNotFoundError, PermissionError, NotADirectoryError)
_SDK_ERRORS = (MCPError, ValueError, RuntimeError)
"""What the library raises where a server does not keep to the protocol, or has gone."""

_loop = PrivateLoop()
_alive: set[_Connection] = set()
"""The connections that have not ended, wanted or not."""


class MCPToolExecutor:
    """Runs the tools of one MCP server, from any thread and event loop, several at once.

    The server is connected to when it is first needed, and again when the connection was closed,
    as by its death. The user that a tool acts for is in each request's metadata, under
    ``llmsim-lab/user_id``, and in the argument ``user_id`` if the tool has one.

    Args:
        server: a command to start, as a list of words; the URL of a server; or a server of the
            ``mcp`` library's in this process.
        timeout_s: longest wait for a tool's answer, seconds; below the limit of whoever waits for
            it, who would otherwise not learn what went wrong.
        start_timeout_s: longest wait for the server to start, and for a list of its tools, seconds.
        env: environment variables for the command, besides the few that every program needs.
        cwd: the folder it runs in.

    Raises:
        ConfigError: ``server`` is none of these.

    Example:
        >>> tools = MCPToolExecutor(["llmsim-lab-tasks", "--db", "tasks.db"])
        >>> result = await tools.execute("add_task", {"description": "Buy milk"}, user_id="ann")
    """

    def __init__(
        self,
        server: Sequence[str] | Target,
        *,
        timeout_s: float = 20.0,
        start_timeout_s: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("start_timeout_s", start_timeout_s)):
            if not value > 0:
                raise ConfigError(f"{name}={value!r} must be above 0 seconds")
        self.timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._target = _target(server, env, cwd)
        self._closed = False
        self._connection: _Connection | None = None
        _prepare()

    @classmethod
    def tasks(
        cls, db: Path | str | None = None, *, timeout_s: float = 20.0, start_timeout_s: float = 60.0
    ) -> Self:
        """Return the tools of the shipped task server, started as another program.

        Args:
            db: the SQLite file; None keeps the tasks only as long as the server runs.
            timeout_s: longest wait for a tool, seconds.
            start_timeout_s: longest wait for the server to start, seconds.
        """
        command = [sys.executable, "-m", "llmsim_lab.assistant.tasks"]
        if db is not None:
            command += ["--db", str(Path(db).absolute())]  # a restart may be in another folder
        return cls(command, timeout_s=timeout_s, start_timeout_s=start_timeout_s)

    def get_available_tools(self) -> list[str]:
        """Return the names of the server's tools; the first time this waits for its start.

        Async code should await ``ready`` first, which does not block its event loop.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        return [tool.name for tool in self._tools()]

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the server has them."""
        known = {tool.name: tool for tool in self._tools()}
        return [declaration_of(known[name]) for name in names if name in known]

    async def ready(self) -> None:
        """Wait, without blocking the event loop, until the server's tools are known.

        Afterwards names and declarations are returned at once.

        Raises:
            ToolServerError: the server could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        await asyncio.wrap_future(_submit(self._listed()))

    async def start(self) -> None:
        """Start the server now, as ``ready`` does."""
        await self.ready()

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
        # Checked here, since the library finds out while writing, and then drops the connection
        # with all the calls on it.
        if fault := json_fault([parameters, user_id]):
            return _failed(tool_name, f"the arguments: {fault}", "INVALID_PARAMETERS")
        call = self._call(tool_name, parameters, user_id)
        try:
            tool, reply = await asyncio.wrap_future(_submit(call))
            if tool is None:
                return _failed(tool_name, f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
            return result_of(tool, reply)
        except TimeoutError:
            return _failed(
                tool_name,
                f"it gave no answer within {self.timeout_s:g} s; it may have been done anyway",
                "TIMEOUT",
            )
        except (ToolServerError, ConfigError) as error:
            log_event(logger, logging.ERROR, "tool_server_down", detail=str(error))
            return _failed(tool_name, "the tools cannot be reached now", "SERVER_DIED")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The caller was not cancelled: a tool in this process raised the error by itself.
            return _failed(tool_name, "it was cancelled", "TOOL_ERROR")
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                return _failed(
                    tool_name,
                    "the tools stopped working before it answered; it may have been done anyway",
                    "SERVER_DIED",
                )
            code = "INVALID_PARAMETERS" if error.code == INVALID_PARAMS else "TOOL_ERROR"
            return _failed(tool_name, error.message, code)
        except (ValueError, RuntimeError) as error:
            log_event(logger, logging.WARNING, "tool_result_invalid", detail=str(error))
            return _failed(tool_name, "its answer makes no sense", "INVALID_RESULT")

    async def aclose(self) -> None:
        """End the server, and wait until it has ended; these tools cannot be used again."""
        await asyncio.wrap_future(_submit(self._close()))

    def close(self) -> None:
        """Do as ``aclose`` does, from plain code.

        Raises:
            ConfigError: an async tool of a server in this process calls it, which would wait for
                itself.
        """
        _wait_for(self._close(), instead="aclose()")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPToolExecutor({_name(self._target)})"

    def _tools(self) -> list[Tool]:
        known = self._connection
        if known is not None and known.usable and known.tools is not None:
            return known.tools
        return _wait_for(self._listed(), instead="ready()")

    # On the loop of all connections:

    async def _call(
        self, tool_name: str, parameters: dict[str, Any], user_id: str
    ) -> tuple[Tool | None, Any]:
        """Return the tool, None if there is none of the name, and the server's answer."""
        tool = _named(tool_name, await self._listed())
        if tool is None:  # it may be new
            tool = _named(tool_name, await self._listed(fresh=True))
        if tool is None:
            return None, None
        # Set last, so that it replaces whatever a caller left in the arguments.
        wants_user = IDENTITY in _properties(tool.input_schema)
        arguments = parameters | {IDENTITY: user_id} if wants_user else parameters
        connection = await self._connected()
        try:
            async with asyncio.timeout(self.timeout_s):
                meta: Any = {USER_KEY: user_id}
                return tool, await connection.client.call_tool(tool_name, arguments, meta=meta)
        except TimeoutError:
            await connection.end_if_silent()
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                connection.report("tool_server_died", stderr_tail=connection.stderr_tail())
                connection.end()
            raise

    async def _listed(self, *, fresh: bool = False) -> list[Tool]:
        """Return the server's tools, asked for now if they are not known, or not ``fresh``."""
        connection = await self._connected()
        if (tools := connection.tools) is not None and not fresh:
            return tools
        try:
            async with asyncio.timeout(self._start_timeout_s):
                return await connection.list_tools()
        except (TimeoutError, *_SDK_ERRORS) as error:
            connection.end()
            why = str(error) or f"no answer within {self._start_timeout_s:g} s"
            raise ToolServerError(
                f"the tool server {_name(self._target)!r} does not list its tools: {why}"
            ) from error

    async def _connected(self) -> _Connection:
        """Return the connection; a new one if there is none or it was closed."""
        if self._closed:
            raise ConfigError("these tools were closed; make the executor again")
        known = self._connection
        if known is None or not known.usable:
            if known is not None:
                known.report("tool_server_restart", stderr_tail=known.stderr_tail())
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


def _target(
    server: Sequence[str] | Target, env: Mapping[str, str] | None, cwd: Path | str | None
) -> Target:
    is_url = isinstance(server, str) and server.startswith(("http://", "https://"))
    if is_url or isinstance(server, StdioServerParameters | MCPServer | Server):
        if env is not None or cwd is not None:
            raise ConfigError("env and cwd are for a server given as a list of words")
        return server  # type: ignore[return-value]
    words = list(server) if isinstance(server, list | tuple) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"server={server!r} is neither a list of words, such as "
            "['llmsim-lab-tasks', '--db', 'tasks.db'], nor a URL, nor a server of the mcp library's"
        )
    return StdioServerParameters(
        command=words[0],
        args=words[1:],
        env=dict(env) if env else None,
        cwd=cwd,
        encoding_error_handler="replace",  # bytes that are not UTF-8 would end the connection
    )


def _name(target: Target) -> str:
    if isinstance(target, StdioServerParameters):
        return " ".join([target.command, *target.args])
    return target if isinstance(target, str) else f"{target.name} in memory"


# --- on the loop of all connections ---------------------------------------------------------------


def _submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, _loop.get())


def _wait_for(work: Coroutine[Any, Any, T], *, instead: str) -> T:
    if _loop.is_here():
        work.close()
        raise ConfigError(f"an async tool cannot wait here for another server; await {instead}")
    return _submit(work).result()


class _Connection:
    """One connection to a server, held open by a task of its own until ``end``.

    Attributes:
        client: the library's.
        tools: the server's tools; None if they may be others now.
        ready: set once the server has started, or could not be.
        fault: why it could not.
        ended: set once the server has ended.
    """

    def __init__(self, target: Target, start_timeout_s: float) -> None:
        self.client: Client
        self.tools: list[Tool] | None = None
        self.ready, self._over, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.fault: ConfigError | ToolServerError | None = None
        self.loop = asyncio.get_running_loop()
        self._name, self._start_timeout_s = _name(target), start_timeout_s
        self._start = anyio.CancelScope()
        self._incoming: Any = None
        self._stderr: Any = None
        self._last_words = ""
        self._garbage = False
        self._task = asyncio.create_task(self._hold(target))
        _alive.add(self)

    def end(self) -> None:
        """Tell the server to end soon, even if it is still starting."""
        self._over.set()
        if not self.ready.is_set():  # until then its task waits for the server, not for ``_over``
            self._start.cancel()

    def end_soon(self) -> None:
        """Do as ``end`` does, from any thread."""
        with suppress(RuntimeError):  # the loop was closed, and all servers ended before it
            self.loop.call_soon_threadsafe(self.end)

    async def end_if_silent(self) -> None:
        """End a server that hangs; one whose tool is only slow still answers."""
        try:
            async with asyncio.timeout(_PING_S):
                await self.client.list_tools()
        except (TimeoutError, *_SDK_ERRORS):
            self.end()

    @property
    def usable(self) -> bool:
        """Whether calls can be made: false once the server's output has ended."""
        # A process that was forked has the connections of its parent, but not their loop.
        if self._over.is_set() or self.ended.is_set() or self.loop is not _loop.get():
            return False
        incoming = self._incoming  # which only a program has
        return incoming is None or incoming.statistics().open_send_streams > 0

    async def list_tools(self) -> list[Tool]:
        """Ask the server for its tools, page by page."""
        page = await self.client.list_tools()
        found = list(page.tools)
        while cursor := page.next_cursor:
            page = await self.client.list_tools(cursor=cursor)
            found += page.tools
        self.tools = found
        return found

    def report(self, event: str, **facts: str) -> None:
        """Log what happened to the server."""
        log_event(logger, logging.WARNING, event, server=self._name, **facts)

    def stderr_tail(self) -> str:
        """Return the end of what the server wrote to standard error."""
        with suppress(ValueError):  # the file was closed meanwhile, on the loop's thread
            if (file := self._stderr) is not None:
                # The server appends, so that it does not mind where this reads.
                file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES))
                self._last_words = file.read().decode(errors="replace").strip()
        return self._last_words

    async def _hold(self, target: Any) -> None:
        try:
            with self._start as scope:
                scope.deadline = anyio.current_time() + self._start_timeout_s
                if isinstance(target, StdioServerParameters):
                    target = self._program(target)
                async with Client(target, message_handler=self._on_message, cache=None) as client:
                    self.client = client
                    await self.list_tools()
                    scope.deadline = math.inf  # it is for the start alone
                    self.ready.set()
                    await self._over.wait()
            if not self.ready.is_set():
                raise TimeoutError(
                    "it was closed before it had started"
                    if self._over.is_set()
                    else f"it did not answer within {self._start_timeout_s:g} s; start_timeout_s "
                    "gives a slow one longer"
                )
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            self._record_failure(error)
        finally:
            _alive.discard(self)
            self.ready.set()
            self.ended.set()

    @asynccontextmanager
    async def _program(self, command: StdioServerParameters) -> AsyncIterator[Any]:
        """Start a program, and keep the stream that ends when it does."""
        mark = uuid.uuid4().hex
        command = command.model_copy(update={"env": {**(command.env or {}), _MARK: mark}})
        with tempfile.TemporaryFile("a+b", buffering=0) as self._stderr:
            errlog: Any = self._stderr
            group: _ServerGroup | None = None
            try:
                async with stdio_client(command, errlog=errlog) as (self._incoming, outgoing):
                    group = _ServerGroup(mark)
                    yield self._incoming, outgoing
            finally:
                if group is not None:
                    group.kill()
                self.stderr_tail()  # the last words often say why it ended
                self._stderr = None

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tools = None
        elif isinstance(message, Exception) and not self._garbage:
            self._garbage = True
            self.report("tool_server_garbage")

    def _record_failure(self, error: Exception) -> None:
        if self.ready.is_set():
            self.report("tool_server_end", detail=repr(error))
            return
        # anyio wraps what fails in its task groups, once for each of them.
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        what = f"the tool server {self._name!r} could not be started: {error}"
        if stderr := self.stderr_tail():
            what += f"; its standard error: {stderr}"
        self.fault = ConfigError(what) if isinstance(error, _NO_PROGRAM) else ToolServerError(what)
        self.fault.__cause__ = error


class _ServerGroup:
    """The processes that a server has started, which end when it does; not on Windows.

    There the library has them end together. Elsewhere it leaves them alone where the server ends
    by itself or is killed, and they may hold its output open, so that its end is not noticed.

    Args:
        mark: of the server's process.
    """

    def __init__(self, mark: str) -> None:
        import psutil  # here, since it takes long to import

        self._gone = psutil.NoSuchProcess
        self._server: psutil.Process | None = None
        for child in psutil.Process().children() if os.name == "posix" else ():
            with suppress(psutil.Error):
                for _ in range(50):
                    if environ := child.environ():
                        break
                    time.sleep(0.001)  # just started: a program that is being loaded has none yet
                if environ.get(_MARK) == mark:
                    self._server = child
        self._watch = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        with suppress(self._gone):
            # Looked at, since waiting for a child's end is for its one parent, the library.
            while self._server is not None and self._server.status() != "zombie":  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        self.kill()

    def kill(self) -> None:
        """Kill what is left of the group; the server's number stays the group's as long."""
        self._watch.cancel()
        if self._server is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server = None


class _NoGarbage(logging.Filter):
    """Drops what the library logs, with a traceback, for each line that is no message."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (_loop.is_here() and record.msg.startswith("Failed to parse JSONRPC"))


@cache
def _prepare() -> None:
    """Register the end of all servers at exit, which must come before that of their loop."""
    _loop.get()  # first, since atexit runs what was registered last before the rest
    atexit.register(_end_all)
    logging.getLogger("mcp.client.stdio").addFilter(_NoGarbage())


def _end_all() -> None:
    if _alive:
        wait([_submit(_all_ended())], _AT_EXIT_S)


async def _all_ended() -> None:
    here = asyncio.get_running_loop()
    connections = [connection for connection in _alive if connection.loop is here]
    for connection in connections:
        connection.end()
    for connection in connections:
        await connection.ended.wait()


# --- what servers say -----------------------------------------------------------------------------


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool's declaration for the model."""
    hints = tool.annotations or ToolAnnotations()
    destructive, reads = hints.destructive_hint, hints.read_only_hint
    if destructive is None:  # MCP's default: a tool that does not only read may destroy
        destructive = not (reads_by_name(tool.name) if reads is None else reads)
    return ToolDeclaration(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=untitled(tool.input_schema),
        destructive=destructive,
    )


def _named(name: str, tools: Sequence[Tool]) -> Tool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _properties(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return a schema's properties; none where a server has something else in their place."""
    found = (schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def json_fault(value: Any) -> str:
    """Return why a value cannot be written as JSON in UTF-8; an empty text if it can."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        to_json({"params": {"arguments": value}})  # as it is sent, which allows less depth
    except (TypeError, ValueError, RecursionError) as error:
        return f"no JSON can be made of it: {error}"
    return ""


def result_of(tool: Tool, reply: CallToolResult) -> ToolResult:
    """Return a call's result as plain JSON.

    Raises:
        ValueError: it holds what is not JSON, such as NaN in an object.
    """
    if reply.is_error:
        texts = (block.text for block in reply.content if isinstance(block, TextContent))
        text = "\n".join(texts).removeprefix(f"Error executing tool {tool.name}: ")
        code = (reply.meta or {}).get(ERROR_KEY)
        if code not in get_args(ServerErrorCode):  # a server that knows nothing of these codes
            code = "TOOL_NOT_FOUND" if text == f"Unknown tool: {tool.name}" else "TOOL_ERROR"
        text = clip(text or "the tool failed and does not say why", _MAX_ERROR_CHARS)
        return failed_result(text, str(code))
    data = _data(tool, reply)
    if fault := json_fault(data):
        raise ValueError(fault)
    return ToolResult(success=True, data=data)


def _data(tool: Tool, reply: CallToolResult) -> Any:
    data = reply.structured_content
    if data is None:
        return _from_content(reply)
    # The protocol wants objects, so other results come wrapped in one with the key "result". The
    # tool's schema tells which: an object of just this form with any key is one of the tool's own.
    wraps = _properties(tool.output_schema).keys() == {"result"}
    return data["result"] if wraps and data.keys() == {"result"} else data


def _from_content(reply: CallToolResult) -> Any:
    """Return an unstructured result: its JSON, or its texts and the kinds that are left out."""
    parts: Sequence[Any] = [
        block.text if isinstance(block, TextContent) else {"left_out": block.type}
        for block in reply.content
    ]
    if len(parts) == 1 and isinstance(parts[0], str):
        # A text that reads as JSON but cannot be written as such again, such as 1e999 or half a
        # character, is a result all the same: a text.
        with suppress(ValueError, RecursionError):
            if not json_fault(data := json.loads(parts[0])):
                return data
        return parts[0]
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else list(parts)


def _failed(tool_name: str, what: str, code: str) -> ToolResult:
    return logged_failure(tool_name, clip(what, _MAX_ERROR_CHARS), code)
