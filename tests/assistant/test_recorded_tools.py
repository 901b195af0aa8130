"""What a tool returned is on the run's tape; a replay answers from there and runs nothing."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import MemoryTasks, NoTools
from builders import in_words, policy, rate_update, verdict

from llmsim_lab.assistant import FunctionTools, ToolLookup
from llmsim_lab.assistant._toolbox import Toolbox
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.llm._scope import scoped
from llmsim_lab.run import replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall


class Series:
    """A data service that counts how often it is asked and whose answers change each time."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def tools(self) -> FunctionTools:
        def series(name: str, user_id: str) -> dict[str, Any]:
            """Look up a data series by name."""
            self.asked.append(f"{user_id}: {name}")
            if name == "unknown":
                raise ValueError("there is no such series")
            return {"name": name, "latest": len(self.asked)}

        def delete_series(name: str) -> None:
            """Remove a series."""
            self.asked.append(f"DELETED {name}")

        return FunctionTools(series, delete_series)


def wants(*names: str, tool: str = "series") -> ChatReply:
    """A model's wish to look up these series."""
    calls = tuple(ToolCall(name=tool, arguments={"name": name}) for name in names)
    return ChatReply(text="", tool_calls=calls)


def curious(request: ChatRequest) -> Any:
    """A model that looks up inflation, says READY, and quotes in its decision what it found."""
    assert request.site is not None
    if request.site.component == "engine":
        assert request.schema is not None
        return rate_update(request.schema["properties"]["new_interest_rate"]["enum"][0])
    if request.site.component == "validator":
        return verdict()
    if request.schema is None:
        told = any(message.role == "tool" for message in request.messages)
        return "READY" if told else wants("inflation")
    found = request.messages[-1].content.partition("What you looked up:\n")[2]
    return policy(f"Raise the interest rate. {found}")


def make(replies: Any) -> tuple[LLMClient, ScriptedBackend]:
    backend = ScriptedBackend(replies)
    return LLMClient(LLMConfig(model="test", retry_wait_s=0), backend), backend


def nations(client: LLMClient, tools: Any, **options: Any) -> dict[str, Any]:
    """Two nations on the same tools."""
    return dict.fromkeys(("Aland", "Borduria"), ToolLookup(tools, **options).player(client))


def simulate(path: Path | None, client: LLMClient, tools: Any, **options: Any) -> Simulation:
    config = in_words(nations=("Aland", "Borduria"))
    players = nations(client, tools, **options)
    return Simulation(config, llm_client=client, players=players, tape=path)


# In a simulation


def test_a_replay_runs_no_tool_and_asks_no_model(tmp_path: Path) -> None:
    path, series = tmp_path / "run.tape", Series()
    live = simulate(path, make(curious)[0], series.tools())
    live.run(3)
    live.close()
    assert len(series.asked) == 6
    client, backend = make([])
    again = replay(path, players=nations(client, NoTools()))
    assert again.to_frame().equals(live.to_frame())
    assert again.turns == live.turns
    assert backend.requests == []


