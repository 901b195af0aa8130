"""Agents of the crisis and of the social simulation look things up with tools, as nations do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import NoTools
from crisis_kit import answer, crisis_client, make_scenario

from llmsim_lab.assistant import FunctionTools, ToolLookup
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.run import replay
from llmsim_lab.types import CallSite, ChatReply, ChatRequest, ToolCall


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


def curious(otherwise: Any) -> Any:
    """A model that reads the gauge once before each decision."""

    def reply(request: ChatRequest) -> Any:
        if not request.tools:
            return otherwise(request)
        if request.messages[-1].role == "tool":
            return "READY"
        return ChatReply(text="", tool_calls=(ToolCall(name="level", arguments={}),))

    return reply


def players(client: LLMClient, tools: Any) -> dict[str, Any]:
    return {"agent": ToolLookup(tools).player(client)}


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
    return CrisisSimulation(
        scenario=make_scenario(), llm_client=client, players=players(client, tools), tape=path
    )


def test_a_crisis_agent_answers_with_what_it_looked_up() -> None:
    gauge, client = Gauge(), crisis_client(curious(answer))
    simulation = crisis(None, client, gauge.tools())
    simulation.run(1)
    assert sorted(gauge.read) == ["Ada", "Bo"]
    for request in deciding(client, "agent"):
        assert "What you looked up:\n- level(): 10" in request.prompt
    assert simulation.state.responses["Bo"] == "ACTIONS: Bo opens gate 1"
    for request in deciding(client, "agent"):
        found = request.provenance.spans[-1]
        assert (found.name, found.source) == ("findings", "the tools' answers")
        user = next(message for message in request.messages if message.role == "user")
        assert user.content.endswith(f"What you looked up:\n{found.of(user.content)}")


def a_tool(name: str) -> Any:
    def look(user_id: str) -> str:
        """Look something up."""
        return f"{name} for {user_id}"

    look.__name__ = name
    return look


class Slow(FunctionTools):
    """Function tools whose server takes its time to start."""

    async def ready(self) -> None:
        await asyncio.sleep(0.05)


def first_tool(request: ChatRequest) -> Any:
    """A model that calls the first tool it is offered, once before each decision."""
    if not request.tools:
        return answer(request)
    if request.messages[-1].role == "tool":
        return "READY"
    name = request.tools[0]["function"]["name"]
    return ChatReply(text="", tool_calls=(ToolCall(name=name, arguments={}),))


def test_agents_with_different_tools_are_replayed_in_whatever_order_they_started(
    tmp_path: Path,
) -> None:
    path, client = tmp_path / "crisis.tape", crisis_client(first_tool)
    lookups = {"Ada": Slow(a_tool("gauge")), "Bo": FunctionTools(a_tool("weather"))}
    seats = {name: ToolLookup(tools).player(client) for name, tools in lookups.items()}
    live = CrisisSimulation(scenario=make_scenario(), llm_client=client, players=seats, tape=path)
    live.run(2)
    live.close()
    again = replay(path, players=players(crisis_client([]), NoTools()))
    assert again.to_frame().equals(live.to_frame())


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
        live = crisis(tmp_path / name, client, tools)
        live.run(2)
        live.close()
        again = replay(tmp_path / name, players=players(crisis_client([]), NoTools()))
        assert again.to_frame().equals(live.to_frame())


@pytest.mark.parametrize(("confirm", "reads"), [(None, []), ({"level": False}, ["Ada"])])
async def test_what_a_server_does_not_call_harmless_is_looked_up_only_where_that_is_said(
    confirm: dict[str, bool] | None, reads: list[str]
) -> None:
    gauge = Gauge()

    def level(user_id: str) -> int:
        """Read the river gauge."""
        gauge.read.append(user_id)
        return 101

    tools = FunctionTools(level, destructive=["level"])
    client = crisis_client(curious(answer))
    lookup = ToolLookup(tools, confirm=confirm)
    found = await lookup.look_up("What now?", client, CallSite(component="agent", agent="Ada"))
    assert gauge.read == reads
    assert ("101" if reads else "error REFUSED: no user can confirm it") in found
