"""A run that is being played: whatever else wants to play or change it leaves it as it is."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest
from builders import make_client
from worlds import PublicGoods

from llmsim_lab import Budget, LLMClient, LLMConfig, ScriptedBackend, Tape, replay, resume
from llmsim_lab.assistant import Chat
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.lab import Lab
from llmsim_lab.run import Run
from llmsim_lab.types import ChatReply, ChatRequest

REPLY = {"reasoning": "r", "amount": 1, "confidence": 1}


async def in_a_thread(run: Run[Any]) -> None:
    await asyncio.to_thread(run.run, 1, progress=False)


async def resumed(run: Run[Any]) -> None:
    assert run.tape is not None
    resume(run.tape.path, llm_client=make_client(REPLY))


async def with_other_prompts(run: Run[Any]) -> None:
    run.prompts = {}


async def pruned(run: Run[Any]) -> None:
    assert run.tape is not None
    run.tape.prune([1])


WAYS: dict[str, tuple[Callable[[Any], Awaitable[object]], str]] = {
    "arun": (lambda run: run.arun(1), "is being played already"),
    "arun with a budget": (lambda run: run.arun(1, budget=Budget(calls=99)), "being played"),
    "step": (lambda run: run.step(), "is being played already"),
    "run in a thread": (in_a_thread, "is being played already"),
    "a window": (lambda run: Lab(run).play(2), "is being played already"),
    "resume": (resumed, "is recorded by another simulation of this process"),
    "prompts": (with_other_prompts, "prompts is set while a turn of PublicGoods is played; wait"),
    "prune": (pruned, "is recorded on .* now; stop it"),
}


class Gated(ScriptedBackend):
    """Answers the second turn only when it may."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.is_asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def chat(self, request: ChatRequest) -> ChatReply:
        if request.site is not None and request.site.turn == 2:
            self.is_asked.set()
            await self.goes_on.wait()
        return await super().chat(request)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", ["arun", "window"])
async def test_what_wants_to_play_a_run_that_is_played_fails_and_is_not_noticed(
    way: str, first: str, path: Path
) -> None:
    other, message = WAYS[way]
    backend = Gated(REPLY)
    client = LLMClient(LLMConfig(retry_wait_s=0), backend)
    run = PublicGoods(llm_client=client, tape=path)
    playing = run.arun(8, budget=Budget(calls=9)) if first == "arun" else Lab(run).play(2)
    task = asyncio.ensure_future(playing)
    await backend.is_asked.wait()
    with pytest.raises(LabError, match=message):
        await other(run)
    backend.goes_on.set()
    await task
    assert run.turn_number == 2
    outcome = "stopped: the budget of 9 calls is spent" if first == "arun" else "None"
    assert str(Tape(path).run(1).outcome).startswith(outcome)
    assert replay(path).turns == run.turns
    await run.step()  # and is free again


async def test_a_listener_between_two_turns_cannot_play_either() -> None:
    run, faults = PublicGoods(llm_client=make_client(REPLY)), list[str]()

    async def second() -> None:
        try:
            await run.arun(5)
        except LabError as error:
            faults.append(str(error))

    tasks: list[asyncio.Task[None]] = []
    run.listen(lambda _: tasks.append(asyncio.create_task(second())))
    await run.arun(3)
    await asyncio.gather(*tasks)
    assert (run.turn_number, len(faults)) == (3, 3)


async def test_a_message_that_is_refused_is_not_in_the_inbox() -> None:
    client = make_client(lambda _: ChatReply(text="hello"), delay_s=0.01)
    chat = Chat(user_id="ann", constitution="Be brief.", llm_client=client)
    first = asyncio.create_task(chat.send("one"))
    await asyncio.sleep(0)
    with pytest.raises(LabError, match="another message is under way"):
        await chat.send("two")
    await first
    assert [exchange.message for exchange in chat.exchanges] == ["one"]


