"""A run survives whatever stops it: what was paid for stays paid, and its end is the same."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tape_kit import (
    HashBackend,
    asked,
    content,
    hash_client,
    identity,
    repeated,
    steady_config,
)

from llmsim_lab.agents import Agent
from llmsim_lab.errors import LLMFailureException, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.run import load, replay, resume
from llmsim_lab.run._session import Recording
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.tape._verify import verify
from llmsim_lab.types import ChatRequest

HERE = Path(__file__).parent
TESTS = HERE.parent
MOST_TOGETHER = 4
"""Answers that two requests at a time can bring within one window of the group commit."""


def uninterrupted(turns: int, **config: Any) -> Simulation:
    """The same run, on the same model, without a tape and without trouble."""
    client = hash_client(HashBackend(faulty=True))
    simulation = Simulation(steady_config(**config), llm_client=client)
    simulation.run(turns)
    return simulation


def assert_same(run: Simulation, reference: Simulation) -> None:
    assert content(run) == content(reference)
    for frame in ("to_frame", "decisions"):
        pd.testing.assert_frame_equal(
            getattr(run, frame)().drop(columns=["seconds", "run"], errors="ignore"),
            getattr(reference, frame)().drop(columns=["seconds", "run"], errors="ignore"),
            check_exact=True,
        )


READS_AT_THE_END = """
import sys, threading, time
from llmsim_lab.llm import Tape

tape, reading = Tape(sys.argv[1]), threading.Event()
count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000)"

def read():
    while True:
        reading.set()
        tape.file.query(f"{count} SELECT count(*) FROM n")

threading.Thread(target=read, daemon=True).start()
reading.wait()
time.sleep(0.05)
"""


@pytest.mark.process
def test_the_interpreter_ends_well_while_a_thread_reads(tmp_path: Path) -> None:
    reader = [sys.executable, "-c", READS_AT_THE_END, str(tmp_path / "a.tape")]
    assert subprocess.run(reader, timeout=60).returncode == 0


# --- kill -9 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tape of a run that was killed two dozen times, and the log of its model."""
    folder = tmp_path_factory.mktemp("killed")
    subprocess.run(
        [sys.executable, "-W", "error", HERE / "killed_runs.py", folder, str(request.param), "24"],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, HERE)))},
    )
    return folder


def lines_of(log: Path) -> list[tuple[int, str]]:
    lines = log.read_text().splitlines()
    return [(int(life), request) for life, request in (line.split() for line in lines)]


def paid(folder: Path) -> list[tuple[int, str]]:
    """Every answer the model gave: in which life, to what."""
    return lines_of(folder / "paid.log")


@pytest.mark.process
def test_a_run_killed_again_and_again_ends_as_one_never_interrupted(killed: Path) -> None:
    import killed_runs

    lives = {life for life, _ in paid(killed)}
    assert json.loads((killed / "lives.json").read_text())["killed"] >= len(lives) - 1 >= 5
    assert_same(
        load(killed / "killed.tape"),
        uninterrupted(killed_runs.TURNS, nations=killed_runs.NATIONS),
    )


@pytest.mark.process
def test_no_answer_that_was_handed_on_is_paid_for_again(killed: Path) -> None:
    last_paid_in = {request: life for life, request in paid(killed)}
    handed_on = lines_of(killed / "handed_on.log")
    assert len(handed_on) > 40
    assert all(last_paid_in[request] <= life for life, request in handed_on)


@pytest.mark.process
def test_only_answers_that_a_kill_caught_before_their_commit_are_paid_for_again(
    killed: Path,
) -> None:
    lives: dict[int, list[str]] = {}
    for life, request in paid(killed):
        lives.setdefault(life, []).append(request)
    last_paid_in = {request: life for life, request in paid(killed)}
    for life, requests in lives.items():
        lost = [place for place, request in enumerate(requests) if last_paid_in[request] > life]
        assert all(place >= len(requests) - MOST_TOGETHER for place in lost)


@pytest.mark.process
def test_every_answer_paid_for_is_on_the_tape_once(killed: Path) -> None:
    with Tape(killed / "killed.tape", read_only=True) as tape:
        kept = [identity(call.attempt.request) for call in tape.calls(1, forgotten=True)]
    assert len(kept) == len(set(kept))
    assert set(kept) == {request for _, request in paid(killed)}


@pytest.mark.process
def test_nothing_on_the_tape_of_a_killed_run_is_half_written(killed: Path) -> None:
    with Tape(killed / "killed.tape", read_only=True) as tape:
        assert verify(tape) == []
        assert len(tape) == 1
        assert tape.run().outcome == "done"
    assert [path.name for path in killed.glob("killed.tape*")] == ["killed.tape"]


