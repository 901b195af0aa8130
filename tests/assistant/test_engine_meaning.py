"""What a text means is said by the model, in any language; plain text is plain."""

from __future__ import annotations

from typing import Any

import pytest
from assistant_kit import (
    TASK_TOOLS,
    ListLog,
    MemoryTasks,
    ScriptedAdapter,
    call,
    decide,
    process_on,
    says,
)

from llmsim_lab.assistant import DecisionType

ADD = call("add_task", title="x")


# What the model says that its text is


@pytest.mark.parametrize(
    ("text", "kind", "decided", "category"),
    [
        ("How can I help?", "answer", DecisionType.RESPOND_ONLY, "SUCCESS:RESPONDED"),
        ("Welche", "question", DecisionType.ASK_CLARIFICATION, "AMBIGUITY:CLARIFICATION"),
        ("帮不上忙。", "refusal", DecisionType.RESPOND_ONLY, "REFUSAL:DECLINED"),
    ],
)
async def test_a_text_is_what_the_model_says_it_is(
    text: str, kind: str, decided: DecisionType, category: str
) -> None:
    log = ListLog()
    decision = await decide("Hi", says(text, kind), log=log)
    assert (decision.decision_type, decision.text) == (decided, text)
    assert log.decisions[-1]["outcome_category"] == category


@pytest.mark.parametrize(
    "text", ["Welche?\n", "(Laquelle ?)", "哪一个\uff1f", "أيهما\u061f", "Ποιο;", "„Wirklich?“"]
)
async def test_plain_text_that_ends_in_a_question_mark_asks(text: str) -> None:
    assert (await decide("Hi", text)).decision_type is DecisionType.ASK_CLARIFICATION


async def test_any_other_plain_text_is_an_answer() -> None:
    decision = await decide("Hi", "Which? I do not know.")
    assert decision.decision_type is DecisionType.RESPOND_ONLY


@pytest.mark.parametrize("said", ["Which day?", says("Which day, please", "question")])
async def test_a_question_after_tools_ran_asks_and_keeps_what_ran(said: Any) -> None:
    log = ListLog()
    decision = await decide("Add x and y", ADD, said, log=log)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION
    assert decision.clarification_question == decision.text
    assert [ran.tool_name for ran in decision.tool_calls or ()] == ["add_task"]
    assert log.decisions[-1]["intent_type"] == "add_task"


# Tools that start first


class SlowToStart(MemoryTasks):
    """Tools that are known only once their server has started."""

    starts = 0

    async def ready(self) -> None:
        self.starts += 1

    def get_available_tools(self) -> list[str]:
        return [tool.name for tool in TASK_TOOLS] if self.starts else []


async def test_tools_that_must_start_are_awaited_before_they_are_asked_for() -> None:
    tools = SlowToStart()
    adapter = ScriptedAdapter(ADD, "Added.")
    decision = await process_on(adapter, tools)
    assert tools.starts == 1
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert len(adapter.offered[0]) == len(TASK_TOOLS)
