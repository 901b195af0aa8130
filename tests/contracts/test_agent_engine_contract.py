"""The decision engine keeps the contract agent_engine_contract.md, sentence by sentence."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from assistant_kit import (
    CONSTITUTION,
    ListLog,
    MemoryTasks,
    ScriptedAdapter,
    call,
    context,
    decide,
    engine,
    says,
)
from builders import second_by_second

import llmsim_lab.assistant
from llmsim_lab.assistant import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    DecisionType,
    LLMAgentEngine,
    LLMError,
    LLMMessage,
    LLMResponse,
    Message,
    PendingAction,
    RateLimitError,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import TapeMiss

TROUBLE = "I'm having trouble processing your request. Please try again."
RATE_LIMITED = "I'm receiving too many requests. Please wait a moment."
TOO_COMPLEX = "That request is too complex. Could you break it into smaller steps?"


@pytest.mark.parametrize(
    "name",
    [
        *("AgentDecision", "AgentEngineConfig", "DecisionContext", "DecisionType", "LLMAdapter"),
        *("LLMAgentEngine", "Message", "PendingAction", "ToolCall", "ToolExecutor", "ToolResult"),
    ],
)
def test_the_contracts_names_are_the_packages(name: str) -> None:
    assert getattr(llmsim_lab.assistant, name).__name__ == name


def test_the_engine_is_made_of_adapter_executor_constitution_and_at_most_five_calls() -> None:
    parameters = inspect.signature(LLMAgentEngine).parameters
    assert list(parameters)[:4] == [
        "llm_adapter",
        "tool_executor",
        "constitution",
        "max_iterations",
    ]
    assert parameters["max_iterations"].default == 5


def test_contexts_and_decisions_have_the_contracts_fields() -> None:
    assert list(DecisionContext.model_fields) == [
        "user_id",
        "message",
        "conversation_id",
        "message_history",
        "pending_confirmation",
    ]
    assert set(AgentDecision.model_fields) == {
        "decision_type",
        "tool_calls",
        "response_text",
        "clarification_question",
        "pending_action",
    }
    assert [kind.value for kind in DecisionType] == [
        "RESPOND_ONLY",
        "INVOKE_TOOL",
        "ASK_CLARIFICATION",
        "REQUEST_CONFIRMATION",
    ]


def test_the_configuration_has_the_contracts_defaults() -> None:
    config = AgentEngineConfig()
    assert config.max_iterations == 5
    assert config.include_history_messages == 10
    assert config.temperature == 0.0
    assert config.timeout_seconds == 30


def test_tools_in_memory_are_a_tool_executor() -> None:
    assert isinstance(MemoryTasks(), ToolExecutor)


async def test_the_model_is_shown_constitution_history_message_and_tools() -> None:
    adapter = ScriptedAdapter("Fine.")
    history = [Message(role="user", content="Hi"), Message(role="assistant", content="Hello!")]
    made = LLMAgentEngine(adapter, MemoryTasks(), CONSTITUTION)
    await made.process_message(context("Add milk", message_history=history))
    assert adapter.seen == [
        (
            LLMMessage("system", CONSTITUTION),
            LLMMessage("user", "Hi"),
            LLMMessage("assistant", "Hello!"),
            LLMMessage("user", "Add milk"),
        )
    ]
    assert [tool.name for tool in adapter.offered[0]] == [
        "add_task",
        "list_tasks",
        "complete_task",
        "delete_task",
    ]
    assert adapter.settings == [(0.0, 1024)]


async def test_text_without_tools_is_a_response() -> None:
    assert await decide("Hi", "Hello! I can help with your tasks.") == AgentDecision(
        decision_type=DecisionType.RESPOND_ONLY, response_text="Hello! I can help with your tasks."
    )


async def test_a_tool_call_is_run_its_result_shown_to_the_model_and_the_text_returned() -> None:
    tools = MemoryTasks()
    made = engine(call("add_task", title="Buy milk"), "I added it.", tools=tools)
    decision = await made.process_message(context("Add milk"))
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert decision.response_text == "I added it."
    assert decision.tool_calls is not None
    [done] = decision.tool_calls
    assert (done.tool_name, done.parameters) == ("add_task", {"title": "Buy milk"})
    assert done.result == ToolResult(success=True, data={"id": 1, "title": "Buy milk"})
    assert tools.ran == [("add_task", {"title": "Buy milk"}, "ann")]
    adapter: Any = made.llm_adapter
    assert adapter.seen[1][-1] == LLMMessage(
        "tool", '{"id": 1, "title": "Buy milk"}', tool_name="add_task"
    )


async def test_a_question_to_the_user_is_a_request_for_clarification() -> None:
    decision = await decide("Do the thing", "Which task do you mean?")
    assert decision.decision_type is DecisionType.ASK_CLARIFICATION
    assert decision.clarification_question == "Which task do you mean?"


async def test_a_refusal_is_a_response() -> None:
    text = "I can only help with your tasks. Would you like to add one?"
    decision = await decide("What is the weather?", says(text, "refusal"))
    assert decision.decision_type is DecisionType.RESPOND_ONLY
    assert decision.response_text == text


async def test_a_deletion_is_not_run_but_put_to_the_user() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    decision = await decide("Delete task 1", call("delete_task", task_id=1), tools=tools)
    assert decision.decision_type is DecisionType.REQUEST_CONFIRMATION
    assert decision.pending_action is not None
    assert decision.pending_action.tool_name == "delete_task"
    assert decision.pending_action.parameters == {"task_id": 1}
    assert decision.response_text == "Shall I delete task 1? Please answer yes or no."
    assert tools.ran == []


def pending_deletion() -> PendingAction:
    return PendingAction(
        tool_name="delete_task", parameters={"task_id": 2}, description="delete task 2"
    )


async def test_a_yes_runs_exactly_the_pending_action_and_asks_no_model() -> None:
    tools = MemoryTasks(ann=["Buy milk", "Call mum"])
    made = engine(AssertionError("no model is needed"), tools=tools)
    decision = await made.process_message(context("Yes!", pending_confirmation=pending_deletion()))
    assert decision.decision_type is DecisionType.INVOKE_TOOL
    assert decision.response_text == "Done: delete task 2."
    assert tools.ran == [("delete_task", {"task_id": 2}, "ann")]
    assert tools.tasks["ann"] == {1: "Buy milk"}


async def test_a_no_drops_the_pending_action() -> None:
    tools = MemoryTasks(ann=["Buy milk", "Call mum"])
    made = engine("unused", tools=tools)
    decision = await made.process_message(context("No!", pending_confirmation=pending_deletion()))
    assert decision == AgentDecision(
        decision_type=DecisionType.RESPOND_ONLY,
        response_text="All right, I will not delete task 2.",
    )
    assert tools.ran == []


async def test_anything_else_asks_again_with_the_same_action() -> None:
    tools = MemoryTasks(ann=["Buy milk", "Call mum"])
    made, pending = engine("unused", tools=tools), pending_deletion()
    decision = await made.process_message(context("Hm, maybe", pending_confirmation=pending))
    assert decision.decision_type is DecisionType.REQUEST_CONFIRMATION
    assert decision.pending_action == pending
    assert "Shall I delete task 2?" in decision.text
    assert tools.ran == []


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (LLMError("the server is gone", "CONNECTION_ERROR"), TROUBLE),
        (LLMResponse(error=LLMError("no", "X")), TROUBLE),
        (LLMResponse(error="no"), TROUBLE),
        (RuntimeError("a bug in the adapter"), TROUBLE),
        (TimeoutError(), TROUBLE),
        (RateLimitError("slow down", retry_after=3), RATE_LIMITED),
        (LLMResponse(error=RateLimitError("slow down")), RATE_LIMITED),
    ],
)
async def test_a_failing_model_is_answered_in_the_contracts_words(failure: Any, text: str) -> None:
    assert await decide("Add milk", failure) == AgentDecision(
        decision_type=DecisionType.RESPOND_ONLY, response_text=text
    )


async def test_a_model_that_calls_tools_for_ever_is_stopped_in_the_contracts_words() -> None:
    made = engine(call("list_tasks"))
    decision = await made.process_message(context("List"))
    assert decision.decision_type is DecisionType.RESPOND_ONLY
    assert decision.response_text == TOO_COMPLEX
    adapter: Any = made.llm_adapter
    assert len(adapter.seen) == 5


async def test_only_the_latest_history_is_shown() -> None:
    history = [Message(role="user", content=f"message {number}") for number in range(25)]
    made = engine("Fine.")
    await made.process_message(context("Now", message_history=history))
    adapter: Any = made.llm_adapter
    shown = [message.content for message in adapter.seen[0][1:-1]]
    assert shown == [f"message {number}" for number in range(15, 25)]


async def test_a_pending_row_is_written_before_the_model_is_called_and_the_outcome_after() -> None:
    log = ListLog()
    rows_when_asked: list[int] = []

    class Watching(ScriptedAdapter):
        async def generate(self, *args: Any, **options: Any) -> LLMResponse:
            rows_when_asked.append(len(log.decisions))
            return await super().generate(*args, **options)

    made = LLMAgentEngine(
        Watching(call("add_task", title="Milk"), "Added."),
        MemoryTasks(),
        CONSTITUTION,
        decision_log=log,
    )
    await made.process_message(context("Add milk"))
    pending, done = log.decisions
    assert rows_when_asked == [1, 1]
    assert pending["decision_id"] == done["decision_id"]
    assert pending | {"decision_id": ""} == {
        "decision_id": "",
        "conversation_id": "c1",
        "user_id": "ann",
        "message": "Add milk",
        "intent_type": "LLM_PROCESSING",
        "decision_type": "PENDING",
        "outcome_category": "PENDING",
        "duration_ms": 0,
    }
    assert done["decision_type"] == "INVOKE_TOOL"
    assert done["outcome_category"] == "SUCCESS:TOOL_DONE"
    assert done["intent_type"] == "add_task"
    assert done["duration_ms"] > 0


async def test_each_tool_that_ran_is_logged_with_the_contracts_fields() -> None:
    log = ListLog()
    await decide("Finish 9", call("complete_task", task_id=9), "There is no task 9.", log=log)
    [row] = log.invocations
    assert row.pop("duration_ms") > 0
    assert row == {
        "decision_id": log.decisions[0]["decision_id"],
        "tool_name": "complete_task",
        "parameters": {"task_id": 9},
        "result": None,
        "success": False,
        "error_code": "NOT_FOUND",
        "error_message": "task not found",
    }


async def test_the_log_has_the_milliseconds_between_start_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second_by_second(monkeypatch)
    log = ListLog()
    await decide("Add milk", call("add_task", title="Milk"), "Added.", log=log)
    assert [row["duration_ms"] for row in log.invocations] == [1000]
    assert [row["duration_ms"] for row in log.decisions] == [0, 3000]


async def test_the_log_has_the_milliseconds_of_a_message_that_was_never_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second_by_second(monkeypatch)
    log = ListLog()
    with pytest.raises(TapeMiss):
        await decide("Add milk", TapeMiss("no such call"), log=log)
    assert [row["duration_ms"] for row in log.decisions] == [0, 1000]
