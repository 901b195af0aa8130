"""A server that is slow is not one that is dead: each line of what a real one did, played again.

The real one's seconds are as long as ``SECOND`` here; what waits for a second or more
is among the tests that take long. Its numbers: a prompt of 879 tokens, 9 tokens
read and 2 written a second, 14 s to load a model, the client's ``timeout_s`` of 60.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import eight_lines, until
from client_kit import decide, failure_of, say
from fake_ollama import FakeOllama, Throttle

from llmsim_lab.agents import EconLLMAgent
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, Tape, _limits
from llmsim_lab.llm.calls import queued
from llmsim_lab.llm.scope import InFlight, scoped
from llmsim_lab.models import AgentState, GlobalState, SimulationState
from llmsim_lab.types import CallRecord, ChatReply, ChatRequest, OnText

SECOND = 0.005
PROMPT = "Inflation is high, output is above its potential. " * 73
TOKENS = 877
TEXT = "The rate rises by a quarter of a point. " * 10


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOllama]:
    monkeypatch.setattr(_limits, "ASK_EVERY_S", 5 * SECOND)
    monkeypatch.setattr(queued, "KNOCK_S", SECOND / 2)
    with FakeOllama(reply=TEXT, throttle=Throttle.seen(SECOND)) as server:
        yield server


def client_of(server: FakeOllama, **settings: Any) -> LLMClient:
    config = LLMConfig(**{"model": "llama3.2", "retry_wait_s": SECOND, **settings})
    return LLMClient(config, OllamaBackend(host=server.host))


async def called(server: FakeOllama, prompt: str = PROMPT, **settings: Any) -> CallRecord:
    """Ask once; return the record of the call, which was answered."""
    async with client_of(server, **settings) as client:
        reply, call = await say(client, prompt)
    assert reply.text == TEXT
    return call


async def while_it_writes(server: FakeOllama, act: Callable[[], object]) -> CallRecord:
    """Ask once, and do something to the server as the first pieces have come."""
    watch = InFlight()
    with scoped(watch=watch):
        call = asyncio.create_task(called(server, "What now?"))
        await until(lambda: any(entry.text for entry in watch.waiting))
    act()
    return await call


def faults(call: CallRecord) -> list[str | None]:
    return [attempt.reason for attempt in call.history]


# A slow server


@pytest.mark.process
def test_the_eight_lines_of_the_readme_run_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeOllama(throttle=Throttle.seen(0.01)) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        exec(eight_lines('connect("auto", quiet=True, timeout_s=0.6)'), {})
        assert server.runner.loads == 1
    tape = Tape("my.tape")
    calls = [call for run in tape.runs() for call in tape.calls(run.id)]
    assert [call.attempt.reason for call in calls] == [None] * 6
    assert Path("rates.png").stat().st_size > 10_000


@pytest.mark.process
async def test_a_prompt_that_is_read_for_longer_than_a_silence_is_answered(
    server: FakeOllama,
) -> None:
    assert faults(await called(server, timeout_s=60 * SECOND)) == [None]
    assert server.runner.tokens_read == TOKENS


@pytest.mark.process
async def test_a_request_that_waits_in_the_servers_queue_is_not_late(server: FakeOllama) -> None:
    prompts = [f"{number}. {PROMPT}" for number in range(3)]
    settings = {"first_piece_s": 180 * SECOND, "max_concurrency": 3}
    async with client_of(server, **settings) as client:
        answers = await asyncio.gather(*[say(client, prompt) for prompt in prompts])
    assert [faults(call) for _, call in answers] == [[None]] * 3


@pytest.mark.process
async def test_another_clients_window_reloads_the_model_each_way(server: FakeOllama) -> None:
    calls = [await called(server, "Hi", num_ctx=1024 * size) for size in (1, 2, 1)]
    assert ([*map(faults, calls)], server.runner.loads) == ([[None]] * 3, 3)
    await called(server, "Hi", num_ctx=1024)
    assert server.runner.loads == 3


async def test_a_server_that_is_stopped_for_a_moment_goes_on(server: FakeOllama) -> None:
    call = await while_it_writes(server, lambda: server.freeze(10 * SECOND))
    assert faults(call) == [None]


async def test_a_server_that_is_killed_in_an_answer_is_waited_for(server: FakeOllama) -> None:
    call = await while_it_writes(server, lambda: server.kill(away_s=12 * SECOND))
    assert faults(call) == ["connection_error", None]
    assert server.runner.loads == 2


async def test_a_server_that_is_gone_for_good_is_named(server: FakeOllama) -> None:
    await called(server, "Hi")
    server.kill()
    failure = await failure_of(client_of(server, wait_for_server_s=60 * SECOND))
    assert (failure.reason, failure.attempts) == ("connection_error", 2)
    assert f"no Ollama server answers at {server.host}" in str(failure)


async def test_a_model_that_is_deleted_in_a_run_is_named_at_once(server: FakeOllama) -> None:
    await called(server, "Hi")
    server.delete("llama3.2")
    failure = await failure_of(client_of(server))
    assert (failure.reason, failure.attempts) == ("model_not_found", 1)


@pytest.mark.parametrize("prompt", [PROMPT, "Hi"])
async def test_a_cancelled_request_ends_on_the_server_and_what_was_read_stays_in_its_cache(
    server: FakeOllama, prompt: str
) -> None:
    async with client_of(server) as client:
        watch = InFlight()
        with scoped(watch=watch):
            asking = asyncio.create_task(say(client, prompt))
        if prompt == PROMPT:
            await until(lambda: server.runner.loads == 1)
        else:
            await until(lambda: any(entry.text for entry in watch.waiting))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: server.active == 0)
        read = server.runner.tokens_read
        assert 0 < read < TOKENS
        await say(client, prompt)
    assert server.runner.tokens_read == (TOKENS if prompt == PROMPT else read)


# What is said meanwhile, and in the end


@pytest.mark.process
async def test_progress_says_that_the_model_loads_and_how_much_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_limits, "ASK_EVERY_S", 5 * SECOND)
    watch, seen = InFlight(), set[str]()
    slow = replace(Throttle.seen(SECOND), load_s=0.4)
    with FakeOllama(reply="Yes.", throttle=slow) as server:
        client = client_of(server)
        for number in range(2):
            with scoped(watch=watch):
                asking = asyncio.create_task(say(client, f"{number}. {PROMPT}"))
            while not asking.done():
                seen |= {entry.doing for entry in watch.waiting if not entry.text}
                await asyncio.sleep(SECOND)
            await asking
        await client.aclose()
    reads = "reading about 910 tokens"
    assert seen == {"", "loading", f"loading or {reads}", reads}


@pytest.mark.process
async def test_the_error_of_a_wait_that_was_too_long_names_the_setting_and_the_cause(
    server: FakeOllama,
) -> None:
    """The second attempt finds in the server's cache what was read before."""
    call = await called(server, first_piece_s=70 * SECOND)
    assert faults(call) == ["timeout", None]
    assert call.history[0].detail == (
        "no reply within 0.35 s; raise first_piece_s, shorten the prompt or use a faster model (no "
        "piece of it had come: unless the server hangs, it was still loading or reading "
        "about 910 tokens)"
    )
    assert server.runner.tokens_read == TOKENS


