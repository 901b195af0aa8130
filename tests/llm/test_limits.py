"""How many requests are sent at once: found on a server that is played by numbers alone."""

from __future__ import annotations

import asyncio
import time

import pytest
from builders import make_client
from client_kit import say

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._limits import Limits
from llmsim_lab.types import ChatReply, ChatRequest, OnText


def play(
    limit: Limits, *, slots: int, calls: int = 400, wanted: int = 400, refuses_above: int = 10_000
) -> float:
    """Send calls to a server and return how long all of them took, one answer taking one second.

    Args:
        limit: says how many may be in flight.
        slots: how many the server answers at once; others wait there.
        calls: how many calls in all.
        wanted: how many are wanted at the same time, as by the agents of a turn.
        refuses_above: with more requests than this the server says that these are too many.
    """
    now, left = 0.0, calls
    while left > 0:
        due = min(left, wanted)
        left -= due
        queue, running = 0, list[float]()
        while due or queue or running:
            while due and queue + len(running) < limit.at_once:
                limit.began(now)
                due -= 1
                if queue + len(running) >= refuses_above:
                    limit.ended(now, now, tokens=None, too_many=True)
                    due += 1
                    break
                queue += 1
            while queue and len(running) < slots:
                queue -= 1
                running.append(now + 1)
            now = running.pop(0)
            limit.ended(now - 1, now, tokens=100)
    return now


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_the_number_found_is_nearly_as_fast_as_the_best_fixed_one(slots: int) -> None:
    best = min(play(Limits(number), slots=slots) for number in (1, 2, 4, 8, 16, 32))
    found = Limits()
    assert play(found, slots=slots) <= 1.1 * best
    assert slots in (found.at_once, found.at_once // 2), "that, or it tries twice as many"


def test_what_a_run_never_asks_at_once_is_not_tried() -> None:
    limit = Limits()
    play(limit, slots=64, wanted=3)
    assert set(limit.tokens_per_s) == {1, 2}


def test_a_server_that_says_too_many_is_sent_fewer() -> None:
    limit = Limits()
    play(limit, slots=8, refuses_above=4)
    assert limit.at_once <= 4


def test_a_server_that_has_become_slower_is_sent_fewer() -> None:
    limit = Limits()
    play(limit, slots=16)
    assert limit.at_once >= 16
    play(limit, slots=1)
    assert limit.at_once <= 2


async def test_the_queue_of_a_server_is_not_charged_to_the_model() -> None:
    """Each answer takes half of ``timeout_s``, and the fourth comes after two of them."""
    one_at_a_time = asyncio.Lock()

    async def answer(_: ChatRequest) -> ChatReply:
        async with one_at_a_time:
            await asyncio.sleep(0.05)
        return ChatReply(text="Yes.")

    client = make_client(answer, timeout_s=0.1, max_concurrency=4)
    answers = await asyncio.gather(*(say(client) for _ in range(4)))
    assert [call.attempts for _, call in answers] == [1] * 4


async def test_a_request_that_hangs_ends_beside_others_that_are_answered() -> None:
    async def answer(request: ChatRequest) -> ChatReply:
        await asyncio.sleep(30 if "hang" in request.prompt else 0.005)
        return ChatReply(text="Yes.")

    client = make_client(answer, timeout_s=0.1, max_concurrency=2)
    hanging = asyncio.create_task(say(client, "hang"))
    for _ in range(20):
        await say(client)
    with pytest.raises(LLMFailureException, match="no reply within"):
        await hanging


async def test_a_reply_that_is_there_is_taken_late_or_not() -> None:
    async def answer(request: ChatRequest) -> str:
        try:
            await asyncio.sleep(30 if "careless" in request.prompt else 0.01)
        except asyncio.CancelledError:
            assert "careless" in request.prompt
        return "Yes."

    client = make_client(answer, timeout_s=0.05)
    call = asyncio.create_task(say(client))
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 - the loop is held up, and the reply has come
    assert (await call)[1].attempts == 1
    call = asyncio.create_task(say(client, "careless"))
    assert ((await call)[1].attempts, call.cancelling()) == (1, 0)


async def test_who_gives_up_in_the_queue_leaves_the_place_to_others() -> None:
    going = asyncio.Event()

    async def answer(_: ChatRequest) -> ChatReply:
        await going.wait()
        return ChatReply(text="Yes.")

    client = make_client(answer, max_concurrency=1)
    calls = [asyncio.create_task(say(client)) for _ in range(4)]
    await asyncio.sleep(0)
    calls[1].cancel()
    going.set()
    await asyncio.sleep(0)
    calls[2].cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(end, asyncio.CancelledError) for end in ended] == [False, True, True, False]


async def test_a_slow_reply_is_not_late_as_long_as_something_comes() -> None:
    class Slow:
        streams = True

        async def chat(self, request: ChatRequest, *, on_text: OnText | None = None) -> ChatReply:
            assert on_text is not None
            for _ in range(6):
                await asyncio.sleep(0.03)
                on_text("")
            return ChatReply(text="At last.")

    config = LLMConfig(model="m", timeout_s=0.12, retry_wait_s=0)
    assert (await say(LLMClient(config, Slow())))[0].text == "At last."
    hurried = LLMClient(config.model_copy(update={"total_timeout_s": 0.05}), Slow())
    with pytest.raises(LLMFailureException, match=r"within 0\.05 s; raise total_timeout_s"):
        await say(hurried)
