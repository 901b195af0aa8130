"""Tools of a server that speaks MCP, the Model Context Protocol.

A connection belongs to one event loop and one task of the ``mcp`` library's. So each has a loop in
a thread of its own, to which callers on any loop or thread hand their calls.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import shutil
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Self

import anyio
from anyio.from_thread import BlockingPortal

from llmsim_lab._util.checks import instance_of, items_of, longest_wait
from llmsim_lab._util.copies import Sole
from llmsim_lab._util.jsontext import Schema, text_of_model
from llmsim_lab._util.text import brief, clip, log_event
from llmsim_lab.assistant._schemas import import_jsonschema
from llmsim_lab.assistant._toolbox import (
    ERROR_KEY,
    IDENTITY,
    MAYBE,
    USER_KEY,
    failed_result,
    reads_by_name,
    without,
)
from llmsim_lab.assistant.types import Arguments, ToolDeclaration, ToolResult, ToolServerError
from llmsim_lab.errors import ConfigError

try:
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, CallToolResult, TextContent, Tool

    from llmsim_lab.assistant._mcp_transports import (
        Received,
        has_many_values,
        http,
        program,
    )
except ImportError as error:
    raise ImportError("MCPToolExecutor needs mcp: pip install 'llmsim-lab[tools]'") from error

logger = logging.getLogger(__name__)

_Target = StdioServerParameters | MCPServer[Any] | Server[Any] | str
_MAX_ERROR_CHARS = 1_000
_MAX_STDERR_CHARS = 500
_MAX_TOOLS = 256
"""Of one server, whose schemas are checked in .3 s. OpenAI's protocol has 128 at most."""
_MAX_LISTED_CHARS = 1_000_000
"""Of all tools together: more than a model's window holds."""


class MCPToolExecutor(Sole):
    """Runs the tools of one MCP server, from any thread and event loop, several at once.

    The server is connected to when it is first needed, and again when the connection was closed,
    as by its death. The user that a tool acts for is in each request's metadata, under
    ``llmsim-lab/user_id``, and in the argument ``user_id`` if the tool has one.

    Args:
        server: a command to start, as a list of words, or ``mcp.StdioServerParameters`` where it
            needs a folder or environment variables; the URL of a server; or a server of the
            ``mcp`` library's in this process.
        start_timeout_s: longest wait for the server to start and list its tools, seconds.

    Raises:
        ConfigError: ``server`` is a text and not a URL, or names no program.

    Example:
        >>> tools = MCPToolExecutor(["llmsim-lab-tasks"])
        >>> result = await tools.execute("add_task", {"description": "Buy milk"}, user_id="ann")
    """

    no_copy = (
        "an MCPToolExecutor cannot be copied or pickled, since it holds the connection to its "
        "server; make another one of the same server: MCPToolExecutor(server)"
    )

    def __init__(
        self,
        server: Sequence[str] | _Target,
        *,
        start_timeout_s: float = 60.0,
    ) -> None:
        if isinstance(server, str) and "://" not in server:
            raise ConfigError(
                f"server={server!r} is not a URL; give a command as a list of words: "
                f"{server.split()}"
            )
        if isinstance(server, Sequence) and not isinstance(server, str):
            command, *words = items_of("server", server, str, "a list of words") or [""]
            if not command:
                raise ConfigError(f"server={brief(server)} names no program to start")
            # What is not UTF-8 would end the connection.
            server = StdioServerParameters(
                command=command,
                args=words,
                encoding_error_handler="replace",
            )
        self._target: _Target = instance_of(
            "server",
            server,
            StdioServerParameters | MCPServer | Server | str,
            "a command as a list of words, a URL, or a server of the mcp library's",
        )
        self._start_timeout_s = longest_wait("start_timeout_s", start_timeout_s)
        self._closed = False
        self._connection: _Connection | None = None
        # Callers on several threads must not start two servers.
        self._lock = threading.Lock()

    @classmethod
    def tasks(cls) -> Self:
        """Return the tools of the shipped task server, started as another program."""
        return cls([sys.executable, "-P", "-m", "llmsim_lab.assistant.tasks"])

    def get_available_tools(self) -> list[str]:
        """Return the names of the server's tools; the first time this waits for its start.

        Async code should await ``ready`` first, which does not block its event loop.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        # As listed at the start: a call would wait for the server once more.
        return list(self._connected().tools)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the server has them."""
        tools = self._connected().tools
        return [declaration_of(tools[name]) for name in names if name in tools]

    async def ready(self) -> None:
        """Start the server, without blocking the event loop, and ask it for its tools.

        Afterwards names and declarations are returned at once.

        Raises:
            ToolServerError: the server could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        await asyncio.to_thread(self._connected)

    start = ready

    async def execute(
        self,
        tool_name: str,
        parameters: Arguments,
        user_id: str,
    ) -> ToolResult:
        """Run a tool for a user; its failures are results. How long to wait is up to the caller.

        A call is made once. If the server dies during a call, it is not known whether it took
        effect, and the result says so.

        The codes of failed results: ``INVALID_PARAMETERS`` and ``TOOL_ERROR``, or the code that the
        server gives; ``TOOL_NOT_FOUND``; ``SERVER_DIED`` and ``INVALID_RESULT`` are the server's
        faults.

        Args:
            tool_name: the tool.
            parameters: its arguments, without the user's identity.
            user_id: who it acts for, as authenticated.

        Raises:
            ToolServerError: the server could not be started.
            ConfigError: the program does not exist, or these tools were closed.
        """
        connection = await asyncio.to_thread(self._connected)
        tool = connection.tools.get(tool_name)
        if tool is None:
            return failed_result(f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        if IDENTITY in _properties(tool.input_schema):  # whatever a caller left there
            parameters = parameters | {IDENTITY: user_id}
        try:
            return result_of(tool, await connection.call_tool(tool_name, parameters, user_id))
        except MCPError as error:
            # The server died while it was asked; all other errors are its answers.
            if error.code == CONNECTION_CLOSED:
                return await self._died(connection)
            code = "INVALID_PARAMETERS" if error.code == INVALID_PARAMS else "TOOL_ERROR"
            return failed_result(clip(error.message, _MAX_ERROR_CHARS), code)
        except (ValueError, RuntimeError) as error:
            log_event(
                logger,
                logging.WARNING,
                "tool_result_invalid",
                detail=str(error),
            )
            return failed_result("its answer makes no sense", "INVALID_RESULT")

    async def _died(self, connection: _Connection) -> ToolResult:
        """Return the result of a call during which the server ended."""
        # What it wrote to standard error is whole only then.
        await asyncio.to_thread(connection.close)
        log_event(
            logger,
            logging.WARNING,
            "tool_server_died",
            server=f"{_name(self._target)}{connection.last_words()}",
            detail=connection.fault or "its connection was closed",
        )
        reason = f" ({connection.fault})" if connection.fault else ""
        return failed_result(
            f"the tools stopped working before it answered{reason}; {MAYBE}", "SERVER_DIED"
        )

    async def aclose(self) -> None:
        """End the server, and wait until it has ended; these tools cannot be used again."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do as ``aclose`` does, from plain code."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPToolExecutor({_name(self._target)})"

    def _connected(self) -> _Connection:
        """Return the connection; a new one, once it has started, if there is none of use."""
        with self._lock:
            if self._closed:
                raise ConfigError("these tools were closed; make the executor again")
            if self._connection is None or not self._connection.usable:
                self._connection = _Connection(self._target, self._start_timeout_s)
                # An executor that was collected ends its server; so does the end of the program.
                weakref.finalize(self, self._connection.close)
            return self._connection


