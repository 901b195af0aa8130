"""The task list as an MCP server, used by the library's own client."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks import main, task_server

ANN, BOB = ({"llmsim-lab/user_id": user} for user in ("ann", "bob"))
TOOLS = ["add_task", "complete_task", "delete_task", "list_tasks", "update_task"]


async def called(client: Client, tool: str, meta: Any = ANN, **arguments: Any) -> Any:
    """Call a tool; return what it returned, or what it said was wrong."""
    result = await client.call_tool(tool, arguments, meta=meta)
    return words(result) if result.is_error else result.structured_content


def words(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def listed(client: Client, meta: Any = ANN, **arguments: Any) -> list[tuple[int, str]]:
    found = await called(client, "list_tasks", meta, **arguments)
    return [(task["id"], task["description"]) for task in found["tasks"]]


async def test_tasks_are_added_changed_done_and_deleted() -> None:
    async with Client(task_server()) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == TOOLS
        milk = {"id": 1, "description": "Buy milk", "done": False}
        assert await called(client, "add_task", description=" Buy milk ") == milk
        oat = {**milk, "description": "Buy oat milk"}
        assert await called(client, "update_task", task_id=1, description="Buy oat milk") == oat
        assert await called(client, "complete_task", task_id=1) == {**oat, "done": True}
        assert await listed(client, status="open") == []
        assert await listed(client, status="done") == [(1, "Buy oat milk")]
        assert await called(client, "delete_task", task_id=1) == {**oat, "done": True}
        await called(client, "add_task", description="Call mum")
        assert await listed(client) == [(2, "Call mum")], "no number twice"
        gone = await called(client, "update_task", task_id=1, description="Back")
        assert gone == "there is no task 1; list the tasks to see which there are"


async def test_the_server_keeps_users_apart_by_the_requests_metadata() -> None:
    async with Client(task_server()) as client:
        for user, text in ((ANN, "Buy milk"), (BOB, "Bob's own"), (BOB, "Another")):
            await called(client, "add_task", user, description=text)
        assert await listed(client) == [(1, "Buy milk")]
        for number in (2, 3):  # Bob's, and no user's
            foreign = await called(client, "delete_task", task_id=number)
            assert foreign == f"there is no task {number}; list the tasks to see which there are"
        assert await listed(client, BOB) == [(1, "Bob's own"), (2, "Another")]
        for meta in (None, {}, {"llmsim-lab/user_id": 7}, {"llmsim-lab/user_id": ""}):
            assert "does not name the user" in await called(client, "list_tasks", meta)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("delete_task", {"task_id": "1"}, "task_id"),
        ("delete_task", {"task_id": 0}, "task_id"),
        ("delete_task", {"task_id": 2**70}, "task_id"),
        ("add_task", {"description": " \n "}, "description"),
        ("add_task", {"description": "x" * 1001}, "description"),
        ("list_tasks", {"status": "all "}, "status"),
    ],
)
async def test_wrong_arguments_change_nothing_and_are_named(
    tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with Client(task_server()) as client:
        await called(client, "add_task", description="Buy milk")
        result = await client.call_tool(tool, arguments, meta=ANN)
        assert result.is_error
        assert said in words(result)
        assert await listed(client) == [(1, "Buy milk")]


@pytest.mark.process
async def test_the_server_is_started_as_a_program() -> None:
    async with MCPToolExecutor.tasks() as tools:
        await tools.execute("add_task", {"description": "Buy milk"}, "ann")
        listed = await tools.execute("list_tasks", {}, "ann")
    assert [task["description"] for task in listed.data["tasks"]] == ["Buy milk"]


def test_the_program_refuses_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["llmsim-lab-tasks", "--db", "tasks.db"])
    with pytest.raises(SystemExit, match="2"):
        main()


@pytest.mark.parametrize("module", ["tasks", "_mcp_executor"])
def test_without_the_extra_it_says_what_to_install(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"llmsim_lab.assistant.{module}"
    for missing in ("mcp", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"pip install 'llmsim-lab\[tools\]'"):
        importlib.import_module(name)
