"""A call that its caller waits for no longer is on the tape, and a replay takes the same branch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatReply, ChatRequest


class Branches(State):
    taken: list[str] = []  # noqa: RUF012 - pydantic copies a state's defaults


class Number(Reply):
    number: int


class Sluggish:
    """Never answers about what is slow, and fails where that is asked for."""

    def __init__(self) -> None:
        self.hurried = False
        self.asked = asyncio.Event()

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.asked.set()
        if "slow" in request.prompt and not self.hurried:
            await asyncio.Event().wait()
        if "failing" in request.prompt:
            raise BackendError("the server does not like it", reason="client_error")
        return ChatReply(text='{"reasoning": "", "number": 3, "confidence": 0.5}')


async def by_wait_for(ask: Ask) -> str:
    try:
        return str((await asyncio.wait_for(ask("Ann", Number, "slow"), 0.02)).number)
    except TimeoutError:
        return "no time left"


async def by_timeout(ask: Ask) -> str:
    try:
        async with asyncio.timeout(0.02):
            await ask.each(["Ann", "Bob"], Number, lambda name: "slow" if name == "Bob" else "fast")
    except TimeoutError:
        return "no time left"
    return "answered"


async def by_cancel(ask: Ask) -> str:
    asking = asyncio.create_task(ask("Ann", Number, "slow"))
    await asyncio.sleep(0.01)
    asking.cancel()
    try:
        await asking
    except asyncio.CancelledError:
        return "cancelled"
    return "answered"


async def by_the_first_answer(ask: Ask) -> str:
    slow = asyncio.create_task(ask("Ann", Number, "slow"))
    fast = asyncio.create_task(ask("Bob", Number, "fast"))
    done, waiting = await asyncio.wait([slow, fast], return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return "Bob first" if done == {fast} else "another first"


async def by_a_failure_beside_it(ask: Ask) -> str:
    try:
        await ask.each(["Ann", "Bob"], Number, lambda name: "slow" if name == "Ann" else "failing")
    except LLMFailureException as failure:
        return failure.reason
    return "answered"


async def by_nothing(ask: Ask) -> str:
    await ask("Ann", Number, "slow")
    return "answered"


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def by_what_comes_from_outside(ask: Ask) -> str:
    try:
        return str(await asyncio.wait_for(ask.outside("weather", "Oslo", never), 0.02))
    except TimeoutError:
        return "no weather"


async def by_what_may_be_done_once(ask: Ask) -> str:
    try:
        asking = ask.outside("letter", "Oslo", never, once=True, fallback="sent")
        return str(await asyncio.wait_for(asking, 0.02))
    except TimeoutError:
        return "no weather"


WAYS = [
    by_wait_for,
    by_timeout,
    by_cancel,
    by_the_first_answer,
    by_a_failure_beside_it,
    by_what_comes_from_outside,
    by_what_may_be_done_once,
    by_nothing,
]


class Hurry(Run[Branches]):
    way: int = 0

    async def turn(self, state: Branches, ask: Ask) -> Branches:
        branch: Callable[[Ask], Awaitable[str]] = WAYS[self.way]
        return state.replace(taken=[*state.taken, await branch(ask)])


def client(backend: Sluggish) -> LLMClient:
    return LLMClient(LLMConfig(model="m", retry_wait_s=0, max_concurrency=4), backend)


@pytest.mark.parametrize(
    ("way", "branch"),
    [
        (0, "no time left"),
        (1, "no time left"),
        (2, "cancelled"),
        (3, "Bob first"),
        (4, "client_error"),
    ],
)
def test_a_replay_takes_the_branch_that_a_cancelled_call_led_to(
    tmp_path: Path, way: int, branch: str
) -> None:
    path = tmp_path / "hurry.tape"
    run = Hurry(way=way, llm_client=client(Sluggish()), tape=path)
    run.run(1)
    assert run.state.taken == [branch]
    decisions = run.decisions().set_index("player")["status"]
    slow = "Bob" if way == 1 else "Ann"
    assert decisions[slow] == "failed"
    attempts = [call.attempt for call in Tape(path).calls(1)]
    cancelled = [attempt for attempt in attempts if attempt.reason == "cancelled"]
    # On a busy machine the other one, too, may have no answer in time.
    assert slow in {attempt.request.site.agent for attempt in cancelled if attempt.request.site}
    assert not any(attempt.reply for attempt in cancelled)
    assert verify(path) == []
    assert Hurry.replay(path).turns == run.turns


@pytest.mark.parametrize("way", [5, 6])
def test_what_comes_too_late_from_outside_is_too_late_in_a_replay(tmp_path: Path, way: int) -> None:
    path = tmp_path / "hurry.tape"
    run = Hurry(way=way, players="random", tape=path)
    run.run(1)
    assert run.state.taken == ["no weather"]
    assert verify(path) == []
    assert Hurry.replay(path).turns == run.turns


class Careless(Run[Branches]):
    async def turn(self, state: Branches, ask: Ask) -> Branches:
        try:
            await ask.outside("rate", None, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        except ZeroDivisionError:
            return state.replace(taken=["divided"])
        return state


def test_an_error_from_outside_that_the_turn_catches_ends_it_all_the_same() -> None:
    with pytest.raises(ConfigError, match=r"'rate'.* failed with ZeroDivisionError.*in the work"):
        Careless().run(1)


def test_a_call_of_an_interrupted_turn_is_asked_anew(tmp_path: Path) -> None:
    path, backend = tmp_path / "hurry.tape", Sluggish()
    run = Hurry(way=7, llm_client=client(backend), tape=path)

    async def interrupted() -> None:
        playing = asyncio.create_task(run.arun(1))
        await backend.asked.wait()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)

    asyncio.run(interrupted())
    assert run.turn_number == 0
    run.close()
    backend.hurried = True
    resumed = Hurry.resume(path, llm_client=client(backend))
    resumed.run(1)
    assert resumed.state.taken == ["answered"]
    assert [call.attempt.reason for call in Tape(path).calls(1, forgotten=True)] == [
        "cancelled",
        None,
    ]
    assert Hurry.replay(path).turns == resumed.turns
