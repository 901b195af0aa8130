"""The chat as a person has it: messages, yes and no to a deletion, what is not answered."""

from __future__ import annotations

from typing import Any

import pytest
from assistant_kit import MemoryTasks, call, conversation, engine
from lab_kit import Browser, eventually

from llmsim_lab.assistant import AgentDecision, DecisionContext, DecisionType
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import AssistantChat

WAIT_S = 30.0


class Visitor:
    """A person at a chat, by what the window shows and sends."""

    def __init__(self, chat: Any, **more: Any) -> None:
        self.chat = AssistantChat(chat, **more)
        self.browser = Browser(self.chat)

    @property
    def now(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.chat.reading.parts["chat", "now"]
        return shown

    def said(self, number: int) -> dict[str, Any]:
        shown: dict[str, Any] = self.chat.reading.parts["chat", number]
        return shown

    async def send(self, do: str, **values: Any) -> None:
        """Do as a click does, and wait for its end."""
        heard = len(self.browser.heard)
        self.browser.send(do, **values)
        # Something is said of each, if only that it is refused; before that nothing is under way.
        await eventually(
            lambda: len(self.browser.heard) > heard and not self.chat._busy, wait_s=WAIT_S
        )


async def asked_to_delete(*tasks: str) -> tuple[Visitor, MemoryTasks]:
    tools = MemoryTasks(ann=[*tasks])
    script = [call("delete_task", task_id=number) for number in range(1, len(tasks) + 1)]
    visitor = Visitor(conversation(engine(*script, tools=tools)))
    await visitor.send("send", text="Delete task 1")
    return visitor, tools


async def test_a_message_its_answer_and_the_tools_that_were_used_are_shown() -> None:
    script = engine(call("add_task", title="Water plants"), "I have added it.", "Good night.")
    visitor = Visitor(script, user_id="ann")
    assert (visitor.now["user"], visitor.now["count"]) == ("ann", 0)
    await visitor.send("send", text="Add: water plants")
    said = visitor.said(1)
    assert (said["message"], said["answer"]) == ("Add: water plants", "I have added it.")
    [(title, facts)] = said["tools"]
    assert title == "add_task: done"
    assert facts[0] == ("asked for", '{\n "title": "Water plants"\n}')
    assert visitor.now["count"] == 1
    await visitor.chat.ask("Good night")  # as a cell does
    assert visitor.said(2)["answer"] == "Good night."


@pytest.mark.parametrize("yes", [True, False])
async def test_a_deletion_waits_for_a_yes_of_the_one_who_was_asked(yes: bool) -> None:
    visitor, tools = await asked_to_delete("Buy milk")
    pending = visitor.now["pending"]
    assert (pending["what"], pending["who"]) == ("delete task 1", "ann")
    assert tools.tasks["ann"] == {1: "Buy milk"}
    await visitor.send("confirm", id=pending["id"], yes=yes)
    assert tools.tasks["ann"] == ({} if yes else {1: "Buy milk"})
    assert visitor.now["pending"] is None


async def test_a_click_answers_only_the_question_that_is_shown() -> None:
    visitor, tools = await asked_to_delete("Buy milk", "Call mum")
    old = visitor.now["pending"]
    for message in ("no", "Delete task 2"):
        await visitor.chat.chat.send(message)  # by a cell
    await visitor.send("confirm", id=old["id"], yes=True)
    assert tools.tasks["ann"] == {1: "Buy milk", 2: "Call mum"}
    assert "continued elsewhere" in visitor.browser.latest("fault")
    assert visitor.now["pending"]["what"] == "delete task 2"
    await visitor.send("confirm", id=visitor.now["pending"]["id"], yes=True)
    assert tools.tasks["ann"] == {1: "Buy milk"}


async def test_a_message_that_failed_can_be_sent_again() -> None:
    answers: list[Any] = [ConfigError("no model"), None]

    async def decide(_: DecisionContext) -> AgentDecision:
        if (fault := answers.pop(0)) is not None:
            raise fault
        return AgentDecision(decision_type=DecisionType.RESPOND_ONLY, response_text="Now.")

    visitor = Visitor(conversation(decide))
    await visitor.send("send", text="Hello")
    assert "no model" in visitor.browser.latest("live")["fault"]
    await visitor.send("send", text=visitor.now["inbox"])
    assert visitor.browser.latest("live")["fault"] == ""
    assert (visitor.said(1)["answer"], visitor.now["inbox"]) == ("Now.", "")


def test_an_engine_needs_a_user() -> None:
    with pytest.raises(ConfigError, match="user_id='ann'"):
        AssistantChat(engine("Hello"))
    with pytest.raises(ConfigError, match="not 'bob'"):
        AssistantChat(conversation(engine("Hello")), user_id="bob")
