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
{answer} to answer yourself once you need no tool."""
_ANSWERS = '{"answer": ...}'
_RESPONDS = f'{{"name": "{RESPOND}", "arguments": {{...}}}}'


def tool_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of a reply: a call of one of the tools, or an answer.

    Args:
        tools: function declarations, as a ``ChatRequest`` has them. Where ``RESPOND`` is one of
            them, the model answers with it, and only so.
    """
    functions = [tool["function"] for tool in tools]
    forms = [
        _object(
            name={"const": function["name"]},
            arguments=function["parameters"] or {"type": "object", "properties": {}},
        )
        for function in functions
    ]
    if RESPOND not in (function["name"] for function in functions):
        forms.append(_object(answer={"type": "string"}))
    return {"anyOf": forms}


def describe_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> tuple[Message, ...]:
    """Return the conversation with the tools explained in its system message."""
    functions = [tool["function"] for tool in tools]
    names = [function["name"] for function in functions]
    answer = _RESPONDS if RESPOND in names else _ANSWERS
    explained = _EXPLAINED.format(tools="\n".join(map(json.dumps, functions)), answer=answer)
    return with_instruction(messages, explained)


def tools_as_text(message: Message) -> tuple[str, str]:
    """Return role and text of a message in words that every chat template knows."""
    if message.role == "tool":
        return "user", f"Result of {message.tool_name or 'the tool'}:\n{message.content}"
    calls = [
        json.dumps({"name": call.name, "arguments": dict(call.arguments)})
        for call in message.tool_calls
    ]
    return message.role, "\n".join(filter(None, [message.content, *calls]))


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
