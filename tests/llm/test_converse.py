"""A conversation with tools goes the way of every call: retried, checked, on the tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.llm._scope import scoped
from llmsim_lab.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.types import CallSite, ChatReply, Message, ToolCall

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SITE = CallSite(component="assistant", agent="ann")
WANTS = ChatReply(
    text="",
    tool_calls=(ToolCall(name="look", arguments={"at": ["sky", 1]}),),
    prompt_tokens=9,
    reply_tokens=4,
)
TALK = [Message("system", "Be brief."), Message("user", "What is up?")]


def make_client(replies: Any, **config: Any) -> tuple[LLMClient, ScriptedBackend]:
    backend = ScriptedBackend(replies)
    settings = LLMConfig(**{"model": "test", "retry_wait_s": 0, **config})
    return LLMClient(settings, backend), backend


async def test_messages_tools_and_options_reach_the_backend_and_its_calls_come_back() -> None:
    client, backend = make_client([WANTS], seed=7)
    reply, call = await client.converse(
        TALK, tools=[TOOL], options={"temperature": 0.0, "num_predict": 50}, site=SITE
    )
    assert reply is WANTS
    assert (call.status, call.attempts, call.tokens) == ("ok", 1, 13)
    [request] = backend.requests
    assert request.messages == tuple(TALK)
    assert request.tools == (TOOL,)
    assert request.schema is None
    assert request.site == SITE
    assert dict(request.options) == {
        "temperature": 0.0,
        "seed": 7,
        "num_ctx": 4096,
        "num_predict": 50,
    }


async def test_a_reply_that_is_complained_of_is_shown_to_the_model_with_the_complaint() -> None:
    client, backend = make_client([WANTS, "The sky."])
    reply, call = await client.converse(
        TALK, check=lambda reply: "say it in words" if reply.tool_calls else None
    )
    assert (reply.text, call.status) == ("The sky.", "repaired")
    assert backend.requests[1].messages[2:] == (
        Message("assistant", "", WANTS.tool_calls),
        Message("user", "That reply was not valid: say it in words.\nReply again."),
    )


def make_tape(path: Path) -> tuple[Tape, int]:
    tape = Tape(path)
    return tape, tape.add_run({}, name="talk", first=(0, "{}", "{}"))


async def test_a_conversation_is_recorded_and_replayed_without_asking_anybody(
    tmp_path: Path,
) -> None:
    tape, run = make_tape(tmp_path / "talk.tape")
    after = [
        *TALK,
        Message("assistant", "", WANTS.tool_calls),
        Message("tool", "blue", tool_name="look"),
    ]
    client, _ = make_client([WANTS, ConnectionError("gone"), "Blue."])
    recorder = LiveRecorder(tape, run)
    with scoped(recorder=recorder):
        live = [
            await client.converse(talk, tools=[TOOL], options={"temperature": 0.0}, site=SITE)
            for talk in (TALK, after)
        ]
    recorder.close()
    again, unused = make_client([])
    replaying = ReplayRecorder(tape, run)
    replaying.begin_turn(1)
    with scoped(recorder=replaying):
        replayed = [
            await again.converse(talk, tools=[TOOL], options={"temperature": 0.0}, site=SITE)
            for talk in (TALK, after)
        ]
    assert [reply for reply, _ in replayed] == [reply for reply, _ in live]
    assert [call.attempts for _, call in replayed] == [1, 2]
    assert replayed[0][0].tool_calls == WANTS.tool_calls
    assert unused.requests == []