@pytest.mark.process
def test_a_killed_run_replays(killed: Path) -> None:
    replayed = replay(killed / "killed.tape")
    assert replayed.turns == load(killed / "killed.tape").turns


# --- killed at each boundary of a commit --------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    ("boundary", "caught"),
    [
        ("before BEGIN", "an answer"),
        ("before COMMIT", "an answer"),
        ("after COMMIT", "a kept answer"),
        ("before INSERT", "an answer"),
        ("after INSERT", "a kept answer"),
        ("before COMMIT of the turn", "a turn"),
        ("after COMMIT of the turn", "a kept turn"),
    ],
)
def test_a_run_killed_at_a_boundary_of_a_commit_has_what_it_handed_on(
    tmp_path: Path, boundary: str, caught: str
) -> None:
    import killed_at_commit

    path, log = tmp_path / "x.tape", tmp_path / "log"
    script = [sys.executable, "-W", "error", HERE / "killed_at_commit.py", path, log, boundary]
    done = subprocess.run(
        script,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, HERE)))},
    )
    assert done.returncode == killed_at_commit.KILLED
    paid = Path(f"{log}.paid").read_text().split()
    handed_on = Path(f"{log}.handed_on").read_text().split()
    with Tape(path, read_only=True) as tape:
        assert verify(tape) == []
        kept = [identity(call.attempt.request) for call in tape.calls(1, forgotten=True)]
        whole = tape.run(1).turns
    assert len(kept) == len(set(kept))
    assert set(handed_on) <= set(kept) <= set(paid)
    turn = killed_at_commit.armed_turn(boundary)
    assert whole == (turn if caught == "a kept turn" else turn - 1)
    assert bool(set(paid) - set(kept)) == (caught == "an answer")
    assert bool(set(kept) - set(handed_on)) == (caught == "a kept answer")

    backend = HashBackend(faulty=True)
    resumed = resume(path, llm_client=hash_client(backend))
    resumed.run(killed_at_commit.TURNS - resumed.turn_number)
    again = {identity(request) for request in backend.requests} & set(paid)
    assert again == set(paid) - set(kept)
    assert_same(resumed, uninterrupted(killed_at_commit.TURNS))
    assert resumed.tape is not None
    assert verify(resumed.tape) == []


# --- stopped from inside -----------------------------------------------------------------------


class Stumbling(Agent):
    """An agent that waits for the others and then raises, once per exception given."""

    def __init__(self, inner: Agent, faults: list[BaseException], *, turn: int) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self.faults = faults
        self.turn = turn

    async def decide_action(self, state: SimulationState) -> Action:
        if state.turn + 1 == self.turn and self.faults:
            await asyncio.sleep(0.03)
            raise self.faults.pop(0)
        return await self.inner.decide_action(state)


def stumbling_run(path: Path, *faults: BaseException, turn: int = 3) -> Simulation:
    """A recorded run one of whose agents raises in a turn, after the others have their answers."""
    client = hash_client(HashBackend(faulty=True))
    config = steady_config()
    agents = list(Simulation(config, llm_client=client).agents)
    agents[-1] = Stumbling(agents[-1], list(faults), turn=turn)
    return Simulation(config, llm_client=client, agents=agents, tape=path)


@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_in_an_agent_costs_no_answer_twice(
    tmp_path: Path, fault: BaseException
) -> None:
    simulation = stumbling_run(tmp_path / "x.tape", fault)
    with pytest.raises(type(fault)):
        simulation.run(5)
    assert simulation.turn_number == 2
    paid_before = len(asked(simulation))
    assert simulation.tape is not None
    outcome = simulation.tape.run().outcome
    assert outcome == ("failed: a bug" if isinstance(fault, ValueError) else "interrupted")
    simulation.run(3)
    assert paid_before < len(asked(simulation))
    assert_same(simulation, uninterrupted(5))
    assert repeated(simulation.tape, 1) == []
    assert Counter(map(identity, asked(simulation))).most_common(1)[0][1] == 1
    assert simulation.tape.run().outcome == "done"
    assert verify(simulation.tape) == []


