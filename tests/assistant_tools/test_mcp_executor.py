"""What a server's tools are declared as, and what their results are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

from llmsim_lab.assistant import MCPToolExecutor

pytestmark = pytest.mark.process


def test_declarations_say_what_deletes_and_have_no_user(memory: MCPToolExecutor) -> None:
    add, delete = memory.get_tool_declarations(["add_task", "delete_task"])
    assert (add.destructive, delete.destructive) == (False, True)
    about = {"description": "What is to be done, in a few words.", "type": "string"}
    limits = {"minLength": 1, "maxLength": 1000}
    assert add.parameters["properties"] == {"description": {**about, **limits}}


@pytest.fixture
def odd() -> Iterator[MCPToolExecutor]:
    """Tools of a server in memory."""
    server: MCPServer[Any] = MCPServer("odd", log_level="CRITICAL")

    def many_texts() -> list[str]:
        return ["one", "two"]

    def named_result() -> dict[str, Any]:
        return {"result": 1}

    def whoami(user_id: str, ctx: Context[Any, Any]) -> list[Any]:
        meta: Any = ctx.request_context.meta or {}
        return [user_id, meta.get("llmsim-lab/user_id")]

    def crash() -> str:
        raise KeyError("internal detail")

    for tool in (many_texts, named_result, whoami, crash):
        server.add_tool(tool, structured_output=tool in (named_result, whoami))
    with closing(MCPToolExecutor(server)) as tools:
        yield tools


async def test_results_of_all_shapes_arrive(odd: MCPToolExecutor, raw: MCPToolExecutor) -> None:
    assert (await odd.execute("many_texts", {}, "ann")).data == "one\ntwo"
    assert (await odd.execute("named_result", {}, "ann")).data == {"result": 1}
    assert (await odd.execute("whoami", {"user_id": "bob"}, "ann")).data == ["ann", "ann"]
    assert (await raw.execute("noise", {}, "ann")).data == {"good": True}  # an older server's
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"
    assert (await raw.execute("picture", {}, "ann")).data == {"data": "", "left_out": ["image"]}


async def test_faults_are_results_in_the_tools_own_words_without_its_inside(
    odd: MCPToolExecutor, raw: MCPToolExecutor, memory: MCPToolExecutor
) -> None:
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
