"""A claim to have changed something is told from a look back and from what is so in general."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.claims import claims_change


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
        "You have successfully deleted task 2.",
        "The task 'Milk' has been added with ID 6.",
        "I've now added it.",
        "I added milk.",
        "Task 2 is now marked as done.",
        "You have ticked off #3.",
        "I crossed it off.",
        "I just added it.",
        "You've now added it.",
        "Yes, deleted it.",
        "Milk was added.",
        "I checked milk off.",
        "I put it on the list.",
        "I've already added it.",
        "I just successfully added it.",
        "I also went ahead and added it.",
        "I also added it.",
        "I have now added it.",
        "Ok, deleted it.",
        "Sure, deleted it.",
        "Great, deleted it.",
        "Yes! Now deleted.",
        "Just deleted it.",
        "The task just deleted.",
        "Your task deleted.",
        "You've just added it.",
        "You've also added it.",
        "You already added it.",
        "Tasks 1 and 2 completed.",
        "All done.",
        "Both were added.",
        "Both are now added.",
        "Both have just been added.",
        "Both have already been added.",
        "Both have also been added.",
        "Both have been successfully added.",
        "Both are now done.",
        "Both are now finished.",
        "Milk is now on your list.",
        "Milk is now on the list.",
        "Both are gone.",
        "Milk is off your list.",
        "Milk is off the list.",
        "It's on the list now.",
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
        "Your list was created on Monday.",
        "The tasks were added two days ago.",
        "No problem! I added nothing.",
        "I have deleted none of them.",
        "I changed no task.",
        "Deleted no task.",
        "Deleted none.",
        "Added nothing.",
        "The tasks were added last week.",
        "The task was added yesterday.",
        "I checked your list.",
        "Created: Monday",
        "Added tasks stand at the end.",
        "If you like, it is deleted.",
        "When you say so, it is deleted.",
    ],
)
def test_what_claims_no_change_is_none(text: str) -> None:
    assert not claims_change(text)


@pytest.mark.parametrize("text", ["你好吗", "Привет", "مرحبا", "नमस्ते", "\ud800", "ß ẞ İ", "🙂"])
def test_other_scripts_are_read_without_harm(text: str) -> None:
    assert not claims_change(text)


DEEDS = ["added", "created", "deleted", "removed", "updated", "changed", "renamed", "erased"]
DEEDS += ["cleared", "saved", "scheduled"]
STATES = ["completed", "marked", "ticked", "checked off", "crossed off"]


@pytest.mark.parametrize("done", [*DEEDS, *STATES])
@pytest.mark.parametrize(
    "text",
    [
        "I have {} milk.",
        "You have {} milk.",
        "Milk has been {}.",
        "Milk: successfully {}.",
        "Milk {} successfully.",
        "Done, {} it.",
    ],
)
def test_whatever_is_done_to_a_task_is_a_claim(done: str, text: str) -> None:
    assert claims_change(text.format(done))


@pytest.mark.parametrize("deed", DEEDS)
def test_a_short_report_of_a_deed_is_a_claim_even_after_looking(deed: str) -> None:
    assert claims_change(f"Okay, {deed} it.", looked=True)


@pytest.mark.parametrize("state", STATES)
def test_a_short_report_of_a_state_is_no_claim_after_looking(state: str) -> None:
    assert not claims_change(f"Task 2 {state}.", looked=True)
