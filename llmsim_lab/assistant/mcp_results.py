"""What MCP servers say, as the decision engine has it: declarations of tools, results of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool

from llmsim_lab.assistant.protocols import ToolDeclaration
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.text import clip

__all__ = ["declaration_of", "failure", "result_of", "takes_user"]

_IDENTITY = "user_id"
_MAX_ERROR = 1_000


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool as the model is told of it."""
    hints = tool.annotations
    destructive = None if hints is None else hints.destructive_hint
    if hints is not None and hints.read_only_hint and destructive is None:
        destructive = False
    return ToolDeclaration(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=_slim(tool.input_schema),
        destructive=destructive,
    )


def _slim(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out the titles that pydantic makes of the names, which cost the model tokens."""
    properties = {
        name: {key: value for key, value in prop.items() if key != "title"}
        if isinstance(prop, dict)
        else prop
        for name, prop in (schema.get("properties") or {}).items()
    }
    rest = {key: value for key, value in schema.items() if key != "title"}
    return {**rest, "properties": properties}


def takes_user(tool: Tool) -> bool:
    """Say whether a tool wants the user's identity as an argument."""
    return _IDENTITY in (tool.input_schema.get("properties") or {})


def result_of(tool_name: str, reply: CallToolResult) -> ToolResult:
    """Return a call's result as plain JSON."""
    if reply.is_error:
        said = _texts(reply)
        text = "\n".join(said).removeprefix(f"Error executing tool {tool_name}: ")
        return failure(text or "the tool failed and does not say why", "TOOL_ERROR")
    data = reply.structured_content
    if data is not None:
        # A value that is no object comes wrapped, as the protocol wants objects.
        is_wrapped = isinstance(data, dict) and data.keys() == {"result"}
        return ToolResult(success=True, data=data["result"] if is_wrapped else data)
    return ToolResult(success=True, data=_from_content(reply))


def failure(error: str, code: str) -> ToolResult:
    """Return a failed result, in words for the model."""
    return ToolResult(success=False, error=clip(error, _MAX_ERROR), error_code=code)


def _texts(reply: CallToolResult) -> list[str]:
    return [block.text for block in reply.content if isinstance(block, TextContent)]


def _from_content(reply: CallToolResult) -> Any:
    """Return what a server that has no structured results means: JSON, text, or what kind it is."""
    parts: Sequence[Any] = [
        block.text if isinstance(block, TextContent) else {"left_out": block.type}
        for block in reply.content
    ]
    if len(parts) == 1 and isinstance(parts[0], str):
        try:
            return json.loads(parts[0])
        except ValueError:
            return parts[0]
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else list(parts)
