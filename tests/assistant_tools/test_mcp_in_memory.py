"""Tools of a server in this process: calls that break off or are given up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant._mcp_connection import ServerLink
from llmsim_lab.assistant.tasks._server import task_server
from llmsim_lab.assistant.tasks._store import TaskStore
from tests.assistant_tools.mcp_kit import usable


async def test_a_tool_that_breaks_off_does_not_cancel_its_caller() -> None:
    server: MCPServer[Any] = MCPServer("odd", log_level="CRITICAL")

    @server.tool()
    async def break_off() -> None:
        raise asyncio.CancelledError

    async with MCPToolExecutor(server) as tools:
        assert (await tools.execute("break_off", {}, "ann")).error_code == "TOOL_ERROR"


async def test_a_caller_that_is_cancelled_stays_so() -> None:
    async with MCPToolExecutor(task_server(TaskStore())) as tools:
        call = asyncio.create_task(tools.execute("list_tasks", {}, "ann"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await tools.execute("list_tasks", {}, "ann")).success


async def test_a_server_whose_caller_gave_up_is_in_doubt_until_it_answers_again() -> None:
    server: MCPServer[Any] = MCPServer("slow", log_level="CRITICAL")
    begun = threading.Event()

    @server.tool()
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    @server.tool()
    async def answer() -> int:
        return 7

    link = ServerLink(server, start_timeout_s=60)
    call = link.submit("wait", {}, {}, timeout_s=60)
    await asyncio.to_thread(begun.wait)
    assert usable(link)
    call.cancel()
    for _ in range(500):  # the link's own thread may be the one that notes it
        if not usable(link):
            break
        await asyncio.sleep(0.01)
    assert not usable(link)
    await asyncio.wrap_future(link.submit("answer", {}, {}, timeout_s=60))
    assert usable(link)
    await asyncio.wrap_future(link.close())
