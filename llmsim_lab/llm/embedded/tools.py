"""Tool calls for models that were not trained to make them: a schema with one form per tool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llmsim_lab.calls import ChatReply, Message, ToolCall
from llmsim_lab.errors import BackendError
from llmsim_lab.llm.transport import read_json

__all__ = ["RESPOND", "describe_tools", "read_tool_reply", "tool_schema", "tools_as_text"]

RESPOND = "respond"
"""The tool by which a model answers in words, where a request offers it."""
_ANSWER = "answer"
_EXPLAINED = """\
You may use these tools:
{tools}
Reply with one JSON object: {{"name": "TOOL", "arguments": {{...}}}} to use a tool, or \
{answer} to answer yourself once you need no tool."""
_ANSWERS = '{"answer": ...}'
_RESPONDS = f'{{"name": "{RESPOND}", "arguments": {{...}}}}'


def tool_schema(
    tools: Sequence[Mapping[str, Any]], answer: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema of a reply: a call of one of the tools, or an answer.

    Args:
        tools: function declarations, as a ``ChatRequest`` has them. Where ``RESPOND`` is one of
            them, the model answers with it, and only so.
        answer: the schema of an answer; a text where it is None.

    Raises:
        BackendError: a declaration makes no sense.
    """
    forms = [
        _object(
            name={"const": function["name"]},
            arguments=function.get("parameters") or {"type": "object", "properties": {}},
        )
        for function in map(_function, tools)
    ]
    lifted: dict[str, Any] = {}
    if answer is not None:
        answer = dict(answer)
        lifted = {key: answer.pop(key) for key in ("$defs", "definitions") if key in answer}
    if not _responds(tools):
        forms.append(_object(answer=answer or {"type": "string"}))
    return {"anyOf": forms, **lifted}


def describe_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> tuple[Message, ...]:
    """Return the conversation with the tools explained in its system message."""
    listed = "\n".join(
        json.dumps(
            {key: function[key] for key in ("name", "description", "parameters") if key in function}
        )
        for function in map(_function, tools)
    )
    answer = _RESPONDS if _responds(tools) else _ANSWERS
    explained = _EXPLAINED.format(tools=listed, answer=answer)
    first = messages[0] if messages else None
    if first is not None and first.role == "system":
        return (replace(first, content=f"{first.content}\n\n{explained}"), *messages[1:])
    return (Message("system", explained), *messages)


def tools_as_text(message: Message) -> tuple[str, str]:
    """Return role and text of a message in words that every chat template knows."""
    if message.role == "tool":
        return "user", f"Result of {message.tool_name or 'the tool'}:\n{message.content}"
    if message.tool_calls:
        calls = [
            json.dumps({"name": call.name, "arguments": dict(call.arguments)})
            for call in message.tool_calls
        ]
        return message.role, "\n".join(filter(None, [message.content, *calls]))
    return message.role, message.content


def read_tool_reply(reply: ChatReply) -> ChatReply:
    """Return the reply with the call, or the answer, that its text stands for."""
    try:
        said = read_json(reply.text)
    except ValueError:
        return reply  # mostly cut off at the token limit, as its done_reason says
    if _ANSWER in said:
        answer = said[_ANSWER]
        return replace(reply, text=answer if isinstance(answer, str) else json.dumps(answer))
    call = ToolCall(name=said["name"], arguments=said["arguments"])
    return replace(reply, text="", tool_calls=(call,))


def _responds(tools: Sequence[Mapping[str, Any]]) -> bool:
    return any(_function(tool)["name"] == RESPOND for tool in tools)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BackendError(
            f"a tool is declared as {dict(tool)!r}; it should be "
            '{"type": "function", "function": {"name": ..., "parameters": {...}}}',
            reason="client_error",
        )
    return function