def _name(target: _Target) -> str:
    if isinstance(target, StdioServerParameters):
        return " ".join([target.command, *target.args])
    if isinstance(target, str):
        return target
    return f"{target.name} in memory"


class _Connection:
    """One connection to a server, which is started.

    Attributes:
        portal: takes calls to its loop.
        client: the library's.
        tools: the server's, by name, as they were at its start.

    Raises:
        ToolServerError: it could not be started; the message says why.
        ConfigError: there is no such program.
    """

    def __init__(self, target: _Target, start_timeout_s: float) -> None:
        self._started: Future[dict[str, Tool]] = Future()
        self._received = Received()
        server: Any = target
        if isinstance(target, StdioServerParameters):
            server = program(_with_its_group(target), self._received)
        elif isinstance(target, str):
            server = http(target, self._received)
        work = partial(anyio.run, self._hold, server, start_timeout_s)
        self._thread = threading.Thread(
            target=work,
            name="llmsim-lab-tools",
            # A server that hangs must not keep the program from ending.
            daemon=True,
        )
        self._thread.start()
        try:
            self.tools = self._started.result()
        except Exception as error:
            # A timeout says nothing by itself.
            reason = self._received.fault or str(error)
            if not reason:
                reason = f"no answer within {start_timeout_s:g} s; start_timeout_s gives it longer"
            raise ToolServerError(
                f"the tool server {_name(target)!r} could not be started: "
                f"{reason}{self.last_words()}"
            ) from error

    async def _hold(self, server: Any, start_timeout_s: float) -> None:
        """Keep the connection open until it is closed, in its own thread."""
        try:
            import_jsonschema()  # the library would, within the first call's time limit

            async with BlockingPortal() as self.portal:
                with anyio.fail_after(start_timeout_s) as limit:
                    async with Client(server, cache=None) as self.client:
                        tools = await _listed_tools(self.client)
                        limit.deadline = math.inf  # it is for the start alone
                        self._started.set_result({tool.name: tool for tool in tools})
                        await self.portal.sleep_until_stopped()
        except BaseException as error:  # noqa: BLE001 - else who waits for it would wait for ever
            # anyio wraps what fails in its task groups, once for each of them.
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            if not self._started.done():
                self._started.set_exception(error)

    @property
    def fault(self) -> str:
        """What the server sent too much of, after which it is not listened to any more."""
        return self._received.fault

    @property
    def usable(self) -> bool:
        """Whether calls can be made: a process that was forked has none of its parent's threads."""
        return self._thread.is_alive()

    async def call_tool(
        self,
        name: str,
        parameters: Arguments,
        user_id: str,
    ) -> CallToolResult:
        """Call a tool on the connection's loop, and wait for it on the caller's.

        Raises:
            MCPError: the server says that it failed, or has ended.
            ValueError: the answer is not one of the protocol's.
            RuntimeError: the connection was closed.
        """
        # Beside the arguments, where no model can write.
        meta: Any = {USER_KEY: user_id}
        call = partial(
            self.client.call_tool,
            name,
            parameters,
            meta=meta,
        )
        return await asyncio.wrap_future(self.portal.start_task_soon(call))

    def close(self) -> None:
        """End the server, and wait until it has ended."""
        if self.usable:
            with suppress(RuntimeError):  # it has ended by itself
                self.portal.call(self.portal.stop)
            self._thread.join()

    def last_words(self) -> str:
        """Return the end of what the server wrote to standard error, as the end of a message."""
        text = clip(self._received.last_words.decode(errors="replace"), _MAX_STDERR_CHARS)
        if not text:
            return ""
        return f"; its standard error: {text}"


