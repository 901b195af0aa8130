"""Tools of a server in this process: calls that break off or are given up."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from llmsim_lab.assistant import MCPToolExecutor, _mcp_connection
from llmsim_lab.assistant._mcp_connection import ServerLink
from llmsim_lab.assistant.tasks._server import task_server
from llmsim_lab.assistant.tasks._store import TaskStore
from tests.assistant_tools.mcp_kit import until, usable


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
    await until(lambda: not usable(link))  # the link's own thread may be the one that notes it
    await asyncio.wrap_future(link.submit("answer", {}, {}, timeout_s=60))
    assert usable(link)
    await asyncio.wrap_future(link.close())


async def test_a_link_that_is_collected_while_the_loop_is_looked_up_ends_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link: Any = ServerLink(task_server(TaskStore()), start_timeout_s=60)
    await asyncio.wrap_future(link.prepare())
    connection, number = link._connection, os.getpid()
    link.itself = link  # so that only the collector finds it
    del link
    with monkeypatch.context() as patch:
        # Called while the loop's lock is held, as the collector may be at any time.
        patch.setattr(os, "getpid", lambda: gc.collect() * 0 + number)
        looking = threading.Thread(target=_mcp_connection._loop.get, daemon=True)
        looking.start()
        looking.join(timeout=20)
    assert not looking.is_alive()
    await until(connection.ended.is_set)
