"""What a text means is said by the model, in any language; plain text is plain."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from assistant_kit import (
    CONSTITUTION,
    TASK_TOOLS,
    ListLog,
    MemoryTasks,
    ScriptedAdapter,
    call,
    conversation,
    decide,
    process_on,
    says,
)
from builders import make_client

from llmsim_lab.assistant import AgentDecision, DecisionType, LLMAgentEngine, OllamaAdapter
from llmsim_lab.types import ChatReply, ToolCall

ADD = call("add_task", title="x")


# What the model says that its text is


@pytest.mark.parametrize(
    ("kind", "decided", "category"),
    [
        ("answer", DecisionType.RESPOND_ONLY, "SUCCESS:RESPONDED"),
        ("question", DecisionType.ASK_CLARIFICATION, "AMBIGUITY:CLARIFICATION"),
        ("refusal", DecisionType.RESPOND_ONLY, "REFUSAL:DECLINED"),
    ],
)
@pytest.mark.parametrize("text", ["Welche meinst du", "How can I help you today?", "帮不上忙。"])
async def test_a_text_is_what_the_model_says_it_is(
    text: str, kind: str, decided: DecisionType, category: str
) -> None:
    log = ListLog()
    decision = await decide("Hi", says(text, kind), log=log)
    assert (decision.decision_type, decision.text) == (decided, text)
    assert log.decisions[-1]["outcome_category"] == category


@pytest.mark.parametrize(
    "text",
    [
        "Which one?",
        "Welche?\n",
        "(Laquelle ?)",
        "哪一个\uff1f",
        "أيهما\u061f",
        "Ποιο;",
        "Ποιο\u037e",
        "**Shall I?**",
        "„Wirklich?“",
    ],
)
async def test_plain_text_that_ends_in_a_question_mark_asks(text: str) -> None:
    assert (await decide("Hi", text)).decision_type is DecisionType.ASK_CLARIFICATION


@pytest.mark.parametrize(
    "text", ["Please tell me which one.", "Which? I do not know.", "I can only help with tasks."]
)
async def test_any_other_plain_text_is_an_answer(text: str) -> None:
    log = ListLog()
    assert (await decide("Hi", text, log=log)).decision_type is DecisionType.RESPOND_ONLY
    assert log.decisions[-1]["outcome_category"] == "SUCCESS:RESPONDED"


@pytest.mark.parametrize("said", ["Which day?", says("Which day, please", "question")])
async def test_a_question_after_tools_ran_asks_and_keeps_what_ran(said: Any) -> None:
    log = ListLog()
    decision = await decide("Add x and y", ADD, said, log=log)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION
    assert decision.clarification_question == decision.text
    assert [ran.tool_name for ran in decision.tool_calls or ()] == ["add_task"]
    assert log.decisions[-1]["intent_type"] == "add_task"


@pytest.mark.parametrize(
    "said", ["Added.", says("Added. Anything else?"), says("I cannot do more.", "refusal")]
)
async def test_what_is_no_question_after_tools_ran_is_an_invocation(said: Any) -> None:
    decision = await decide("Add x", ADD, said)
    assert decision.decision_type is DecisionType.INVOKE_TOOL


async def test_an_adapter_may_answer_with_a_type_of_its_own() -> None:
    class Own(ScriptedAdapter):
        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(content="Which one?", function_calls=None, error=None)

    decision = await process_on(Own(""), MemoryTasks())
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION


# In other languages

TALKS = {
    "German": [
        ("Lösche eine Aufgabe", "question", "Welche Aufgabe meinst du"),
        ("Aufgabe 2", "delete_task", "ja"),
        ("Wie wird das Wetter?", "refusal", "Ich helfe nur bei Aufgaben. Noch etwas?"),
    ],
    "French": [
        ("Supprime une tâche", "question", "Dites-moi laquelle."),
        ("La deuxième", "delete_task", "Oui !"),
        ("Qui gagnera ?", "refusal", "Je ne m'occupe que de vos tâches."),
    ],
    "Chinese": [
        ("删除一个任务", "question", "请告诉我是哪一个。"),
        ("第二个", "delete_task", "是的。"),
        ("天气怎么样", "refusal", "我只能处理任务，可以吗？"),  # noqa: RUF001
    ],
}


def respond(kind: str, text: str) -> ChatReply:
    arguments = {"kind": kind, "done": "nothing", "text": text}
    return ChatReply(text="", tool_calls=(ToolCall(name="respond", arguments=arguments),))


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
async def test_a_conversation_in_another_language_decides_as_in_english(talk: Any) -> None:
    (ask, _, question), (which, _, yes), (off_topic, _, refusal) = talk
    wanted = ToolCall(name="delete_task", arguments={"task_id": 2})
    replies = [
        respond("question", question),
        ChatReply(text="", tool_calls=(wanted,)),
        respond("refusal", refusal),
    ]
    tools, log = MemoryTasks(ann=["Milch", "Mama"]), ListLog()
    adapter = OllamaAdapter(make_client(replies), TASK_TOOLS)
    chat = conversation(LLMAgentEngine(adapter, tools, CONSTITUTION, decision_log=log))
    decided = [await chat.send(message) for message in (ask, which, yes, off_topic)]
    assert [decision.decision_type.value for decision in decided] == [
        "ASK_CLARIFICATION",
        "REQUEST_CONFIRMATION",
        "INVOKE_TOOL",
        "RESPOND_ONLY",
    ]
    assert log.decisions[-1]["outcome_category"] == "REFUSAL:DECLINED"
    assert tools.tasks["ann"] == {1: "Milch"}
    assert json.loads(decided[1].model_dump_json())["pending_action"]["parameters"] == {
        "task_id": 2
    }


# Tools that start first


class SlowToStart(MemoryTasks):
    """Tools that are known only once their server has started."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__()
        self.fault = fault
        self.starts = 0

    async def ready(self) -> None:
        self.starts += 1
        if self.fault is not None:
            raise self.fault

    def get_available_tools(self) -> list[str]:
        return [tool.name for tool in TASK_TOOLS] if self.starts else []


async def test_tools_that_must_start_are_awaited_before_they_are_asked_for() -> None:
    tools = SlowToStart()
    adapter = ScriptedAdapter(ADD, "Added.")
    decision = await process_on(adapter, tools)
    assert tools.starts == 1
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert len(adapter.offered[0]) == len(TASK_TOOLS)


async def test_tools_that_do_not_start_are_a_failure_in_the_contracts_words() -> None:
    decision: AgentDecision = await process_on(
        ScriptedAdapter("Hi"), SlowToStart(fault=RuntimeError("no server"))
    )
    assert decision.text == "I'm having trouble processing your request. Please try again."
