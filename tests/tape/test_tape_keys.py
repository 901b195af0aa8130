"""What makes two calls the same call: the whole request, its place in the run, and which sample."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client, policy, requests_of

from llmsim_lab.agents import Agent
from llmsim_lab.engines import Engine
from llmsim_lab.errors import BackendError, LLMFailureException, TapeError, TapeMiss
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.models import Action, PolicyDecision, SimulationState
from llmsim_lab.run import replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import _lines
from llmsim_lab.tape._lines import what_is_asked
from llmsim_lab.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, ModelInfo, ToolCall
from llmsim_lab.validators import AlwaysValid

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
    "order": {"messages": REQUEST.messages[::-1]},
    "one message of two": {"messages": (Message("system", "Be brief.How much?"),)},
    "no message": {"messages": ()},
    "another message": {"messages": (*REQUEST.messages, Message("assistant", "4"))},
    "tool call": {"messages": (*REQUEST.messages, CALLED)},
    "tool's result": {"messages": (*REQUEST.messages, Message("tool", "4", (), "f"))},
    "schema": {"schema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "no schema": {"schema": None},
    "tools": {"tools": ({"type": "function", "function": {"name": "g"}},)},
    "no tools": {"tools": ()},
    "temperature": {"options": _options(temperature=0.8)},
    "seed": {"options": _options(seed=2)},
    "no seed": {"options": _options(seed=None)},
    "num_ctx": {"options": _options(num_ctx=8192)},
    "num_predict": {"options": _options(num_predict=101)},
    "an option of one's own": {"options": _options(top_p=0.8)},
    "another option": {"options": _options(min_p=0.1)},
    "think": {"think": True},
    "think harder": {"think": "high"},
    "think as the server likes": {"think": None},
    "attempt": {"attempt": 2},
    "component": {"site": replace(SITE, component="engine")},
    "agent": {"site": replace(SITE, agent="B")},
    "no agent": {"site": replace(SITE, agent=None)},
    "turn": {"site": replace(SITE, turn=2)},
    "replicate": {"site": replace(SITE, replicate=1)},
    "no site": {"site": None},
}


@pytest.fixture
def recorded(tmp_path: Path) -> ReplayRecorder:
    """A replay of a turn in which the request was made, and each that differs from it in a thing.

    The reply to each is its name.
    """
    with Tape(tmp_path / "x.tape") as tape:
        recorder = LiveRecorder(tape, tape.add_run({}, name="x", first=(0, "{}", "{}")))
        for name, changes in {"itself": {}, **OTHERS}.items():
            request = replace(REQUEST, **changes)
            assert recorder.find(request) is None, name
            recorder.keep_now(Attempt(request=request, reply=ChatReply(text=name), seconds=1.0))
        replay = ReplayRecorder(Tape(tape.path, read_only=True), recorder.run)
        replay.begin_turn(1)
        return replay


def answered(recorder: ReplayRecorder, **changes: Any) -> str | None:
    reply = recorder.find(replace(REQUEST, **changes)).reply
    return reply.text if reply else None


def test_whatever_can_change_an_answer_tells_requests_apart(recorded: ReplayRecorder) -> None:
    elsewhere = {"turn", "no site"}
    for name, changes in OTHERS.items():
        if name not in elsewhere:
            assert answered(recorded, **changes) == name
    assert answered(recorded) == "itself"
    with pytest.raises(TapeMiss, match="asked once more"):
        answered(recorded)


def test_a_request_is_looked_for_in_its_turn_only(recorded: ReplayRecorder) -> None:
    recorded.begin_turn(2)
    with pytest.raises(TapeMiss, match="of A, turn 1, attempt 1"):
        answered(recorded)


@pytest.mark.parametrize("changes", [{"timeout_s": 1.0}, {"keep_alive": None}, {"keep_alive": 3}])
def test_how_long_one_waits_tells_no_requests_apart(
    recorded: ReplayRecorder, changes: dict[str, Any]
) -> None:
    assert answered(recorded, **changes) == "itself"


@pytest.mark.parametrize("other", [1.0, True])
def test_options_and_arguments_of_tools_are_compared_as_text(other: Any) -> None:
    def called(value: Any) -> ChatRequest:
        call = ToolCall(name="f", arguments={"x": value}, id="1")
        return replace(REQUEST, messages=(Message("assistant", "", (call,)),))

    def optional(value: Any) -> ChatRequest:
        return replace(REQUEST, options={"top_k": value})

    for request in (called, optional):
        assert what_is_asked(request(1)) == what_is_asked(request(1))
        assert what_is_asked(request(1)) != what_is_asked(request(other))


def test_objects_that_take_the_place_of_gone_ones_are_not_taken_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_lines, "_MAX_KNOWN", 3)
    asked = {what_is_asked(replace(REQUEST, options={"seed": seed})) for seed in range(500)}
    assert len(asked) == 500


# --- repeats -----------------------------------------------------------------------------------


class Poll(Agent):
    """An agent that asks the same question many times at once and takes the answers' sum."""

    def __init__(self, client: LLMClient, *, replicates: bool = False) -> None:
        super().__init__("Poll")
        self.llm_client = client
        self.replicates = replicates
        self.answers: list[Sequence[str]] = []

    async def decide_action(self, state: SimulationState) -> Action:
        site = CallSite(component="agent", agent=self.name, turn=state.turn + 1)
        decisions = await asyncio.gather(
            *[
                self.llm_client.call_with_retry(
                    prompt="What tax rate?",
                    response_model=PolicyDecision,
                    site=replace(site, replicate=number) if self.replicates else site,
                )
                for number in range(REPEATS)
            ],
            return_exceptions=True,
        )
        answers = [d.action if isinstance(d, PolicyDecision) else str(d) for d in decisions]
        self.answers.append(answers)
        for decision in decisions:
            if isinstance(decision, BaseException):
                raise decision
        return Action(agent_name=self.name, action_string=" ".join(answers))


