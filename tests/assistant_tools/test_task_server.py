"""The task list as an MCP server, used by the library's own client."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from llmsim_lab.assistant.tasks._server import task_server
from llmsim_lab.assistant.tasks._store import MAX_CHARS, TaskStore
from llmsim_lab.errors import ConfigError

ANN = {"llmsim-lab/user_id": "ann"}
BOB = {"llmsim-lab/user_id": "bob"}
CODE = "llmsim-lab/error_code"
TOOLS = ["add_task", "complete_task", "delete_task", "list_tasks", "update_task"]


def over_stdio(db: Path) -> StdioServerParameters:
    words = ["-m", "llmsim_lab.assistant.tasks", "--db", str(db), "--user", "ann"]
    return StdioServerParameters(command=sys.executable, args=words)


async def called(client: Client, tool: str, meta: Any = None, **arguments: Any) -> Any:
    """Call a tool; return what it returned, or what it said was wrong."""
    result = await client.call_tool(tool, arguments, meta=meta)
    return words(result) if result.is_error else result.structured_content


def words(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.process
async def test_the_sdks_own_client_can_use_the_server_over_stdio(tmp_path: Path) -> None:
    db = tmp_path / "tasks.db"
    async with Client(over_stdio(db)) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == TOOLS
        milk = {"id": 1, "description": "Buy milk", "done": False}
        assert await called(client, "add_task", description="Buy milk") == milk
        oat = {**milk, "description": "Buy oat milk"}
        changed = await called(client, "update_task", task_id=1, description="Buy oat milk")
        assert changed == oat
        assert await called(client, "complete_task", task_id=1) == {**oat, "done": True}
        assert await called(client, "list_tasks", status="open") == {"tasks": []}
        assert await called(client, "delete_task", task_id=1) == {**oat, "done": True}
        assert await called(client, "add_task", description="Call mum") == {
            "id": 2,
            "description": "Call mum",
            "done": False,
        }
    store = TaskStore(db)
    assert [task.description for task in store.list("ann")] == ["Call mum"]
    store.close()


@pytest.mark.process
async def test_two_servers_can_share_a_file(tmp_path: Path) -> None:
    db = tmp_path / "tasks.db"
    async with Client(over_stdio(db)) as one, Client(over_stdio(db)) as other:
        for client in (one, other) * 3:
            await called(client, "add_task", description="again")
        lists = [await called(client, "list_tasks") for client in (one, other)]
    assert lists[0] == lists[1]
    assert [task["id"] for task in lists[0]["tasks"]] == [1, 2, 3, 4, 5, 6]


async def test_a_changed_task_is_returned_as_it_is_now(store: TaskStore) -> None:
    async with Client(task_server(store, user="ann")) as client:
        changed = await called(client, "update_task", task_id=2, description=" Call Dad ")
    assert changed == {"id": 2, "description": "Call Dad", "done": False}


# Users


async def test_no_tool_takes_the_user_as_an_argument(store: TaskStore) -> None:
    async with Client(task_server(store)) as client:
        for tool in (await client.list_tools()).tools:
            assert "user" not in str(tool.input_schema["properties"])
        said = await called(client, "list_tasks", ANN, user_id="bob")
    assert said == 'list_tasks has no argument "user_id"; it takes status'


async def test_the_server_keeps_users_apart_by_the_requests_metadata(store: TaskStore) -> None:
    async with Client(task_server(store)) as client:
        assert len((await called(client, "list_tasks", ANN))["tasks"]) == 2
        assert len((await called(client, "list_tasks", BOB))["tasks"]) == 1
        assert "there is no task 2" in await called(client, "delete_task", BOB, task_id=2)
    assert len(store.list("ann")) == 2


@pytest.mark.parametrize(
    "meta", [None, {}, *({"llmsim-lab/user_id": user} for user in (7, "", "x" * 201))]
)
async def test_a_request_for_nobody_is_refused(store: TaskStore, meta: Any) -> None:
    async with Client(task_server(store)) as client:
        assert "does not say which user" in await called(client, "list_tasks", meta)


async def test_a_server_for_one_user_refuses_others(store: TaskStore) -> None:
    async with Client(task_server(store, user="ann")) as client:
        assert len((await called(client, "list_tasks"))["tasks"]) == 2
        assert len((await called(client, "list_tasks", ANN))["tasks"]) == 2
        assert "for another user" in await called(client, "list_tasks", BOB)


@pytest.mark.parametrize("user", ["", "x" * 201])
def test_a_server_for_a_user_without_a_fit_name_is_refused(store: TaskStore, user: str) -> None:
    with pytest.raises(ConfigError, match=f"has {len(user)} characters; it must have 1 to 200"):
        task_server(store, user=user)


# What is refused


NUMBER = "task_id must be a whole number from 1 on; it is"
TEXT = "description must be a text of 1 to 1,000 characters; it is"
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("delete_task", {"task_id": "1"}, f'{NUMBER} "1"'),
    ("delete_task", {"task_id": True}, f"{NUMBER} true"),
    ("delete_task", {"task_id": 1.0}, f"{NUMBER} 1.0"),
    ("delete_task", {"task_id": None}, f"{NUMBER} null"),
    ("delete_task", {"task_id": [1]}, f"{NUMBER} [1]"),
    ("delete_task", {"task_id": "[1]"}, f"{NUMBER} [1]"),
    ("delete_task", {"task_id": 0}, f"{NUMBER} 0"),
    ("delete_task", {"task_id": -(10**30)}, f"{NUMBER} -1{'0' * 30}"),
    ("delete_task", {"task_id": "all\nof them"}, f'{NUMBER} "all\\nof them"'),
    ("delete_task", {}, "task_id is missing; it must be a whole number from 1 on"),
    ("add_task", {"description": ""}, f'{TEXT} ""'),
    ("add_task", {"description": " \n "}, f"{TEXT} blank"),
    ("add_task", {"description": 7}, f"{TEXT} 7"),
    (
        "add_task",
        {"description": "x" * 1001},
        f'{TEXT} "{"x" * 58}… (1,001 characters)',
    ),
    ("add_task", {}, "description is missing; it must be a text of 1 to 1,000 characters"),
    ("list_tasks", {"status": "all "}, 'status must be one of "all", "open", "done"; it is "all "'),
    (
        "complete_task",
        {"task_id": 1, "force": True},
        'complete_task has no argument "force"; it takes task_id',
    ),
    (
        "update_task",
        {"task_id": "1"},
        f'{NUMBER} "1"; description is missing; it must be a text of 1 to 1,000 characters',
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), WRONG)
async def test_wrong_arguments_are_refused_in_one_plain_line(
    store: TaskStore, tool: str, arguments: dict[str, Any], said: str
) -> None:
    before = store.list("ann")
    async with Client(task_server(store, user="ann")) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert words(result) == said
    assert (result.meta or {})[CODE] == "INVALID_PARAMETERS"
    assert store.list("ann") == before


@pytest.mark.process
async def test_the_same_is_refused_over_stdio(tmp_path: Path) -> None:
    async with Client(over_stdio(tmp_path / "tasks.db")) as client:
        await called(client, "add_task", description="Buy milk")
        for tool, arguments, said in WRONG:
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, words(result)) == (True, said)
            assert (result.meta or {})[CODE] == "INVALID_PARAMETERS"
        milk = {"id": 1, "description": "Buy milk", "done": False}
        assert await called(client, "list_tasks") == {"tasks": [milk]}


async def test_a_thousand_unknown_arguments_are_told_in_short(store: TaskStore) -> None:
    arguments = {f"x{number}" + "y" * 100: 1 for number in range(1000)}
    async with Client(task_server(store, user="ann")) as client:
        said = await called(client, "list_tasks", **arguments)
    assert said.endswith("and 995 more")
    assert len(said) < 700


async def test_a_task_that_is_not_there_is_a_failure_of_its_own_kind(store: TaskStore) -> None:
    async with Client(task_server(store, user="ann")) as client:
        result = await client.call_tool("delete_task", {"task_id": 3})
    assert words(result) == "there is no task 3; list the tasks to see which there are"
    assert (result.meta or {})[CODE] == "NOT_FOUND"


async def test_all_else_that_the_list_refuses_is_the_tools_own_failure(store: TaskStore) -> None:
    store.close()
    async with Client(task_server(store, user="ann")) as client:
        result = await client.call_tool("list_tasks", {})
    assert "cannot be reached now" in words(result)
    assert (result.meta or {})[CODE] == "TOOL_ERROR"


async def test_a_crash_tells_nothing_of_its_inside(
    store: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("internal detail")

    monkeypatch.setattr(store, "list", broken)
    async with Client(task_server(store, user="ann")) as client:
        assert await called(client, "list_tasks") == "Error executing tool list_tasks"


async def test_a_tool_that_is_not_there_is_said_not_to_be(store: TaskStore) -> None:
    async with Client(task_server(store, user="ann")) as client:
        assert await called(client, "drop_tables") == "Unknown tool: drop_tables"


async def test_the_schemas_allow_what_the_server_takes_and_nothing_else(store: TaskStore) -> None:
    async with Client(task_server(store)) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    for schema in schemas.values():
        assert schema["additionalProperties"] is False
    assert schemas["add_task"]["properties"]["description"]["maxLength"] == MAX_CHARS
    assert schemas["delete_task"]["properties"]["task_id"]["minimum"] == 1
    assert schemas["delete_task"]["required"] == ["task_id"]
    assert schemas["list_tasks"]["properties"]["status"]["enum"] == ["all", "open", "done"]


def test_making_a_server_leaves_the_programs_logging_alone(store: TaskStore) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    task_server(store)
    assert (root.level, root.handlers) == before
