"""What a server's answer becomes, without a server."""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, Tool

from llmsim_lab.assistant._mcp_executor import json_fault, result_of
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
