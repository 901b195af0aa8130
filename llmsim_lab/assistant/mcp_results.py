"""What MCP servers say, as the decision engine has it: declarations of tools, results of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic_core import to_json

from llmsim_lab.assistant.identity import IDENTITY
from llmsim_lab.assistant.mcp_metadata import ERROR_KEY, ErrorCode
from llmsim_lab.assistant.protocols import ToolDeclaration
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.text import clip

__all__ = ["declaration_of", "failure", "json_fault", "result_of", "takes_user"]

_MAX_ERROR = 1_000


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return a tool as the model is told of it."""
    hints = tool.annotations or ToolAnnotations()
    destructive = hints.destructive_hint
    if destructive is None:  # MCP's defaults: a tool does not only read, and may destroy
        destructive = not hints.read_only_hint
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
    return IDENTITY in (tool.input_schema.get("properties") or {})


def json_fault(value: Any) -> str:
    """Say why a value cannot be written as JSON in UTF-8; an empty text where it can be."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        to_json({"params": {"arguments": value}})  # as it is sent, which allows less depth
    except (TypeError, ValueError, RecursionError) as error:
        return f"no JSON can be made of it: {error}"
    return ""


def result_of(tool: Tool, reply: CallToolResult) -> ToolResult:
    """Return a call's result as plain JSON.

    Raises:
        ValueError: it holds what is no JSON, such as NaN in an object.
    """
    if reply.is_error:
        text = "\n".join(_texts(reply)).removeprefix(f"Error executing tool {tool.name}: ")
        return failure(
            text or "the tool failed and does not say why", _code(tool.name, text, reply)
        )
    data = _data(tool, reply)
    if fault := json_fault(data):
        raise ValueError(fault)
    return ToolResult(success=True, data=data)


def _data(tool: Tool, reply: CallToolResult) -> Any:
    data = reply.structured_content
    if data is None:
        return _from_content(reply)
    return data["result"] if _wraps(tool) and data.keys() == {"result"} else data


def _wraps(tool: Tool) -> bool:
    """Say whether a tool's results are no objects, and come wrapped since the protocol wants them.

    By its schema: an object of just this form with any key is one of the tool's own.
    """
    return ((tool.output_schema or {}).get("properties") or {}).keys() == {"result"}


def _code(tool_name: str, text: str, reply: CallToolResult) -> str:
    if (said := (reply.meta or {}).get(ERROR_KEY)) in get_args(ErrorCode):
        return str(said)
    return "TOOL_NOT_FOUND" if text == f"Unknown tool: {tool_name}" else "TOOL_ERROR"


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
            return json.loads(parts[0], parse_constant=_no_json)
        except (ValueError, RecursionError):
            return parts[0]
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else list(parts)


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
