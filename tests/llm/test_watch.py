"""Seeing which model calls are in flight."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from builders import answer, make_client, make_simulation, policy

from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._scope import InFlight, scoped
from llmsim_lab.models import PolicyDecision
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import CallSite, ChatReply, ChatRequest

SITE = CallSite(component="agent", agent="Aland", turn=1)


async def ask(client: LLMClient, site: CallSite | None = SITE) -> PolicyDecision:
    return await client.call_with_retry(prompt="?", response_model=PolicyDecision, site=site)


class Log(InFlight):
    """Notes all that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.began_with: list[ChatRequest] = []
        self.ended_with: list[ChatRequest] = []

    def began(self, request: ChatRequest) -> None:
        self.began_with.append(request)

    def ended(self, request: ChatRequest) -> None:
        self.ended_with.append(request)


class Slow:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.asked.set()
        await self.let.wait()
        return ChatReply(text=policy().model_dump_json(), prompt_tokens=30, reply_tokens=4)


async def test_a_watch_is_notified_of_a_request_and_of_its_reply() -> None:
    log = Log()
    with scoped(watch=log):
        await ask(make_client([policy()]))
    [began] = log.began_with
    [request] = log.ended_with
    assert request is began
    assert began.site == SITE


async def test_a_call_that_is_cancelled_ends() -> None:
    log, backend = Log(), Slow()
    with scoped(watch=log):
        task = asyncio.create_task(ask(LLMClient(LLMConfig(), backend)))  # type: ignore[arg-type]
        await backend.asked.wait()
        task.cancel()
        await asyncio.wait([task])
    assert log.ended_with == log.began_with


async def test_what_is_in_flight_is_seen_with_its_place_and_time() -> None:
    calls, backend = InFlight(), Slow()
    with scoped(watch=calls):
        task = asyncio.create_task(ask(LLMClient(LLMConfig(), backend)))  # type: ignore[arg-type]
        await backend.asked.wait()
    [waiting] = calls.waiting
    assert (waiting.site, waiting.attempt, str(waiting)) == (SITE, 1, "agent of Aland")
    assert waiting.since + waiting.seconds <= time.monotonic()
    assert calls.finished == 0
    backend.let.set()
    await task
    assert (calls.waiting, calls.finished) == ((), 1)


def test_a_runs_calls_are_seen_from_plain_code(tmp_path: Path) -> None:
    calls = InFlight()
    with scoped(watch=calls):
        make_simulation(names=("Aland",)).run(2)
    assert calls.finished == 6


def test_answers_from_a_tape_end_without_having_begun(tmp_path: Path) -> None:
    made = make_simulation(names=("Aland",))
    taped = Simulation(made.config, llm_client=make_client(answer), tape=tmp_path / "x.tape")
    taped.run(1)
    taped.close()
    log, calls = Log(), InFlight()
    with scoped(watch=log):
        replay(tmp_path / "x.tape")
    with scoped(watch=calls):
        replay(tmp_path / "x.tape")
    assert log.began_with == []
    assert len(log.ended_with) == calls.finished == 3
