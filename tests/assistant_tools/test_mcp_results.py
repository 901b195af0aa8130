"""What a server's answer becomes, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult, Tool

from llmsim_lab.assistant._mcp_executor import declaration_of, result_of
from llmsim_lab.assistant._toolbox import Toolbox
from llmsim_lab.assistant._types import ToolResult


def test_a_refusal_without_a_word_says_so() -> None:
    tool = Tool(name="silent", input_schema={"type": "object"})
    assert result_of(tool, CallToolResult(content=[], is_error=True)) == ToolResult(
        success=False, error="the tool failed and does not say why", error_code="TOOL_ERROR"
    )


@pytest.mark.parametrize("properties", [["title"], 5, "title"])
def test_one_tool_without_a_schema_leaves_the_others_usable(properties: Any) -> None:
    odd = Tool(name="odd", input_schema={"type": "object", "properties": properties})
    good = Tool(name="good", input_schema={"type": "object"})
    declared = [declaration_of(tool) for tool in (odd, good)]
    toolbox = Toolbox(declared)
    assert [tool.name for tool in toolbox.declarations] == ["good"]


@pytest.mark.parametrize("properties", [["result"], 5, "result"])
def test_a_result_needs_no_valid_output_schema(properties: Any) -> None:
    tool = Tool(name="odd", input_schema={}, output_schema={"properties": properties})
    reply = CallToolResult(content=[], structured_content={"result": 1})
    assert result_of(tool, reply) == ToolResult(success=True, data={"result": 1})