async def _listed_tools(client: Client) -> list[Tool]:
    """Return a server's tools, which it may list page by page.

    Raises:
        ValueError: there are too many, or their descriptions are too long.
    """
    tools: list[Tool] = []
    size = 0
    cursor: str | None = None
    # A page has a tool or more, or the list has no end.
    for _ in range(_MAX_TOOLS + 1):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if len(tools) > _MAX_TOOLS:
            raise ValueError(
                f"it lists {len(tools):,} tools or more, and {_MAX_TOOLS:,} are "
                "the most that are taken from one server; let it list fewer"
            )
        # Here, in the server's own thread: a run's loop would stand still over them.
        size += sum(len(text_of_model(tool)) for tool in page.tools)
        if size > _MAX_LISTED_CHARS:
            raise ValueError(
                f"it describes its {len(tools)} tools in {size:,} characters, and "
                f"{_MAX_LISTED_CHARS:,} are the most that are taken from one "
                "server; let it list fewer, or say less of each"
            )
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise ValueError(
        f"it lists its tools on more than {_MAX_TOOLS:,} pages; let it list more on each"
    )


def _with_its_group(command: StdioServerParameters) -> StdioServerParameters:
    """Return a command whose process group ends with it, however it ends.

    A group is killed where this program ends its server; here also where the server ends by itself
    or is killed.

    Raises:
        ConfigError: there is no such program.
    """
    if os.name != "posix":
        return command  # there the library ends what its server started
    path = (command.env or {}).get("PATH")
    if command.cwd is None and shutil.which(command.command, path=path) is None:
        raise ConfigError(
            f"there is no program {command.command!r} to start as a tool server; install it, or "
            "give its path"
        )
    # The shell lets go of its own ends of the pipes, so that the server alone can close them.
    script = 'exec 3<&0; "$@" <&3 3<&- & exec <&- 3<&- >&-; wait; kill -9 0'
    words = ["-c", script, "sh", command.command, *command.args]
    return command.model_copy(update={"command": "/bin/sh", "args": words})


# --- what servers say -----------------------------------------------------------------------------


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool's declaration for the model."""
    destructive = None
    only_reads = None
    if tool.annotations is not None:
        destructive = tool.annotations.destructive_hint
        only_reads = tool.annotations.read_only_hint
    if only_reads is None:
        only_reads = reads_by_name(tool.name)
    if destructive is None:
        destructive = not only_reads  # MCP's default: a tool that does not only read may destroy
    return ToolDeclaration(
        tool.name,
        tool.description or tool.title or "",
        {"properties": {}, **without(tool.input_schema)},
        destructive,
    )


def _properties(schema: Schema | None) -> Schema:
    """Return a schema's properties; none where a server has something else in their place."""
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def result_of(tool: Tool, reply: CallToolResult) -> ToolResult:
    """Return a call's result: what is structured, else its JSON, else its text."""
    texts = [block.text for block in reply.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if reply.is_error:
        # The ``mcp`` library's own words, which tell neither model nor user anything.
        text = text.removeprefix(f"Error executing tool {tool.name}: ")
        text = clip(text or "the tool failed and does not say why", _MAX_ERROR_CHARS)
        code = (reply.meta or {}).get(ERROR_KEY) or "TOOL_ERROR"
        return failed_result(text, clip(str(code), 60))
    data: Any = reply.structured_content
    if data is None:
        data = text
        if not has_many_values(text.encode(errors="replace")):
            with suppress(ValueError, RecursionError):
                data = json.loads(text)
        left_out = [block.type for block in reply.content if block.type != "text"]
        if left_out:
            data = {"data": data, "left_out": left_out}
    # The protocol wants objects, so other results come wrapped in one with the key "result". The
    # tool's schema tells which: an object of just this form with any key is one of the tool's own.
    elif data.keys() == _properties(tool.output_schema).keys() == {"result"}:
        data = data["result"]
    return ToolResult(success=True, data=data)
