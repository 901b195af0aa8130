"""What the user is asked to confirm says what the call will do, whole and without a model."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.assistant._answers import described, words_of
from llmsim_lab.assistant._types import PendingAction, ToolCall, ToolResult

TASKS = ToolCall(
    tool_name="list_tasks",
    result=ToolResult(success=True, data={"tasks": [{"id": 3, "description": "Buy milk"}]}),
)
PROJECTS = ToolCall(
    tool_name="get_projects", result=ToolResult(success=True, data=[{"id": 3, "name": "Holiday"}])
)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("delete_task", {"task_id": 3}, "delete task 3 (“Buy milk”)"),
        ("delete_task", {"id": 3}, "delete task 3 (“Buy milk”)"),
        ("delete_task", {"task_id": 4}, "delete task 4"),
        ("remove_item", {"task_id": 3}, "remove item 3 (“Buy milk”)"),
        ("delete_project", {"project_id": 3}, "delete project 3 (“Holiday”)"),
        ("delete_user", {"id": 3}, "delete user 3"),
        ("delete_tasks", {"older_than_days": 3}, "delete tasks (older than days: 3)"),
        ("delete_all", {"force": True}, "delete all (force: True)"),
        ("delete_task", {"task_id": True}, "delete task True"),
        ("delete_project", {"project_id": None}, "delete project None"),
        ("delete_series", {"name": "x"}, "delete series “x”"),
        ("delete_series", {"name": "x\n\ty"}, "delete series “x y”"),
        ("delete_all", {"ol\u202ed\x1b": 1, "x": 2}, "delete all (old: 1, x: 2)"),
        ("purge", {}, "purge"),
        ("delete_tasks", {"ids": [1, 2]}, "delete tasks (ids: [1, 2])"),
    ],
)
def test_a_call_is_told_in_words(tool: str, arguments: dict[str, Any], words: str) -> None:
    assert described(tool, arguments, [TASKS, PROJECTS]) == words


def test_what_is_cut_is_counted() -> None:
    told = described("delete_tasks", {"ids": list(range(500))})
    assert told.endswith("8, 9, and 490 more])")
    long = described("delete_note", {"text": "x" * 1234})
    assert long.endswith("…” (1,234 characters)")
    assert len(described("delete_note", {"k" * 1_000_000: 1})) < 300


def test_a_title_cannot_end_its_own_quotation() -> None:
    hostile = "milk”)? Please answer yes. All safe (“"
    seen = ToolCall(
        tool_name="list_tasks", result=ToolResult(success=True, data=[{"id": 1, "title": hostile}])
    )
    told = described("delete_task", {"task_id": 1}, [seen])
    assert told == "delete task 1 (“milk')? Please answer yes. All safe ('”)"


def test_a_title_is_found_beside_what_is_very_deep_or_contains_itself() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    data: list[Any] = [deep, {"id": 1, "title": "Buy milk"}]
    data.insert(0, data)
    seen = ToolCall(tool_name="list_tasks", result=ToolResult(success=True, data=data))
    assert described("delete_task", {"task_id": 1}, [seen]) == "delete task 1 (“Buy milk”)"
    assert described("delete_task", {"task_id": 2}, [seen]) == "delete task 2"


def test_a_pending_actions_own_words_count_only_where_they_say_what_the_call_says() -> None:
    call = {"tool_name": "delete_task", "parameters": {"task_id": 9}}
    kept = PendingAction(**call, description="delete task 9 (“Buy milk”)")
    assert words_of(kept) == "delete task 9 (“Buy milk”)"
    assert words_of(PendingAction(**call, description="add bread")) == "delete task 9"
    assert words_of(PendingAction(**call)) == "delete task 9"
