"""What a server's tools are declared as and answer: a server in this process does as it is told."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from operator import attrgetter
from typing import Any

import pytest
from mcp import MCPError
from mcp.server import Server
from mcp_types import (
    CallToolResult,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.assistant.tasks import task_server
from llmsim_lab.assistant.types import ToolServerError
from llmsim_lab.errors import ConfigError

ANY = {"type": "object"}
NUMBER = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


def text(*texts: str, **more: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=each) for each in texts], **more)


PICTURE = ImageContent(type="image", data="AAAA", mime_type="image/png")
DONE = {"success": True}
FAILED = {"success": False}
OUTCOMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "two_texts": (text("one", "two"), {**DONE, "data": "one\ntwo"}),
    "json": (text('{"good": [1]}'), {**DONE, "data": {"good": [1]}}),
    "picture": (
        CallToolResult(content=[TextContent(type="text", text="7"), PICTURE]),
        {**DONE, "data": {"data": 7, "left_out": ["image"]}},
    ),
    "own_result": (text(structured_content={"result": 1}), {**DONE, "data": {"result": 1}}),
    "number": (text(structured_content={"result": 1}), {**DONE, "data": 1}),
    "wrong_number": (
        text(structured_content={"result": "one"}),
        {**FAILED, "error": "its answer makes no sense", "error_code": "INVALID_RESULT"},
    ),
    "error": (
        text("Error executing tool error: no", is_error=True),
        {**FAILED, "error": "no", "error_code": "TOOL_ERROR"},
    ),
    "silent_error": (
        text(is_error=True, _meta={"llmsim-lab/error_code": "E" * 61}),
        {
            **FAILED,
            "error": "the tool failed and does not say why",
            "error_code": "E" * 59 + "\N{HORIZONTAL ELLIPSIS}",
        },
    ),
    "long_error": (
        text("x" * 1_001, is_error=True),
        {**FAILED, "error": "x" * 999 + "\N{HORIZONTAL ELLIPSIS}", "error_code": "TOOL_ERROR"},
    ),
    "refused": (
        MCPError(-32602, "x" * 1_001),
        {
            **FAILED,
            "error": "x" * 999 + "\N{HORIZONTAL ELLIPSIS}",
            "error_code": "INVALID_PARAMETERS",
        },
    ),
    "lost": (MCPError(-32603, "gone"), {**FAILED, "error": "gone", "error_code": "TOOL_ERROR"}),
}
SCHEMAS = {"number": NUMBER, "wrong_number": NUMBER}


def server(tools: list[Tool], page: int = 1_000, delay_s: float = 0) -> Server[Any]:
    """Return a server that lists its tools in pages, and answers each call as told."""

    async def listed(context: Any, params: Any) -> ListToolsResult:
        await asyncio.sleep(delay_s)
        first = int(params.cursor or 0) if params else 0
        after = first + page
        cursor = str(after) if after < len(tools) else None
        return ListToolsResult(tools=tools[first:after], next_cursor=cursor)

    async def called(context: Any, params: Any) -> CallToolResult:
        if params.name == "whoami":
            return text(structured_content={"of": params.arguments, "meta": dict(params.meta)})
        outcome, _ = OUTCOMES[params.name]
        if isinstance(outcome, MCPError):
            raise outcome
        result: CallToolResult = outcome
        return result

    return Server("odd", on_list_tools=listed, on_call_tool=called)


async def test_each_shape_of_an_answer_becomes_a_result(caplog: pytest.LogCaptureFixture) -> None:
    tools = [
        Tool(name=name, input_schema=ANY, output_schema=SCHEMAS.get(name)) for name in OUTCOMES
    ]
    tools.append(Tool(name="whoami", input_schema={**ANY, "properties": {"user_id": ANY}}))
    with closing(MCPToolExecutor(server(tools, page=5))) as executor:
        assert executor.get_available_tools() == [*OUTCOMES, "whoami"]
        results = {
            name: (await executor.execute(name, {}, "ann")).model_dump(exclude_none=True)
            for name in [*OUTCOMES, "whoami", "unknown"]
        }
        assert repr(executor) == "MCPToolExecutor(odd in memory)"
    # Whatever the model gave as the user, the tool gets the one who is there.
    of = results.pop("whoami")["data"]
    assert (of["of"], of["meta"]["llmsim-lab/user_id"]) == ({"user_id": "ann"}, "ann")
    unknown = {"error": "there is no tool 'unknown'", "error_code": "TOOL_NOT_FOUND"}
    assert results.pop("unknown") == {**FAILED, **unknown}
    assert results == {name: result for name, (_, result) in OUTCOMES.items()}
    assert "tool_result_invalid" in caplog.text
    with pytest.raises(ConfigError, match="these tools were closed; make the executor again"):
        executor.get_available_tools()


HINTS: list[tuple[str, dict[str, bool] | None, bool]] = [
    ("t", None, True),
    ("get_weather", None, False),
    ("listTasks", None, False),
    ("look_up_word", None, False),
    ("get_or_create_note", None, True),
    ("findReplace", None, True),
    ("list_delete", None, True),
    ("get_news", {"read_only_hint": False}, True),
    ("t1", {"read_only_hint": True}, False),
    ("t2", {"destructive_hint": False}, False),
    ("t3", {"read_only_hint": True, "destructive_hint": True}, True),
]


async def test_a_tool_without_hints_asks_first_unless_its_name_only_reads() -> None:
    listed = []
    for name, hints, _ in HINTS:
        annotations = None if hints is None else ToolAnnotations(**hints)
        described = {} if hints is None else {"description": "A title"}
        listed.append(
            Tool(name=name, title="A title", input_schema=ANY, annotations=annotations, **described)
        )
    with closing(MCPToolExecutor(server(listed))) as tools:
        await tools.ready()
        declared = tools.get_tool_declarations([name for name, _, _ in HINTS])
    assert {told.name: told.destructive for told in declared} == {
        name: asks for name, _, asks in HINTS
    }
    assert {told.description for told in declared} == {"A title"}


@pytest.mark.parametrize(
    ("count", "page", "delay_s", "said"),
    [
        (256, 100, 0, ""),
        (257, 1_000, 0, "it lists 257 tools or more, and 256 are the most that are taken from one"),
        (900, 100, 0, "it lists 300 tools or more, and 256 are the most that are taken from one"),
        (1, 1, 9, "no answer within 0.05 s; start_timeout_s gives it longer"),
    ],
)
def test_a_server_has_a_time_to_start_and_at_most_256_tools(
    count: int, page: int, delay_s: float, said: str
) -> None:
    tools = [Tool(name=f"t{number}", input_schema=ANY) for number in range(count)]
    timeout_s = 0.05 if delay_s else 60.0
    with closing(
        MCPToolExecutor(server(tools, page, delay_s), start_timeout_s=timeout_s)
    ) as executor:
        if not said:
            assert len(executor.get_available_tools()) == count
            return
        with pytest.raises(ToolServerError, match=f"'odd in memory' could not be started: {said}"):
            executor.get_available_tools()


def test_a_server_is_called_by_its_command_and_must_be_a_program_that_is_there() -> None:
    assert repr(MCPToolExecutor(["a-server", "-x"])) == "MCPToolExecutor(a-server -x)"
    assert repr(MCPToolExecutor("http://a/mcp")) == "MCPToolExecutor(http://a/mcp)"
    tasks = f"MCPToolExecutor({sys.executable} -P -m llmsim_lab.assistant.tasks)"
    assert repr(MCPToolExecutor.tasks()) == tasks
    with pytest.raises(ConfigError, match=r"is not a URL; .* list of words: \['a-server', '-x'\]"):
        MCPToolExecutor("a-server -x")
    with pytest.raises(ConfigError, match="there is no program 'no-such-server' to start as a"):
        MCPToolExecutor(["no-such-server"]).get_available_tools()


KINDS = ("read_only", "destructive", "open_world")


async def test_the_shipped_servers_tools_say_what_they_do_and_take() -> None:
    listed = {tool.name: tool for tool in await task_server().list_tools()}
    hints = attrgetter("name", *(f"annotations.{kind}_hint" for kind in KINDS))
    assert [" ".join(map(str, hints(tool))) for tool in listed.values()] == [
        "add_task False False False",
        "list_tasks True False False",
        "update_task False False False",
        "complete_task False False False",
        "delete_task False True False",
    ]
    number, words = listed["update_task"].input_schema["properties"].values()
    assert (number["minimum"], number["maximum"]) == (1, 1_000_000_000)
    assert (words["minLength"], words["maxLength"]) == (1, 1_000)
