from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from builders import make_client

from llmsim_lab.assistant import AgentEngineConfig, DecisionType, FunctionTools, MCPToolExecutor
from llmsim_lab.assistant.chat_tape import record_chat, replay_chat
from llmsim_lab.assistant.protocols import ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.tasks import TaskStore
from llmsim_lab.assistant.tasks.server import task_server
from llmsim_lab.calls import ChatReply, ChatRequest, ToolCall
from llmsim_lab.errors import ConfigError, TapeError, TapeMiss
from llmsim_lab.files import data_path
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import verify


def wants(tool: str, **arguments: object) -> ChatReply:
    return ChatReply(text="", tool_calls=(ToolCall(name=tool, arguments=arguments),))


async def recorded(path: Path) -> TaskStore:
    """Record three messages: one added, one deleted after a yes."""
    store = TaskStore()
    client = make_client(
        [
            wants("add_task", description="Water plants"),
            "I have added it.",
            wants("delete_task", task_id=1),
        ]
    )
    async with MCPToolExecutor(task_server(store)) as tools:
        chat = await record_chat(path, client, tools, "Be helpful.", user_id="ann")
        for message in ("Add: water plants", "Delete it", "yes"):
            await chat.send(message)
        chat.close()
    return store


async def test_a_replay_says_the_same_and_runs_no_tool(tmp_path: Path) -> None:
    store = await recorded(tmp_path / "chat.tape")
    assert store.list("ann") == []
    store.close()
    chat = replay_chat(tmp_path / "chat.tape")
    assert chat.recorded == ("Add: water plants", "Delete it", "yes")
    await chat.play()
    kinds = [exchange.decision.decision_type for exchange in chat.exchanges]
    assert kinds == [
        DecisionType.INVOKE_TOOL,
        DecisionType.REQUEST_CONFIRMATION,
        DecisionType.INVOKE_TOOL,
    ]
    added = (chat.exchanges[0].decision.tool_calls or [])[0]
    assert added.result is not None
    assert added.result.data == {"id": 1, "description": "Water plants", "done": False}


async def test_a_message_that_is_not_on_the_tape_is_refused(tmp_path: Path) -> None:
    await recorded(tmp_path / "chat.tape")
    chat = replay_chat(tmp_path / "chat.tape")
    with pytest.raises(TapeMiss):
        await chat.send("Something else")
    assert chat.exchanges == ()
    assert (await chat.send("Add: water plants")).text == "I have added it."


async def test_the_tape_is_sound_and_has_a_row_for_each_message(tmp_path: Path) -> None:
    await recorded(tmp_path / "chat.tape")
    tape = Tape(tmp_path / "chat.tape", read_only=True)
    assert verify(tape) == []
    frame = tape.turns_frame(1)
    assert list(frame["decision"].dropna()) == [
        "INVOKE_TOOL",
        "REQUEST_CONFIRMATION",
        "INVOKE_TOOL",
    ]


def test_a_run_that_is_no_conversation_is_refused() -> None:
    with pytest.raises(TapeError, match="is no conversation"):
        replay_chat(data_path("tapes/first_run.tape"), 1)


async def test_a_message_that_fails_is_asked_anew_and_not_on_the_tape(tmp_path: Path) -> None:
    async with MCPToolExecutor(task_server(TaskStore())) as tools:
        chat = await record_chat(
            tmp_path / "chat.tape", make_client(["Hello!"]), tools, "Be helpful.", user_id="ann"
        )
        with pytest.raises(ConfigError, match="the message is empty"):
            await chat.send(" ")
        await chat.send("Hi")
        chat.close()
    assert replay_chat(tmp_path / "chat.tape").recorded == ("Hi",)


async def test_the_shipped_conversation_replays_as_it_was_recorded() -> None:
    tape = Tape(data_path("tapes/assistant.tape"), read_only=True)
    chat = await replay_chat(tape).play()
    kept = [record["decision"] for record in tape.turn_records(1)[1:]]
    assert [exchange.decision.text for exchange in chat.exchanges] == [
        decision["response_text"] or decision["clarification_question"] for decision in kept
    ]
    assert verify(tape) == []
    assert "task" in chat._repr_html_()


async def test_a_replay_that_is_closed_can_go_on(tmp_path: Path) -> None:
    await recorded(tmp_path / "chat.tape")
    chat = replay_chat(tmp_path / "chat.tape")
    await chat.send(chat.recorded[0])
    chat.close()
    await chat.play()
    assert [exchange.message for exchange in chat.exchanges] == list(chat.recorded)


async def test_a_recording_holds_one_conversation_and_a_replay_can_begin_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.tape"
    client, tools = make_client(["Hello."]), FunctionTools()
    chat = await record_chat(path, client, tools, "Be helpful.", user_id="ann")
    await chat.send("Hi")
    with pytest.raises(ConfigError, match="begin another with record_chat"):
        chat.clear()
    chat.close()
    replayed = replay_chat(path)
    await replayed.play()
    replayed.clear()
    assert (await replayed.send("Hi")).text == "Hello."


async def test_a_tool_that_hangs_is_on_the_tape_as_such(tmp_path: Path) -> None:
    async def look_up() -> str:
        """Look something up."""
        await asyncio.Event().wait()
        return ""

    path = tmp_path / "chat.tape"
    client = make_client([wants("look_up"), "It does not answer."])
    config = AgentEngineConfig(timeout_seconds=0.5)
    tools = FunctionTools(look_up)
    chat = await record_chat(path, client, tools, "Help.", user_id="ann", config=config)
    decision = await chat.send("Look")
    chat.close()
    replayed = await replay_chat(path).play()
    assert replayed.exchanges[0].decision.text == decision.text == "It does not answer."
    [call] = replayed.exchanges[0].decision.tool_calls or []
    assert call.result is not None
    assert call.result.error_code == "TIMEOUT"


@pytest.mark.parametrize(("engine_s", "tool_s"), [(30, 24), (300, 240)])
async def test_a_tool_is_given_up_before_the_engine_does_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_s: float, tool_s: float
) -> None:
    waits: list[float] = []

    class Noting(RecordedTools):
        def __init__(self, executor: ToolExecutor, *, timeout_s: float) -> None:
            waits.append(timeout_s)
            super().__init__(executor, timeout_s=timeout_s)

    monkeypatch.setattr("llmsim_lab.assistant.chat_tape.RecordedTools", Noting)
    config = AgentEngineConfig(timeout_seconds=engine_s)
    path, tools = tmp_path / "chat.tape", FunctionTools()
    await record_chat(path, make_client([]), tools, "Help.", user_id="ann", config=config)
    assert waits == [tool_s]


async def test_a_model_that_hangs_is_on_the_tape_as_such(tmp_path: Path) -> None:
    async def hang(_: ChatRequest) -> str:
        await asyncio.Event().wait()
        return ""

    path = tmp_path / "chat.tape"
    config = AgentEngineConfig(timeout_seconds=0.2)
    client, tools = make_client([hang, "Hello again."]), FunctionTools()
    chat = await record_chat(path, client, tools, "Help.", user_id="ann", config=config)
    trouble = await chat.send("Hi")
    await chat.send("Hi?")
    chat.close()
    replayed = await replay_chat(path).play()
    assert [exchange.decision.text for exchange in replayed.exchanges] == [
        trouble.text,
        "Hello again.",
    ]
    assert trouble.text.startswith("I'm having trouble")
    assert verify(Tape(path, read_only=True)) == []
