"""What a model or a tool does wrong ends in an answer, and never in somebody else's data."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from assistant_kit import TASK_TOOLS, ListLog, MemoryTasks, call, context, decide, engine
from builders import make_client

from llmsim_lab.assistant import (
    AgentDecision,
    AgentEngineConfig,
    DecisionType,
    FunctionCall,
    LLMAgentEngine,
    LLMResponse,
    OllamaAdapter,
    PendingAction,
    ToolDeclaration,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, DataError

TROUBLE = "I'm having trouble processing your request. Please try again."


async def process(made: LLMAgentEngine, message: str = "Hi", **fields: Any) -> AgentDecision:
    return await made.process_message(context(message, **fields))


async def told(*script: Any, instead: Any = None, **options: Any) -> tuple[MemoryTasks, str]:
    """Return a message's tools, with what they ran, and what the model was told last."""
    tools = MemoryTasks()
    tools.instead = instead
    made: Any = engine(*script, tools=tools, **options)
    await process(made)
    return tools, str(made.llm_adapter.seen[-1][-1].content)


def tasks_with(*declared: ToolDeclaration) -> MemoryTasks:
    tools = MemoryTasks()
    tools.declared, tools.instead = [*declared], lambda _: ToolResult(success=True)
    return tools


# What the model wants

ADDS = [call("add_task", title=str(number)) for number in range(5)]


@pytest.mark.parametrize(
    ("wanted", "ran", "said"),
    [
        (call("drop", x=1), 0, "TOOL_NOT_FOUND: there is no tool 'drop'; available: add_task, lis"),
        (call("add_task", title=3), 0, "INVALID_PARAMETERS: the arguments are wrong: title: 3 is "),
        (ADDS, 3, "TOO_MANY_CALLS: only the first 3 calls of an answer are made"),
    ],
)
async def test_a_call_that_cannot_be_made_goes_back_to_the_model_with_the_reason(
    wanted: Any, ran: int, said: str
) -> None:
    tools, last = await told(wanted, "I cannot do that.", max_calls=3)
    assert len(tools.ran) == ran
    assert last.startswith(f"error {said}")


