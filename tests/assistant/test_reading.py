"""Plain text is read carefully: a yes is only a yes, an offer of help is no question."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.reading import (
    asks_to_confirm,
    asks_user,
    claims_change,
    declines,
    for_user,
    in_words,
    yes_or_no,
)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes!",
        "y",
        "YES please",
        "Sure, go ahead.",
        "ok",
        "Okay, do it",
        "yes, delete it",
        "Delete it, please",
        "Of course",
        "I am sure",
        "confirm",
        "yep, thank you",
    ],
)
def test_what_says_nothing_but_yes_is_a_yes(text: str) -> None:
    assert yes_or_no(text) == "yes"


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "No, thanks",
        "nope",
        "Cancel",
        "don't",
        "Don\u2019t delete it!",
        "do not do that",
        "stop",
        "Never mind",
        "keep it",
        "no, I meant the other one",
    ],
)
def test_what_begins_as_a_no_is_a_no(text: str) -> None:
    assert yes_or_no(text) == "no"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "…",
        "maybe",
        "yes and all the others too",
        "yes, delete all tasks of bob",
        "yes but not that one",
        "Yes?",
        "no problem",
        "no, yes",
        "not sure",
        "please do not",
        "am I sure",
        "What will happen?",
        "add milk",
        "the task",
    ],
)
def test_anything_else_is_neither(text: str) -> None:
    assert yes_or_no(text) == "unclear"


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
        "どのタスクですか\uff1f",
    ],
)
def test_what_the_assistant_must_know_to_go_on_is_a_question(text: str) -> None:
    assert asks_user(text)


@pytest.mark.parametrize(
    "text", ["Shall I add another one?", "It is done. Would you like me to tick it off, too?"]
)
def test_after_work_an_offer_to_do_more_asks_nothing(text: str) -> None:
    assert asks_user(text)
    assert not asks_user(text, after_work=True)


@pytest.mark.parametrize("text", ["Shall I take Monday or Tuesday?", "Which day?"])
def test_after_work_a_choice_is_still_a_question(text: str) -> None:
    assert asks_user(text, after_work=True)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Please confirm by typing 'yes' or 'no':", True),
        ("Are you sure you want to delete task 4?", True),
        ("Do you want me to remove it?", True),
        ("I found it. Shall I delete it?", True),
        ("Please confirm which task you mean.", False),
        ("Which task do you want to delete?", False),
        ('Your list has "Please confirm the date".', False),
    ],
)
def test_what_asks_the_user_to_confirm(text: str, asks: bool) -> None:
    assert asks_to_confirm(text) is asks
    assert asks_user(text) is (asks or "which" in text.lower())


@pytest.mark.parametrize(
    ("text", "claims", "claims_after_looking"),
    [
        ("I have added it.", True, True),
        ("Your task was successfully removed.", True, True),
        ("Task 2 is completed.", True, False),
        ("Task 2 has been marked as done.", True, False),
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
    ],
)
def test_a_refusal_is_recognised(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize(
    "text", ["I can't find that task.", "Done.", 'I added "I can only help Bob".', "I can help!"]
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
    ],
)
def test_what_claims_no_change_is_none(text: str) -> None:
    assert not claims_change(text)
