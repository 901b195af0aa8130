"""What a text means is said by the model, in any language; plain text is plain."""

from __future__ import annotations

from typing import Any

import pytest
from assistant_kit import TASK_TOOLS, ListLog, MemoryTasks, call, decide, says

from llmsim_lab.assistant import DecisionType

ADD = call("add_task", title="x")
ASKS, ANSWERS = DecisionType.ASK_CLARIFICATION, DecisionType.RESPOND_ONLY


@pytest.mark.parametrize(
    ("said", "decided", "category"),
    [
        (says("How can I help?", "answer"), ANSWERS, "SUCCESS:RESPONDED"),
        (says("Welche", "question"), ASKS, "AMBIGUITY:CLARIFICATION"),
        (says("帮不上忙。", "refusal"), ANSWERS, "REFUSAL:DECLINED"),
        ("Which? I do not know.", ANSWERS, "SUCCESS:RESPONDED"),
        *((text, ASKS, "AMBIGUITY:CLARIFICATION") for text in ("Welche?\n", "(Laquelle ?)")),
        *((text, ASKS, "AMBIGUITY:CLARIFICATION") for text in ("哪一个\uff1f", "أيهما\u061f")),
        *((text, ASKS, "AMBIGUITY:CLARIFICATION") for text in ("Ποιο;", "„Wirklich?“")),
    ],
)
async def test_a_text_is_what_the_model_says_it_is_else_a_question_where_it_ends_as_one(
    said: Any, decided: DecisionType, category: str
) -> None:
    log = ListLog()
    decision = await decide("Hi", said, log=log)
    assert (decision.decision_type, log.decisions[-1]["outcome_category"]) == (decided, category)
    assert decision.text == getattr(said, "content", said).strip()


@pytest.mark.parametrize("said", ["Which day?", says("Which day, please", "question")])
async def test_a_question_after_tools_ran_asks_and_keeps_what_ran(said: Any) -> None:
    log = ListLog()
    decision = await decide("Add x and y", ADD, said, log=log)
    assert decision.decision_type is ASKS
    assert decision.clarification_question == decision.text
    assert [ran.tool_name for ran in decision.tool_calls or ()] == ["add_task"]
    assert log.decisions[-1]["intent_type"] == "add_task"


class SlowToStart(MemoryTasks):
    """Tools that are known only once their server has started."""

    async def ready(self) -> None:
        self.declared = list(TASK_TOOLS)


async def test_tools_that_must_start_are_awaited_before_they_are_asked_for() -> None:
    tools = SlowToStart()
    tools.declared = []
    decision = await decide("Hi", ADD, "Added.", tools=tools)
    assert decision.decision_type is DecisionType.INVOKE_TOOL
