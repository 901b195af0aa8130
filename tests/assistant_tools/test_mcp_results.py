"""What a server's answer becomes, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent, Tool

from llmsim_lab.assistant._mcp_executor import declaration_of, json_fault, result_of
from llmsim_lab.assistant._toolbox import Toolbox
from llmsim_lab.assistant._types import ToolResult


def test_a_refusal_without_a_word_says_so() -> None:
    tool = Tool(name="silent", input_schema={"type": "object"})
    assert result_of(tool, CallToolResult(content=[], is_error=True)) == ToolResult(
        success=False, error="the tool failed and does not say why", error_code="TOOL_ERROR"
    )


def test_a_value_too_deep_to_be_sent_is_a_fault_though_json_could_write_it() -> None:
    value: Any = 7
    for _ in range(300):
        value = [value]
    assert json_fault([7]) == ""
    assert json_fault(value).startswith("no JSON can be made of it: ")


@pytest.mark.parametrize(
    "text",
    [
        "1e999",
        "[-1e400]",
        '{"a": "\\ud83d"}',
        pytest.param("[" * 100_000, id="too deep to be read"),
    ],
)
def test_json_that_cannot_be_read_and_written_again_is_a_text(text: str) -> None:
    tool = Tool(name="old", input_schema={"type": "object"})
    reply = CallToolResult(content=[TextContent(type="text", text=text)])
    assert result_of(tool, reply) == ToolResult(success=True, data=text)


@pytest.mark.parametrize("properties", [["title"], 5, "title"])
def test_one_tool_without_a_schema_leaves_the_others_usable(properties: Any) -> None:
    odd = Tool(name="odd", input_schema={"type": "object", "properties": properties})
    good = Tool(name="good", input_schema={"type": "object"})
    declared = [declaration_of(tool) for tool in (odd, good)]
    toolbox = Toolbox(["odd", "good"], declared)
    assert [tool.name for tool in toolbox.declarations] == ["good"]


@pytest.mark.parametrize("properties", [["result"], 5, "result"])
def test_a_result_needs_no_valid_output_schema(properties: Any) -> None:
    tool = Tool(name="odd", input_schema={}, output_schema={"properties": properties})
    reply = CallToolResult(content=[], structured_content={"result": 1})
    assert result_of(tool, reply) == ToolResult(success=True, data={"result": 1})