class Slow(PublicGoods):
    """Changes its state, and ends a step, only when another thread had time to interfere."""

    def changed(self, state: Any, values: Any) -> Any:
        self._begun.set()
        self._other.wait(0.1)
        return super().changed(state, values)

    def ready(self) -> None:
        self._begun, self._other = threading.Event(), threading.Event()


def test_a_turn_that_another_thread_begins_waits_for_an_intervention(path: Path) -> None:
    run = Slow(players="random", tape=path)

    def play() -> None:
        run._begun.wait()
        asyncio.run(run.step())
        run._other.set()

    thread = threading.Thread(target=play)
    thread.start()
    run.intervene(0, {"coins.Ann": 50})
    thread.join()
    assert replay(path).turns == run.turns


class Ended:
    """A driver that has ended; who asks waits, so that two threads could hear the same."""

    def __init__(self) -> None:
        self._two_ask = threading.Barrier(2)

    @property
    def has_ended(self) -> bool:
        with suppress(threading.BrokenBarrierError):
            self._two_ask.wait(0.1)
        return True

    def end(self) -> None:
        pass


def test_of_two_threads_that_replace_an_ended_driver_one_plays() -> None:
    is_refused = threading.Event()

    async def answer(_: ChatRequest) -> dict[str, Any]:
        await asyncio.to_thread(is_refused.wait, 10)
        return REPLY

    run = PublicGoods(llm_client=make_client(answer))
    vars(run)["_driver"] = Ended()  # as a Ctrl-C at the end of a step leaves it

    def play() -> None:
        try:
            asyncio.run(run.step())
        except LabError:
            is_refused.set()

    threads = [threading.Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (run.turn_number, is_refused.is_set()) == (1, True)


@pytest.mark.parametrize("on_tape", [True, False])
def test_a_step_whose_loop_was_closed_around_it_gives_the_run_back(
    on_tape: bool, path: Path, capfd: Any
) -> None:
    backend = Gated(REPLY)
    client = LLMClient(LLMConfig(retry_wait_s=0), backend)
    run = PublicGoods(llm_client=client, tape=path if on_tape else None)
    loop = asyncio.new_event_loop()
    task = loop.create_task(run.arun(2, progress=False))
    loop.run_until_complete(backend.is_asked.wait())
    loop.close()
    backend.is_asked = asyncio.Event()
    backend.goes_on = asyncio.Event()
    backend.goes_on.set()
    run.run(1, progress=False)
    assert run.turn_number == 2
    if on_tape:
        run.close()
        assert replay(path).turns == run.turns
    del task


@pytest.mark.parametrize("copied", [copy, deepcopy, pickle.dumps], ids=["copy", "deep", "pickle"])
def test_a_run_on_a_tape_cannot_be_copied_and_says_what_to_do(copied: Any, path: Path) -> None:
    run = PublicGoods(players="random", tape=path)
    with pytest.raises(ConfigError, match=r"cannot be (pickled or )?copied.*fork"):
        copied(run)
    with pytest.raises(TapeError, match="cannot be pickled or copied; open it where it is needed"):
        copied(run.tape)
    with pytest.raises(ConfigError, match=r"run\.fork\(\) returns"):
        copy(PublicGoods(players="random"))
    assert deepcopy(PublicGoods(players="random")).turn_number == 0


class Interrupted(PublicGoods):
    """Meets a Ctrl-C where a step has ended, once."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_stepping" and value is False and self._strike:
            vars(self)["_strike"] = False
            raise KeyboardInterrupt
        super().__setattr__(name, value)

    _strike = False


async def test_a_run_whose_step_a_ctrl_c_met_in_its_last_line_is_played_on() -> None:
    run = Interrupted(players="random")
    run._strike = True
    with pytest.raises(KeyboardInterrupt):
        await run.step()
    await run.arun(1, progress=False)
    assert [turn.number for turn in run.turns] == [0, 1, 2]
