"""A reply to "Shall I …?" is a yes only where it says nothing else, and a no where it says so."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.yes_no import yes_or_no

MILK = "delete task 3 (“Buy milk”)"


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes!",
        "y",
        "k",
        "YES please",
        "yesss",
        "'yes'",
        "**yes**",
        "Oh yes",
        "Sure, go ahead.",
        "sure thing",
        "ok",
        "Okay, do it",
        "yes, delete it",
        "Yes, go ahead and delete it",
        "yep, go for it",
        "Delete it, please",
        "Yes, that one",
        "yes, delete the task",
        "I confirm the deletion",
        "Of course",
        "I am sure",
        "Yes I do",
        "Yes, I want to delete it",
        "You can delete it",
        "That\u2019s right",
        "correct",
        "sounds good",
        "confirm",
        "yep, thank you",
        "yes pls",
        "All right, then",
        "👍",
        "👍🏽",
        "✅",
        "✔️",
        "yes ✅",
    ],
)
def test_what_says_nothing_but_yes_is_a_yes(text: str) -> None:
    assert yes_or_no(text) == "yes"
    assert yes_or_no(text, about=MILK) == "yes"


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "n",
        "No, thanks",
        "nooo!",
        "no no no",
        "nope, not that one",
        "Cancel",
        "Please cancel that",
        "don't",
        "don\u00b4t",
        "dont delete it",
        "Don\u2019t delete it!",
        "do not do that",
        "Please don't",
        "please do not",
        "please don't delete it",
        "I don't want to delete it",
        "I don't want that",
        "Don't delete it, finish it.",
        "no, don't",
        "never",
        "stop",
        "Never mind",
        "nevermind, keep it",
        "forget it",
        "leave it alone",
        "keep it",
        "I changed my mind",
        "not now",
        "Absolutely not",
        "of course not",
        "I'd rather not",
        "Actually, no",
        "wait, no",
        "on second thought, no",
        "no, I meant the other one",
        "no, wrong one",
        "👎",
        "❌",
        "🚫 no",
    ],
)
def test_what_begins_as_a_no_and_says_yes_nowhere_is_a_no(text: str) -> None:
    assert yes_or_no(text) == "no"
    assert yes_or_no(text, about=MILK) == "no"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "…",
        "maybe",
        "not sure",
        "am I sure",
        "the task",
        "delete",
        "add milk",
        "wait",
        "I don't know",
        "you can't",
        "say yes",
        "What will happen?",
        "yes and all the others too",
        "yes, delete all tasks of bob",
        "yes, them all",
        "yes but not that one",
        "yes, if it is done",
        "yes 4",
        "delete it later",
        "go ahead with the others",
        "yes " * 200,
    ],
)
def test_what_says_more_or_less_than_yes_is_neither(text: str) -> None:
    assert yes_or_no(text) == "unclear"
    assert yes_or_no(text, about=MILK) == "unclear"


@pytest.mark.parametrize(
    "text",
    [
        "yes and no",
        "no, yes",
        "yes\nno",
        "no, wait, yes",
        "y n",
        "ok stop",
        "never ok",
        "no, go ahead",
        "no, delete it",
        "no, delete task 4",
        "don't delete task 4, delete task 3",
        "don't worry, go ahead",
        "do not cancel",
        "don't cancel, proceed",
        "don't stop",
        "don't keep it",
        "never stop, go ahead",
        "never mind the warning, delete it",
        "stop asking and delete it",
        "keep going",
        "keep it or delete it",
        "no problem",
        "no worries, go ahead",
        "no need to ask",
        "no objections",
        "No. 3",
        "not only this one",
        "cancel my subscription",
        "stop the music task",
        "yes 👎",
        "ok ❌",
        "delete it 🚫",
        "no 👍",
    ],
)
def test_a_yes_and_a_no_together_are_neither(text: str) -> None:
    assert yes_or_no(text) == "unclear"
    assert yes_or_no(text, about=MILK) == "unclear"


@pytest.mark.parametrize(
    "text",
    [
        "Yes?",
        "yes\uff1f",
        "Yes\u061f",
        "yes\u203d",
        "yes\u037e",
        "~~yes~~",
        "yes\u202e",
        "y\u200bes",
        "ye\u0301s",
        "\uff59\uff45\uff53",
        "\u0443es",
        "yes 😈",
        "はい",
        "да",
        "हाँ",
        "نعم",
        "是",
        "네",
        "\ud800",
        "yes \x00",
    ],
)
def test_odd_signs_and_other_scripts_are_no_yes(text: str) -> None:
    assert yes_or_no(text) == "unclear"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("yes, delete task 3", MILK),
        ("Delete task 3", MILK),
        ("yes, remove the task 3, please", MILK),
        ("yes, delete 3", MILK),
        ("yes, task 3", MILK),
        ("yes, delete task #3", MILK),
        ("fine, delete task number 3", MILK),
        ("yes, delete “Buy milk”", MILK),
        ("yes, delete the task buy milk", MILK),
        ("yes, delete task 3", "task delete 3"),
        ("yes, remove it", "clear list 3"),
        ("yes, delete “Milk”", "delete task 3 (“Milk”)"),
        ("yes, delete call Bob", "delete task 3 (“Call Bob”)"),
        ("yes, cancel order 3", "cancel order 3"),
        ("complete it", "complete task 3"),
        ("yes, complete task 3", "complete task 3"),
        ("yes, delete all", "delete all"),
        ("yes", "…"),
    ],
)
def test_a_yes_may_name_what_was_asked(text: str, about: str) -> None:
    assert yes_or_no(text, about=about) == "yes"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("yes, delete task 4", MILK),
        ("yes, delete task 3 and 4", MILK),
        ("yes, number 4", MILK),
        ("yes #4", MILK),
        ("fine", MILK),
        ("yes, delete milk", MILK),
        ("yes, delete the note", MILK),
        ("yes, delete tasks", MILK),
        ("yes, delete task 3", "delete tasks (older than days: 3)"),
        ("yes, delete 3", "delete tasks (older than days: 3)"),
        ("yes, delete 3", "delete tasks [3, 4]"),
        ("yes, delete milk", "delete tasks ['milk', 'bread']"),
        ("yes, delete it", "complete task 3"),
        ("complete task 3", "complete task 3"),
        ("task 3", "task archive 3"),
        ("the task", "task delete 3"),
        ("yes do not", "delete task 3 (“Do not call”)"),
        ("drop it", "drop table 3"),
        ("cancel it", "cancel order 3"),
        ("cancel", "cancel order 3"),
        ("this that", "…"),
    ],
)
def test_a_yes_to_something_else_or_in_doubt_is_none(text: str, about: str) -> None:
    assert yes_or_no(text, about=about) == "unclear"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("keep task 3", MILK),
        ("don't cancel it", "cancel order 3"),
        ("no", "cancel order 3"),
        ("no, don't", "keep backup 3"),
    ],
)
def test_a_no_may_name_what_was_asked(text: str, about: str) -> None:
    assert yes_or_no(text, about=about) == "no"


def test_keeping_something_else_is_no_answer() -> None:
    assert yes_or_no("keep task 4", about=MILK) == "unclear"


DENIALS = [
    "No",
    "no no",
    "Cancel",
    "wait",
    "hold on",
    "Stop",
    "do not",
    "don't",
    "never",
    "leave it",
    "forget it",
    "keep",
    "keep it",
    "not 3",
    "not now",
    "no more",
    "all",
    "every one",
    "everything",
    "both",
    "the others",
    "4",
    "task 4",
    "number four",
    "later",
    "tomorrow morning",
    "on Monday",
    "after lunch",
    "if it is done",
    "maybe",
    "just kidding",
    "nein",
    "say no to Bob",
    "Delete all",
]


@pytest.mark.parametrize("title", DENIALS)
@pytest.mark.parametrize(
    "reply",
    ["ok {}", "yes, {}", "Ok. {}!", "sure, the task {}", "yes task {}", "yes, delete {}", "{}, ok"],
)
@pytest.mark.parametrize("about", ["delete task 3 (“{}”)", "delete task “{}”"])
def test_a_title_never_turns_a_no_or_a_doubt_into_a_yes(title: str, reply: str, about: str) -> None:
    assert yes_or_no(reply.format(title), about=about.format(title)) != "yes"


@pytest.mark.parametrize("title", DENIALS)
def test_no_title_stands_in_the_way_of_a_plain_answer(title: str) -> None:
    about = f"delete task 3 (“{title}”)"
    assert yes_or_no("yes", about=about) == "yes"
    assert yes_or_no("Yes, delete task 3", about=about) == "yes"
    assert yes_or_no("no", about=about) == "no"
    assert yes_or_no("yes, no", about=about) == "unclear"


def test_a_title_that_says_yes_adds_nothing_to_a_yes() -> None:
    assert yes_or_no("ok yes", about="delete task 3 (“yes”)") == "yes"
    assert yes_or_no("yes, no", about="delete task 3 (“yes, no”)") == "unclear"


@pytest.mark.parametrize("title", ["buy milk", "let me think", "milk"])
def test_a_title_without_verb_and_quotation_marks_is_no_yes(title: str) -> None:
    assert yes_or_no(f"ok, {title}", about=f"delete task 3 (“{title}”)") == "unclear"


@pytest.mark.parametrize("text", ["yes, “buy milk”", "yes, task 3 “Buy milk”", "ok 'Buy milk'"])
def test_a_title_in_quotation_marks_may_be_named(text: str) -> None:
    assert yes_or_no(text, about=MILK) == "yes"


def test_a_title_does_not_say_what_is_done() -> None:
    assert yes_or_no("yes, delete it", about="complete task (“Delete photos”)") == "unclear"
