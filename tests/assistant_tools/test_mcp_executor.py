"""What a server's tools are declared as, and what their results are."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from llmsim_lab.assistant import MCPToolExecutor

pytestmark = pytest.mark.process


def test_declarations_say_what_deletes_and_have_no_user(memory: MCPToolExecutor) -> None:
    add, delete = memory.get_tool_declarations(["add_task", "delete_task"])
    assert (add.destructive, delete.destructive) == (False, True)
    about = {"description": "What is to be done, in a few words.", "type": "string"}
    limits = {"minLength": 1, "maxLength": 1000}
    assert add.parameters["properties"] == {"description": {**about, **limits}}


async def test_results_of_an_older_servers_shapes_arrive(raw: MCPToolExecutor) -> None:
    assert (await raw.execute("noise", {}, "ann")).data == {"good": True}
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"
    assert (await raw.execute("picture", {}, "ann")).data == {"data": "", "left_out": ["image"]}


async def test_faults_are_results_in_the_tools_own_words_without_its_inside(
    raw: MCPToolExecutor, memory: MCPToolExecutor
) -> None:
    def crash() -> str:
        raise KeyError("internal detail")

    server: MCPServer[Any] = MCPServer("odd", log_level="CRITICAL")
    server.add_tool(crash)
    with closing(MCPToolExecutor(server)) as odd:
        crashed = await odd.execute("crash", {}, "ann")
    assert crashed.error_code == "TOOL_ERROR"
    assert "internal detail" not in str(crashed.error)
    for tools, name, user, error, code in (
        (raw, "refuse", "ann", "the arguments do not please", "INVALID_PARAMETERS"),
        (memory, "format_disk", "ann", "there is no tool 'format_disk'", "TOOL_NOT_FOUND"),
        (memory, "delete_task", "ann", "there is no task 7; list the tasks to see", "NOT_FOUND"),
        (memory, "delete_task", "", "the request does not name the user whose", "TOOL_ERROR"),
    ):
        result = await tools.execute(name, {"task_id": 7}, user)
        assert (result.success, result.error_code) == (False, code)
        assert str(result.error).startswith(error)
