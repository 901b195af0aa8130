"""Tools are offered through a schema, and replies read back as calls or answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._embedded.wire import (
    describe_tools,
    read_tool_reply,
    tool_schema,
    tools_as_text,
)
from llmsim_lab.types import ChatReply, Message, ToolCall

ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds a task",
        "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
    },
}
BARE: dict[str, Any] = {"type": "function", "function": {"name": "ls"}}


def test_a_reply_is_one_of_the_calls_or_an_answer() -> None:
    forms = tool_schema([ADD, BARE])["anyOf"]
    names = [form["properties"].get("name", {}).get("const") for form in forms]
    assert names == ["add", "ls", None]
    assert forms[0]["properties"]["arguments"] == ADD["function"]["parameters"]
    assert forms[2]["properties"] == {"answer": {"type": "string"}}


def test_an_answers_own_schema_is_heeded_and_its_definitions_lifted() -> None:
    answer = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "boolean"}}}
    schema = tool_schema([BARE], answer)
    assert schema["anyOf"][-1]["properties"]["answer"] == {"$ref": "#/$defs/A"}
    assert schema["$defs"] == {"A": {"type": "boolean"}}


def test_tools_are_explained_at_the_end_of_the_system_message() -> None:
    messages = describe_tools((Message("system", "Be brief."), Message("user", "hi")), [ADD])
    assert messages[0].content.startswith("Be brief.\n\nYou may use these tools:")
    assert '"Adds a task"' in messages[0].content
    assert messages[1:] == (Message("user", "hi"),)


def test_without_a_system_message_one_is_made() -> None:
    roles = [message.role for message in describe_tools((Message("user", "hi"),), [BARE])]
    assert roles == ["system", "user"]


@pytest.mark.parametrize("tool", [{"name": "add"}, {"function": {"description": "nameless"}}])
def test_a_declaration_that_makes_no_sense_is_shown(tool: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="a tool is declared as") as caught:
        tool_schema([tool])
    assert caught.value.reason == "client_error"


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


def test_a_call_is_read_from_a_reply() -> None:
    reply = read_tool_reply(ChatReply(text='{"name": "add", "arguments": {"title": "x"}}'))
    assert reply.tool_calls == (ToolCall(name="add", arguments={"title": "x"}),)
    assert reply.text == ""


@pytest.mark.parametrize(
    ("text", "answer"), [('{"answer": "4"}', "4"), ('{"answer": {"n": 4}}', '{"n": 4}')]
)
def test_an_answer_is_read_from_a_reply(text: str, answer: str) -> None:
    reply = read_tool_reply(ChatReply(text=text))
    assert (reply.text, reply.tool_calls) == (answer, ())


@pytest.mark.parametrize(
    "text", ['{"name": "a', '{"name": "add", "arguments": ' + "[" * 60_000 + "]" * 60_000 + "}"]
)
def test_a_reply_that_cannot_be_read_stays_as_it_is(text: str) -> None:
    reply = ChatReply(text=text, done_reason="length")
    assert read_tool_reply(reply) == reply


def test_where_respond_is_a_tool_the_model_answers_with_it_and_only_so() -> None:
    respond = {"type": "function", "function": {"name": "respond"}}
    forms = tool_schema([ADD, respond])["anyOf"]
    assert [form["properties"]["name"]["const"] for form in forms] == ["add", "respond"]
    [told] = describe_tools((), [ADD, respond])
    assert '{"name": "respond", "arguments": {...}} to answer yourself' in told.content
    assert '"answer"' not in told.content
