"""A model's text is read carefully: an offer of help is no question, a look back is no claim."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.reading import (
    asks_to_confirm,
    asks_user,
    claims_change,
    declines,
    for_user,
    in_words,
)


@pytest.mark.parametrize(
    "text",
    [
        "Which task do you mean?",
        "I found two of them. Which one?\n- Buy milk\n- Buy bread",
        "What should the task say? I can add it right away.",
        "Please tell me which task you want to change.",
        "Could you clarify what to add",
        "Let me know which one you mean.",
        "I can't find that task. Did you mean 'Call mum'?",
        "I need more information to do that.",
        "**Which one do you mean?** Take your time.",
        "Which one? 😊",
        "Is it this one?!",
        "どのタスクですか\uff1f",
    ],
)
def test_what_the_assistant_must_know_to_go_on_is_a_question(text: str) -> None:
    assert asks_user(text)


@pytest.mark.parametrize(
    "text",
    [
        "Shall I add another one?",
        "It is done. Would you like me to tick it off, too?",
        "Here are your tasks. Would you like to complete any of them?",
        "Here they are. Want me to change any?",
        "You have no tasks. Would you like to add one?",
        "You don't have any tasks. Would you like to add one?",
        "Done. Shall I show you the list?",
        "Do you want to add one or change another?",
        "Shall I delete another one?",
    ],
)
def test_after_work_an_offer_to_do_more_asks_nothing(text: str) -> None:
    assert asks_user(text)
    assert not asks_user(text, after_work=True)


@pytest.mark.parametrize(
    "text",
    [
        "Shall I take Monday or Tuesday?",
        "Which day?",
        "Here they are. Which one would you like to change?",
        "I found it. Shall I delete it?",
        "I found no such task. Would you like me to add it?",
        "I couldn't find milk. Do you want me to add it?",
        "There is no task 9. Should I add one?",
        "You have no tasks about milk. Shall I add it?",
        "Did you mean task 2?",
        "Please tell me the day.",
    ],
)
def test_after_work_what_is_needed_is_still_a_question(text: str) -> None:
    assert asks_user(text, after_work=True)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Please confirm by typing 'yes' or 'no':", True),
        ("Are you sure you want to delete task 4?", True),
        ("Do you want me to remove it?", True),
        ("I found it. Shall I delete it?", True),
        ("Would you like me to erase it?", True),
        ("Would you like me to delete any of them?", False),
        ("Please confirm which task you mean.", False),
        ("Which task do you want to delete?", False),
        ('Your list has "Please confirm the date".', False),
    ],
)
def test_what_asks_the_user_to_confirm(text: str, asks: bool) -> None:
    assert asks_to_confirm(text) is asks
    assert asks_user(text) is (asks or not text.startswith("Your"))


@pytest.mark.parametrize(
    ("text", "claims", "claims_after_looking"),
    [
        ("I have added it.", True, True),
        ("Your task was successfully removed.", True, True),
        ("Task 2 is completed.", True, False),
        ("Task 2 has been marked as done.", True, False),
        ("Task 2 has now been marked as done.", True, False),
        ("The task has been updated successfully.", True, True),
        ("Deleted task 2.", True, True),
        ("Task 2 deleted.", True, True),
        ("Okay, done: tasks 1 and 2 removed.", True, True),
        ("I've gone ahead and deleted it.", True, True),
        ("I put it on your list.", True, True),
        ("I ticked it off.", True, True),
        ("Task 2 completed.", True, False),
        ("Done!", True, False),
        ("It is on your list now.", True, False),
        ("Your task is now complete.", True, False),
        ("Task 2 is gone.", True, False),
        ("Well, you have completed task 2.", True, False),
        ("Completed: milk, bread.", False, False),
        ("Have you completed it?", False, False),
        ("You have two tasks.", False, False),
    ],
)
def test_what_claims_a_change(text: str, claims: bool, claims_after_looking: bool) -> None:
    assert claims_change(text) is claims
    assert claims_change(text, looked=True) is claims_after_looking


@pytest.mark.parametrize(
    "text",
    [
        "Hello! How can I help you today?",
        "Great! What's next?",
        "All set. Anything more?",
        "If you need more, please let me know.",
        "Please let me know if you want to change it.",
        "I added it. Is there anything else?",
        "I am fine. How are you?",
        "Would you like me to help with your tasks?",
        "Your tasks:\n1. Ask Bob: when?\n2. Buy milk",
        'I added "What is love?" to your list.',
        "You have no tasks.",
        "",
    ],
)
def test_offers_lists_and_quotations_ask_nothing(text: str) -> None:
    assert not asks_user(text)


@pytest.mark.parametrize(
    "text",
    [
        "I can only help with tasks.",
        "I'm only able to help with your task list. Would you like to add one?",
        "Sorry, I can\u2019t help with that.",
        "I am unable to answer questions about the weather.",
        "That is outside of what I do.",
        "I must decline.",
        "Sorry, I don't do weather.",
        "I'm sorry, but that's off-topic for me.",
        "I can't do this.",
        "I can only help with tasks. Which one would you like to see?",
    ],
)
def test_a_refusal_is_recognised(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize(
    "text",
    [
        "I can't find that task.",
        "Done.",
        'I added "I can only help Bob".',
        "I can help!",
        "I can't do that without a number.",
        "I can't do that. Which task do you mean?",
        "I can only help with one of them. Do you mean task 2?",
    ],
)
def test_what_only_sounds_like_a_refusal_is_none(text: str) -> None:
    assert not declines(text)


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


def test_calls_within_a_text_do_not_reach_the_user() -> None:
    said = 'Sure! {"name": "add_task", "arguments": {}}'
    assert for_user(said, ["add_task"]) == "Sure!"
    assert for_user(said, []) == said


@pytest.mark.parametrize("text", ["你好吗", "Привет", "مرحبا", "नमस्ते", "\ud800", "ß ẞ İ", "🙂"])
def test_other_scripts_are_read_without_harm(text: str) -> None:
    assert not asks_user(text)
    assert not asks_to_confirm(text)
    assert not declines(text)
    assert not claims_change(text)


def test_thinking_whose_beginning_is_missing_does_not_reach_the_user() -> None:
    assert for_user("Bob wants a call.\n</think>\n\nHello!", []) == "Hello!"


def test_words_that_contain_a_tools_name_stay() -> None:
    assert for_user("my_add_task_list and search", ["add_task", "search"]) == (
        "my_add_task_list and search"
    )


@pytest.mark.parametrize(
    "text",
    [
        "You have successfully deleted task 2.",
        "The task 'Milk' has been added with ID 6.",
        "I've now added it.",
        "I added milk.",
        "Task 2 is now marked as done.",
        "You have ticked off #3.",
    ],
)
def test_what_says_that_something_was_changed_is_a_claim(text: str) -> None:
    assert claims_change(text)


@pytest.mark.parametrize(
    "text",
    [
        "You have no completed tasks yet.",
        "Nothing has not been added.",
        "Have you completed it?",
        "I can add it for you.",
        'You said "I have added it".',
        "Hello!",
        "I can show the tasks you have added and mark those that are completed.",
        "You can ask me which tasks were completed.",
        "To mark tasks as completed, tell me the number of the one that is finished.",
        "Tasks are added with a short text.",
        "A task is completed by its number.",
        "Once a task is deleted, it is gone for good, if you have completed it.",
        "Completed tasks are shown with a tick.",
        "Updated list:",
        "I will delete task 2.",
        "I have not deleted anything.",
        "No task was added.",
        "I was created to help you.",
    ],
)
def test_what_claims_no_change_is_none(text: str) -> None:
    assert not claims_change(text)
