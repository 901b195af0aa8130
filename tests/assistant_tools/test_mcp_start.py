"""How a server that an executor keeps starts, and what becomes of its tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab._util.waiting import run_sync
from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant._types import ToolServerError
from llmsim_lab.assistant.tasks import task_server
from llmsim_lab.errors import ConfigError
from tests.assistant_tools.mcp_kit import RAW, servers

pytestmark = pytest.mark.process

SILENT = [*RAW, "--silent"]


async def test_the_loop_goes_on_while_a_slow_server_starts(tmp_path: Path) -> None:
    go = tmp_path / "go"
    tools = MCPToolExecutor([*RAW, "--when", str(go)], start_timeout_s=60)
    waiting = asyncio.create_task(tools.ready())
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    go.touch()  # which the server waits for: a loop that stood still would never come here
    await waiting
    assert "count" in tools.get_available_tools()
    await tools.aclose()


async def test_waiting_for_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ToolServerError, match="no database here"):
        await MCPToolExecutor([*RAW, "--broken"]).ready()
    with pytest.raises(ConfigError, match="no-such-server"):
        await MCPToolExecutor(["no-such-server"]).ready()


def test_a_server_that_never_answers_is_given_up_at_its_start() -> None:
    tools = MCPToolExecutor(SILENT, start_timeout_s=0.5)
    with pytest.raises(ToolServerError, match=r"within 0\.5 s; start_timeout_s gives"):
        tools.get_available_tools()
    assert servers() == []


async def test_a_server_that_dies_when_asked_for_its_tools_could_not_be_started() -> None:
    with pytest.raises(ToolServerError, match="no list of mine"):
        await MCPToolExecutor([*RAW, "--die-at-list"]).start()


async def test_a_tool_that_came_later_is_found() -> None:
    def plain() -> str:
        return "just a text"

    server = task_server()
    async with MCPToolExecutor(server) as tools:
        server.add_tool(plain, name="late_tool", structured_output=False)
        result = await tools.execute("late_tool", {}, "ann")
        assert result.data == "just a text"
        assert "late_tool" in tools.get_available_tools()


async def test_one_connection_serves_several_loops_and_threads() -> None:
    tools, users = MCPToolExecutor(RAW), [f"user{number}" for number in range(25)]

    async def many() -> list[Any]:
        results = await asyncio.gather(*(tools.execute("whoami", {}, user) for user in users))
        return [result.data for result in results]

    elsewhere = (asyncio.to_thread(each, many()) for each in (asyncio.run, asyncio.run, run_sync))
    assert await asyncio.gather(many(), *elsewhere) == [users] * 4
    assert len(servers()) == 1
    await tools.aclose()