@pytest.mark.parametrize("key", ["user_id", "userId", "User-ID"])
async def test_the_identity_comes_from_the_context_whatever_the_model_writes(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools, _ = await told(FunctionCall("add_task", {key: "bob", "title": "Milk"}), "Ok.")
    assert tools.ran == [("add_task", {"title": "Milk"}, "ann")]
    assert "identity_ignored tool=add_task" in caplog.text


async def test_calls_before_a_deletion_are_run_and_those_after_it_are_named_as_not_done() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    wanted = [ADDS[0], call("delete_task", task_id=1), call("delete_task", task_id=2)]
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


@pytest.mark.parametrize("shared", [True, False])
async def test_a_model_that_hangs_is_given_up_and_the_log_names_the_setting(
    shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = ListLog()
    made = engine("x", timeout_seconds=0.02, log=log)
    made.llm_adapter.generate = lambda *_: asyncio.sleep(60)  # type: ignore[assignment]
    if shared:
        made.llm_adapter = OllamaAdapter(make_client(lambda _: asyncio.sleep(60)))
    assert (await process(made)).text == TROUBLE
    assert log.decisions[-1]["outcome_category"] == "ERROR:TIMEOUT"
    assert "no reply within 0.02 s, the longest that the assistant waits" in caplog.text
    assert "raise timeout_seconds, as in Chat(engine=AgentEngineConfig(" in caplog.text


# What the tools do


async def test_of_a_tools_fault_the_model_reads_the_type_and_the_log_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def dies(_: str) -> Any:
        raise ConnectionResetError("broken pipe at 0x7f")

    _, last = await told(call("list_tasks"), "I could not do it.", instead=dies)
    assert last == "error TOOL_ERROR: it failed: ConnectionResetError"
    assert "tool_failure tool=list_tasks" in caplog.text


async def test_a_long_result_is_cut_and_says_so() -> None:
    def long(_: str) -> ToolResult:
        return ToolResult(success=True, data="x" * 5000)

    _, last = await told(call("list_tasks"), "Hm.", instead=long, max_result_chars=100)
    assert last == '"' + "x" * 99 + "\n(cut here: 5,002 characters, of which 100 shown)"


async def test_a_tool_that_nobody_declares_is_offered_by_its_name() -> None:
    tools = MemoryTasks(ann=["Buy milk"])
    tools.get_available_tools = lambda: ["complete_task"]  # type: ignore[method-assign]
    tools.declared = []
    await decide("Hi", call("complete_task", task_id=1), "Fine.", tools=tools)
    assert tools.ran == [("complete_task", {"task_id": 1}, "ann")]


@pytest.mark.parametrize("name", ["list_t\u0430sks", "list\u200b_tasks", "", "x" * 129])
def test_a_tools_name_of_odd_letters_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolDeclaration(name)
    assert f"the tool {name!a} cannot be used: a name has 1 to 128" in str(caught.value)


async def test_an_identity_that_a_schema_wants_deep_inside_is_not_wanted_of_the_model() -> None:
    fields = {"user_id": {"type": "string"}, "due": {"type": "integer"}}
    owner = {"type": "object", "properties": fields, "required": ["user_id", "due"]}
    inside = {"filter": {"$ref": "#/$defs/owner"}, "all": {"anyOf": [owner]}}
    schema = {"type": "object", "properties": inside, "$defs": {"owner": owner}}
    listed = call("list_tasks", filter={"user_id": "bob", "due": 3}, all={"due": 1})
    tools = tasks_with(ToolDeclaration("list_tasks", "", schema))
    made: Any = engine(listed, "None.", tools=tools)
    await process(made)
    assert "user_id" not in json.dumps(made.llm_adapter.offered[0][0].parameters)
    assert tools.ran == [("list_tasks", {"filter": {"due": 3}, "all": {"due": 1}}, "ann")]


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, {"properties": []}, {"$schema": 5}, {"$schema": "http://[draft"}]
)
async def test_a_tool_whose_schema_makes_no_sense_is_not_offered(
    schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tools = tasks_with(ToolDeclaration("add_task", "Create.", schema), *TASK_TOOLS[1:])
    made: Any = engine("Fine.", tools=tools)
    await process(made)
    assert "add_task" not in [tool.name for tool in made.llm_adapter.offered[0]]
    assert "tool_schema_invalid tool=add_task" in caplog.text


async def test_a_schema_cannot_make_the_engine_fetch_anything() -> None:
    remote = {"type": "object", "properties": {"title": {"$ref": "http://example.org/s.json"}}}
    tools = tasks_with(ToolDeclaration("add_task", "Add.", remote))
    made: Any = engine(ADDS[0], "Hm.", tools=tools)
    await process(made)
    assert tools.ran == []
    assert "the arguments are wrong: Unresolvable" in made.llm_adapter.seen[-1][-1].content


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
    ],
)
async def test_a_schemas_regular_expression_is_left_to_the_tool(schema: dict[str, Any]) -> None:
    tools, slow = tasks_with(ToolDeclaration("look", "", {"type": "object", **schema})), "a" * 40
    await decide("Hi", call("look", x=slow + "!", **{slow + "!": 1}), "Done.", tools=tools)
    assert len(tools.ran) == 1


def branching(levels: int) -> dict[str, Any]:
    """Return a schema in which each level refers to the next one twice."""
    parts: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)
    }
    parts[f"d{levels}"] = {"type": "null"}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": parts}


EVERY_ITEM = {"type": "object", "properties": {"x": {"items": {"enum": [*range(9_000)]}}}}
UNIQUE = {"type": "object", "properties": {"x": {"uniqueItems": True}}}
BESIDE_A_LONG_LIST = {
    "type": "object",
    "properties": {"x": {"items": {"type": "string"}}, "y": {"enum": [*range(9_000)]}},
}


def with_reference(to: str) -> dict[str, Any]:
    """Return a schema of some 600 entries, whose items refer to one of its parts."""
    parts: dict[str, Any] = {f"d{n}": {"type": "null"} for n in range(300)}
    parts["word"] = {"$anchor": "word", "type": "string"}
    items = {"items": {"$ref": to}}
    return {"type": "object", "properties": {"x": items}, "$defs": parts}


