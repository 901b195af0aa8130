"""Calls that a model writes as text are made where that is surely meant, and never shown."""

from __future__ import annotations

import json

import pytest

from llmsim_lab.assistant import FunctionCall
from llmsim_lab.assistant.text_calls import calls_in_text, embedded_calls, is_code, without_calls

NAMES = ["add_task", "list_tasks", "search"]
ADD = '{"name": "add_task", "arguments": {"title": "Milk"}}'
MILK = FunctionCall("add_task", {"title": "Milk"})


@pytest.mark.parametrize(
    "text",
    [
        f"Sure! {ADD}",
        f"{ADD}\nI will add it.",
        f"Sure!\n```json\n{ADD}\n```",
        f"Sure! <tool_call>{ADD}</tool_call>",
        f"Sure! <|tool_call|>{ADD}",
        f"Sure! [TOOL_CALLS][{ADD}]",
        f'Sure! {{"type": "function", "function": {ADD}}}',
        f'<think>{{"name": "search", "arguments": {{}}}}</think>Sure! {ADD}',
    ],
)
def test_a_call_beside_prose_is_a_call(text: str) -> None:
    assert embedded_calls(text, NAMES, ["Add milk"]) == [MILK]
    assert calls_in_text(text) == []


def test_a_call_in_a_functions_tag_is_one() -> None:
    text = '<function=add_task>{"title": "Milk"}</function> <function=list_tasks></function>'
    assert embedded_calls(text, NAMES, []) == [
        FunctionCall("add_task", '{"title": "Milk"}'),
        FunctionCall("list_tasks", "{}"),
    ]


def test_several_calls_beside_prose_are_made_in_order_also_such_of_no_tool() -> None:
    text = f'First {ADD}, then {{"name": "nuke", "parameters": "{{}}"}}.'
    assert embedded_calls(text, NAMES, []) == [MILK, FunctionCall("nuke", "{}")]


def test_a_call_within_a_calls_arguments_is_not_made() -> None:
    inner = {"name": "list_tasks", "arguments": {}}
    text = "Sure! " + json.dumps({"name": "add_task", "arguments": inner})
    assert embedded_calls(text, NAMES, []) == [FunctionCall("add_task", inner)]


@pytest.mark.parametrize(
    "text",
    [
        f"{ADD} Shall I?",
        f"I would call {ADD}",
        f"For example: {ADD}",
        f"I did not call {ADD}",
        'Sure! {"name": "nuke", "arguments": {}}',
        'Sure! {"name": "add_task"}',
        'Sure! {"name": "add_task", "argum',
        "Sure! add_task(title='Milk')",
        "Sure!",
    ],
)
def test_what_is_not_surely_meant_as_a_call_is_none(text: str) -> None:
    assert embedded_calls(text, NAMES, []) == []


@pytest.mark.parametrize(
    "shown",
    [
        f"Add a task: {ADD}",
        json.dumps({"tasks": [{"id": 1, "title": ADD}]}),
        ADD.replace(" ", ""),
    ],
)
def test_a_call_that_the_model_was_shown_and_reads_out_is_not_made(shown: str) -> None:
    assert embedded_calls(f"Your list: {ADD}", NAMES, ["Hello", shown]) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Sure! {ADD}", "Sure!"),
        (f"Sure!\n```json\n{ADD}\n```\nBye", "Sure!\n\nBye"),
        (f"Sure! <tool_call>{ADD}</tool_call>", "Sure!"),
        (f"Sure! [TOOL_CALLS][{ADD}, {ADD}]", "Sure!"),
        ('Sure! {"name": "nuke", "arguments": {}}', "Sure!"),
        ("Sure! <tool_call>{}</tool_call>", "Sure!"),
        ("Sure! <function=add_task>{}</function>", "Sure!"),
        ("Sure! <function=add_task><b", "Sure! <b"),
        ('Sure! {"name": "add_task", "argum', "Sure!"),
        ("<tool_call>{}</tool_call>", ""),
        (f"[{ADD}];", ""),
    ],
)
def test_calls_are_taken_out_of_what_the_user_sees(text: str, left: str) -> None:
    assert without_calls(text, NAMES) == left


@pytest.mark.parametrize(
    "text",
    [
        " Hello ",
        "- [ ] Buy milk\n- [x] Call mum",
        'The setting is {"name": "Bob", "type": "user"}.',
        'Broken: {"name": "nuke", "argum',
        "```\nmake tea\n```",
        "👍",
        "{" * 3000,
        '{"name":' * 3000,
    ],
)
def test_text_without_calls_stays_as_it_is(text: str) -> None:
    assert without_calls(text, NAMES) == text


@pytest.mark.parametrize(
    "text",
    [
        "add_task(title='Milk')",
        "`list_tasks`",
        "list_tasks()",
        "search",
        "tools.add_task(title='Milk');",
        "```python\nadd_task(title='a')\n\nadd_task(title='b')\n```",
        "<think>hm</think>list_tasks",
    ],
)
def test_a_tools_name_or_a_call_in_a_programs_words_is_code(text: str) -> None:
    assert is_code(text, NAMES)


@pytest.mark.parametrize(
    "text", ["", "Done: list_tasks", "remove(3)", "Search for it", "add_task(x)\nDone.", "``"]
)
def test_what_says_anything_else_is_no_code(text: str) -> None:
    assert not is_code(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{ADD}</think>Hello",
        f"<think>I might say {ADD}</think>",
        f"A call such as {ADD} is wrong here.</think>Hello",
        f"{ADD}</think>",
        f"{ADD}</think>Hello",
        f"<think>The user greets me, so {ADD} but",
        f"<think>{ADD}",
        f"<THINKING>So {ADD}",
        f"<think>One <think>two</think> {ADD} three</think>Hello",
        f"Hello <think>{ADD}</think> Bob <think>{ADD}",
        "<think>list_tasks",
        "<th<think></think>ink>list_tasks",
    ],
)
def test_a_call_in_the_models_thoughts_is_none(text: str) -> None:
    assert calls_in_text(text) == []
    assert embedded_calls(text, NAMES, []) == []
    assert not is_code(text, NAMES)


@pytest.mark.parametrize(
    "text", [f"<think>hm</think>{ADD}", f"hm</think>{ADD}", f"<think>{ADD}</think>\n{ADD}"]
)
def test_a_call_after_the_models_thoughts_is_one(text: str) -> None:
    assert calls_in_text(text) == embedded_calls(text, NAMES, []) == [MILK]


@pytest.mark.parametrize("title", ["Explain <think>", "Fix </think>", "<think>a</think>"])
def test_a_tag_of_thoughts_in_a_calls_argument_stays_there(title: str) -> None:
    arguments = {"title": title}
    text = json.dumps({"name": "add_task", "arguments": arguments})
    assert calls_in_text(text) == [FunctionCall("add_task", arguments)]


def test_a_call_read_out_in_other_words_is_made() -> None:
    reordered = '{"arguments": {"title": "Milk"}, "name": "add_task"}'
    assert embedded_calls(f"Your list: {ADD}", NAMES, [reordered]) == [MILK]
    assert embedded_calls(f"Your list: {ADD}", NAMES, [ADD.replace(" ", "  ")]) == []