def test_a_resumed_turn_does_not_run_again_what_it_had_run(tmp_path: Path) -> None:
    path, series = tmp_path / "run.tape", Series()

    def breaking(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "engine":
            raise ConnectionError("the server went away")
        return curious(request)

    live = simulate(path, make(breaking)[0], series.tools())
    with pytest.raises(LLMFailureException):
        live.run(1)
    live.close()
    assert len(series.asked) == 2
    client, _ = make(curious)
    going_on = resume(path, llm_client=client, players=nations(client, series.tools()))
    going_on.run(1)
    going_on.close()
    assert len(series.asked) == 2
    client, _ = make([])
    again = replay(path, players=nations(client, NoTools()))
    assert again.to_frame().equals(going_on.to_frame())


def looked_up(*replies: Any, tools: Any = None, **options: Any) -> list[str]:
    """Which findings one nation decides with, if its model answers so before it decides."""
    script = [*replies, policy("Raise the interest rate"), verdict(), rate_update(4.0)]
    client, backend = make(script)
    series = Series()
    agent = ToolLookup(tools or series.tools(), **options).player(client)
    config = in_words(nations=("Aland",))
    Simulation(config, llm_client=client, players={"Aland": agent}).run(1)
    deciding = next(request for request in backend.requests if request.schema is not None)
    found = deciding.messages[-1].content.partition("What you looked up:\n")[2]
    return found.splitlines()


def test_faults_of_looking_up_are_told_and_do_not_stop_the_turn() -> None:
    assert looked_up(wants("unknown"), "READY") == [
        "- series(name='unknown'): error TOOL_ERROR: there is no such series"
    ]
    [line] = looked_up(wants("x", tool="invented"), "READY")
    assert line.startswith("- invented(name='x'): error TOOL_NOT_FOUND: there is no tool")
    assert looked_up(wants("x", tool="delete_series"), "READY") == [
        "- delete_series(name='x'): error REFUSED: no user can confirm it"
    ]


def test_an_agent_looks_up_no_more_often_than_it_may() -> None:
    lines = looked_up(wants("a", "b"), wants("c"), max_lookups=2)
    assert [line.partition(":")[0] for line in lines] == [
        "- series(name='a')",
        "- series(name='b')",
        "- series(name='c')",
    ]


# What a tape keeps of a tool


def box(tools: Any, name: str = "list_tasks", **declared: Any) -> Toolbox:
    """Return a toolbox of one tool."""
    return Toolbox([ToolDeclaration(name, **declared)], executor=tools, timeout_s=0.2)


async def replayed(tape: Tape, run: int) -> ToolResult:
    """What the first turn's tool answers in a replay, which has no tools."""
    recorder = ReplayRecorder(tape, run)
    recorder.begin_turn(1)
    with scoped(recorder=recorder):
        return await box(None).run("list_tasks", {}, "ann")


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("instead", "code", "data"),
    [
        (lambda _: asyncio.sleep(9, ToolResult(success=True)), "TIMEOUT", None),
        (lambda _: ToolResult(success=True, data=nested(5000)), "INVALID_RESULT", None),
        (lambda _: ToolResult(success=True, data={("a", 1): 2}), "INVALID_RESULT", None),
        (
            lambda _: ToolResult(success=True, data={"pair": (1, 2), 3: "\ud800", "n": math.nan}),
            None,
            {"pair": [1, 2], "3": "\ud800", "n": None},
        ),
    ],
    ids=["time limit", "depth", "odd key", "not quite JSON"],
)
async def test_a_replay_has_what_the_live_run_had(
    instead: Any, code: str | None, data: Any, tmp_path: Path
) -> None:
    tape = Tape(tmp_path / "talk.tape")
    run = tape.add_run({}, name="talk", first=(0, "{}", "{}"))
    tools = MemoryTasks()
    tools.instead = instead
    with scoped(recorder=LiveRecorder(tape, run)):
        live = await box(tools).run("list_tasks", {}, "ann")
    assert (live.error_code, live.data) == (code, data)
    assert await replayed(tape, run) == live
    tape.close()


@pytest.mark.parametrize(
    ("name", "destructive", "runs"),
    [("delete_task", None, 1), ("reset", True, 1), ("look_up", None, 2)],
)
async def test_only_a_call_that_deletes_is_not_made_again_after_it_was_stopped_halfway(
    tmp_path: Path, name: str, destructive: bool | None, runs: int
) -> None:
    begun, go, tools = asyncio.Event(), asyncio.Event(), MemoryTasks()

    async def slow() -> ToolResult:
        begun.set()
        await go.wait()
        return ToolResult(success=True)

    tools.instead = lambda _: slow()
    toolbox = Toolbox([ToolDeclaration(name, destructive=destructive)], executor=tools)
    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="talk", first=(0, "{}", "{}")))
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