class Hanging:
    """A backend that hands on pieces, and hangs after so many of them."""

    streams = True

    def __init__(self, pieces: int, phase: str | Exception = "") -> None:
        self.pieces, self.said = pieces, phase
        self.asked = 0

    async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
        assert on_text is not None
        self.asked += 1
        for _ in range(self.pieces):
            on_text("piece")
        await asyncio.sleep(60)
        raise AssertionError(request)

    def phase(self, _: ChatRequest) -> str:  # Ollama's is async
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.mark.parametrize(
    ("pieces", "phase", "limits", "words"),
    [
        (
            0,
            "",
            {"first_piece_s": 0.05},
            r"within 0\.05 s; raise first_piece_s.* loading or",
        ),
        (
            0,
            "loading",
            {"first_piece_s": 0.05},
            r"raise first_piece_s.* still loading\)$",
        ),
        (0, "reading", {"first_piece_s": 0.05}, r"raise first_piece_s.* still reading about \d"),
        (2, "", {"timeout_s": 0.05}, r"nothing more of it came within 0\.05 s; raise timeout_s"),
        (0, "", {"total_timeout_s": 0.05}, r"within 0\.05 s; raise total_timeout_s.* loading"),
        (2, "", {"total_timeout_s": 0.05}, r"within 0\.05 s; raise total_timeout_s, lower max_tok"),
    ],
)
async def test_a_timeout_names_its_limit(
    monkeypatch: pytest.MonkeyPatch, pieces: int, phase: str, limits: dict[str, float], words: str
) -> None:
    monkeypatch.setattr(_limits, "ASK_EVERY_S", 0.01)
    config = LLMConfig(model="m", retry_wait_s=0, **limits)
    with pytest.raises(LLMFailureException, match=words) as caught:
        await say(LLMClient(config, Hanging(pieces, phase)))
    assert (caught.value.reason, caught.value.attempts) == ("timeout", 2)


@pytest.mark.parametrize(
    ("phase", "caught", "asked"),
    [
        (ConnectionRefusedError("nothing listens"), LLMFailureException, 2),
        (BackendError("gone", reason="connection_error"), LLMFailureException, 1),
        (KeyError("a bug"), KeyError, 1),
    ],
)
async def test_a_server_that_is_found_to_be_gone_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, phase: Exception, caught: type[Exception], asked: int
) -> None:
    monkeypatch.setattr(_limits, "ASK_EVERY_S", 0.01)
    backend = Hanging(0, phase)
    with pytest.raises(caught, match=str(phase)):
        await decide(LLMClient(LLMConfig(model="m", retry_wait_s=0), backend))
    assert backend.asked == asked


async def test_the_contracts_totals_stay_and_the_error_names_the_way_out() -> None:
    config = LLMConfig(model="m", retry_wait_s=0, timeout_s=0.05)
    agent = EconLLMAgent("Aland", LLMClient(config, Hanging(0)))
    state = SimulationState(agents={"Aland": AgentState(name="Aland")}, global_state=GlobalState())
    with pytest.raises(LLMFailureException, match=r"within 0\.05 s; raise total_timeout_s"):
        await agent.decide_action(state)


@pytest.mark.parametrize(
    ("settings", "recorded", "waits_s"),
    [
        ({}, None, 600.0),
        ({"first_piece_s": 30}, 30.0, 30.0),
        ({"timeout_s": 1800}, None, 1800.0),
        ({"timeout_s": 1800, "first_piece_s": 900}, 900.0, 900.0),
    ],
)
def test_the_first_piece_is_waited_for_as_long_as_is_set(
    settings: dict[str, float], recorded: float | None, waits_s: float
) -> None:
    config = LLMConfig(model="m", **settings)
    assert config.model_dump().get("first_piece_s") == recorded
    assert config.first_wait_s == waits_s
