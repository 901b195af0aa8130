"""Tools are offered through a schema, and replies read back as calls or answers."""

from __future__ import annotations

import json
from typing import Any

from llmsim_lab.assistant._adapter import (
    describe_tools,
    tool_as_text,
    tool_schema,
)
from llmsim_lab.types import Message, ToolCall

ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds a task",
        "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
    },
}
BARE: dict[str, Any] = {
    "type": "function",
    "function": {"name": "ls", "description": "", "parameters": {}},
}


def test_a_reply_is_one_of_the_calls() -> None:
    forms = tool_schema([ADD, BARE])["anyOf"]
    assert [form["properties"]["name"]["const"] for form in forms] == ["add", "ls"]
    assert forms[0]["properties"]["arguments"] == ADD["function"]["parameters"]


def test_tools_are_explained_at_the_end_of_the_system_message() -> None:
    messages = describe_tools((Message("system", "Be brief."), Message("user", "hi")), [ADD])
    assert messages[0].content.startswith("Be brief.\n\nYou may use these tools:")
    assert '"Adds a task"' in messages[0].content
    assert messages[1:] == (Message("user", "hi"),)


def test_without_a_system_message_one_is_made() -> None:
    roles = [message.role for message in describe_tools((Message("user", "hi"),), [BARE])]
    assert roles == ["system", "user"]


def test_earlier_calls_and_results_become_plain_text() -> None:
    call = ToolCall(name="add", arguments={"title": "x"})
    said = tool_as_text(Message("assistant", "", tool_calls=(call,)))
    assert json.loads(said.content) == {"name": "add", "arguments": {"title": "x"}}
    told = tool_as_text(Message("tool", "done", tool_name="add"))
    assert told == Message("user", "Result of add:\ndone")
    assert tool_as_text(Message("user", "hi")) == Message("user", "hi")
