"""How many requests are sent at once: found on a server that is played by numbers alone."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby

import pytest
from builders import benchmark, make_client, requests_of, until
from client_kit import say

from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.llm._limits import Limits
from llmsim_lab.types import ChatReply, ChatRequest, OnText

server = benchmark("at_once")
play = server["play"]
faster_alone = server["better_alone"]


@pytest.mark.parametrize(("calls", "most"), [(8, 1.0), (24, 1.1), (400, 1.1)])
@pytest.mark.parametrize("slots", [1, 2, 4, 16])
def test_the_number_found_is_nearly_as_fast_as_the_best_fixed_one(
    slots: int, calls: int, most: float
) -> None:
    best = min(play(Limits(n), slots=slots, calls=calls, wanted=8) for n in (1, 2, 4, 8, 16, 32))
    found = Limits()
    assert play(found, slots=slots, calls=calls, wanted=8) <= most * best
    if calls == 400 and slots < 16:  # of which eight players never ask for more than eight
        assert found.at_once in (slots, 2 * slots), "that, or it tries twice as many"


def test_fewer_are_sent_to_a_server_that_is_faster_so() -> None:
    limit = Limits()
    play(limit, slots=4, wanted=8, speed=faster_alone)
    assert limit.at_once in (1, 2)


@pytest.mark.parametrize("tells", [True, False])
def test_answers_to_what_was_sent_while_the_model_was_loaded_do_not_count(tells: bool) -> None:
    limit = Limits()
    play(limit, slots=4, calls=16, wanted=8, load_s=100, tells=tells)
    assert limit.tokens_per_s == pytest.approx({8: 400})


def test_what_a_run_never_asks_at_once_is_not_tried() -> None:
    limit = Limits()
    play(limit, slots=64, wanted=3)
    assert set(limit.tokens_per_s) == {1, 3}


def test_a_server_that_says_too_many_is_sent_fewer() -> None:
    limit = Limits()
    play(limit, slots=8, refuses_above=4)
    assert limit.at_once <= 4


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_eight_requests_to_a_server_that_turns_most_down_are_all_answered(most: int) -> None:
    busy = 0

    async def answer(_: ChatRequest) -> ChatReply:
        nonlocal busy
        if busy == most:
            raise BackendError("Busy.", reason="server_error", status_code=503, retry=True)
        busy += 1
        await asyncio.sleep(0.01)
        busy -= 1
        return ChatReply(text="Yes.")

    client = make_client(answer)
    await asyncio.gather(*(say(client) for _ in range(8)))
    assert client.limits.at_once <= most


def test_a_server_that_has_become_slower_is_sent_fewer() -> None:
    limit = Limits()
    play(limit, slots=16)
    assert limit.at_once >= 16
    play(limit, slots=1)
    assert limit.at_once <= 2


@pytest.mark.parametrize("limit", ["timeout_s", "total_timeout_s"])
async def test_the_queue_of_a_server_is_not_charged_to_the_model(limit: str) -> None:
    """Each answer takes half of the limit, and the fourth comes after two of them."""
    one_at_a_time = asyncio.Lock()

    async def answer(_: ChatRequest) -> ChatReply:
        async with one_at_a_time:
            await asyncio.sleep(0.1)
        return ChatReply(text="Yes.")

    client = make_client(answer, max_concurrency=4, **{limit: 0.2})
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


# The order of requests


CHOICE = ChatReply(text="A", top_logprobs=(("A", -0.1), ("B", -3.0)))


async def test_what_comes_later_waits_for_one_round_and_no_longer() -> None:
    client = make_client(CHOICE, delay_s=0.01, max_concurrency=1)

    async def again_and_again(name: str) -> None:
        for number in range(8):
            await client.choose(f"{name} {number}", ["yes", "no"])

    others = asyncio.gather(again_and_again("b"), again_and_again("a"))
    await until(lambda: bool(requests_of(client)))
    await asyncio.gather(others, client.choose("z", ["yes", "no"]))
    order = [key for key, _ in groupby(request.prompt[0] for request in requests_of(client))]
    assert order[:3] == ["a", "b", "a"]
    assert "z" in order[:5]


@pytest.mark.parametrize("steps", range(8))
async def test_a_request_that_is_cancelled_leaves_its_place_to_others(steps: int) -> None:
    client = make_client(CHOICE, delay_s=0.001, max_concurrency=1)
    asking = [asyncio.create_task(client.choose(text, [1, 2])) for text in ("a", "b", "c")]
    await asking[0]
    for _ in range(steps):
        await asyncio.sleep(0)
    asking[1].cancel()
    async with asyncio.timeout(30):
        assert (await asking[2]).mode == (await client.choose("d", [1, 2])).mode == 1


async def test_after_many_that_came_together_those_that_come_alone_are_sent_at_once() -> None:
    async def answer(_: ChatRequest) -> ChatReply:
        return ChatReply(text="Yes.")

    async def steps_alone() -> int:
        """Return how many steps of the loop passes a request beside which nothing is asked."""
        loop = asyncio.get_running_loop()
        steps = 0

        def count_step() -> None:
            nonlocal steps
            steps += 1
            handles[0] = loop.call_soon(count_step)

        handles = [loop.call_soon(count_step)]
        await say(client)
        handles[0].cancel()
        return steps

    client = make_client(answer)
    await asyncio.gather(*(say(client) for _ in range(20)))
    await say(client)  # one may wait yet: the task that gathers was counted among the others
    assert [await steps_alone() for _ in range(3)] == [0, 0, 0]
