"""Agents look things up with tools; what a tool returned is on the tape, and a replay runs none."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import MemoryTasks, NoTools
from builders import make_client, played, requests_of
from crisis_kit import answer, crisis_client, make_scenario

from llmsim_lab.assistant import FunctionTools, ToolDeclaration, ToolLookup, ToolResult
from llmsim_lab.assistant._toolbox import Toolbox
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.scope import scoped
from llmsim_lab.run import replay
from llmsim_lab.tape.recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.types import CallSite, ChatReply, ChatRequest, ToolCall

SITE = CallSite(component="agent", agent="Ada")


def a_tool(name: str = "level", ran: list[str] | None = None) -> Any:
    """Return a tool that notes which player it runs for; each answer is another."""
    ran = [] if ran is None else ran

    def look(user_id: str, at: str = "") -> int:
        """Look something up."""
        ran.append(user_id)
        if at == "nowhere":
            raise ValueError("there is no such place")
        return 100 + len(ran)

    look.__name__ = name
    return look


def wants(*places: str, tool: str = "level") -> ChatReply:
    calls = tuple(ToolCall(name=tool, arguments={"at": at} if at else {}) for at in places)
    return ChatReply(text="", tool_calls=calls)


def curious(request: ChatRequest) -> Any:
    """A model that calls the first tool it is offered, once before each decision."""
    if not request.tools:
        return answer(request)
    if request.messages[-1].role == "tool":
        return "READY"
    return wants("", tool=request.tools[0]["function"]["name"])


def seats(client: LLMClient, **tools: Any) -> dict[str, Any]:
    return {seat: ToolLookup(of).player(client) for seat, of in tools.items()}


def crisis(path: Path | None, client: LLMClient, **tools: Any) -> CrisisSimulation:
    players = seats(client, **tools)
    return CrisisSimulation(scenario=make_scenario(), llm_client=client, players=players, tape=path)


def assert_replays(live: CrisisSimulation, path: Path) -> None:
    """Check that a replay gives the same, and asks neither tools nor a model."""
    live.close()
    silent = crisis_client([])
    again = replay(path, players=seats(silent, agent=NoTools()))
    assert again.to_frame().equals(live.to_frame())
    assert (again.turns, requests_of(silent)) == (live.turns, [])


# In a simulation


def test_an_agent_answers_with_what_it_looked_up() -> None:
    ran: list[str] = []
    client = crisis_client(curious)
    simulation = played(crisis(None, client, agent=FunctionTools(a_tool(ran=ran))), 1)
    assert sorted(ran) == ["Ada", "Bo"]
    assert simulation.state.responses["Bo"] == "ACTIONS: Bo opens gate 1"
    deciding = [request for request in requests_of(client, "agent") if not request.tools]
    asking = next(request for request in requests_of(client, "agent") if request.tools)
    assert [message.role for message in asking.messages] == ["system", "user"]
    for request in deciding:
        assert "What you looked up:\n- level(): 10" in request.prompt
        found = request.provenance.spans[-1]
        assert (found.name, found.source) == ("findings", "the tools' answers")
        user = next(message for message in request.messages if message.role == "user")
        assert user.content.endswith(
            f"What you looked up:\n{user.content[found.start : found.end]}"
        )


class Slow(FunctionTools):
    """Function tools whose server takes its time to start."""

    async def ready(self) -> None:
        await asyncio.sleep(0.05)


def test_agents_with_different_tools_are_replayed_in_whatever_order_they_started(
    path: Path,
) -> None:
    tools = {"Ada": Slow(a_tool("gauge")), "Bo": FunctionTools(a_tool("weather"))}
    live = played(crisis(path, crisis_client(curious), **tools), 2)
    assert_replays(live, path)


def test_a_model_without_tool_calls_is_found_out_anew_in_each_run(tmp_path: Path) -> None:
    def unable(request: ChatRequest) -> Any:
        if request.tools:
            message = "registry/model does not support tools"
            raise BackendError(message, reason="client_error", status_code=400)
        if request.schema and "gauge" in str(request.schema):
            return '{"name": "respond", "arguments": {"text": "READY"}}'
        return answer(request)

    client, tools = crisis_client(unable), FunctionTools(a_tool("gauge"))
    for name in ("one.tape", "two.tape"):
        live = played(crisis(tmp_path / name, client, agent=tools), 2)
        assert_replays(live, tmp_path / name)


# What may be looked up


async def looked_up(*script: ChatReply, tools: Any = None, **options: Any) -> list[str]:
    """Return the findings of an agent whose model answers so."""
    lookup = ToolLookup(tools or FunctionTools(a_tool()), **options)
    found = await lookup.look_up("What now?", make_client([*script, "READY"]), SITE)
    return found.partition("What you looked up:\n")[2].splitlines()


async def test_faults_of_looking_up_are_told() -> None:
    assert await looked_up(wants("nowhere")) == [
        "- level(at='nowhere'): error TOOL_ERROR: there is no such place"
    ]
    [line] = await looked_up(wants("", tool="invented"))
    assert line.startswith("- invented(): error TOOL_NOT_FOUND: there is no tool")


async def test_an_agent_looks_up_no_more_often_than_it_may() -> None:
    lines = await looked_up(wants("a", "b"), wants("c"), wants("d"), max_lookups=2)
    assert [line.partition(":")[0][-3:] for line in lines] == ["a')", "b')", "c')"]
    assert len(await looked_up(wants("a"), wants("b"), max_lookups=1)) == 1
    assert len(await looked_up(wants(*"abcdefghijklmnopqrstuvwxy"))) == 20


async def test_what_needs_a_yes_is_not_looked_up() -> None:
    ran: list[str] = []
    tools = FunctionTools(a_tool(ran=ran), destructive=["level"])
    found = await looked_up(wants(""), tools=tools)
    assert (found, ran) == (["- level(): error REFUSED: no user can confirm it"], [])


# What a tape keeps of a tool


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


ODD = {"pair": (1, 2), 3: "\ud800", "n": math.nan}
KEPT = {"pair": [1, 2], "3": "\ufffd", "n": None}
RESULTS: dict[str, tuple[Any, str | None, Any]] = {
    "too late": (lambda _: asyncio.sleep(9, ToolResult(success=True)), "TIMEOUT", None),
    "deep": (lambda _: ToolResult(success=True, data=nested(5000)), "TOOL_ERROR", None),
    "odd key": (lambda _: ToolResult(success=True, data={("a", 1): 2}), "TOOL_ERROR", None),
    "not quite JSON": (lambda _: ToolResult(success=True, data=ODD), None, KEPT),
}


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_replay_has_what_the_live_run_had(kind: str, path: Path) -> None:
    tools, results = MemoryTasks(), []
    tools.instead, code, data = RESULTS[kind]
    with Tape(path) as tape:
        run = tape.add_run({}, name="talk", first=(0, b',"record":{},"row":{}'))
        for kind_of, executor in ((LiveRecorder, tools), (ReplayRecorder, None)):
            recorder = kind_of(tape, run)
            recorder.begin_turn(1)
            box = Toolbox([ToolDeclaration("list_tasks")], executor=executor, timeout_s=0.05)
            with scoped(recorder=recorder):
                results.append(await box.run("list_tasks", {}, "ann"))
    assert (results[0].error_code, results[0].data) == (code, data)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "destructive", "runs"),
    [("delete_task", None, 1), ("reset", True, 1), ("look_up", None, 2)],
)
async def test_only_a_call_that_deletes_is_not_made_again_after_it_was_stopped_halfway(
    path: Path, name: str, destructive: bool | None, runs: int
) -> None:
    begun, go, tools = asyncio.Event(), asyncio.Event(), MemoryTasks()

    async def slow() -> ToolResult:
        begun.set()
        await go.wait()
        return ToolResult(success=True)

    tools.instead = lambda _: slow()
    toolbox = Toolbox([ToolDeclaration(name, destructive=destructive)], executor=tools)
    with Tape(path) as tape:
        recorder = LiveRecorder(
            tape, tape.add_run({}, name="talk", first=(0, b',"record":{},"row":{}'))
        )
        with scoped(recorder=recorder):
            running = asyncio.create_task(toolbox.run(name, {}, "ann"))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            recorder.restart_turn()
            go.set()
            again = await toolbox.run(name, {}, "ann")
    assert len(tools.ran) == runs
    assert again.error_code == ("STOPPED" if runs == 1 else None)
