"""An MCP server whose tools take nothing but what their schemas allow, and say so in plain words.

The ``mcp`` library's own server passes over arguments that a tool does not have, takes true or "1"
for 1, and answers wrong arguments with a validator's dump. Here they are refused with one line, in
a result that is marked as an error, which the protocol wants so that models can correct themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError, create_model

from llmsim_lab.assistant.mcp_metadata import ERROR_KEY, ErrorCode
from llmsim_lab.assistant.tasks.store import TaskError
from llmsim_lab.text import clip, printable

__all__ = ["StrictServer", "strict_tool"]

_MAX_FAULTS = 5
_MAX_SHOWN = 60


class StrictServer(MCPServer[Any]):
    """Tells a model what it did wrong; all other faults stay inside.

    Args:
        name: the server's.
        instructions: what a model should know of the tools as a whole.
        tools: made by ``strict_tool``.
    """

    def __init__(self, name: str, *, instructions: str, tools: Sequence[Tool]) -> None:
        super().__init__(name, instructions=instructions, tools=list(tools), log_level="WARNING")
        self._schemas = {tool.name: tool.parameters for tool in tools}

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; wrong arguments and a ``TaskError`` are results.

        Raises:
            ToolError: there is no such tool, or it crashed.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, TaskError):
                return _refusal(str(cause), cause.code)
            if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
                text = _complaint(name, self._schemas[name], cause)
                return _refusal(text, "INVALID_PARAMETERS")
            raise


def strict_tool(function: Callable[..., Any], *, annotations: ToolAnnotations) -> Tool:
    """Return a function as a tool that refuses unknown arguments and values of another type.

    Args:
        function: as for the library's own tools.
        annotations: what it does to the world.
    """
    tool = Tool.from_function(function, annotations=annotations)
    lax = tool.fn_metadata.arg_model
    model = create_model(
        lax.__name__, __base__=lax, __cls_kwargs__={"extra": "forbid", "strict": True}
    )
    metadata = tool.fn_metadata.model_copy(update={"arg_model": model})
    schema = model.model_json_schema()
    return tool.model_copy(update={"fn_metadata": metadata, "parameters": schema})


def _refusal(text: str, code: ErrorCode) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], is_error=True, _meta={ERROR_KEY: code}
    )


def _complaint(tool: str, schema: dict[str, Any], error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    said = [_fault(tool, schema["properties"], fault) for fault in faults[:_MAX_FAULTS]]
    if len(faults) > _MAX_FAULTS:
        said.append(f"and {len(faults) - _MAX_FAULTS} more")
    return "; ".join(said)


def _fault(tool: str, properties: dict[str, Any], fault: Any) -> str:
    name = fault["loc"][0]
    if name not in properties:
        return f"{tool} has no argument {_shown(name)}; it takes {', '.join(properties)}"
    allowed = _allowed(properties[name])
    if fault["type"] == "missing":
        return f"{name} is missing; it must be {allowed}"
    return f"{name} must be {allowed}; it is {_shown(fault['input'])}"


def _allowed(schema: dict[str, Any]) -> str:
    """Say what an argument must be, for the kinds of schema that there are here."""
    if "enum" in schema:
        return f"one of {', '.join(map(json.dumps, schema['enum']))}"
    if schema["type"] == "integer":
        return f"a whole number from {schema['minimum']} on"
    return f"a text of {schema['minLength']} to {schema['maxLength']:,} characters"


def _shown(value: Any) -> str:
    text = clip(printable(json.dumps(value, ensure_ascii=False, default=str)), _MAX_SHOWN)
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{text} ({len(value):,} characters)"
    return text
