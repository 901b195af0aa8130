"""What an older server's tools answer, and what a tool's fault tells."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks import task_server


@pytest.mark.process
async def test_an_older_servers_results_arrive(raw: MCPToolExecutor) -> None:
    assert (await raw.execute("noise", {}, "ann")).data == {"good": True}


async def test_a_tools_fault_is_a_result_without_its_inside() -> None:
    def crash() -> str:
        raise KeyError("internal detail")

    server: MCPServer[Any] = MCPServer("odd", log_level="CRITICAL")
    server.add_tool(crash)
    with closing(MCPToolExecutor(server)) as odd:
        crashed = await odd.execute("crash", {}, "ann")
    assert crashed.error_code == "TOOL_ERROR"
    assert "internal detail" not in str(crashed.error)
    with closing(MCPToolExecutor(task_server())) as tasks:
        nobodys = await tasks.execute("list_tasks", {}, "")
    assert str(nobodys.error).startswith("the request does not name the user whose tasks")
