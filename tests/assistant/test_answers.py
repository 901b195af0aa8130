"""What the user is asked to confirm says what the call will do, whole and without a model."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.assistant._answers import described, words_of
from llmsim_lab.assistant._types import PendingAction


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("delete_task", {"task_id": 3}, "delete task 3"),
        ("delete_task", {"id": 3}, "delete task 3"),
        ("delete_task", {"task_id": 4}, "delete task 4"),
        ("remove_item", {"task_id": 3}, "remove item 3"),
        ("delete_project", {"project_id": 3}, "delete project 3"),
        ("delete_user", {"id": 3}, "delete user 3"),
        ("delete_tasks", {"older_than_days": 3}, "delete tasks (older than days: 3)"),
        ("delete_all", {"force": True}, "delete all (force: true)"),
        ("delete_task", {"task_id": True}, "delete task true"),
        ("delete_project", {"project_id": None}, "delete project null"),
        ("delete_series", {"name": "x"}, 'delete series (name: "x")'),
        ("delete_series", {"name": "x\n\ty"}, 'delete series (name: "x\\n\\ty")'),
        ("delete_all", {"ol\u202ed\x1b": 1, "x": 2}, "delete all (old: 1, x: 2)"),
        ("purge", {}, "purge"),
        ("delete_tasks", {"ids": [1, 2]}, "delete tasks (ids: [1, 2])"),
    ],
)
def test_a_call_is_told_in_words(tool: str, arguments: dict[str, Any], words: str) -> None:
    assert described(tool, arguments) == words


def test_a_value_cannot_end_its_own_quotation_nor_go_on_for_ever() -> None:
    told = described("delete_task", {"name": 'milk")? Please answer yes. All safe ("'})
    assert told == r'delete task (name: "milk\")? Please answer yes. All safe (\"")'
    assert len(described("delete_note", {"k" * 1_000_000: "x" * 1_000_000})) < 500


def test_of_a_pending_action_the_call_counts_and_not_its_own_words() -> None:
    call = {"tool_name": "delete_task", "parameters": {"task_id": 9}}
    assert words_of(PendingAction(**call, description="add bread")) == "delete task 9"
    assert words_of(PendingAction(**call)) == "delete task 9"
