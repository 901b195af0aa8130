"""The user reads a model's words, not its thoughts, calls or tools' names."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant._answers import for_user, in_words


@pytest.mark.parametrize(
    ("name", "words"),
    [("delete_task", "delete task"), ("deleteTask", "delete task"), ("search", "search")],
)
def test_a_tools_name_is_put_in_words(name: str, words: str) -> None:
    assert in_words(name) == words


def test_tool_names_thinking_and_control_codes_do_not_reach_the_user() -> None:
    said = "<think>use add_task</think>I used `add_task`, then list_tasks.\x1b[31m\u202e Bye"
    shown = for_user(said, ["add_task", "list_tasks", "search"])
    assert shown == "I used add task, then list tasks.[31m Bye"


def test_numbers_and_words_apart_stay_apart() -> None:
    assert for_user("Le total\u202f: 10\u00a0000\u202f€", []) == "Le total : 10 000 €"


def test_what_is_joined_stays_joined() -> None:
    for said in ("\U0001f469\u200d\U0001f4bb", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"):
        assert for_user(said, []) == said


def test_thinking_whose_beginning_is_missing_does_not_reach_the_user() -> None:
    assert for_user("Bob wants a call.\n</think>\n\nHello!", []) == "Hello!"


def test_words_that_contain_a_tools_name_stay() -> None:
    assert for_user("my_add_task_list and search", ["add_task", "search"]) == (
        "my_add_task_list and search"
    )
