"""How a server that an executor keeps starts, and what becomes of its tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab._util.waiting import run_sync
from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.types import ToolServerError
from llmsim_lab.errors import ConfigError
from tests.assistant_tools.mcp_kit import RAW, servers

pytestmark = pytest.mark.process


async def test_the_loop_goes_on_while_a_slow_server_starts(tmp_path: Path) -> None:
    go = tmp_path / "go"
    tools = MCPToolExecutor([*RAW, "--when", str(go)], start_timeout_s=60)
    waiting = asyncio.create_task(tools.ready())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    go.touch()  # which the server waits for: a loop that stood still would never come here
    await waiting
    assert "count" in tools.get_available_tools()
    await tools.aclose()


async def test_a_server_that_cannot_start_says_why() -> None:
    for option, why in (
        ("--broken", "no database here"),
        ("--die-at-list", "no list of mine"),
        ("--silent", r"within 0\.5 s; start_timeout_s gives"),
    ):
        tools = MCPToolExecutor([*RAW, option], start_timeout_s=0.5 if "sil" in option else 60)
        with pytest.raises(ToolServerError, match=f"could not be started: .*{why}"):
            await tools.ready()
    with pytest.raises(ConfigError, match="no-such-server"):
        await MCPToolExecutor(["no-such-server"]).ready()
    odd: Any
    for odd in (None, [], [1], {}, b"server", range(10**12)):
        with pytest.raises(ConfigError, match=r"server(=| has )"):
            MCPToolExecutor(odd)
    assert servers() == []


async def test_one_connection_serves_several_loops_and_threads() -> None:
    tools, users = MCPToolExecutor(RAW), [f"user{number}" for number in range(25)]

    async def many() -> list[Any]:
        results = await asyncio.gather(*(tools.execute("whoami", {}, user) for user in users))
        return [result.data for result in results]

    elsewhere = (asyncio.to_thread(each, many()) for each in (asyncio.run, asyncio.run, run_sync))
    assert await asyncio.gather(many(), *elsewhere) == [users] * 4
    assert len(servers()) == 1
    await tools.aclose()
