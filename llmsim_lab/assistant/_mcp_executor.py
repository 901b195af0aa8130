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
import uuid
import weakref
from collections.abc import AsyncIterator, Coroutine, Sequence
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
)
from pydantic_core import to_json

from llmsim_lab._util.text import clip, log_event
from llmsim_lab._util.waiting import PrivateLoop
from llmsim_lab.assistant._toolbox import (
    ERROR_KEY,
    IDENTITY,
    USER_KEY,
    failed_result,
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
_MAYBE = "it may have been done anyway"

_loop = PrivateLoop()
_alive: set[_Connection] = set()
"""The connections that have not ended, wanted or not."""


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
        server: Sequence[str] | Target,
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
        try:
            # Checked here, since the library finds out while writing, and then drops the
            # connection with all the calls on it.
            to_json({"params": {"arguments": [parameters, user_id]}})
        except (ValueError, RecursionError) as error:
            what, code = f"the arguments: no JSON can be made of it: {error}", "INVALID_PARAMETERS"
            return failed_result(clip(what, _MAX_ERROR_CHARS), code)
        call = self._call(tool_name, parameters, user_id)
        try:
            return await asyncio.wrap_future(_submit(call))
        except TimeoutError:
            what, code = f"it gave no answer within {self.timeout_s:g} s; {_MAYBE}", "TIMEOUT"
        except (ToolServerError, ConfigError) as error:
            log_event(logger, logging.ERROR, "tool_server_down", detail=str(error))
            what, code = "the tools cannot be reached now", "SERVER_DIED"
        except MCPError as error:
            code = "INVALID_PARAMETERS" if error.code == INVALID_PARAMS else "TOOL_ERROR"
            what = error.message
            if error.code == CONNECTION_CLOSED:
                what, code = (
                    f"the tools stopped working before it answered; {_MAYBE}",
                    "SERVER_DIED",
                )
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
        if tool_name not in (self._tools or {}):
            await self._list()
        if (tool := (self._tools or {}).get(tool_name)) is None:
            return failed_result(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        # Set last, so that it replaces whatever a caller left in the arguments.
        wants_user = IDENTITY in _properties(tool.input_schema)
        arguments = parameters | {IDENTITY: user_id} if wants_user else parameters
        connection = await self._connected()
        try:
            async with asyncio.timeout(self.timeout_s):
                meta: Any = {USER_KEY: user_id}
                reply = await connection.client.call_tool(tool_name, arguments, meta=meta)
        except TimeoutError:
            try:  # a server whose tool is only slow still answers
                async with asyncio.timeout(_PING_S):
                    await connection.client.list_tools()
            except (TimeoutError, MCPError):
                connection.end()
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                connection.report("tool_server_died")
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
            connection.end()
            why = str(error) or f"no answer within {self._start_timeout_s:g} s"
            raise ToolServerError(
                f"the tool server {_name(self._target)!r} does not list its tools: {why}"
                f"{connection.last_words()}"
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
        self._name, self._start_timeout_s = _name(target), start_timeout_s
        self._scope, self._over = anyio.CancelScope(), False
        self._said = ""
        self._stderr: Any = None
        self._garbage = False
        self._task = asyncio.create_task(self._hold(target))
        _alive.add(self)

    def end(self) -> None:
        """Tell the server to end soon, even if it is still starting."""
        self._over = True
        self._scope.cancel()

    def end_soon(self) -> None:
        """Do as ``end`` does, from any thread."""
        with suppress(RuntimeError):  # the loop was closed, and all servers ended before it
            self.loop.call_soon_threadsafe(self.end)

    @property
    def usable(self) -> bool:
        """Whether calls can be made."""
        # A process that was forked has the connections of its parent, but not their loop.
        return not (self._over or self.ended.is_set()) and self.loop is _loop.get()

    def report(self, event: str) -> None:
        """Log what happened to the server."""
        log_event(logger, logging.WARNING, event, server=self._name, said=self.last_words())

    def last_words(self) -> str:
        """Return the end of what the server wrote to standard error, as the end of a message."""
        with suppress(ValueError):  # the file was closed: what was read then counts
            if (file := self._stderr) is not None:
                # The server appends, so that it does not mind where this reads.
                file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES))
                said = file.read().decode(errors="replace").strip()
                self._said = f"; its standard error: {said}" if said else ""
        return self._said

    async def _hold(self, target: Any) -> None:
        try:
            with self._scope:
                self._scope.deadline = anyio.current_time() + self._start_timeout_s
                if isinstance(target, StdioServerParameters):
                    target = self._program(target)
                async with Client(target, message_handler=self._on_message, cache=None) as client:
                    self.client = client
                    self._scope.deadline = math.inf  # it is for the start alone
                    self.ready.set()
                    await anyio.sleep_forever()
            if not self.ready.is_set():
                raise TimeoutError(
                    "it was closed before it had started"
                    if anyio.current_time() < self._scope.deadline
                    else f"it did not answer within {self._start_timeout_s:g} s; start_timeout_s "
                    "gives a slow one longer"
                )
        except Exception as error:  # noqa: BLE001 - the library raises all kinds
            self._fail(error)
        finally:
            self._over = True
            _alive.discard(self)
            self.ready.set()
            self.ended.set()

    @asynccontextmanager
    async def _program(self, command: StdioServerParameters) -> AsyncIterator[Any]:
        """Start a program, and end its process group with it."""
        mark = uuid.uuid4().hex
        command = command.model_copy(update={"env": {**(command.env or {}), _MARK: mark}})
        with tempfile.TemporaryFile("a+b", buffering=0) as self._stderr:
            watch: asyncio.Task[None] | None = None
            try:
                async with stdio_client(command, errlog=self._stderr) as streams:
                    watch = asyncio.create_task(self._watch(mark))
                    yield streams
            finally:
                if watch is not None:
                    watch.cancel()
                self.last_words()  # which often say why it ended

    async def _watch(self, mark: str) -> None:
        """Wait until a server has ended, then kill what is left of its process group.

        Not on Windows, where the library has them end together. Elsewhere it leaves the group alone
        where the server ends by itself or is killed, and it may hold the server's output open, so
        that its end is not noticed.
        """
        if os.name != "posix":
            return
        import psutil  # here, since it takes long to import

        def marked(child: psutil.Process) -> bool:
            with suppress(psutil.Error):
                return child.environ().get(_MARK) == mark
            return False

        found: list[psutil.Process] = []
        try:
            for _ in range(100):  # a program that is being loaded has no environment yet
                if found := list(filter(marked, psutil.Process().children())):
                    break
                await asyncio.sleep(0.01)
            # Looked at, since waiting for a child's end is for its one parent, the library.
            while found and found[0].status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        except psutil.NoSuchProcess:
            pass  # it has ended
        finally:
            for server in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(server.pid, signal.SIGKILL)
        if found:
            self.end()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, Exception) and not self._garbage:
            self._garbage = True
            self.report("tool_server_garbage")

    def _fail(self, error: Exception) -> None:
        if self.ready.is_set():
            log_event(logger, logging.WARNING, "tool_server_end", detail=repr(error))
            return
        # anyio wraps what fails in its task groups, once for each of them.
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        what = f"the tool server {self._name!r} could not be started: {error}{self.last_words()}"
        is_missing = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError)
        self.fault = ConfigError(what) if is_missing else ToolServerError(what)
        self.fault.__cause__ = error


@cache
def _prepare() -> None:
    """Register the end of all servers at exit, which must come before that of their loop."""
    _loop.get()  # first, since atexit runs what was registered last before the rest
    atexit.register(_end_all)
    # The library logs each line that is no message, with a traceback.
    logging.getLogger("mcp.client.stdio").addFilter(
        lambda record: not (_loop.is_here() and record.msg.startswith("Failed to parse JSONRPC"))
    )


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
        if code not in get_args(ServerErrorCode):  # a server that knows nothing of these codes
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
