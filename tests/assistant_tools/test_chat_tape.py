from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import make_client
from mcp.server.mcpserver import MCPServer

from llmsim_lab.assistant import (
    AgentEngineConfig,
    Chat,
    FunctionTools,
    LLMAgentEngine,
    MCPToolExecutor,
    OllamaAdapter,
    ToolExecutor,
)
from llmsim_lab.assistant.tasks import task_server
from llmsim_lab.errors import ConfigError, TapeError, TapeMiss
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall


def wants(tool: str, **arguments: object) -> ChatReply:
    return ChatReply(text="", tool_calls=(ToolCall(name=tool, arguments=arguments),))


def record_chat(path: Path, client: LLMClient, tools: ToolExecutor, **more: Any) -> Chat:
    more = {"user_id": "ann", "constitution": "Be helpful.", **more}
    return Chat(llm_client=client, tools=tools, tape=path, **more)


async def recorded(path: Path) -> MCPServer[Any]:
    """Record three messages: one added, one deleted after a yes."""
    server = task_server()
    added = wants("add_task", description="Water plants")
    client = make_client([added, "I have added it.", wants("delete_task", task_id=1)])
    async with MCPToolExecutor(server) as tools:
        chat = record_chat(path, client, tools)
        for message in ("Add: water plants", "Delete it", "yes"):
            await chat.send(message)
        chat.close()
    return server


async def test_a_replay_says_the_same_and_runs_no_tool(path: Path) -> None:
    async with MCPToolExecutor(await recorded(path)) as tools:
        assert (await tools.execute("list_tasks", {}, "ann")).data == {"tasks": []}
    chat = replay(path, turns=0)
    with pytest.raises(TapeMiss):
        await chat.send("Something else")
    assert (chat.exchanges, (await chat.send("Add: water plants")).text) == ((), "I have added it.")
    chat = replay(path)
    assert chat.recorded == ("Add: water plants", "Delete it", "yes")
    kinds = [exchange.decision.decision_type.value for exchange in chat.exchanges]
    assert kinds == ["INVOKE_TOOL", "REQUEST_CONFIRMATION", "INVOKE_TOOL"]
    added = (chat.exchanges[0].decision.tool_calls or [])[0]
    assert added.result is not None
    assert added.result.data == {"id": 1, "description": "Water plants", "done": False}


async def test_one_run_of_a_conversation_says_yes_and_its_fork_says_no(path: Path) -> None:
    server = await recorded(path)
    async with MCPToolExecutor(server) as tools:
        forked = fork(path, turn=2, llm_client=make_client([]), tools=tools)
        assert forked.pending == load(path, 1).turns[2].state.pending
        no = await forked.send("no")
        forked.close()
        again = fork(path, 1, turn=2, llm_client=make_client([]), tools=tools)
        await again.arun()
        again.close()
    assert no.tool_calls is None
    assert [exchange.message for exchange in again.exchanges] == list(replay(path, 1).recorded)
    [deleted] = again.exchanges[-1].decision.tool_calls
    assert deleted.result.error_code == "NOT_FOUND"  # the run that is forked has deleted it
    for run in (2, 3):
        assert replay(path, run).exchanges == load(path, run).exchanges
    assert verify(Tape(path, read_only=True)) == []


async def test_a_fork_may_have_another_constitution(path: Path) -> None:
    client = make_client(["Hello.", "Arr!"])
    chat = record_chat(path, client, FunctionTools())
    await chat.send("Hi")
    pirate = chat.fork(0, prompt=next(iter(chat.prompts.values())).replace("helpful", "a pirate"))
    assert (await pirate.send("Hi")).text == "Arr!"
    systems = [run.calls[-1].request.messages[0].content for run in (chat, pirate)]
    assert systems == ["Be helpful.", "Be a pirate."]
    pirate.close()
    assert replay(path, 2).prompts == pirate.prompts
    assert replay(path, 1).calls[-1].request == chat.calls[-1].request


