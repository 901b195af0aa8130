"""Tools for models that cannot call them: a schema with one form for each tool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmsim_lab.llm._extract import with_instruction
from llmsim_lab.types import Message

RESPOND = "respond"
"""The tool by which a model answers in words, where a request offers it."""
_EXPLAINED = """\
You may use these tools:
{tools}
Reply with one JSON object: {{"name": "TOOL", "arguments": {{...}}}} to use a tool, or \
{{"name": "respond", "arguments": {{...}}}} to answer yourself once you need no tool."""


def tool_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of a reply: a call of one of the tools.

    Args:
        tools: function declarations, as a ``ChatRequest`` has them, ``RESPOND`` among them.
    """
    functions = [tool["function"] for tool in tools]
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": function["name"]},
                    "arguments": function["parameters"] or {"type": "object", "properties": {}},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for function in functions
        ]
    }


def describe_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> tuple[Message, ...]:
    """Return the conversation with the tools explained in its system message."""
    told = "\n".join(json.dumps(tool["function"]) for tool in tools)
    return with_instruction(messages, _EXPLAINED.format(tools=told))


def tool_as_text(message: Message) -> Message:
    """Return a message in words that every chat template knows."""
    if message.role == "tool":
        return Message("user", f"Result of {message.tool_name or 'the tool'}:\n{message.content}")
    calls = [
        json.dumps({"name": call.name, "arguments": dict(call.arguments)})
        for call in message.tool_calls
    ]
    return Message(message.role, "\n".join(filter(None, [message.content, *calls])))
