"""A conversation with tools goes the way of every call: retried, checked, on the tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.errors import LLMFailureException, TapeMiss
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


async def test_without_options_the_configured_ones_are_used() -> None:
    client, backend = make_client("Fine.", temperature=0.3)
    await client.converse(TALK)
    assert backend.requests[0].options["temperature"] == 0.3


async def test_the_same_options_are_the_same_object_in_every_request() -> None:
    client, backend = make_client("Fine.")
    for _ in range(2):
        await client.converse(TALK, options={"temperature": 0.0})
    first, second = backend.requests
    assert first.options is second.options


async def test_a_lost_connection_is_tried_once_more() -> None:
    client, backend = make_client([ConnectionError("gone"), "Fine."])
    reply, call = await client.converse(TALK, site=SITE)
    assert (reply.text, call.status, call.attempts) == ("Fine.", "ok", 2)
    assert [request.attempt for request in backend.requests] == [1, 2]


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


async def test_where_a_schema_is_asked_for_the_complaint_asks_for_json() -> None:
    client, backend = make_client(["?", "{}"])
    await client.converse(
        TALK,
        schema={"type": "object"},
        check=lambda reply: None if reply.text == "{}" else "it is not JSON",
    )
    assert "one complete JSON object" in backend.requests[1].messages[-1].content


async def test_a_call_that_fails_twice_is_a_failure_that_says_who_made_it() -> None:
    client, _ = make_client(TimeoutError())
    with pytest.raises(LLMFailureException) as caught:
        await client.converse(TALK, site=SITE)
    assert (caught.value.reason, caught.value.component) == ("timeout", "assistant")


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


async def test_a_conversation_that_went_another_way_is_a_miss(tmp_path: Path) -> None:
    tape, run = make_tape(tmp_path / "talk.tape")
    client, _ = make_client("Fine.")
    recorder = LiveRecorder(tape, run)
    with scoped(recorder=recorder):
        await client.converse(TALK, site=SITE)
    recorder.close()
    replaying = ReplayRecorder(tape, run)
    replaying.begin_turn(1)
    with scoped(recorder=replaying), pytest.raises(TapeMiss, match=r"\+down\?"):
        await client.converse([TALK[0], Message("user", "What is down?")], site=SITE)
