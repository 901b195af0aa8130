"""Agents of the crisis and of the social simulation look things up with tools, as nations do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from assistant_kit import TASK_TOOLS, MemoryTasks
from crisis_kit import answer, crisis_client, make_scenario
from social_kit import any_option, social_client, social_config

from llmsim_lab.assistant import FunctionTools, RecordedTools, ToolLookup
from llmsim_lab.calls import CallSite, ChatReply, ChatRequest, ToolCall
from llmsim_lab.context import CrisisConfig, CrisisSimulation, LLMCrisisAgent
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.runs import fork, replay
from llmsim_lab.statechart import Reasoner, SocialSimulation


class Gauge:
    """A river gauge that counts who reads it."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def tools(self) -> FunctionTools:
        def level(user_id: str) -> int:
            """Read the river gauge, in centimetres."""
            self.read.append(user_id)
            return 100 + len(self.read)

        return FunctionTools(level)


class NoTools:
    """Tools that nobody may ask for."""

    def get_available_tools(self) -> list[str]:
        raise AssertionError("asked for its tools")

    async def execute(self, *_: Any) -> Any:
        raise AssertionError("a tool was run")


def curious(otherwise: Any) -> Any:
    """A model that reads the gauge once before each decision."""

    def reply(request: ChatRequest) -> Any:
        if not request.tools:
            return otherwise(request)
        if request.messages[-1].role == "tool":
            return "READY"
        return ChatReply(text="", tool_calls=(ToolCall(name="level", arguments={}),))

    return reply


def players(client: LLMClient, tools: Any) -> list[LLMCrisisAgent]:
    lookup = ToolLookup(tools)
    return [LLMCrisisAgent(name, client, lookup=lookup) for name in ("Ada", "Bo")]


def deciding(client: LLMClient, component: str) -> list[ChatRequest]:
    """The requests of a component that ask for its decision."""
    backend = client.backend
    assert isinstance(backend, ScriptedBackend)
    return [
        request
        for request in backend.requests
        if not request.tools and request.site is not None and request.site.component == component
    ]


def crisis(path: Path | None, client: LLMClient, tools: Any) -> CrisisSimulation:
    config = CrisisConfig(scenario=make_scenario())
    return CrisisSimulation(config, llm_client=client, agents=players(client, tools), tape=path)


def test_a_crisis_agent_answers_with_what_it_looked_up() -> None:
    gauge, client = Gauge(), crisis_client(curious(answer))
    simulation = crisis(None, client, gauge.tools())
    simulation.run(1)
    assert sorted(gauge.read) == ["Ada", "Bo"]
    for request in deciding(client, "agent"):
        assert "What you looked up:\n- level(): 10" in request.prompt
    chains = [chain for chain in simulation.chains if chain.component == "agent"]
    assert all("What you looked up:" in str(chain.prompt) for chain in chains)


def test_a_crisis_is_replayed_with_no_tool_run(tmp_path: Path) -> None:
    path, gauge = tmp_path / "crisis.tape", Gauge()
    live = crisis(path, crisis_client(curious(answer)), gauge.tools())
    live.run(2)
    live.close()
    assert len(gauge.read) == 4
    client = crisis_client([])
    again = replay(path, agents=players(client, NoTools()))
    assert again.to_frame().equals(live.to_frame())
    assert deciding(client, "agent") == []


def test_a_fork_of_a_crisis_looks_things_up_anew(tmp_path: Path) -> None:
    path, gauge = tmp_path / "crisis.tape", Gauge()
    live = crisis(path, crisis_client(curious(answer)), gauge.tools())
    live.run(2)
    live.close()
    gauge.read.clear()
    client = crisis_client(curious(answer))
    branch = fork(path, turn=1, llm_client=client, agents=players(client, gauge.tools()))
    branch.run(1)
    branch.close()
    assert sorted(gauge.read) == ["Ada", "Bo"]


def social(path: Path | None, client: LLMClient, tools: Any) -> SocialSimulation:
    reasoner = Reasoner(client, seed=3, lookup=ToolLookup(tools))
    config = social_config(users=3)
    return SocialSimulation(config, llm_client=client, reasoner=reasoner, tape=path)


def test_a_user_of_the_platform_chooses_with_what_it_looked_up(tmp_path: Path) -> None:
    path, gauge, client = tmp_path / "social.tape", Gauge(), social_client(curious(any_option))
    live = social(path, client, gauge.tools())
    live.run(8)
    live.close()
    asked = deciding(client, "reasoner")
    assert asked
    assert len(gauge.read) == len(asked)
    assert all("What you looked up:\n- level(): " in request.prompt for request in asked)
    other = social_client([])
    again = replay(path, reasoner=Reasoner(other, seed=3, lookup=ToolLookup(NoTools())))
    assert again.to_frame().equals(live.to_frame())


def test_agents_that_look_things_up_at_once_list_the_tools_once(tmp_path: Path) -> None:
    class Starting(MemoryTasks):
        starts = 0

        async def ready(self) -> None:
            self.starts += 1

        def get_available_tools(self) -> list[str]:
            return ["list_tasks"]

        def get_tool_declarations(self, names: Any) -> list[Any]:
            return [tool for tool in TASK_TOOLS if tool.name in names]

    def asking(request: ChatRequest) -> Any:
        return "READY" if request.tools else answer(request)

    path, tools = tmp_path / "crisis.tape", Starting()
    live = crisis(path, crisis_client(asking), tools)
    live.run(2)
    live.close()
    listed = Tape(path, read_only=True).calls_frame()["prompt"].str.contains("which tools")
    assert listed.sum() == 1
    assert tools.starts >= 1


async def test_a_model_given_later_is_asked_instead_of_the_first() -> None:
    lookup, site = ToolLookup(Gauge().tools()), CallSite(component="agent", agent="Ada")
    first, second = crisis_client(curious(answer)), crisis_client(curious(answer))
    for client in (first, second):
        assert "level(): 10" in await lookup.look_up("What now?", client, site)


def test_looking_up_must_be_possible_at_least_once() -> None:
    with pytest.raises(ConfigError, match="max_lookups=0 must be at least 1"):
        ToolLookup(FunctionTools(), max_lookups=0)


def test_it_says_whose_tools_it_uses() -> None:
    tools = RecordedTools(FunctionTools())
    assert repr(ToolLookup(tools)) == "ToolLookup(FunctionTools(), max_lookups=2)"