ALTERNATIVES = {"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}] * 300}}}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("schema", "argument", "complaint"),
    [
        (branching(40), "a text", "takes more than 15,000 steps to check"),
        (EVERY_ITEM, [*range(9_000)], "takes more than 15,000 steps to check"),
        (BESIDE_A_LONG_LIST, ["a"] * 100, None),
        # An anchor is looked for in all of the schema, each time.
        (with_reference("#word"), ["a"] * 20, None),
        (with_reference("#word"), ["a"] * 30, "takes more than 15,000 steps to check"),
        (with_reference("#/$defs/word"), ["a"] * 3_000, None),
        # Each message about a wrong value holds the value.
        (ALTERNATIVES, {"text": "a" * 30_000}, "takes more than 15,000 steps to check"),
        (
            UNIQUE,
            [*({"n": n} for n in range(9_000)), {"n": 1}],
            "{'n': 1} stands in it more than once",
        ),
        (UNIQUE, [{"n": n} for n in range(9_000)] + [1, True], None),
    ],
)
async def test_the_check_of_a_call_ends_whatever_its_tools_schema(
    schema: dict[str, Any], argument: Any, complaint: str | None
) -> None:
    tools = tasks_with(ToolDeclaration("look", "", schema, destructive=False))
    tools.instead = lambda _: ToolResult(success=True)
    made: Any = engine(call("look", x=argument), "Well.", tools=tools)
    await process(made)
    if complaint is None:
        assert [values for _, values, _ in tools.ran] == [{"x": argument}]
    else:
        assert tools.ran == []
        assert complaint in made.llm_adapter.seen[-1][-1].content


async def test_a_model_is_told_three_of_the_faults_of_a_call() -> None:
    numbers = {name: {"type": "integer"} for name in "abcd"}
    schema = {"type": "object", "properties": numbers}
    made: Any = engine(
        call("look", **dict.fromkeys("abcd", "one")),
        "Well.",
        tools=tasks_with(ToolDeclaration("look", "", schema, destructive=False)),
    )
    await process(made)
    told = "; ".join(f"{name}: 'one' is not of type 'integer'" for name in "abc")
    assert made.llm_adapter.seen[-1][-1].content == (
        f"error INVALID_PARAMETERS: the arguments are wrong: {told}"
    )


# Which calls wait for a yes


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
    decision = await decide("Hi", call(tool.name), "Done.", tools=tasks_with(tool))
    assert (decision.decision_type is DecisionType.REQUEST_CONFIRMATION) is needs_yes


async def test_the_settings_say_which_calls_need_a_yes(caplog: pytest.LogCaptureFixture) -> None:
    confirm = {"add_task": True, "delete_task": False, "delete_tsk": True}
    asked = await decide("Hi", call("add_task", title="x"), confirm=confirm)
    assert asked.text == 'Shall I add task (title: "x")? Please answer yes or no.'
    assert "confirm_unknown names=delete_tsk" in caplog.text
    run = await decide("Hi", call("delete_task", task_id=1), "Gone.", confirm=confirm)
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


@pytest.mark.parametrize(
    "name",
    [
        "max_iterations",
        "include_history_messages",
        "temperature",
        "timeout_seconds",
        "max_tokens",
        "max_calls",
        "max_result_chars",
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        AgentEngineConfig(**{name: -1})


def test_what_bounds_a_turn_is_as_documented() -> None:
    settings = AgentEngineConfig()
    bounds = (settings.max_tokens, settings.max_calls, settings.max_result_chars)
    assert bounds == (1024, 20, 4000)


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


async def test_without_a_pending_row_nothing_is_done_and_a_row_lost_later_is_an_error_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = MemoryTasks()
    with pytest.raises(DataError, match="disk full"):
        await decide("Hi", ADDS[0], "Done.", tools=tools, log=Full(0))
    assert tools.ran == []
    assert (await decide("Hi", ADDS[0], "Done.", log=Full(1))).text == "Done."
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
    first, last = log.decisions
    assert (last["decision_type"], last["outcome_category"]) == ("NONE", "ERROR:CancelledError")
    assert last["decision_id"] == first["decision_id"]


async def test_without_jsonschema_a_tool_is_not_offered_and_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert (await process(engine("Hello.", tools=tasks_with()))).text == "Hello."
    with pytest.raises(ConfigError, match=r"'look' cannot be offered.*llmsim-lab\[tools\]"):
        await process(engine("Hello.", tools=tasks_with(ToolDeclaration("look"))))
