"""Tools of a server that speaks MCP, the Model Context Protocol: another program, or in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, get_args

from mcp import MCPError, StdioServerParameters
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
from pydantic import ValidationError
from pydantic_core import to_json

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.assistant._mcp_connection import ServerLink, Target
from llmsim_lab.assistant._toolbox import ERROR_KEY, IDENTITY, USER_KEY, failed_result
from llmsim_lab.assistant._types import (
    ServerErrorCode,
    ToolDeclaration,
    ToolResult,
    ToolServerError,
)
from llmsim_lab.errors import ConfigError

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
_MAX_ERROR_CHARS = 1_000


class MCPToolExecutor:
    """Runs the tools of one MCP server, from any thread and event loop, several at once.

    The server starts when it is first needed and starts again when it has died. The user that a
    tool acts for is in each request's metadata, under ``llmsim-lab/user_id``, and in the argument
    ``user_id`` if the tool has one.

    Args:
        server: a command to start, as a list of words; or a server of the ``mcp`` library's in this
            process.
        timeout_s: longest wait for a tool's answer, seconds; below the limit of whoever waits for
            it, who would otherwise not learn what went wrong.
        start_timeout_s: longest wait for the server to start, and for a list of its tools, seconds.
        env: environment variables for the command, besides the few that every program needs.
        cwd: the folder it runs in.

    Raises:
        ConfigError: ``server`` is neither.

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
        self.timeout_s = timeout_s
        self._link = ServerLink(_target(server, env, cwd), start_timeout_s=start_timeout_s)

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
        if self._link.known_tools() is None:
            await asyncio.wrap_future(self._link.prepare())

    async def start(self) -> None:
        """Start the server now, so that nothing waits for it later, and ask for its tools.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: the program does not exist.
        """
        await asyncio.wrap_future(self._link.prepare(fresh=True))

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
            return self._failed(tool_name, f"the arguments: {fault}", "INVALID_PARAMETERS")
        try:
            # The link keeps the time limit; this one is for when its thread is stuck.
            async with asyncio.timeout(self.timeout_s + self._link.start_timeout_s + _GRACE_S):
                return await self._call(tool_name, parameters, user_id)
        except TimeoutError:
            return self._failed(
                tool_name,
                f"it gave no answer within {self.timeout_s:g} s; it may have been done anyway",
                "TIMEOUT",
            )
        except (ToolServerError, ConfigError) as error:
            log_event(logger, logging.ERROR, "tool_server_down", detail=str(error))
            return self._failed(tool_name, "the tools cannot be reached now", "SERVER_DIED")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The caller was not cancelled: a tool in this process raised the error by itself.
            return self._failed(tool_name, "it was cancelled", "TOOL_ERROR")
        except MCPError as error:
            return self._protocol_failure(tool_name, error)
        except (ValidationError, ValueError, RuntimeError) as error:
            log_event(logger, logging.WARNING, "tool_result_invalid", detail=str(error))
            return self._failed(tool_name, "its answer makes no sense", "INVALID_RESULT")

    async def aclose(self) -> None:
        """End the server, and wait until it has ended; these tools cannot be used again."""
        await asyncio.wrap_future(self._link.close())

    def close(self) -> None:
        """Do as ``aclose`` does, from plain code.

        Raises:
            ConfigError: an async tool of a server in this process calls it, which would wait for
                itself.
        """
        self._link.close_and_wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPToolExecutor({self._link})"

    async def _call(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        await self.ready()
        tool = _named(tool_name, self._link.known_tools() or ())
        if tool is None:  # it may be new
            known = await asyncio.wrap_future(self._link.prepare(fresh=True))
            tool = _named(tool_name, known)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {tool_name}")
        # Set last, so that it replaces whatever a caller left in the arguments.
        wants_user = IDENTITY in _properties(tool.input_schema)
        arguments = parameters | {IDENTITY: user_id} if wants_user else parameters
        meta = {USER_KEY: user_id}
        call = self._link.submit(tool_name, arguments, meta, timeout_s=self.timeout_s)
        return result_of(tool, await asyncio.wrap_future(call))

    def _tools(self) -> list[Tool]:
        known = self._link.known_tools()
        return self._link.wait_for_tools() if known is None else known

    def _protocol_failure(self, tool_name: str, error: MCPError) -> ToolResult:
        if error.code == CONNECTION_CLOSED:
            return self._failed(
                tool_name,
                "the tools stopped working before it answered; it may have been done anyway",
                "SERVER_DIED",
            )
        if error.code == INVALID_PARAMS and error.message.startswith("Unknown tool"):
            return self._failed(tool_name, f"there is no tool {tool_name!r}", "TOOL_NOT_FOUND")
        code = "INVALID_PARAMETERS" if error.code == INVALID_PARAMS else "TOOL_ERROR"
        return self._failed(tool_name, error.message, code)

    def _failed(self, tool_name: str, what: str, code: str) -> ToolResult:
        log_event(
            logger,
            logging.WARNING,
            "tool_failure",
            tool=tool_name,
            code=code,
            detail=what,
            server=str(self._link),
            stderr_tail=self._link.stderr_tail()[-300:],
        )
        return _failure(what, code)


def _named(name: str, tools: Sequence[Tool]) -> Tool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _target(
    server: Sequence[str] | Target, env: Mapping[str, str] | None, cwd: Path | str | None
) -> Target:
    if isinstance(server, StdioServerParameters | MCPServer | Server):
        if env is not None or cwd is not None:
            raise ConfigError("env and cwd are for a server given as a list of words")
        return server
    words = list(server) if isinstance(server, list | tuple) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"server={server!r} is neither a list of words, such as "
            "['llmsim-lab-tasks', '--db', 'tasks.db'], nor a server of the mcp library's"
        )
    return StdioServerParameters(
        command=words[0],
        args=words[1:],
        env=dict(env) if env else None,
        cwd=cwd,
        encoding_error_handler="replace",  # bytes that are not UTF-8 would end the connection
    )


# --- what servers say -----------------------------------------------------------------------------


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool's declaration for the model."""
    hints = tool.annotations or ToolAnnotations()
    destructive = hints.destructive_hint
    if destructive is None:  # MCP's defaults: a tool does not only read, and may destroy
        destructive = not hints.read_only_hint
    properties = tool.input_schema.get("properties") or {}
    if isinstance(properties, dict):  # else it is no schema, and this tool alone is not offered
        properties = {name: _without_title(schema) for name, schema in properties.items()}
    return ToolDeclaration(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=_without_title(tool.input_schema) | {"properties": properties},
        destructive=destructive,
    )


def _properties(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return a schema's properties; none where a server has something else in their place."""
    found = (schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def _without_title(schema: Any) -> Any:
    """Leave out the title that pydantic makes from a name, which costs the model tokens."""
    is_object = isinstance(schema, dict)  # true and false are schemas too
    return {key: schema[key] for key in schema if key != "title"} if is_object else schema


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
        return _failure(text or "the tool failed and does not say why", str(code))
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


def _failure(error: str, code: str) -> ToolResult:
    return failed_result(clip(error, _MAX_ERROR_CHARS), code)
