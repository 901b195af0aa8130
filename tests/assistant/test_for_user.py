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
    said = "<think>use add_task</think>I used `add_task()`, then list_tasks.\x1b[31m\u202e Bye"
    shown = for_user(said, ["add_task", "list_tasks", "search"])
    assert shown == "I used add task, then list tasks.[31m Bye"


def test_numbers_and_words_apart_stay_apart() -> None:
    assert for_user("Le total\u202f: 10\u00a0000\u202f€", []) == "Le total : 10 000 €"


def test_what_is_joined_stays_joined() -> None:
    for said in ("\U0001f469\u200d\U0001f4bb", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"):
        assert for_user(said, []) == said


def test_tool_names_in_other_spellings_do_not_reach_the_user() -> None:
    said = "I used Delete_Task, DELETE_TASK and **delete\\_task**."
    shown = for_user(said, ["delete_task"])
    assert shown == "I used delete task, delete task and **delete task**."


def test_names_arguments_and_codes_in_a_programs_words_do_not_reach_the_user() -> None:
    said = "I ran add_task(title='x (y)'), then addTask and ADD-TASK: INVALID_PARAMETERS."
    assert for_user(said, ["add_task"]) == (
        "I ran add task, then add task and add task: invalid parameters."
    )


def test_a_users_own_words_in_quotation_marks_stay() -> None:
    said = "You have “fix add_task”, 'add_task' and \"add_task\". I used add_task."
    assert for_user(said, ["add_task"]) == (
        "You have “fix add_task”, 'add task' and \"add task\". I used add task."
    )


def test_a_tools_name_of_one_word_stays_as_it_is() -> None:
    assert (
        for_user("Search again with Search.", ["search", "Search"]) == "Search again with Search."
    )


def test_thinking_whose_beginning_is_missing_does_not_reach_the_user() -> None:
    assert for_user("Bob wants a call.\n</think>\n\nHello!", []) == "Hello!"


def test_words_that_contain_a_tools_name_stay() -> None:
    assert for_user("my_add_task_list and search", ["add_task", "search"]) == (
        "my_add_task_list and search"
    )


def test_codes_of_failures_do_not_reach_the_user() -> None:
    said = "error NOT_FOUND, TOOL_NOT_FOUND and SERVER_DIED"
    assert for_user(said, []) == "error not found, tool not found and server died"
