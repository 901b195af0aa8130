"""Questions of the model after tools ran: what is needed to go on, and what only offers more."""

from __future__ import annotations

import pytest
from assistant_kit import (
    TASK_TOOLS,
    ListLog,
    MemoryTasks,
    ScriptedAdapter,
    call,
    context,
    decide,
    engine,
    process_on,
)

from llmsim_lab.assistant import AgentDecision, DecisionType, ToolDeclaration, ToolResult
from llmsim_lab.assistant.toolbox import Toolbox

LOOK = call("list_tasks")
ADD = call("add_task", title="x")


@pytest.mark.parametrize(
    "question",
    [
        "You have two tasks. Which one do you mean?",
        "Do you want me to complete task 1 or task 2?",
        "I found no such task. Would you like me to add it?",
        "Please tell me which task it is.",
    ],
)
async def test_a_question_after_looking_asks_for_clarification(question: str) -> None:
    log = ListLog()
    decision = await decide("Tick off the call", LOOK, question, log=log)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION
    assert (decision.clarification_question, decision.response_text) == (question, None)
    assert decision.text == question
    assert [ran.tool_name for ran in decision.tool_calls or ()] == ["list_tasks"]
    assert log.decisions[-1]["outcome_category"] == "AMBIGUITY:CLARIFICATION"
    assert log.decisions[-1]["intent_type"] == "list_tasks"


@pytest.mark.parametrize(
    "text",
    [
        "Done. Would you like me to add another one?",
        "Added. Anything else?",
        "I added it. Shall I mark it as done, too?",
        "You have two tasks.",
    ],
)
async def test_an_offer_after_a_change_leaves_it_an_invocation(text: str) -> None:
    decision = await decide("Add x", ADD, text)
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert decision.response_text == text


@pytest.mark.parametrize(
    "text",
    [
        "Here are your tasks: milk, bread. Would you like to complete any of them?",
        "You have no tasks. Would you like to add one?",
        "You have two tasks. Do you want to see the completed ones too?",
        "Here they are. What's next?",
    ],
)
async def test_an_offer_after_a_look_leaves_it_an_invocation(text: str) -> None:
    decision = await decide("What is on my list?", LOOK, text)
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert (decision.response_text, decision.clarification_question) == (text, None)


async def test_an_offer_after_a_look_that_failed_asks_for_clarification() -> None:
    tools = MemoryTasks()
    tools.instead = lambda _: ToolResult(success=False, error="it is shut")
    decision = await decide("List", LOOK, "It is shut. Shall I try again?", tools=tools)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION


async def test_an_offer_after_two_tools_of_which_the_last_failed_asks_for_clarification() -> None:
    decision = await decide(
        "Finish 9", LOOK, call("complete_task", task_id=9), "That failed. Shall I try again?"
    )
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION


async def test_a_question_which_one_beats_a_refusal() -> None:
    text = "I can't do that without a number. Which task do you mean?"
    assert (await decide("Finish it", text)).decision_type is DecisionType.ASK_CLARIFICATION


async def test_a_look_back_at_what_the_user_did_is_no_claim() -> None:
    text = "I can show the tasks you have added and mark those that are completed."
    log = ListLog()
    decision = await decide("Who are you?", text, "unused", log=log)
    assert decision.text == text
    assert log.decisions[-1]["outcome_category"] == "SUCCESS:RESPONDED"


async def test_a_change_that_no_tool_made_is_not_told_as_one() -> None:
    decision = await decide("Delete task 2", "Task 2 deleted.")
    assert decision.text == "Task 2 deleted.\n\n(Nothing has been changed by this message.)"


async def test_a_call_within_a_text_is_not_shown() -> None:
    decision = await decide("Hi", 'Sure! {"name": "add_task", "arguments": {}}')
    assert decision.text == "Sure!"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("yes, delete task 2", DecisionType.INVOKE_TOOL),
        ("👍", DecisionType.INVOKE_TOOL),
        ("yes, delete task 1", DecisionType.REQUEST_CONFIRMATION),
        ("yes 👎", DecisionType.REQUEST_CONFIRMATION),
        ("please don't delete it", DecisionType.RESPOND_ONLY),
    ],
)
async def test_a_reply_counts_for_what_was_asked(reply: str, kind: DecisionType) -> None:
    asked = await decide("Delete task 2", call("delete_task", task_id=2))
    tools = MemoryTasks(ann=["Buy milk", "Call mum"])
    made = engine("unused", tools=tools)
    decision = await made.process_message(context(reply, pending_confirmation=asked.pending_action))
    assert decision.decision_type is kind
    assert bool(tools.ran) is (kind is DecisionType.INVOKE_TOOL)


async def test_a_question_that_is_needed_is_one_after_a_change_too() -> None:
    question = "I added the first. Which day do you mean for the second?"
    decision = await decide("Add x and y", ADD, question)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION
    assert [ran.tool_name for ran in decision.tool_calls or ()] == ["add_task"]


async def test_a_question_after_a_change_that_failed_asks_for_clarification() -> None:
    tools = MemoryTasks()
    tools.instead = lambda _: ToolResult(success=False, error="the list is full")
    decision = await decide("Add x", ADD, "It is full. Shall I delete one?", tools=tools)
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION


@pytest.mark.parametrize(
    ("name", "declared", "looks"),
    [
        ("list_tasks", None, True),
        ("getSeries", None, True),
        ("search", None, True),
        ("checkout", None, False),
        ("add_task", None, False),
        ("refresh", True, True),
        ("list_and_archive", False, False),
    ],
)
def test_which_tools_only_look_things_up(name: str, declared: bool | None, looks: bool) -> None:
    toolbox = Toolbox([name], [ToolDeclaration(name, read_only=declared)])
    assert toolbox.only_looks(name) is looks


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
