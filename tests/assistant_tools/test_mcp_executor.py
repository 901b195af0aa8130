from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, Tool, ToolAnnotations

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant._mcp_executor import declaration_of, result_of
from llmsim_lab.assistant._types import ToolResult
from llmsim_lab.errors import ConfigError

pytestmark = pytest.mark.process


def test_declarations_say_what_deletes_and_have_no_user(memory: MCPToolExecutor) -> None:
    add, delete = memory.get_tool_declarations(["add_task", "delete_task"])
    assert (add.destructive, delete.destructive) == (False, True)
    about = {"description": "What is to be done, in a few words.", "type": "string"}
    limits = {"minLength": 1, "maxLength": 1000}
    assert add.parameters["properties"] == {"description": {**about, **limits}}


@pytest.mark.parametrize(
    ("name", "hints", "asks"),
    [
        ("t", None, True),
        ("get_weather", None, False),
        ("listTasks", None, False),
        ("look_up_word", None, False),
        ("get_or_create_note", None, True),
        ("findReplace", None, True),
        ("list_delete", None, True),
        ("get_weather", {"read_only_hint": False}, True),
        ("t", {"read_only_hint": True}, False),
        ("t", {"destructive_hint": False}, False),
        ("t", {"read_only_hint": True, "destructive_hint": True}, True),
    ],
)
def test_a_tool_without_hints_asks_first_unless_its_name_only_reads(
    name: str, hints: dict[str, bool] | None, asks: bool
) -> None:
    annotations = None if hints is None else ToolAnnotations(**hints)
    tool = Tool(name=name, title="A title", input_schema={}, annotations=annotations)
    told = declaration_of(tool)
    assert (told.destructive, told.description) == (asks, "A title")
    assert told.parameters == {"properties": {}}


@pytest.fixture
def odd() -> Iterator[MCPToolExecutor]:
    """Tools of a server in memory."""
    server: MCPServer[Any] = MCPServer("odd", log_level="CRITICAL")

    def plain() -> str:
        return "just a text"

    def many_texts() -> list[str]:
        return ["one", "two"]

    def named_result() -> dict[str, Any]:
        return {"result": 1}

    def whoami(user_id: str, ctx: Context[Any, Any]) -> list[Any]:
        meta: Any = ctx.request_context.meta or {}
        return [user_id, meta.get("llmsim-lab/user_id")]

    def crash() -> str:
        raise KeyError("internal detail")

    for tool in (plain, many_texts, named_result, whoami, crash):
        server.add_tool(tool, structured_output=tool in (named_result, whoami))
    with closing(MCPToolExecutor(server)) as tools:
        yield tools


async def test_results_of_all_shapes_arrive(odd: MCPToolExecutor) -> None:
    assert (await odd.execute("plain", {}, "ann")).data == "just a text"
    assert (await odd.execute("many_texts", {}, "ann")).data == "one\ntwo"
    assert (await odd.execute("named_result", {}, "ann")).data == {"result": 1}


async def test_the_users_identity_replaces_what_the_arguments_say(odd: MCPToolExecutor) -> None:
    assert (await odd.execute("whoami", {"user_id": "bob"}, "ann")).data == ["ann", "ann"]


async def test_a_crash_in_a_tool_tells_nothing_of_its_inside(odd: MCPToolExecutor) -> None:
    result = await odd.execute("crash", {}, "ann")
    assert result.error_code == "TOOL_ERROR"
    assert "internal detail" not in str(result.error)


async def test_an_older_servers_json_text_is_read(raw: MCPToolExecutor) -> None:
    assert (await raw.execute("noise", {}, "ann")).data == {"good": True}
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"
    assert (await raw.execute("picture", {}, "ann")).data == {"data": "", "left_out": ["image"]}


@pytest.mark.parametrize(
    ("user", "error", "code"),
    [
        ("ann", "there is no task 7; list the tasks to see which there are", "NOT_FOUND"),
        ("", "the request does not name the user whose tasks are served here", "TOOL_ERROR"),
    ],
)
async def test_a_tools_own_refusal_is_told_in_its_words_and_of_its_kind(
    memory: MCPToolExecutor, user: str, error: str, code: str
) -> None:
    result = await memory.execute("complete_task", {"task_id": 7}, user)
    assert result == ToolResult(success=False, error=error, error_code=code)


async def test_a_refusal_that_comes_as_an_error_of_the_protocol_is_told(
    raw: MCPToolExecutor,
) -> None:
    result = await raw.execute("refuse", {}, "ann")
    assert result == ToolResult(
        success=False, error="the arguments do not please", error_code="INVALID_PARAMETERS"
    )


async def test_a_tool_that_is_not_there_is_a_result(memory: MCPToolExecutor) -> None:
    result = await memory.execute("format_disk", {}, "ann")
    assert (result.success, result.error_code) == (False, "TOOL_NOT_FOUND")


async def test_the_shipped_server_is_started_as_a_program(tmp_path: Path) -> None:
    async with MCPToolExecutor.tasks(tmp_path / "tasks.db") as tools:
        await tools.execute("add_task", {"description": "Buy milk"}, "ann")
    async with MCPToolExecutor.tasks(tmp_path / "tasks.db") as tools:
        listed = await tools.execute("list_tasks", {}, "ann")
    assert [task["description"] for task in listed.data["tasks"]] == ["Buy milk"]


def test_a_server_that_is_no_command_is_refused() -> None:
    with pytest.raises(ConfigError, match="a list of words"):
        MCPToolExecutor("llmsim-lab-tasks")


def test_a_result_needs_no_valid_output_schema() -> None:
    tool = Tool(name="odd", input_schema={}, output_schema={"properties": 5})
    reply = CallToolResult(content=[], structured_content={"result": 1})
    assert result_of(tool, reply) == ToolResult(success=True, data={"result": 1})
