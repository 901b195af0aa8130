"""A deletion takes the button or one exact word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from assistant_kit import MemoryTasks, call, context, engine
from pydantic import ValidationError

from llmsim_lab.assistant import LLMAgentEngine, PendingAction
from llmsim_lab.assistant._engine import yes_or_no

YES = "yes|ok|okay|confirm|ja|bestätigen|oui|confirmer|是|是的|好|好的|确认"
NO = "no|cancel|stop|nein|abbrechen|non|annuler|不|不是|不要|否|取消"
NEITHER = """
y|YES please|Oh yes|yes, delete it|I confirm the deletion|👍|yes ✅|n|No, thanks|no no no|don't|👎
I changed my mind|🚫 no||…|maybe|delete|yes 4|yes and no|no, yes|ok stop|no, delete it|Yes?|да
yes\uff1f|yes\u061f|yes\u037e|~~yes~~|yes\u202e|y\u200bes|\uff59\uff45\uff53|yes \x00|是吗
"""


def listed(texts: str) -> list[str]:
    return [text for line in texts.strip("\n").splitlines() for text in line.split("|")]


@pytest.mark.parametrize("around", ["{}", " {}\n", "{}!", "“{}”", "{}。"])
@pytest.mark.parametrize(("words", "answer"), [(YES, "yes"), (NO, "no")])
def test_exact_words_in_four_languages_answer_in_any_case(
    words: str, answer: str, around: str
) -> None:
    said = [
        around.format(form) for word in listed(words) for form in (word, word.upper(), word.title())
    ]
    assert {yes_or_no(text) for text in said} == {answer}


@pytest.mark.parametrize("text", [*listed(NEITHER), "yes\nno", "yes " * 200])
def test_nothing_but_an_exact_word_is_a_yes_or_a_no(text: str) -> None:
    assert yes_or_no(text) is None


# Whose, and once


async def asked(made: LLMAgentEngine) -> PendingAction:
    """Have Ann's deletion wait in her conversation c1, as an application stores it."""
    decision = await made.process_message(context("Delete task 1"))
    assert decision.pending_action is not None
    return PendingAction.model_validate_json(decision.pending_action.model_dump_json())


def answer(made: LLMAgentEngine, pending: PendingAction, message: str = "yes", **of: str) -> Any:
    return made.process_message(context(message, pending_confirmation=pending, **of))


@pytest.mark.parametrize("other", [{"user_id": "bob"}, {"conversation_id": "c2"}])
async def test_a_pending_action_belongs_to_its_user_and_conversation(
    other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tools = MemoryTasks(ann=["Buy milk"], bob=["Call mum"])
    made = engine(call("delete_task", task_id=1), "Hello.", tools=tools)
    pending = await asked(made)
    for message in ("yes", "no", "Hi"):  # each is a message like any other
        decision = await answer(made, pending, message, **other)
        assert (decision.text, decision.pending_action) == ("Hello.", None)
    assert "confirmation_ignored" in caplog.text
    assert tools.ran == []
    assert (await answer(made, pending)).text == "Done: delete task 1."


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_pending_action_runs_once(at_once: bool) -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    made = engine(call("delete_task", task_id=1), tools=tools)
    pending = await asked(made)
    if at_once:
        answers = await asyncio.gather(answer(made, pending), answer(made, pending))
    else:
        answers = [await answer(made, pending), await answer(made, pending)]
    # Of two at once, either may come first.
    done, again = sorted(each.text for each in answers)
    assert done == "Done: delete task 1."
    assert again == "Your yes was taken before; I do not delete task 1 twice."
    assert len(tools.ran) == 1


async def test_one_users_yes_is_not_used_up_by_an_action_of_anothers_with_the_same_id() -> None:
    tools = MemoryTasks(ann=["Buy milk"], bob=["Call mum"])
    made = engine("unused", tools=tools)
    for user in ("ann", "bob"):
        own = {"parameters": {"task_id": 1}, "call_id": "1", "user_id": user}
        waits = PendingAction(tool_name="delete_task", **own)
        assert (await answer(made, waits, user_id=user)).text == "Done: delete task 1."
    assert len(tools.ran) == 2


@pytest.mark.parametrize("field", ["user_id", "conversation_id"])
def test_a_pending_action_names_its_user_and_conversation_or_leaves_them_out(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        PendingAction(tool_name="delete_task", **{field: ""})
