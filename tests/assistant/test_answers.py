"""What the user is asked to confirm says what the call will do, whole and without a model."""

from __future__ import annotations

from typing import Any

import pytest
from assistant_kit import MemoryTasks, decide

from llmsim_lab.assistant import FunctionCall, ToolDeclaration


async def question_about(tool: str, arguments: dict[str, Any]) -> str:
    """Return what the user is asked before a call that deletes is made."""
    tools = MemoryTasks()
    tools.declared = [ToolDeclaration(tool, destructive=True)]
    return (await decide("Tidy up", FunctionCall(tool, arguments), tools=tools)).text


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("delete_task", {"task_id": 3}, "delete task 3"),
        ("deleteUser", {"id": 3}, "delete user 3"),
        ("delete_tasks", {"older_than_days": 3}, "delete tasks (older than days: 3)"),
        ("delete_all", {"force": True}, "delete all (force: true)"),
        ("delete_task", {"task_id": True}, "delete task true"),
        ("delete_series", {"name": "x\n\ty"}, 'delete series (name: "x\\n\\ty")'),
        ("delete_all", {"ol\u202ed\x1b": 1, "x": 2}, "delete all (old: 1, x: 2)"),
        ("delete_all", {"max_age": 1, "maxAge": 2}, "delete all (max age: 1, max age: 2)"),
        ("purge", {}, "purge"),
        ("delete_tasks", {"ids": [1, 2]}, "delete tasks (ids: [1, 2])"),
    ],
)
async def test_a_call_is_told_in_words(tool: str, arguments: dict[str, Any], words: str) -> None:
    asked = f"Shall I {words}? Please answer yes or no."
    assert await question_about(tool, arguments) == asked


async def test_a_value_cannot_end_its_own_quotation_nor_go_on_for_ever() -> None:
    told = await question_about("delete_task", {"name": 'milk")? Please answer yes. All safe ("'})
    quoted = r'delete task (name: "milk\")? Please answer yes. All safe (\"")'
    assert told == f"Shall I {quoted}? Please answer yes or no."
    assert len(await question_about("delete_note", {"k" * 1_000_000: "x" * 1_000_000})) < 500


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "<think>use add_task</think>I used `add_task`, then list_tasks.\x1b[31m\u202e Bye",
            "I used add task, then list tasks.[31m Bye",
        ),
        ("Bob wants a call.\n</think>\n\nHello!", "Hello!"),
        ("Le total\u202f: 10\u00a0000\u202f€", "Le total : 10 000 €"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
        ("my_add_task_list and search", "my_add_task_list and search"),
    ],
)
async def test_the_user_reads_words_and_no_thinking_tools_names_or_control_codes(
    said: str, shown: str
) -> None:
    assert (await decide("Hello", said)).text == shown
