"""Tools of a server that speaks MCP, the Model Context Protocol: another program, or in memory."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mcp import MCPError, StdioServerParameters
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, Tool
from pydantic import ValidationError

from llmsim_lab.assistant.errors import ToolServerError
from llmsim_lab.assistant.mcp_connection import Target
from llmsim_lab.assistant.mcp_link import ServerLink
from llmsim_lab.assistant.mcp_metadata import USER_KEY
from llmsim_lab.assistant.mcp_results import (
    declaration_of,
    failure,
    json_fault,
    result_of,
    takes_user,
)
from llmsim_lab.assistant.protocols import ToolDeclaration
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event

__all__ = ["MCPToolExecutor"]

logger = logging.getLogger(__name__)

_GRACE_S = 5.0


class MCPToolExecutor:
    """Runs the tools of one MCP server, from any thread and event loop, several at once.

    The server starts with the first need of it and starts again when it has died. Whom a tool acts
    for is said in each request's metadata, under ``llmsim-lab/user_id``, and as the argument
    ``user_id`` where a tool has one.

    Args:
        server: a command to start, as a list of words; or a server of the ``mcp`` library's in this
            process.
        timeout_s: longest wait for a tool's answer, seconds; below the limits of whoever waits for
            it, who would otherwise not hear what went wrong.
        start_timeout_s: longest wait for the server to start, and for a list of its tools, seconds.
        env: environment variables for the command, beside the few that every program needs.
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

        Async code should wait for ``ready`` before, which does not block its event loop.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: there is no such program, or these tools were closed.
        """
        return [tool.name for tool in self._tools()]

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the server has them."""
        known = {tool.name: tool for tool in self._tools()}
        return [declaration_of(known[name]) for name in names if name in known]

    async def ready(self) -> None:
        """Wait, while the event loop goes on, until the server's tools are known.

        Whoever waits for this first has the names and declarations at once afterwards.

        Raises:
            ToolServerError: the server could not be started.
            ConfigError: there is no such program, or these tools were closed.
        """
        if self._link.known_tools() is None:
            await asyncio.wrap_future(self._link.prepare())

    async def start(self) -> None:
        """Start the server now, so that nothing waits for it later, and ask for its tools.

        Raises:
            ToolServerError: it could not be started.
            ConfigError: there is no such program.
        """
        await asyncio.wrap_future(self._link.prepare(fresh=True))

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool for a user; whatever goes wrong is in the result.

        A call is made once. Where the server dies or stays silent during a call, whether it took
        effect is not known, and the result says so.

        The codes of failed results: ``INVALID_PARAMETERS``, ``NOT_FOUND`` and ``TOOL_ERROR`` are
        the tool's own, the first two where the server tells them apart; ``TOOL_NOT_FOUND``;
        ``TIMEOUT``, ``SERVER_DIED`` and ``INVALID_RESULT`` are the server's faults.

        Args:
            tool_name: the tool.
            parameters: its arguments, the user's identity left out.
            user_id: who it acts for, as authenticated.
        """
        # The library would find out too late, and drop the connection with everybody's calls.
        if fault := json_fault([parameters, user_id]):
            return self._failed(tool_name, f"the arguments: {fault}", "INVALID_PARAMETERS")
        try:
            # The link keeps to the time; this is for the case that its thread is stuck.
            async with asyncio.timeout(self.timeout_s + self._link.start_timeout_s + _GRACE_S):
                return await self._call(tool_name, parameters, user_id)
        except TimeoutError:
            return self._failed(
                tool_name,
                f"it gave no answer within {self.timeout_s:g} s; it may have been done even so",
                "TIMEOUT",
            )
        except (ToolServerError, ConfigError) as error:
            log_event(logger, logging.ERROR, "tool_server_down", detail=str(error))
            return self._failed(tool_name, "the tools cannot be reached now", "SERVER_DIED")
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            # Nobody cancels the caller: it is a tool in this process that ended in this way.
            return self._failed(tool_name, "it was broken off", "TOOL_ERROR")
        except MCPError as error:
            return self._refused(tool_name, error)
        except (ValidationError, ValueError, RuntimeError) as error:
            log_event(logger, logging.WARNING, "tool_result_invalid", detail=str(error))
            return self._failed(tool_name, "its answer makes no sense", "INVALID_RESULT")

    async def aclose(self) -> None:
        """End the server, and wait until it has ended; these tools cannot be used again."""
        await asyncio.wrap_future(self._link.close())

    def close(self) -> None:
        """Do as ``aclose`` does, from plain code."""
        self._link.close().result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPToolExecutor({self._link})"

    async def _call(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        known = self._link.known_tools()
        if known is None:
            known = await asyncio.wrap_future(self._link.prepare())
        tool = _named(tool_name, known)
        if tool is None:  # it may be a new one
            known = await asyncio.wrap_future(self._link.prepare(fresh=True))
            tool = _named(tool_name, known)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {tool_name}")
        arguments = parameters | {"user_id": user_id} if takes_user(tool) else parameters
        meta = {USER_KEY: user_id}
        call = self._link.submit(tool_name, arguments, meta, timeout_s=self.timeout_s)
        return result_of(tool, await asyncio.wrap_future(call))

    def _tools(self) -> list[Tool]:
        known = self._link.known_tools()
        return self._link.wait_for_tools() if known is None else known

    def _refused(self, tool_name: str, error: MCPError) -> ToolResult:
        if error.code == CONNECTION_CLOSED:
            return self._failed(
                tool_name,
                "the tools stopped working meanwhile; it may have been done even so",
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
            last_words=self._link.last_words()[-300:],
        )
        return failure(what, code)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
        encoding_error_handler="replace",  # bytes that are no text would end the connection
    )
