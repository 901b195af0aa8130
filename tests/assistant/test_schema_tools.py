"""Tools are offered through a schema, and replies read back as calls or answers."""

from __future__ import annotations

import json
from typing import Any

from llmsim_lab.assistant._schema_tools import (
    describe_tools,
    tool_schema,
    tools_as_text,
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


def test_a_reply_is_one_of_the_calls_or_an_answer() -> None:
    forms = tool_schema([ADD, BARE])["anyOf"]
    names = [form["properties"].get("name", {}).get("const") for form in forms]
    assert names == ["add", "ls", None]
    assert forms[0]["properties"]["arguments"] == ADD["function"]["parameters"]
    assert forms[2]["properties"] == {"answer": {"type": "string"}}


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
    role, text = tools_as_text(Message("assistant", "", tool_calls=(call,)))
    assert (role, json.loads(text)) == (
        "assistant",
        {"name": "add", "arguments": {"title": "x"}},
    )
    assert tools_as_text(Message("tool", "done", tool_name="add")) == (
        "user",
        "Result of add:\ndone",
    )
    assert tools_as_text(Message("user", "hi")) == ("user", "hi")


def test_where_respond_is_a_tool_the_model_answers_with_it_and_only_so() -> None:
    respond = {**BARE, "function": {**BARE["function"], "name": "respond"}}
    forms = tool_schema([ADD, respond])["anyOf"]
    assert [form["properties"]["name"]["const"] for form in forms] == ["add", "respond"]
    [told] = describe_tools((), [ADD, respond])
    assert '{"name": "respond", "arguments": {...}} to answer yourself' in told.content
    assert '"answer"' not in told.content
