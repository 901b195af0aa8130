"""A run survives whatever stops it: what was paid for stays paid, and its end is the same."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import played
from journal_kit import run_program
from tape_kit import (
    HashBackend,
    asked,
    content,
    hash_client,
    identity,
    make_recorded,
    steady_config,
)
from worlds import PublicGoods

from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run import Question, load, replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify
from llmsim_lab.tape.recorder import LiveRecorder
from llmsim_lab.types import ChatRequest


def uninterrupted(turns: int, **config: Any) -> Simulation:
    """The same run, on the same model, without a tape and without trouble."""
    client = hash_client(HashBackend(faulty=True))
    return played(Simulation(steady_config(**config), llm_client=client), turns)


def assert_same(run: Any, reference: Any) -> None:
    if isinstance(run, Simulation):
        assert content(run) == content(reference)
    else:
        assert [turn.state for turn in run.turns] == [turn.state for turn in reference.turns]
    for name in ("to_frame", "decisions"):
        frames = [
            getattr(one, name)().drop(columns=["seconds", "run"], errors="ignore")
            for one in (run, reference)
        ]
        if "player" in frames[0]:  # in the order in which they decided
            frames = [frame.sort_values(["turn", "player"], ignore_index=True) for frame in frames]
        pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)


# --- kill -9 -----------------------------------------------------------------------------------


def lines_of(log: Path) -> list[tuple[int, str]]:
    lines = log.read_text().splitlines()
    return [(int(life), request) for life, request in (line.split() for line in lines)]


@pytest.mark.process
def test_a_run_killed_again_and_again_ends_as_one_never_interrupted_and_asks_nothing_twice(
    tmp_path: Path,
) -> None:
    import killed_runs

    run_program("import killed_runs; killed_runs.kill_all(killed_runs.Path(sys.argv[1]))", tmp_path)
    killed = {}
    for name, world in killed_runs.WORLDS.items():
        folder = tmp_path / name
        killed[name] = int((folder / "killed").read_text())
        run = world.cls.load(folder / "killed.tape")
        assert_same(run, world.uninterrupted())
        assert world.cls.replay(folder / "killed.tape", **world.again()).turns == run.turns
        assert_paid_once(folder)
    assert min(killed.values()) >= 2
    assert sum(killed.values()) > 12


def assert_paid_once(folder: Path) -> None:
    """Check that what was handed on is kept, and that only what was in flight is asked again."""
    paid, handed_on = lines_of(folder / "paid.log"), lines_of(folder / "handed_on.log")
    last_paid_in = {request: life for life, request in paid}
    assert all(last_paid_in[request] <= life for life, request in handed_on)
    # Two requests were in flight.
    lives: dict[int, list[str]] = {}
    for life, request in paid:
        lives.setdefault(life, []).append(request)
    for life, requests in lives.items():
        lost = [place for place, request in enumerate(requests) if last_paid_in[request] > life]
        assert all(place >= len(requests) - 2 for place in lost)
    with Tape(folder / "killed.tape", read_only=True) as tape:
        attempts = [call.attempt for call in tape.calls(1, forgotten=True)]
        assert verify(tape) == []
        assert (len(tape), tape.run().outcome) == (1, "done")
    kept = [identity(one.request) for one in attempts if one.request.model == "hash"]
    assert len(kept) == len(set(kept))
    assert set(kept) == last_paid_in.keys()


KILLED_BETWEEN_TWO_ATTEMPTS = """
import os, signal
from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from worlds import PublicGoods

def answer(request):
    if request.attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{request.site.agent} gives two."