@pytest.mark.parametrize("after", ["commit_turn", "done"])
def test_a_turn_interrupted_when_it_was_written_is_found_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    client = hash_client(HashBackend(faulty=True))
    simulation = Simulation(steady_config(), llm_client=client, tape=tmp_path / "x.tape")
    simulation.run(2)
    whose = LiveRecorder if after == "commit_turn" else Recording
    whole = getattr(whose, after)

    def interrupted(*turn: Any) -> None:
        whole(*turn)
        raise KeyboardInterrupt

    monkeypatch.setattr(whose, after, interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulation.run(3)
    monkeypatch.undo()
    assert simulation.turn_number == 2
    for goes_on in (simulation.run, lambda: simulation.intervene(2, {"inflation": 1.0})):
        with pytest.raises(TapeError, match=r"turn 3 of run 1 is on .* already.*nothing is lost"):
            goes_on()
    simulation.close()
    second = resume(tmp_path / "x.tape", llm_client=client)
    assert second.turn_number == 3
    second.run(2)
    assert_same(second, uninterrupted(5))
    assert Counter(map(identity, asked(simulation))).most_common(1)[0][1] == 1
    assert second.tape is not None
    assert verify(second.tape) == []


@pytest.mark.parametrize("is_written", [False, True])
def test_an_intervention_that_ctrl_c_met_is_neither_in_the_run_nor_on_its_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    client = hash_client(HashBackend(faulty=True))
    simulation = Simulation(steady_config(), llm_client=client, tape=tmp_path / "x.tape")
    simulation.run(2)
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
    assert load(tmp_path / "x.tape").turns == simulation.turns


def test_a_run_stopped_by_an_exception_is_resumed_by_another_simulation(tmp_path: Path) -> None:
    first = stumbling_run(tmp_path / "x.tape", ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        first.run(5)
    first.close()
    agents = list(first.agents)
    second = resume(tmp_path / "x.tape", llm_client=first.llm_client, agents=agents)
    assert second.turns == first.turns
    second.run(3)
    assert_same(second, uninterrupted(5))
    assert Counter(map(identity, asked(first))).most_common(1)[0][1] == 1


def test_an_interrupted_turn_loses_only_the_calls_in_flight(tmp_path: Path) -> None:
    client = hash_client(HashBackend(delay_s=0.05), max_concurrency=2)
    config = steady_config(nations=[f"Nation {n}" for n in range(8)])
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")

    async def interrupted() -> None:
        work = asyncio.ensure_future(simulation.arun(2))
        while len(asked(simulation)) < 12:  # noqa: ASYNC110 - nobody tells; four of eight actions judged
            await asyncio.sleep(0.001)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(interrupted())
    before = len(asked(simulation))
    asyncio.run(simulation.arun(1))
    again = [r for r, n in Counter(map(identity, asked(simulation))).items() if n > 1]
    assert len(again) <= 2
    assert len(asked(simulation)) == 8 + 8 + sum(
        action.validated for action in simulation.turns[1].actions
    ) + len(again)
    assert before < len(asked(simulation))


# --- a full disk -------------------------------------------------------------------------------


def limit_pages(tape: Tape, *, more: int | None) -> None:
    """Let the tape's file grow by so many pages only; None lifts the limit."""
    pages = tape.file.query("PRAGMA page_count")[0][0]
    limit = 1 << 30 if more is None else pages + more
    assert tape.file.query(f"PRAGMA max_page_count = {limit}")[0][0] >= pages


@pytest.mark.parametrize("more", [0, 1, 2, 5])
def test_a_full_disk_stops_the_run_with_a_way_out_and_costs_no_more_than_one_answer_a_time(
    tmp_path: Path, more: int
) -> None:
    simulation = Simulation(
        steady_config(), llm_client=hash_client(HashBackend(faulty=True)), tape=tmp_path / "x.tape"
    )
    simulation.run(2)
    tape = simulation.tape
    assert tape is not None
    limit_pages(tape, more=more)
    with pytest.raises(TapeError, match=r"disk is full.*free some space") as caught:
        simulation.run(3)
    assert str(tmp_path / "x.tape") in str(caught.value)
    turns_then = simulation.turns[:]
    assert verify(tape) == []
    assert load(tape).turns == turns_then
    limit_pages(tape, more=None)
    simulation.run(5 - simulation.turn_number)
    assert_same(simulation, uninterrupted(5))
    twice = [r for r, n in Counter(map(identity, asked(simulation))).items() if n > 1]
    assert len(twice) <= 4  # those answered while the disk was full, and those in flight then
    assert verify(tape) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("only root can mount a small disk; the page limit above covers the rest")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here ({done.stderr.strip()})")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_really_full_disk_stops_the_run_and_the_run_goes_on_once_there_is_space(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((4 * 1024 - 256) * 1024))
    client = hash_client(HashBackend(faulty=True))
    simulation = Simulation(steady_config(), llm_client=client, tape=small_disk / "x.tape")
    with pytest.raises(TapeError, match="free some space"):
        simulation.run(5)
    turn = simulation.turn_number
    assert turn < 5
    assert simulation.tape is not None
    ballast.unlink()
    assert verify(simulation.tape) == []
    simulation.run(5 - turn)
    assert_same(simulation, uninterrupted(5))
    simulation.close()
    simulation.tape.close()


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
            await asyncio.sleep(0.02)  # the others have their answers first
            if isinstance(self._failure, str):
                return type(reply)(text=self._failure)
            raise self._failure
        return reply


FAILURES: list[BaseException | str] = [TimeoutError(), ConnectionError("gone"), "no JSON"]


@pytest.mark.parametrize("component", ["agent", "validator", "engine"])
@pytest.mark.parametrize("failure", FAILURES, ids=["timeout", "refused", "nonsense"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same", "resumed"])
def test_failed_calls_are_made_anew_and_answered_ones_are_not(
    tmp_path: Path, component: str, failure: BaseException | str, elsewhere: bool
) -> None:
    backend = Failing(component, "Aland", failure)
    client = hash_client(backend)
    # The engine is asked only about what was accepted, and this model's verdicts are arbitrary.
    checked = "always_valid" if component == "engine" else "llm"
    config = steady_config(validator={"kind": checked})
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")
    with pytest.raises(LLMFailureException):
        simulation.run(4)
    backend.broken = False
    if elsewhere:
        simulation.close()
        simulation = resume(tmp_path / "x.tape", llm_client=client)
    simulation.run(3)
    counts = Counter(map(identity, backend.requests))
    again = {
        (r.site.component, r.site.agent)
        for r in backend.requests
        if r.site is not None and counts[identity(r)] > 1
    }
    assert again == {(component, "Aland")}
    reference = Simulation(config, llm_client=hash_client())
    reference.run(4)
    assert_same(simulation, reference)
    assert simulation.tape is not None
    forgotten = [c for c in simulation.tape.calls(1, forgotten=True) if c.forgotten]
    assert len(forgotten) == 2
    assert replay(tmp_path / "x.tape").turns == simulation.turns


def test_a_refused_decision_was_answered_and_is_not_asked_for_again(tmp_path: Path) -> None:
    """An agent whose two answers were off the subject has acted; another's failure is not its."""

    class OffSubject(Failing):
        async def chat(self, request: ChatRequest) -> Any:
            reply = await super().chat(request)
            site = request.site
            if site is not None and (site.component, site.agent) == ("agent", "Borduria"):
                off = {"action": "Sing a song", "reasoning": "It is fun.", "confidence": 1}
                return type(reply)(text=json.dumps(off))
            return reply

    backend = OffSubject("engine", "Aland", "no JSON")
    simulation = Simulation(
        steady_config(validator={"kind": "always_valid"}),
        llm_client=hash_client(backend),
        tape=tmp_path / "x.tape",
    )
    with pytest.raises(LLMFailureException):
        simulation.run(2)
    backend.broken = False
    simulation.run(1)
    counts = Counter(map(identity, backend.requests))
    twice = {r.site.component for r in backend.requests if r.site and counts[identity(r)] > 1}
    assert twice == {"engine"}
    statuses = [action.status for action in simulation.turns[2].actions]
    assert statuses == ["ok", "failed", "ok"]


def test_a_failure_that_an_agent_wrapped_in_its_own_exception_is_made_anew_too(
    tmp_path: Path,
) -> None:
    class Wrapping(Agent):
        def __init__(self, inner: Agent) -> None:
            super().__init__(inner.name)
            self.inner = inner

        async def decide_action(self, state: SimulationState) -> Action:
            try:
                return await self.inner.decide_action(state)
            except LLMFailureException as failure:
                raise RuntimeError("my agent is lost") from failure

    backend = Failing("agent", "Aland", "no JSON")
    client = hash_client(backend)
    config = steady_config()
    agents = [Wrapping(agent) for agent in Simulation(config, llm_client=client).agents]
    simulation = Simulation(config, llm_client=client, agents=agents, tape=tmp_path / "x.tape")
    with pytest.raises(RuntimeError, match="my agent is lost"):
        simulation.run(2)
    backend.broken = False
    simulation.run(1)
    assert simulation.turn_number == 2


def test_a_run_whose_model_is_gone_goes_on_as_far_as_it_was_answered(tmp_path: Path) -> None:
    """With everything answered but the turn not written, finishing it takes no call."""
    client = hash_client()
    config = steady_config(turns=2)

    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")
    original = simulation.engine._finish_turn  # type: ignore[attr-defined]

    def explode(state: SimulationState) -> SimulationState:
        raise ZeroDivisionError("at the very end")

    simulation.engine._finish_turn = explode  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        simulation.run(1)
    paid_for = len(asked(simulation))
    simulation.engine._finish_turn = original  # type: ignore[attr-defined]
    simulation.run(1)
    assert len(asked(simulation)) == paid_for