def look_up_in(ran: list[int]) -> FunctionTools:
    def look_up() -> str:
        """Look something up."""
        ran.append(1)
        return "42"

    return FunctionTools(look_up)


async def test_a_message_that_was_stopped_is_asked_again_when_resumed(path: Path) -> None:
    ran = list[int]()

    def stop(_: ChatRequest) -> str:
        raise KeyboardInterrupt

    chat = record_chat(path, make_client([wants("look_up"), stop]), look_up_in(ran))
    with pytest.raises(KeyboardInterrupt):
        await chat.send("Look")
    chat.close()
    assert chat.exchanges == ()
    resumed = resume(path, llm_client=make_client(["It is 42."]), tools=look_up_in(ran))
    await resumed.arun()
    resumed.close()
    assert [exchange.decision.text for exchange in resumed.exchanges] == ["It is 42."]
    assert ran == [1]
    assert replay(path).exchanges == resumed.exchanges


async def test_a_rerun_asks_the_same_messages_anew_and_a_turn_holds_only_what_is_shown(
    path: Path,
) -> None:
    engine = AgentEngineConfig(include_history_messages=2)
    chat = record_chat(path, make_client(["One.", "Two."]), FunctionTools(), engine=engine)
    for message in ("Hi", "And?"):
        await chat.send(message)
    chat.close()
    again = rerun(path, llm_client=make_client(["Uno.", "Due."]), tools=FunctionTools())
    await again.arun()
    again.close()
    said = [(exchange.message, exchange.decision.text) for exchange in again.exchanges]
    assert said == [("Hi", "Uno."), ("And?", "Due.")]
    replayed = replay(path, 2)
    assert replayed.exchanges == again.exchanges
    assert [line.content for line in replayed.state.said] == ["And?", "Due."]


async def test_what_goes_on_after_the_tape_wants_its_tools(path: Path) -> None:
    await recorded(path)
    forked = fork(path, turn=1, llm_client=make_client(["Hm."]))
    with pytest.raises(TapeError, match=r"no tape can hold tools: give them, .*tools=\.\.\."):
        await forked.send("Hi")
    assert len(forked.exchanges) == 1


async def test_a_conversation_may_be_written_down_before_it_is_held() -> None:
    said = [{"turn": 0, "set": {"inbox": "Hi"}}, {"turn": 1, "set": {"inbox": "And?"}}]
    client = make_client(["Hello.", "That is all."])
    chat = Chat(user_id="ann", constitution="Help.", interventions=said, llm_client=client)
    frame = await chat.arun()
    assert list(frame["answer"])[1:] == ["Hello.", "That is all."]
    with pytest.raises(ConfigError, match="turn 1 has been played"):
        chat.intervene(1, {"inbox": "Wait"})
    with pytest.raises(ConfigError, match="turn 3 has no message"):
        await chat.step()
    with pytest.raises(ConfigError, match="the message is empty"):
        chat.intervene(3, {"inbox": " "})


async def test_an_engine_in_the_seat_is_given_again_and_its_tools_run_once(path: Path) -> None:
    ran: list[int] = []

    def seated(*script: Any) -> dict[str, Any]:
        adapter = OllamaAdapter(make_client(script))
        return {"assistant": LLMAgentEngine(adapter, look_up_in(ran), "Help.")}

    chat = Chat(user_id="ann", players=seated(wants("look_up"), "It is 42."), tape=path)
    await chat.send("Hi")
    chat.close()
    with pytest.raises(ConfigError, match="pass the same again: players="):
        replay(path)
    resumed = resume(path, players=seated("That is all."))
    await resumed.send("And?")
    resumed.close()
    replayed = replay(path, players=seated())
    texts = [exchange.decision.text for exchange in replayed.exchanges]
    assert texts == ["It is 42.", "That is all."]
    assert ran == [1]
