"""A model's text is read carefully: an offer of help is no question, a doubt is no refusal."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.questions import asks_to_confirm, asks_user, declines


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
        "Can you tell me its number",
        "Please specify the day.",
        "Please provide a title.",
        "Please give me its number.",
        "Please choose one of them.",
        "Please confirm the day.",
        "Please rephrase that.",
        "Please say what to add.",
        "Please let me know the day.",
        "Let me know what to add.",
        "Let me know when it is due.",
        "I need to know the day.",
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
        "Should I tick it off, too?",
        "Can I add the next one?",
        "Ready. Want to add the next one?",
        "Do you want to change any of them or add one?",
        "Do you want me to add more or stop here?",
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
        "I can\u2019t see milk. Do you want me to add it?",
        "Milk was not found. Do you want me to add it?",
        "Task 9 does not exist. Do you want me to add it?",
        "Milk is not on your list. Shall I add it?",
        "Milk is not on the list. Shall I add it?",
        "There is no item 9. Shall I add it?",
        "There are no tasks called milk. Shall I add it?",
        "There are no tasks named milk. Shall I add it?",
        "You don't have any tasks with milk. Shall I add it?",
        "You don't have any tasks for Bob. Shall I add it?",
        "Here they are: which one do you want to change?",
        "What do you want to add?",
        "When would you like to do it?",
        "Where do you want to do it?",
        "Who would you like to call?",
        "How would you like to sort them?",
        "There is no task 9. Should I add one?",
        "You have no tasks about milk. Shall I add it?",
        "Did you mean task 2?",
        "Please tell me the day.",
    ],
)
def test_after_work_what_is_needed_is_still_a_question(text: str) -> None:
    assert asks_user(text, after_work=True)


@pytest.mark.parametrize(
    "text",
    [
        "Hello! How can I help you today?",
        "Great! What's next?",
        "All set. Anything more?",
        "If you need more, please let me know.",
        "Please let me know if you want to change it.",
        "I added it. Is there anything else?",
        "Is there something else on your mind?",
        "What else?",
        "What is next?",
        "May I assist you?",
        "I can help with that, OK?",
        "I can assist you, right?",
        "What can I do for you?",
        "Do you need any help?",
        "Do you want assistance?",
        "What would you like to do?",
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
        "Please confirm by typing 'yes' or 'no':",
        "Please confirm.",
        "Are you sure?",
        "Are you sure you want to do this?",
        "Are you sure you want to delete task 4?",
        "Task 4 is going to be removed. Are you sure you want me to erase it?",
        "Do you want me to remove it?",
        "Do you really want to delete task 4?",
        "I found it. Shall I delete it?",
        "Ok, should I delete it?",
        "Would you like me to erase it?",
        "Type “yes” to delete task 4.",
        "Say yes, and I will delete it.",
        "Answer yes to proceed.",
        "I am deleting it as soon as you reply with **yes**.",
        "Please confirm the deletion of task 4.",
        "Please confirm its removal.",
        "Please confirm that task 4 is to be deleted.",
        "I need you to confirm that you want it erased.",
        "Confirm by replying 'yes'.",
        "Proceed by typing `yes`.",
    ],
)
def test_what_asks_for_a_yes_to_a_deletion(text: str) -> None:
    assert asks_to_confirm(text, {"delete"})
    assert asks_to_confirm(text, ["archive", "Remove"])


@pytest.mark.parametrize(
    "text",
    [
        "Are you sure you want me to mark all five tasks as done?",
        "Shall I mark them as done?",
        "Please confirm: should I mark all five tasks as done?",
        "Type 'yes' to mark them all.",
        "Please confirm the new title of task 2.",
        "Would you like me to delete any of them?",
        "Please confirm which task you mean.",
        "Please confirm which task to delete.",
        "Please confirm what to delete.",
        "Would you like me to delete some of them?",
        "Shall I delete one?",
        "Shall I delete another?",
        "Do you want to delete more?",
        "Which task do you want to delete?",
        "I can delete tasks, too.",
        "I deleted it. Would you like me to add another one?",
        "Deleted tasks are gone. Are you sure you want to add one?",
        'Your list has "Please confirm the date".',
        "Your tasks:\n1. Are you sure?\n- Please confirm",
        "",
    ],
)
def test_what_asks_for_no_yes_to_a_deletion(text: str) -> None:
    assert not asks_to_confirm(text, {"delete"})


def test_what_is_asked_counts_only_if_it_is_one_of_the_actions_that_are_confirmed() -> None:
    text = "Are you sure you want to archive task 4?"
    assert asks_to_confirm(text, {"delete", "archive"})
    assert not asks_to_confirm(text, {"delete"})
    assert not asks_to_confirm("Shall I delete task 4?", {"archive"})


def test_where_no_action_has_a_name_only_a_question_without_one_asks_for_a_yes() -> None:
    assert asks_to_confirm("Are you sure?", {""})
    assert not asks_to_confirm("Are you sure you want to delete it?", set())


@pytest.mark.parametrize(
    "text", ["Are you sure?", "Please confirm.", "Shall I delete it?", "Please type 'yes'?"]
)
def test_what_asks_for_a_yes_asks_the_user_something_after_work_too(text: str) -> None:
    assert asks_user(text)
    assert asks_user(text, after_work=True)


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
        "I am only able to assist you with tasks.",
        "I'm only here to handle tasks.",
        "I only answer what is about tasks.",
        "I only manage tasks.",
        "I cannot directly help you.",
        "I can't discuss the weather.",
        "I can't provide news.",
        "I won't comply.",
        "I am not able to assist.",
        "I won't do that.",
        "I do not handle e-mail.",
        "That is beyond my job.",
        "That is not something I can look up.",
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
        "I can't do that. Which day is it?",
        "I can't do that until you tell me the day.",
        "I can't do that unless you tell me the day.",
        "I can only help with one of them. Do you mean task 2?",
    ],
)
def test_what_only_sounds_like_a_refusal_is_none(text: str) -> None:
    assert not declines(text)


@pytest.mark.parametrize("text", ["你好吗", "Привет", "مرحبا", "नमस्ते", "\ud800", "ß ẞ İ", "🙂"])
def test_other_scripts_are_read_without_harm(text: str) -> None:
    assert not asks_user(text)
    assert not asks_to_confirm(text, {"delete"})
    assert not declines(text)