config = LLMConfig(model="script", retry_wait_s=0)
PublicGoods(llm_client=LLMClient(config, ScriptedBackend(answer)), tape=sys.argv[1]).run(1)
"""


@pytest.mark.process
def test_a_process_killed_between_two_attempts_has_the_first_answer_on_its_tape(
    path: Path,
) -> None:
    run_program(KILLED_BETWEEN_TWO_ATTEMPTS, path, code_at_end=-signal.SIGKILL)
    answers = [call.attempt for call in Tape(path, read_only=True).calls(1)]
    assert "Ann gives two." in [attempt.reply.text for attempt in answers if attempt.reply]
    assert {attempt.reason for attempt in answers} == {"invalid_response"}
    backend = ScriptedBackend({"reasoning": "Why not.", "amount": 2, "confidence": 1})
    config = LLMConfig(model="script", retry_wait_s=0)
    run = PublicGoods.resume(path, llm_client=LLMClient(config, backend))
    run.run(1)
    second = [request for request in backend.requests if request.attempt == 2]
    assert len(second) == len(answers)
    assert "Ann gives two." in second[0].prompt
    assert PublicGoods.replay(path).turns == run.turns


def test_a_run_whose_process_was_killed_before_its_first_turn_was_written_is_not_there(
    path: Path,
) -> None:
    make_recorded(path, turns=0).close()
    path.write_bytes(path.read_bytes().partition(b'{"run":1,"is":"turn"')[0])
    with Tape(path) as tape:
        assert (len(tape), tape.runs()) == (0, [])
        with pytest.raises(TapeError, match="holds no run"):
            resume(tape, llm_client=hash_client())
    second = make_recorded(path, turns=1)
    assert [info.id for info in Tape(path).runs()] == [second.run_id] == [2]
    assert replay(path).turns == second.turns
    assert verify(path) == []


# --- stopped from inside -----------------------------------------------------------------------


async def answers_of_others() -> None:
    """Let the others have their answers first, however long a step of a busy loop takes."""
    for _ in range(500):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (
            ValueError("a bug"),
            "failed: turn 3, EconomicDecision (tag 'agent'): the rule of Syldavia",
        ),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_exception_in_an_agent_costs_no_answer_twice(
    path: Path, fault: BaseException, outcome: str
) -> None:
    faults = [fault]

    async def stumble(question: Question) -> Any:
        if question.turn == 3 and faults:
            await answers_of_others()
            raise faults.pop()
        return simulation.rule(question)

    client = hash_client(HashBackend(faulty=True))
    parts: Any = {"players": {"Syldavia": stumble}, "tape": path}
    simulation = Simulation(steady_config(), llm_client=client, **parts)
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        simulation.run(5)
    assert simulation.turn_number == 2
    paid_before = len(asked(simulation))
    assert simulation.tape is not None
    assert simulation.tape.run().outcome.startswith(outcome)
    simulation.run(3)
    assert paid_before < len(asked(simulation))
    assert_same(simulation, uninterrupted(5))
    assert Counter(map(identity, asked(simulation))).most_common(1)[0][1] == 1
    assert simulation.tape.run().outcome == "done"
    assert verify(simulation.tape) == []


def two_turns(path: Path) -> Simulation:
    client = hash_client(HashBackend(faulty=True))
    return played(Simulation(steady_config(), llm_client=client, tape=path), 2)


@pytest.mark.parametrize("is_written", [False, True])
def test_an_intervention_that_ctrl_c_met_is_neither_in_the_run_nor_on_its_tape(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    simulation = two_turns(path)
    whole = LiveRecorder.replace_turn

    def interrupted(*turn: Any) -> None:
        if is_written:
            whole(*turn)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveRecorder, "replace_turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulation.intervene(2, {"inflation": 1.0})
    simulation.run(1)
    assert_same(simulation, uninterrupted(3))
    assert load(path).turns == simulation.turns


# --- a full disk -------------------------------------------------------------------------------


def fills_up(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Let so many bytes more be written: the write that meets the end is short, others fail."""
    write, left = os.write, [room]

    def write_some(fd: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = write(fd, data[: left[0]])
        left[0] -= size
        return size

    monkeypatch.setattr(os, "write", write_some)


def test_a_full_disk_stops_the_run_with_a_way_out_and_costs_only_what_was_in_flight(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = two_turns(path)
    fills_up(monkeypatch, 3_000)
    with pytest.raises(TapeError, match=r"cannot write to the tape .*x\.tape.*make room"):
        simulation.run(3)
    assert path.read_bytes().endswith(b"\n")
    assert verify(path) == []
    assert load(path).turns == simulation.turns
    monkeypatch.undo()
    simulation.run(5 - simulation.turn_number)
    assert_same(simulation, uninterrupted(5))
    twice = [r for r, n in Counter(map(identity, asked(simulation))).items() if n > 1]
    assert len(twice) <= 3  # of three agents that asked at once
    assert verify(path) == []


# --- a failing model ---------------------------------------------------------------------------


class Failing(HashBackend):
    """A model that fails for some, as long as it is told to."""

    def __init__(self, component: str, agent: str, failure: BaseException | str) -> None:
        super().__init__()
        self.broken = True
        self._who = (component, agent)
        self._failure = failure

    async def chat(self, request: ChatRequest) -> Any:
        reply = await super().chat(request)
        site = request.site
        assert site is not None
        if self.broken and site.turn == 2 and (site.component, site.agent) == self._who:
            await answers_of_others()
            if isinstance(self._failure, str):
                return type(reply)(text=self._failure)
            raise self._failure
        return reply


@pytest.mark.parametrize(
    ("component", "failure", "elsewhere"),
    [("agent", ConnectionError("gone"), False), ("engine", "no JSON", True)],
)
def test_failed_calls_are_made_anew_and_answered_ones_are_not(
    path: Path, component: str, failure: BaseException | str, elsewhere: bool
) -> None:
    backend = Failing(component, "Aland", failure)
    client = hash_client(backend)
    # The engine is asked only about what was accepted, and this model's verdicts are arbitrary.
    config = steady_config(validator="none" if component == "engine" else "asked")
    simulation = Simulation(config, llm_client=client, tape=path)
    with pytest.raises(LLMFailureException):
        simulation.run(4)
    outcome = Tape(path, read_only=True).run().outcome
    assert outcome.startswith(f"failed: {component} of Aland in turn 2: ")  # type: ignore[union-attr]
    backend.broken = False
    if elsewhere:
        simulation.close()
        simulation = resume(path, llm_client=client)
    simulation.run(3)
    counts = Counter(map(identity, backend.requests))
    again = {
        (r.site.component, r.site.agent)
        for r in backend.requests
        if r.site is not None and counts[identity(r)] > 1
    }
    assert again == {(component, "Aland")}
    reference = played(Simulation(config, llm_client=hash_client()), 4)
    assert_same(simulation, reference)
    assert simulation.tape is not None
    forgotten = [c for c in simulation.tape.calls(1, forgotten=True) if c.forgotten]
    assert len(forgotten) == 2
    assert replay(path).turns == simulation.turns
