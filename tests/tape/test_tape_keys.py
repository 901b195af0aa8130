"""What makes two calls the same call: the whole request, its place in the run, and which sample."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_kit import begun
from worlds import Pot

from llmsim_lab import Ask, Run
from llmsim_lab.errors import ConfigError, TapeMiss
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.tape import lines
from llmsim_lab.tape.lines import parts_of
from llmsim_lab.tape.recorder import Entry, LiveRecorder, ReplayRecorder
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, ToolCall

REPEATS = 30

SITE = CallSite(component="agent", agent="A", turn=1)
REQUEST = ChatRequest(
    model="m",
    messages=(Message("system", "Be brief."), Message("user", "How much?")),
    schema={"type": "object", "properties": {"x": {"type": "number"}}},
    tools=({"type": "function", "function": {"name": "f"}},),
    options={"temperature": 0.7, "seed": 1, "num_ctx": 4096, "num_predict": 100, "top_p": 0.9},
    think=False,
    keep_alive="5m",
    timeout_s=60,
    site=SITE,
)


def _options(**changes: Any) -> dict[str, Any]:
    return {name: v for name, v in {**REQUEST.options, **changes}.items() if v is not None}


CALLED = Message("assistant", "", (ToolCall(name="f", arguments={"x": 1}, id="1"),))
OTHERS: dict[str, dict[str, Any]] = {
    "model": {"model": "n"},
    "system message": {"messages": (Message("system", "Be long."), REQUEST.messages[1])},
    "user message": {"messages": (REQUEST.messages[0], Message("user", "How much? "))},
    "role": {"messages": (Message("user", "Be brief."), REQUEST.messages[1])},
    "one message of two": {"messages": (Message("system", "Be brief.How much?"),)},
    "another message": {"messages": (*REQUEST.messages, Message("assistant", "4"))},
    "tool call": {"messages": (*REQUEST.messages, CALLED)},
    "tool's result": {"messages": (*REQUEST.messages, Message("tool", "4", (), "f"))},
    "schema": {"schema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "no schema": {"schema": None},
    "tools": {"tools": ({"type": "function", "function": {"name": "g"}},)},
    "temperature": {"options": _options(temperature=0.8)},
    "seed": {"options": _options(seed=2)},
    "num_ctx": {"options": _options(num_ctx=8192)},
    "an option of one's own": {"options": _options(top_p=0.8)},
    "think": {"think": True},
    "think as the server likes": {"think": None},
    "attempt": {"attempt": 2},
    "component": {"site": replace(SITE, component="engine")},
    "agent": {"site": replace(SITE, agent="B")},
    "no agent": {"site": replace(SITE, agent=None)},
    "replicate": {"site": replace(SITE, replicate=1)},
    "no site": {"site": None},
}


@pytest.fixture
def recorded(tmp_path: Path) -> ReplayRecorder:
    """A replay of a turn in which the request was made, and each that differs from it in a thing.

    The reply to each is its name.
    """
    with Tape(tmp_path / "x.tape") as tape:
        recorder = begun(tape)
        for name, changes in {"itself": {}, **OTHERS}.items():
            request = replace(REQUEST, **changes)
            entry = recorder.find(request)
            assert entry.attempt is None, name
            reply = ChatReply(text=name)
            recorder.keep(entry, Attempt(request=entry.request, reply=reply, seconds=1.0))
        replay = ReplayRecorder(Tape(tape.path, read_only=True), recorder.run)
        replay.begin_turn(1)
        return replay


def answered(recorder: ReplayRecorder, **changes: Any) -> str | None:
    known = recorder.find(replace(REQUEST, **changes)).attempt
    return known.reply.text if known and known.reply else None


def test_whatever_can_change_an_answer_tells_requests_apart(recorded: ReplayRecorder) -> None:
    for name, changes in OTHERS.items():
        assert answered(recorded, **changes) == name
    assert answered(recorded) == "itself"
    with pytest.raises(TapeMiss, match="asked once more"):
        answered(recorded)


@pytest.mark.parametrize("changes", [{"timeout_s": 1.0}, {"keep_alive": None}, {"keep_alive": 3}])
def test_how_long_one_waits_tells_no_requests_apart(
    recorded: ReplayRecorder, changes: dict[str, Any]
) -> None:
    assert answered(recorded, **changes) == "itself"


def test_options_and_arguments_of_tools_are_compared_as_text() -> None:
    def called(value: Any) -> ChatRequest:
        call = ToolCall(name="f", arguments={"x": value}, id="1")
        return replace(REQUEST, messages=(Message("assistant", "", (call,)),))

    def optional(value: Any) -> ChatRequest:
        return replace(REQUEST, options={"top_k": value})

    for request in (called, optional):
        assert len({parts_of(request(value)).identity for value in (1, 1, 1.0, True)}) == 3


def test_objects_that_take_the_place_of_gone_ones_are_not_taken_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "_MAX_KNOWN", 3)
    seeds = [replace(REQUEST, options={"seed": seed}) for seed in range(99)]
    assert len({parts_of(request).identity for request in seeds}) == 99


# --- repeats -----------------------------------------------------------------------------------


def test_what_is_changed_after_it_was_sent_is_on_the_tape_as_it_was_sent(path: Path) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"enum": [1]}}}
    tools: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    options: dict[str, Any] = {"stop": ["a"]}
    arguments: dict[str, Any] = {"x": [1]}
    sent: list[str] = []

    def said(request: ChatRequest) -> str:
        sent.append(as_text(request))
        schema["properties"]["x"]["enum"].append(len(sent) + 1)
        tools[0]["function"]["name"] += "g"
        options["stop"].append("b")
        arguments["x"].append(2)
        return "Yes."

    class Talk(Run[Pot]):
        async def turn(self, state: Pot, ask: Ask) -> Pot:
            for _ in range(2):
                called = Message("assistant", "", (ToolCall("f", arguments),))
                await self.llm_client.converse(
                    [Message("user", "Hm?"), called], schema=schema, tools=tools, options=options
                )
            return state

    settings = LLMConfig(model="m", options={"stop": ["z"]})
    run = Talk(llm_client=LLMClient(settings, ScriptedBackend(said)), tape=path)
    run.run(1)
    assert sent[0] != sent[1]
    assert [as_text(call.request) for call in run.calls] == sent
    assert [as_text(call.attempt.request) for call in run.tape.calls(1)] == sent


def as_text(request: ChatRequest) -> str:
    options = {name: value for name, value in request.options.items() if name != "seed"}
    arguments = [dict(call.arguments) for call in request.messages[1].tool_calls]
    return json.dumps([request.schema, request.tools, options, arguments])


@pytest.mark.parametrize("change", ["['top_p'] = 0.5", "['stop'].append('b')", ".clear()"])
def test_the_settings_of_a_client_cannot_be_changed_in_place(change: str) -> None:
    given = {"stop": ["a"], "top_k": 3}
    first = LLMConfig(model="m", options=given)
    copied = first.model_copy(update={"options": given})
    given["top_k"] = 5
    for config in (first, copied):
        client = LLMClient(config, ScriptedBackend("Yes."))
        with pytest.raises(ConfigError, match=r"never changed in place.*client\.with_config\("):
            exec(f"client.config.options{change}")
        assert client.config.options == {"stop": ["a"], "top_k": 3}
        with pytest.raises(AttributeError):
            client.config = LLMConfig()  # type: ignore[misc]


@pytest.fixture
def live(tmp_path: Path) -> LiveRecorder:
    """Records the first turn of a run."""
    return begun(Tape(tmp_path / "x.tape"))


def answer(recorder: LiveRecorder, entry: Entry, text: str, **fault: Any) -> Attempt:
    reply = None if fault.get("reason") == "timeout" else ChatReply(text=text)
    attempt = Attempt(request=entry.request, reply=reply, seconds=1.0, **fault)
    recorder.keep(entry, attempt)
    return attempt


def again_after(first: Attempt, recorder: LiveRecorder | ReplayRecorder) -> Entry:
    """Ask a second time after a first attempt that was not valid."""
    request = replace(first.request, attempt=2, messages=(*REQUEST.messages, Message("user", "?")))
    return recorder.find(request, first)


@pytest.fixture
def asked(live: LiveRecorder) -> list[Entry]:
    """The same thirty times, asked at once."""
    asked = [live.find(replace(REQUEST)) for _ in range(REPEATS)]
    assert all(entry.attempt is None for entry in asked)
    return asked


def test_equal_requests_answered_in_any_order_replay_each_in_its_place(
    live: LiveRecorder, asked: list[Entry]
) -> None:
    for number in random.Random(1).sample(range(REPEATS), REPEATS):
        if number % 3:
            answer(live, asked[number], f"{number}")
            continue
        first = answer(live, asked[number], "?", reason="invalid_response", retry=True)
        again = again_after(first, live)
        assert again.attempt is None
        answer(live, again, f"{number}")
    replay = ReplayRecorder(live.tape, live.run)
    replay.begin_turn(1)
    for number in range(REPEATS):
        known = replay.find(REQUEST).attempt
        if known and number % 3 == 0:
            known = again_after(known, replay).attempt
        assert known is not None
        assert known.reply == ChatReply(text=f"{number}")


def test_repeats_cut_off_in_the_middle_are_completed_and_not_mixed_up(
    live: LiveRecorder, asked: list[Entry]
) -> None:
    kept = random.Random(2).sample(range(REPEATS), 17)
    for number in kept:
        answer(live, asked[number], f"{number}")
    live.close()
    resumed = LiveRecorder(live.tape, live.run)
    found = [resumed.find(replace(REQUEST)).attempt for _ in range(REPEATS)]
    assert [number for number, one in enumerate(found) if one] == sorted(kept)
    assert all(one.reply == ChatReply(text=f"{n}") for n, one in enumerate(found) if one)
