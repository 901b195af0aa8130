"""What a model or a tool does wrong ends in an answer, and never in somebody else's data."""

from __future__ import annotations

import asyncio
import json
from typing import Any

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

from llmsim_lab.assistant import AgentDecision, DecisionType, LLMAgentEngine
from llmsim_lab.assistant._types import (
    AgentEngineConfig,
    FunctionCall,
    LLMResponse,
    PendingAction,
    ToolDeclaration,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, DataError

TROUBLE = "I'm having trouble processing your request. Please try again."


def last_told(made: LLMAgentEngine) -> str:
    """What the model was told last."""
    adapter: Any = made.llm_adapter
    return str(adapter.seen[-1][-1].content)


async def process(made: LLMAgentEngine, message: str = "Hi", **fields: Any) -> AgentDecision:
    return await made.process_message(context(message, **fields))


# What the model wants


async def test_an_invented_tool_is_not_run_and_the_model_is_told_which_there_are() -> None:
    tools = MemoryTasks()
    made = engine(call("drop_database", which="all"), "I cannot do that.", tools=tools)
    decision = await process(made)
    assert tools.ran == []
    assert last_told(made) == (
        "error TOOL_NOT_FOUND: there is no tool 'drop_database'; available: add_task, list_tasks, "
        "complete_task, delete_task"
    )
    assert decision.decision_type is DecisionType.RESPOND_ONLY
    assert decision.tool_calls is None


async def test_wrong_arguments_go_back_to_the_model() -> None:
    tools = MemoryTasks()
    made = engine(call("add_task", title=3), "Let me see.", tools=tools)
    await process(made)
    assert tools.ran == []
    assert last_told(made) == (
        "error INVALID_PARAMETERS: the arguments are wrong: title: 3 is not of type 'string'"
    )


@pytest.mark.parametrize("key", ["user_id", "userId", "User-ID"])
async def test_the_identity_comes_from_the_context_whatever_the_model_writes(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools = MemoryTasks()
    made = engine(FunctionCall("add_task", {key: "bob", "title": "Milk"}), "Ok.", tools=tools)
    await process(made)
    assert tools.ran == [("add_task", {"title": "Milk"}, "ann")]
    assert "identity_ignored tool=add_task" in caplog.text


async def test_calls_before_a_deletion_are_run_and_those_after_it_are_named_as_not_done() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    wanted = [
        call("add_task", title="a"),
        call("delete_task", task_id=1),
        call("delete_task", task_id=2),
    ]
    decision = await process(engine(wanted, tools=tools))
    assert [name for name, _, _ in tools.ran] == ["add_task"]
    assert decision.pending_action is not None
    assert decision.pending_action.parameters == {"task_id": 1}
    assert "What was to follow has not been done" in decision.text


@pytest.mark.parametrize("said", [None, "<think>hm</think>"])
async def test_an_empty_answer_is_a_failure(said: Any) -> None:
    log = ListLog()
    decision = await decide("Hi", LLMResponse(said), log=log)
    assert decision.text == TROUBLE
    assert log.decisions[-1]["outcome_category"] == "ERROR:INVALID_RESPONSE"


async def test_a_model_that_hangs_is_given_up() -> None:
    log = ListLog()
    made = engine("x", config=AgentEngineConfig(timeout_seconds=0.02), log=log)
    made.llm_adapter.generate = lambda *_: asyncio.sleep(60)  # type: ignore[assignment]
    assert (await process(made)).text == TROUBLE
    assert log.decisions[-1]["outcome_category"] == "ERROR:TIMEOUT"


# What the tools do


async def outcome_of_tool(instead: Any, **config: Any) -> tuple[AgentDecision, str]:
    """What becomes of a message whose tool does this, and what the model is told of it."""
    tools = MemoryTasks()
    tools.instead = instead
    made = engine(
        call("list_tasks"), "I could not do it.", tools=tools, config=AgentEngineConfig(**config)
    )
    return await process(made), last_told(made)


async def test_a_tool_server_that_dies_mid_call_is_told_to_the_model_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def dies(_: str) -> Any:
        raise ConnectionResetError("broken pipe at 0x7f")

    decision, told = await outcome_of_tool(dies)
    assert told == "error TOOL_ERROR: it failed: ConnectionResetError"
    assert "tool_failure tool=list_tasks" in caplog.text
    assert decision.text == "I could not do it."
    assert [made.worked for made in decision.tool_calls or ()] == [False]


async def test_a_long_result_is_cut_and_says_so() -> None:
    result = ToolResult(success=True, data="x" * 5000)
    _, told = await outcome_of_tool(lambda _: result, max_result_chars=100)
    assert told == '"' + "x" * 99 + "\n(cut here: 5,002 characters, of which 100 shown)"


async def test_a_tool_that_nobody_declares_is_offered_by_its_name() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    adapter = ScriptedAdapter(call("complete_task", task_id=1), "Fine.", tools=TASK_TOOLS[:2])
    await process_on(adapter, tools)
    assert len(adapter.offered[0]) == len(TASK_TOOLS)
    assert tools.ran == [("complete_task", {"task_id": 1}, "ann")]


@pytest.mark.parametrize("name", ["list_t\u0430sks", "list\u200b_tasks", "", "x" * 129])
async def test_a_tools_name_of_odd_letters_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolDeclaration(name)
    assert f"the tool {name!a} cannot be used: a name has 1 to 128" in str(caught.value)
    tools = MemoryTasks()
    tools.get_available_tools = lambda: ["list_tasks", name]  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="cannot be used"):
        await process(engine(call(name), tools=tools))
    assert tools.ran == []


async def test_an_identity_that_a_schema_wants_deep_inside_is_not_wanted_of_the_model() -> None:
    fields = {"user_id": {"type": "string"}, "due": {"type": "integer"}}
    owner = {"type": "object", "properties": fields, "required": ["user_id", "due"]}
    inside = {"filter": {"$ref": "#/$defs/owner"}, "all": {"anyOf": [owner]}}
    schema = {"type": "object", "properties": inside, "$defs": {"owner": owner}}
    listed = call("list_tasks", filter={"user_id": "bob", "due": 3}, all={"due": 1})
    tools = MemoryTasks()
    adapter = ScriptedAdapter(listed, "None.", tools=[ToolDeclaration("list_tasks", "", schema)])
    await process_on(adapter, tools)
    assert "user_id" not in json.dumps(adapter.offered[0][0].parameters)
    assert tools.ran == [("list_tasks", {"filter": {"due": 3}, "all": {"due": 1}}, "ann")]


async def test_no_more_calls_of_one_answer_are_made_than_the_settings_allow() -> None:
    tools = MemoryTasks()
    many = [call("add_task", title=str(n)) for n in range(5)]
    made = engine(many, "Added.", tools=tools, config=AgentEngineConfig(max_calls=3))
    await process(made)
    assert len(tools.ran) == 3
    assert last_told(made) == "error TOO_MANY_CALLS: only the first 3 calls of an answer are made"


@pytest.mark.parametrize(
    "schema",
    [{"type": "objekt"}, {"properties": []}, {"$schema": 5}, {"$schema": "http://[draft"}],
)
async def test_a_tool_whose_schema_makes_no_sense_is_not_offered(
    schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    broken = ToolDeclaration("add_task", "Create.", schema)
    adapter = ScriptedAdapter("Fine.", tools=[broken, *TASK_TOOLS[1:]])
    await process_on(adapter, MemoryTasks())
    assert "add_task" not in [tool.name for tool in adapter.offered[0]]
    assert "tool_schema_invalid tool=add_task" in caplog.text


async def test_a_schema_cannot_make_the_engine_fetch_anything() -> None:
    remote = {"type": "object", "properties": {"title": {"$ref": "http://example.org/s.json"}}}
    add, tools = ToolDeclaration("add_task", "Add.", remote), MemoryTasks()
    adapter = ScriptedAdapter(call("add_task", title="x"), "Hm.", tools=[add])
    await process_on(adapter, tools)
    assert tools.ran == []
    assert "the arguments are wrong: Unresolvable" in str(adapter.seen[-1][-1].content)


# What users' data may do


@pytest.mark.parametrize(
    ("tool", "needs_yes"),
    [
        (ToolDeclaration("removeItem"), True),
        (ToolDeclaration("deletetask"), True),
        (ToolDeclaration("rm_task"), True),
        (ToolDeclaration("archive", destructive=True), True),
        (ToolDeclaration("delete_task", destructive=False), True),
        (ToolDeclaration("list_deleted"), False),
        (ToolDeclaration("add"), False),
    ],
)
async def test_which_calls_need_a_yes(tool: ToolDeclaration, needs_yes: bool) -> None:
    tools = MemoryTasks()
    tools.get_available_tools = lambda: [tool.name]  # type: ignore[method-assign]
    tools.instead = lambda _: ToolResult(success=True)
    decision = await process_on(ScriptedAdapter(call(tool.name), "Done.", tools=[tool]), tools)
    assert (decision.decision_type is DecisionType.REQUEST_CONFIRMATION) is needs_yes


async def test_the_settings_say_which_calls_need_a_yes() -> None:
    config = AgentEngineConfig(confirm={"add_task": True, "delete_task": False})
    asked = await process(engine(call("add_task", title="x"), config=config))
    assert asked.text == 'Shall I add task (title: "x")? Please answer yes or no.'
    run = await process(engine(call("delete_task", task_id=1), "Gone.", config=config))
    assert run.decision_type is DecisionType.INVOKE_TOOL


async def test_a_confirmed_call_that_cannot_be_made_now_still_waits() -> None:
    def away() -> list[str]:
        raise RuntimeError("no server")

    tools = MemoryTasks(ann=["Buy milk"])
    tools.get_available_tools = away  # type: ignore[method-assign]
    made = engine("unused", tools=tools)
    pending = PendingAction(tool_name="delete_task", parameters={"task_id": 1})
    decision = await process(made, "yes", pending_confirmation=pending)
    assert (decision.text, decision.pending_action) == (TROUBLE, pending)
    del tools.get_available_tools
    decision = await process(made, "yes", pending_confirmation=pending)
    assert (decision.text, decision.pending_action) == ("Done: delete task 1.", None)


# Settings and the log


async def test_settings_that_make_no_sense_are_refused_or_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("max_iterations", "include_history_messages", "timeout_seconds"):
        with pytest.raises(ConfigError, match=name):
            AgentEngineConfig(**{name: -1})
    await process(engine("Hi", config=AgentEngineConfig(confirm={"delete_tsk": True})))
    assert "confirm_unknown names=delete_tsk" in caplog.text


class Full(ListLog):
    """Takes rows until the disk is full."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    async def write_decision_log(self, **row: Any) -> None:
        self.room -= 1
        if self.room < 0:
            raise DataError("disk full")

    write_tool_invocation_log = write_decision_log


async def test_without_a_pending_row_nothing_is_done() -> None:
    tools = MemoryTasks()
    made = engine(call("add_task", title="x"), "Done.", tools=tools, log=Full(0))
    with pytest.raises(DataError, match="disk full"):
        await process(made)
    assert tools.ran == []


async def test_rows_lost_later_are_error_lines_and_the_user_gets_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = engine(call("add_task", title="x"), "Done.", log=Full(1))
    assert (await process(made)).text == "Done."
    tool, decided = (it.getMessage() for it in caplog.records if it.levelname == "ERROR")
    assert "what=add_task" in tool
    assert "what=decision" in decided


async def test_a_message_that_is_stopped_says_so_in_its_row() -> None:
    log, tools, begun = ListLog(), MemoryTasks(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(60)

    tools.instead = lambda _: hang()
    task = asyncio.create_task(process(engine(call("list_tasks"), tools=tools, log=log)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    last = log.decisions[-1]
    assert (last["decision_type"], last["outcome_category"]) == ("NONE", "ERROR:CancelledError")
    assert last["decision_id"] == log.decisions[0]["decision_id"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
    ],
)
async def test_a_schemas_regular_expression_is_left_to_the_tool(schema: dict[str, Any]) -> None:
    tool = ToolDeclaration("list_tasks", "List.", {"type": "object", **schema})
    slow = "a" * 40 + "!"
    tools = MemoryTasks()
    adapter = ScriptedAdapter(call("list_tasks", x=slow, **{slow: 1}), "Done.", tools=[tool])
    await process_on(adapter, tools)
    assert len(tools.ran) == 1


async def test_what_an_executor_calls_destructive_asks_first_whoever_words_it() -> None:
    tools = MemoryTasks()
    declared = [ToolDeclaration("add_task", destructive=True)]
    tools.get_tool_declarations = lambda _: declared  # type: ignore[attr-defined]
    decision = await process_on(ScriptedAdapter(call("add_task", title="Milk")), tools)
    assert decision.text == 'Shall I add task (title: "Milk")? Please answer yes or no.'
    assert tools.ran == []
