"""What a tool returned is on the run's tape; a replay answers from there and runs nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import MemoryTasks
from builders import in_words, policy, rate_update, verdict

from llmsim_lab.agents import Agent
from llmsim_lab.assistant import FunctionTools
from llmsim_lab.assistant._recorded_tools import RecordedTools, ToolUsingNationAgent
from llmsim_lab.assistant._types import ToolDeclaration, ToolResult
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.llm._scope import InFlight, scoped
from llmsim_lab.models import SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import fork, load, replay, resume
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


class NoTools:
    """An executor that nobody may ask for anything."""

    def get_available_tools(self) -> list[str]:
        raise AssertionError("asked for its tools")

    def get_tool_declarations(self, names: Any) -> list[Any]:
        raise AssertionError("asked for its tools")

    async def execute(self, *_: Any) -> ToolResult:
        raise AssertionError("a tool was run")


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


def nations(client: LLMClient, tools: Any, **options: Any) -> dict[str, Agent]:
    """Two nations on the same tools."""
    return {
        name: ToolUsingNationAgent(name, client, tools=tools, **options)
        for name in ("Aland", "Borduria")
    }


def simulate(path: Path | None, client: LLMClient, tools: Any, **options: Any) -> Simulation:
    config = in_words(nations=("Aland", "Borduria"))
    players = nations(client, tools, **options)
    return Simulation(config, llm_client=client, players=players, tape=path)


# In a simulation


def test_an_agent_decides_with_what_it_looked_up() -> None:
    series = Series()
    client, backend = make(curious)
    simulation = simulate(None, client, series.tools())
    simulation.run(1)
    said = simulation.decisions()["action"].dropna().tolist()
    assert said[0].startswith("Raise the interest rate. - series(name='inflation'): {")
    assert sorted(series.asked) == ["Aland: inflation", "Borduria: inflation"]
    asking, again, deciding = [
        request
        for request in backend.requests
        if request.site is not None and request.site.agent == "Aland"
    ][:3]
    assert asking.messages[-1].content.endswith("reply with the one word READY.")
    assert [tool["function"]["name"] for tool in asking.tools] == ["series", "delete_series"]
    assert again.messages[-1].role == "tool"
    assert deciding.schema is not None
    assert deciding.tools == ()


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


def test_a_run_with_agents_of_ones_own_is_only_loaded_with_them(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    simulate(path, make(curious)[0], Series().tools()).close()
    with pytest.raises(ConfigError, match=r"pass the same again: players=\.\.\."):
        load(path)


def test_what_tools_answer_is_on_the_tape(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    live = simulate(path, make(curious)[0], Series().tools())
    live.run(1)
    live.close()
    lines = Tape(path, read_only=True).outside(1, 1)
    answered = {line["key"]: line["result"] for line in lines if line["what"] == "tool"}
    assert sorted(answered) == [
        f'series({{"name": "inflation"}}) for {name}' for name in ("Aland", "Borduria")
    ]
    assert all(result["success"] for result in answered.values())


def test_a_fork_looks_things_up_anew(tmp_path: Path) -> None:
    path, series = tmp_path / "run.tape", Series()
    live = simulate(path, make(curious)[0], series.tools())
    live.run(2)
    live.close()
    series.asked.clear()
    client, _ = make(curious)
    calmer = Prompt.load("agent_policy").replace("ONE specific", "ONE small, specific")
    players = nations(client, series.tools(), prompt=calmer)
    branch = fork(path, turn=1, llm_client=client, players=players)
    branch.run(1)
    branch.close()
    assert len(series.asked) == 2
    players = nations(make([])[0], NoTools(), prompt=calmer)
    assert replay(path, branch.run_id, players=players).to_frame().equals(branch.to_frame())


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
    agent = ToolUsingNationAgent("Aland", client, tools=tools or series.tools(), **options)
    config = in_words(nations=("Aland",))
    Simulation(config, llm_client=client, players={"Aland": agent}).run(1)
    deciding = next(request for request in backend.requests if request.schema is not None)
    found = deciding.messages[-1].content.partition("What you looked up:\n")[2]
    return found.splitlines()


def test_an_agent_that_looks_nothing_up_decides_as_one_without_tools() -> None:
    assert looked_up("READY") == []


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


def test_an_agent_whose_tools_are_gone_decides_without() -> None:
    assert looked_up(tools=FunctionTools()) == []


def test_an_agent_that_may_look_up_nothing_is_refused() -> None:
    client, _ = make([])
    with pytest.raises(ConfigError, match="max_lookups=0 must be a whole number from 1 on"):
        ToolUsingNationAgent("Aland", client, tools=FunctionTools(), max_lookups=0)


def test_where_the_findings_stand_in_the_prompt_is_known() -> None:
    client, _ = make(
        [wants("inflation"), "READY", policy("Raise the rate"), verdict(), rate_update(4.0)]
    )
    agent = ToolUsingNationAgent("Aland", client, tools=Series().tools())
    simulation = Simulation(
        in_words(nations=("Aland",)), llm_client=client, players={"Aland": agent}
    )
    simulation.run(1)
    deciding = next(call for call in simulation.calls if call.request.schema)
    assert "What you looked up:\n- series(name='inflation')" in str(deciding.request.prompt)


def test_a_fork_with_another_model_leaves_an_agents_own_client_as_it_is() -> None:
    series, (client, own) = Series(), make(curious)
    simulation = simulate(None, client, series.tools())
    simulation.run(1)
    other, backend = make(curious)
    simulation.fork(turn=1, llm_client=other).run(1)
    assert [request for request in backend.requests if request.tools] == []
    assert len([request for request in own.requests if request.tools]) == 8
    assert len(series.asked) == 4


class Terse(ToolUsingNationAgent):
    """An agent whose prompt is a plain text."""

    def _construct_prompt(self, state: Any) -> str:
        return f"Turn {state.turn}: what now?"


async def test_a_prompt_that_is_plain_text_is_extended_as_well() -> None:
    written = ChatReply(text="", tool_calls=(ToolCall(name="series", arguments={"name": "a"}),))
    client, backend = make([written, "READY", policy("Raise the interest rate")])
    agent = Terse("Aland", client, tools=Series().tools())
    await agent.decide_action(SimulationState())
    asking, _, deciding = backend.requests
    assert asking.messages[0].content.startswith("Turn 0: what now?\n\nBefore you answer")
    assert deciding.prompt == (
        'Turn 0: what now?\n\nWhat you looked up:\n- series(name=\'a\'): {"name": "a", "latest": 1}'
    )


# Outside of simulations


def on_tape(path: Path) -> tuple[Tape, int, LiveRecorder]:
    tape = Tape(path)
    run = tape.add_run({}, name="talk", first=(0, "{}", "{}"))
    return tape, run, LiveRecorder(tape, run)


async def test_outside_a_run_tools_are_just_run() -> None:
    tasks = MemoryTasks(ann=["Buy milk"])
    tools = RecordedTools(tasks)
    await tools.ready()
    assert (await tools.execute("list_tasks", {}, "ann")).success
    assert tools.get_available_tools() == tasks.get_available_tools()
    assert tools.get_tool_declarations(["list_tasks"]) == []


async def test_a_tool_that_fails_is_recorded_as_failed(tmp_path: Path) -> None:
    tape, run, recorder = on_tape(tmp_path / "talk.tape")
    broken = MemoryTasks()
    broken.instead = lambda _: asyncio.sleep(9, ToolResult(success=True))
    with scoped(recorder=recorder):
        live = await RecordedTools(broken, timeout_s=0.01).execute("list_tasks", {}, "ann")
    recorder.close()
    replaying = ReplayRecorder(tape, run)
    replaying.begin_turn(1)
    with scoped(recorder=replaying):
        replayed = await RecordedTools(NoTools()).execute("list_tasks", {}, "ann")
    assert replayed == live
    assert live.error_code == "TIMEOUT"


async def test_a_live_run_sees_results_as_its_replay_will(tmp_path: Path) -> None:
    _, _, recorder = on_tape(tmp_path / "talk.tape")
    odd = MemoryTasks()
    odd.instead = lambda _: ToolResult(
        success=True, data={"pair": (1, 2), 3: "\ud800", "n": math.nan}
    )
    with scoped(recorder=recorder):
        result = await RecordedTools(odd).execute("list_tasks", {}, "ann")
    recorder.close()
    assert result.data == {"pair": [1, 2], "3": "\ud800", "n": None}


async def test_tools_that_run_are_seen_in_flight(tmp_path: Path) -> None:
    _, _, recorder = on_tape(tmp_path / "talk.tape")
    flights, seen = InFlight(), []
    tasks = MemoryTasks()

    def look(_: str) -> ToolResult:
        seen.extend(map(str, flights.waiting))
        return ToolResult(success=True)

    tasks.instead = look
    with scoped(watch=flights, recorder=recorder):
        await RecordedTools(tasks).execute("list_tasks", {}, "ann")
    recorder.close()
    assert seen == ["tool"]
    assert (flights.finished, len(flights.waiting)) == (1, 0)


class StartsSlowly(MemoryTasks):
    """Tools whose server has to start before they are known."""

    starts = 0

    async def ready(self) -> None:
        await asyncio.sleep(0)
        self.starts += 1

    def get_available_tools(self) -> list[str]:
        assert self.starts, "asked before it was started"
        return super().get_available_tools()


async def test_tools_are_started_before_they_are_listed_and_never_in_a_replay(
    tmp_path: Path,
) -> None:
    tape, run, recorder = on_tape(tmp_path / "talk.tape")
    slow = StartsSlowly()
    tools = RecordedTools(slow)
    with scoped(recorder=recorder):
        for _ in range(2):
            await tools.ready()
            names = tools.get_available_tools()
    recorder.close()
    assert slow.starts == 2
    replaying = ReplayRecorder(tape, run)
    replaying.begin_turn(1)
    never = StartsSlowly()
    with scoped(recorder=replaying):
        replayed = RecordedTools(never)
        for _ in range(2):
            await replayed.ready()
        assert replayed.get_available_tools() == names
    assert never.starts == 0


async def test_outside_a_run_the_tools_are_started_too() -> None:
    slow = StartsSlowly()
    await RecordedTools(slow).ready()
    assert slow.starts == 1


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("data", [nested(5000), {("a", 1): 2}])
async def test_a_result_that_no_json_can_hold_is_a_failure_on_the_tape(
    tmp_path: Path, data: Any
) -> None:
    tape, run, recorder = on_tape(tmp_path / "talk.tape")
    tools = MemoryTasks()
    tools.instead = lambda _: ToolResult(success=True, data=data)
    with scoped(recorder=recorder):
        live = await RecordedTools(tools).execute("list_tasks", {}, "ann")
    recorder.close()
    assert live.error_code == "INVALID_RESULT"
    assert live.error is not None
    assert live.error.startswith("its result is not ready for JSON: ")
    replaying = ReplayRecorder(tape, run)
    replaying.begin_turn(1)
    with scoped(recorder=replaying):
        assert await RecordedTools(NoTools()).execute("list_tasks", {}, "ann") == live


async def test_declarations_of_another_kind_count_as_none() -> None:
    class Undeclared(MemoryTasks):
        def get_tool_declarations(self, names: Sequence[str]) -> Any:
            return None

    tools = RecordedTools(Undeclared())
    await tools.ready()
    assert "add_task" in tools.get_available_tools()
    assert tools.get_tool_declarations(["add_task"]) == []


def test_it_says_whose_tools_it_records() -> None:
    assert repr(RecordedTools(FunctionTools())) == "RecordedTools(FunctionTools())"


@pytest.mark.parametrize(("name", "destructive"), [("delete_task", None), ("reset", True)])
async def test_a_deletion_that_was_stopped_halfway_is_not_made_again(
    tmp_path: Path, name: str, destructive: bool | None
) -> None:
    begun, runs = asyncio.Event(), 0

    class Slow:
        def get_available_tools(self) -> list[str]:
            return [name]

        def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
            return [ToolDeclaration(name, "Deletes.", {}, destructive=destructive)]

        async def execute(self, name: str, parameters: dict[str, Any], user: str) -> ToolResult:
            nonlocal runs
            runs += 1
            begun.set()
            await asyncio.Event().wait()
            return ToolResult(success=True)

    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="talk", first=(0, "{}", "{}")))
        tools = RecordedTools(Slow())
        with scoped(recorder=recorder):
            await tools.ready()
            deleting = asyncio.create_task(tools.execute(name, {"task_id": 1}, "ann"))
            await begun.wait()
            deleting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await deleting
            recorder.restart_turn()
            async with asyncio.timeout(5):  # made again, it would never answer
                again = await tools.execute(name, {"task_id": 1}, "ann")
    assert runs == 1
    assert again.error_code == "STOPPED"


async def test_a_look_up_that_was_stopped_halfway_is_made_again(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def look_up() -> int:
        """Look something up."""
        begun.set()
        await go.wait()
        return 42

    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="talk", first=(0, "{}", "{}")))
        tools = RecordedTools(FunctionTools(look_up))
        with scoped(recorder=recorder):
            looking = asyncio.create_task(tools.execute("look_up", {}, "ann"))
            await begun.wait()
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            recorder.restart_turn()
            go.set()
            assert (await tools.execute("look_up", {}, "ann")).data == 42
