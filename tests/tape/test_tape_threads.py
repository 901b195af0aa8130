"""Several at once: agents in threads, runs on one tape, readers, and another process."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import played
from journal_kit import ask, begun
from tape_kit import HashBackend, content, hash_client, make_recorded, repeated, steady_config

from llmsim_lab.agents import NationAgent
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.run import load, replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import _journal, verify
from llmsim_lab.types import ChatReply

NATIONS = [f"Nation {number}" for number in range(8)]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Threaded(NationAgent):
    """An agent that decides in a thread of its own."""

    async def decide_action(self, state: SimulationState) -> Action:
        decide = super().decide_action
        return await asyncio.to_thread(lambda: asyncio.run(decide(state)))


def threaded(client: LLMClient) -> dict[str, Any]:
    return {name: Threaded(name, client) for name in NATIONS}


@pytest.mark.usefixtures("hasty")
def test_agents_that_answer_from_threads_are_recorded_and_replay(path: Path) -> None:
    config = steady_config(nations=NATIONS, players={})
    client = hash_client(HashBackend(delay_s=0.01, faulty=True))
    run = played(Simulation(config, players=threaded(client), llm_client=client, tape=path), 3)
    alone = played(Simulation(config, llm_client=hash_client(HashBackend(faulty=True))), 3)
    assert [turn.state for turn in run.turns] == [turn.state for turn in alone.turns]
    assert verify(path) == []
    assert repeated(Tape(path, read_only=True), 1) == []
    nobody = hash_client(HashBackend(before_answer=lambda _: pytest.fail("a call was made")))
    assert replay(path, players=threaded(nobody)).turns == run.turns


@pytest.mark.usefixtures("hasty")
def test_equal_questions_from_threads_are_each_a_sample_of_its_own(path: Path) -> None:
    recorder = begun(Tape(path))

    def answer(number: int) -> None:
        ask(recorder, "How much?", reply=ChatReply(text=str(number)))

    with recorder.writing(), ThreadPoolExecutor(8) as pool:
        list(pool.map(answer, range(200)))
    calls = recorder.tape.calls(1)
    assert sorted(call.nth for call in calls) == [*range(200)]
    assert len({call.attempt.reply and call.attempt.reply.text for call in calls}) == 200


@pytest.mark.usefixtures("hasty")
def test_runs_of_one_process_share_a_tape_while_others_read_it(path: Path) -> None:
    make_recorded(path, turns=1).close()
    done, read = threading.Event(), []

    def play(seed: int) -> Simulation:
        client = hash_client(HashBackend(delay_s=0.002, faulty=True))
        return played(Simulation(steady_config(seed=seed), llm_client=client, tape=path), 3)

    def look() -> None:
        while not done.is_set():
            with Tape(path, read_only=True) as tape:
                found = [tape.calls(info.id, forgotten=True) for info in tape.runs()]
                tape.turns_frame(1)
                read.append(sum(map(len, found)))

    with ThreadPoolExecutor(6) as pool:
        looking = pool.submit(look)
        try:
            runs = list(pool.map(play, range(3)))
        finally:
            done.set()
        looking.result()
    assert read == sorted(read)
    assert verify(path) == []
    for seed, run in enumerate(runs):
        alone = Simulation(
            steady_config(seed=seed), llm_client=hash_client(HashBackend(faulty=True))
        )
        alone.run(3)
        assert content(run) == content(alone)
        assert replay(path, run.run_id).turns == run.turns


def test_a_run_that_another_process_continued_meanwhile_is_refused_with_words(path: Path) -> None:
    first = make_recorded(path, turns=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_journal, "_open", {})  # it opens the file anew, as another process does
        resume(path, llm_client=hash_client()).run(1)
    for goes_on in (first.run, lambda: first.intervene(1, {"inflation": 1.0})):
        with pytest.raises(TapeError, match=r"continued elsewhere meanwhile; resume\('.*', 1\) c"):
            goes_on()
    first.close()
    second = played(resume(path, llm_client=hash_client()), 1)
    assert (second.turn_number, load(path).turns) == (3, second.turns)
    assert verify(path) == []