class Still(Engine):
    """An engine in which only time passes."""

    async def run_turn(self, validated_actions: Sequence[Action]) -> SimulationState:
        return self.current_state.model_copy(update={"turn": self.current_state.turn + 1})


class Moody:
    """A model that never answers alike, takes its time, and fails now and then."""

    def __init__(self, *, faults: float = 0.0, seed: int = 1, break_at: int | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self._random = random.Random(seed)
        self._faults = faults
        self.break_at = break_at

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        number = len(self.requests)
        await asyncio.sleep(self._random.random() * 0.01)
        if self.break_at is not None and number >= self.break_at:
            raise RuntimeError("a bug in the backend")
        if request.attempt == 1 and self._random.random() < self._faults:
            raise TimeoutError
        return ChatReply(text=policy(f"Tax {number}").model_dump_json())

    async def model_info(self) -> ModelInfo:
        return ModelInfo(name="moody", backend="moody")

    async def aclose(self) -> None:
        """Nothing to let go of."""


def poll(path: Path, backend: Moody, **options: Any) -> tuple[Simulation, Poll]:
    client = LLMClient(LLMConfig(retry_wait_s=0, max_concurrency=8), backend)
    agent = Poll(client, **options)
    simulation = Simulation(
        in_words(),
        llm_client=client,
        agents=[agent],
        engine=Still(),
        validator=AlwaysValid(),
        tape=path,
    )
    return simulation, agent


def replayed_poll(path: Path, **options: Any) -> tuple[Simulation, Poll]:
    client = make_client(TapeError("a call was made"))
    agent = Poll(client, **options)
    run = replay(path, agents=[agent], engine=Still(), validator=AlwaysValid())
    assert requests_of(client) == []
    return run, agent


@pytest.mark.parametrize("replicates", [False, True])
@pytest.mark.parametrize("faults", [0.0, 0.4], ids=["sound", "faulty"])
def test_thirty_repeats_are_thirty_samples_and_replay_each_in_its_place(
    tmp_path: Path, replicates: bool, faults: float
) -> None:
    simulation, agent = poll(tmp_path / "x.tape", Moody(faults=faults), replicates=replicates)
    simulation.run(2)
    for answers in agent.answers:
        assert len(set(answers)) == REPEATS
    with Tape(tmp_path / "x.tape", read_only=True) as tape:
        good = [call for call in tape.calls(1, turn=1) if call.attempt.reason is None]
        assert len(good) == REPEATS
    again, replayed = replayed_poll(tmp_path / "x.tape", replicates=replicates)
    assert replayed.answers == agent.answers
    assert again.turns == simulation.turns


def test_repeats_cut_off_in_the_middle_are_completed_and_not_mixed_up(tmp_path: Path) -> None:
    backend = Moody(faults=0.3, break_at=17)
    simulation, agent = poll(tmp_path / "x.tape", backend)
    with pytest.raises(RuntimeError, match="a bug in the backend"):
        simulation.run(1)
    simulation.close()
    with Tape(tmp_path / "x.tape", read_only=True) as tape:
        kept = {call.attempt.reply.text for call in tape.calls(1) if call.attempt.reply}
    assert 3 < len(kept) < REPEATS
    backend.break_at = None
    agent.answers.clear()
    resumed = resume(
        tmp_path / "x.tape",
        llm_client=simulation.llm_client,
        agents=[agent],
        engine=Still(),
        validator=AlwaysValid(),
    )
    resumed.run(1)
    assert kept <= {policy(answer).model_dump_json() for answer in agent.answers[0]}
    assert len(set(agent.answers[0])) == REPEATS
    again, replayed = replayed_poll(tmp_path / "x.tape")
    assert replayed.answers == agent.answers
    assert again.turns == resumed.turns


def test_of_many_repeats_only_the_failed_one_is_made_anew(tmp_path: Path) -> None:
    class Unlucky(Moody):
        unlucky: int | None = 12

        async def chat(self, request: ChatRequest) -> ChatReply:
            mine = len(self.requests) + 1 == self.unlucky
            reply = await super().chat(request)
            if mine:
                raise BackendError("no such key", reason="client_error", status_code=401)
            return reply

    backend = Unlucky()
    simulation, agent = poll(tmp_path / "x.tape", backend)
    with pytest.raises(LLMFailureException, match="no such key"):
        simulation.run(1)
    assert len(backend.requests) == REPEATS
    backend.unlucky = None
    simulation.run(1)
    assert len(backend.requests) == REPEATS + 1
    first, second = agent.answers
    assert [a for a, b in zip(first, second, strict=True) if a != b] == [first[11]]
    assert replayed_poll(tmp_path / "x.tape")[1].answers == [second]
