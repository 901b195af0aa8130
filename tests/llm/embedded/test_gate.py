"""One at a time, in order, across event loops, and giving up harms nobody."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from llmsim_lab.llm._embedded.server import Gate


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_at_a_time_and_in_order() -> None:
    gate, seen, inside = Gate(), [], 0

    async def work(number: int) -> None:
        nonlocal inside
        async with gate:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            seen.append(number)
            inside -= 1

    await asyncio.gather(*(work(number) for number in range(5)))
    assert seen == [0, 1, 2, 3, 4]


async def test_who_gives_up_waiting_loses_only_its_own_turn() -> None:
    gate, seen = Gate(), []

    async def work(number: int) -> None:
        async with gate:
            seen.append(number)

    async with gate:
        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await settle()
        tasks[1].cancel()
        await settle()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == [0, 2]


async def test_who_gives_up_just_when_its_turn_comes_passes_it_on() -> None:
    gate, seen = Gate(), []

    async def work(number: int) -> None:
        async with gate:
            seen.append(number)

    async with gate:
        tasks = [asyncio.create_task(work(number)) for number in range(2)]
        await settle()
    tasks[0].cancel()  # the turn is on its way to it
    await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == [1]


async def test_a_failure_inside_opens_the_gate() -> None:
    gate = Gate()
    with pytest.raises(ValueError, match="oh"):
        async with gate:
            raise ValueError("oh")
    async with asyncio.timeout(5), gate:
        pass


async def test_two_event_loops_take_turns() -> None:
    gate, seen = Gate(), []

    async def other() -> None:
        async with gate:
            seen.append("other")

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    async with gate:
        thread.start()
        while not gate._waiters:  # noqa: ASYNC110 - it is another thread
            await asyncio.sleep(0.01)
        seen.append("first")
    await asyncio.to_thread(thread.join)
    assert seen == ["first", "other"]


async def test_a_loop_that_was_closed_while_waiting_is_passed_over() -> None:
    gate = Gate()
    closed = asyncio.new_event_loop()
    turn = closed.create_future()
    closed.close()
    async with gate:
        gate._waiters.append((closed, turn))
    async with asyncio.timeout(5), gate:
        assert not turn.done()


def test_a_loop_that_closes_just_when_its_turn_comes_is_passed_over() -> None:
    class Closing(asyncio.SelectorEventLoop):
        """Looks open until it is called."""

        def call_soon_threadsafe(self, *_: object, **__: object) -> NoReturn:
            raise RuntimeError("Event loop is closed")

    gate, loop = Gate(), Closing()
    asyncio.run(gate.__aenter__())
    waiting = loop.create_task(gate.__aenter__())
    loop.run_until_complete(settle())
    asyncio.run(gate.__aexit__())
    asyncio.run(asyncio.wait_for(gate.__aenter__(), timeout=1))
    waiting.cancel()
    loop.run_until_complete(asyncio.wait([waiting]))
    loop.close()
