from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from assistant_kit import MemoryTasks, call, conversation, engine

from llmsim_lab._util.files import data_path
from llmsim_lab.assistant import Chat, DecisionType
from llmsim_lab.assistant._types import AgentDecision, DecisionContext
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import AssistantChat, PromptViewer, RunTree

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)></style>\x1b[31m\u202etfel"


async def said(widget: AssistantChat, text: str) -> None:
    """Write a message and click."""
    widget.message.value = text
    widget.send_button.click()
    await widget.idle()


def visible(widget: AssistantChat) -> bool:
    """Whether the buttons for yes and no can be seen."""
    return widget._ask_row.layout.display != "none"


async def test_a_message_and_its_answer_are_shown() -> None:
    widget = AssistantChat(engine("Hello, Ann!"), user_id="ann")
    assert "Nothing was said yet" in widget.talk.value
    await said(widget, "Good morning")
    assert "Good morning" in widget.talk.value
    assert "Hello, Ann!" in widget.talk.value
    assert widget.message.value == ""
    assert "1 message so far" in widget.status.value


async def test_enter_sends_and_within_a_text_makes_a_line() -> None:
    widget = AssistantChat(engine("Hello, Ann!", "Again!"), user_id="ann")
    widget.message.value = "\n"
    assert not widget.worker.busy
    widget.message.value = ""
    for pasted in (
        "one\ntwo\n",
        "",
        "one line\n",
        "one line\nand another\n",
        "other\n",
        "one\ntwo",
    ):
        widget.message.value = pasted
        assert not widget.worker.busy
    widget.message.value = "one\ntwo\nthree"
    widget.message.value = "one\ntwo\nthree\n"
    await widget.idle()
    [exchange] = widget.chat.exchanges
    assert exchange.message == "one\ntwo\nthree"
    assert widget.message.value == ""


async def test_a_deletion_is_done_only_after_a_click_on_yes() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    widget = AssistantChat(engine(call("delete_task", task_id=1), tools=tools), user_id="ann")
    await said(widget, "Delete task 1")
    assert visible(widget)
    assert "delete task 1" in widget.question.value
    assert tools.tasks["ann"] == {1: "Buy milk"}
    widget.confirm_button.click()
    await widget.idle()
    assert tools.tasks["ann"] == {}
    assert not visible(widget)


async def test_a_click_on_no_leaves_everything_as_it_is() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    widget = AssistantChat(engine(call("delete_task", task_id=1), tools=tools), user_id="ann")
    await said(widget, "Delete task 1")
    widget.cancel_button.click()
    await widget.idle()
    assert tools.tasks["ann"] == {1: "Buy milk"}
    assert not visible(widget)
    assert "I will not delete task 1" in widget.talk.value


async def test_a_click_answers_only_the_question_that_is_shown() -> None:
    tools = MemoryTasks(ann=["Buy milk", "Call mum"])
    script = [call("delete_task", task_id=1), call("delete_task", task_id=2)]
    chat = conversation(engine(*script, tools=tools))
    widget = AssistantChat(chat)
    await said(widget, "Delete task 1")
    for message in ("no", "Delete task 2"):
        await chat.send(message)
    assert "delete task 1" in widget.question.value
    widget.confirm_button.click()
    await widget.idle()
    assert tools.tasks["ann"] == {1: "Buy milk", 2: "Call mum"}
    assert "continued elsewhere" in widget.error.value
    assert "delete task 2" in widget.question.value
    widget.confirm_button.click()
    await widget.idle()
    assert tools.tasks["ann"] == {1: "Buy milk"}


async def test_a_hostile_question_is_escaped() -> None:
    widget = AssistantChat(engine(call("add_task", title=HOSTILE)), user_id="ann")
    widget.chat = conversation(_asks(HOSTILE))
    await said(widget, "Delete it")
    assert "&lt;script&gt;" in widget.question.value
    assert "<script" not in widget.question.value


def _asks(description: str) -> Any:
    async def decide(_: DecisionContext) -> AgentDecision:
        return AgentDecision.model_validate(
            {
                "decision_type": "REQUEST_CONFIRMATION",
                "response_text": "Shall I?",
                "pending_action": {"tool_name": "delete_task", "description": description},
            }
        )

    return decide


async def test_an_empty_message_is_not_sent() -> None:
    widget = AssistantChat(engine("Hello"), user_id="ann")
    await said(widget, "  \n")
    assert "the message is empty" in widget.error.value
    assert widget.chat.exchanges == ()
    with pytest.raises(ConfigError, match="the message is empty"):
        await widget.ask(" ")


async def test_a_second_click_while_one_message_is_under_way_does_nothing() -> None:
    widget = AssistantChat(engine("Hello"), user_id="ann")
    widget.message.value = "once"
    widget.send_button.click()
    widget.send_button.click()
    await widget.idle()
    assert len(widget.chat.exchanges) == 1


async def test_a_click_on_another_thread_works() -> None:
    widget = AssistantChat(engine("Hello"), user_id="ann")
    widget.message.value = "from afar"
    thread = threading.Thread(target=widget.send_button.click)
    thread.start()
    await asyncio.to_thread(thread.join)
    await widget.idle()
    assert "from afar" in widget.talk.value


async def test_stop_gives_the_message_up_and_keeps_it_to_be_sent_again() -> None:
    async def decide(_: DecisionContext) -> AgentDecision:
        await asyncio.sleep(60)
        raise AssertionError

    widget = AssistantChat(conversation(decide))
    widget.message.value = "Take your time"
    widget.send_button.click()
    await asyncio.sleep(0.05)
    assert widget.send_button.disabled
    widget.stop_button.click()
    await widget.idle()
    assert "Stopped." in widget.status.value
    assert widget.message.value == "Take your time"
    assert widget.chat.exchanges == ()
    assert not widget.send_button.disabled


async def test_a_failure_is_shown_with_a_button_to_try_again() -> None:
    answers: list[Any] = [ConfigError("no <b>model</b>"), None]

    async def decide(_: DecisionContext) -> AgentDecision:
        if (fault := answers.pop(0)) is not None:
            raise fault
        return AgentDecision(decision_type=DecisionType.RESPOND_ONLY, response_text="Now.")

    widget = AssistantChat(conversation(decide))
    await said(widget, "Hello")
    assert "no &lt;b&gt;model" in widget.error.value
    assert widget.message.value == "Hello"
    widget.retry.click()
    await widget.idle()
    assert widget.error.value == ""
    assert "Now." in widget.talk.value


async def test_a_new_conversation_forgets_what_waits_for_a_yes() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    widget = AssistantChat(engine(call("delete_task", task_id=1), tools=tools), user_id="ann")
    await said(widget, "Delete task 1")
    widget.clear_button.click()
    assert not visible(widget)
    assert widget.chat.pending is None
    assert "Nothing was said yet" in widget.talk.value


async def test_the_static_view_is_the_conversation() -> None:
    widget = AssistantChat(
        engine(call("add_task", title="Water plants"), "I have added it."), user_id="ann"
    )
    await widget.ask("Add: water plants")
    bundle = widget._repr_mimebundle_()
    assert bundle["text/plain"] == (
        "A conversation of ann, 1 messages\n"
        "You: Add: water plants\n"
        "  [add_task(title='Water plants'): done]\n"
        "Assistant (invoke tool): I have added it."
    )
    assert "add_task: done" in bundle["text/html"]


def test_an_engine_needs_a_user() -> None:
    with pytest.raises(ConfigError, match="user_id='ann'"):
        AssistantChat(engine("Hello"))
    with pytest.raises(ConfigError, match="not 'bob'"):
        AssistantChat(conversation(engine("Hello")), user_id="bob")


async def test_a_conversation_that_cannot_begin_anew_says_so_in_place() -> None:
    class OnTape(Chat):
        def clear(self) -> None:
            raise ConfigError("a recorded <b>conversation</b> cannot begin anew")

    widget = AssistantChat(OnTape(user_id="ann", players={"assistant": engine("Hello")}))
    await said(widget, "Good morning")
    widget.clear_button.click()
    assert "a recorded &lt;b&gt;conversation&lt;/b&gt; cannot begin anew" in widget.error.value
    assert "Good morning" in widget.talk.value


def test_the_general_widgets_show_a_recorded_conversation() -> None:
    tape = data_path("tapes/assistant.tape")
    assert "[reply]" in PromptViewer(tape).static_text()
    assert "1 Chat" in RunTree(tape).static_text()
