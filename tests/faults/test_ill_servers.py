"""A model's server that is killed, frozen, restarted, slow to load, or loses its model in a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_ollama import FakeOllama, Fault, Throttle
from faults_kit import Attack, Case, Plan
from worlds import PublicGoods

from llmsim_lab.errors import LabError
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend
from llmsim_lab.tape import verify

pytestmark = pytest.mark.process

TURNS = 3
MODEL = "llama3.2"


def faulty(*faults: Fault) -> Callable[[FakeOllama], object]:
    return lambda server: server.fail_next(*faults)


ILLS: dict[str, Callable[[FakeOllama], object]] = {
    "killed, and back": lambda server: server.kill(away_s=0.3),
    "killed": lambda server: server.kill(),
    "frozen": lambda server: server.freeze(1.5),
    "its model is deleted": lambda server: server.delete(MODEL),
    "its runner dies": faulty(Fault.status(500)),
    "its queue is full": faulty(Fault.status(503), Fault.status(503)),
    "a stream is cut": faulty(Fault("cut_stream")),
    "a stream ends": faulty(Fault("end_stream")),
    "a connection is cut": faulty(Fault("cut_connection")),
    "it hangs": faulty(Fault("hang")),
}
STOPPING = ("killed", "its model is deleted")
"""After these a run waits for somebody to repair the server; else it goes on by itself."""


class Ill:
    """Makes a server ill at one of its requests, once.

    Args:
        ill: what is done to it.
        at: before which request.
    """

    def __init__(self, ill: Callable[[FakeOllama], object], at: int) -> None:
        self._ill = ill
        self._left = at
        self.server: FakeOllama | None = None
        self.struck: threading.Thread | None = None

    def __call__(self, body: dict[str, object]) -> dict[str, object]:
        self._left -= 1
        if self._left == 0:
            # Elsewhere: to kill a server its own loop is waited for.
            self.struck = threading.Thread(target=self._ill, args=(self.server,))
            self.struck.start()
        return reply(body)


def reply(body: dict[str, object]) -> dict[str, object]:
    return {"reasoning": "r", "amount": len(str(body["messages"])) % 5, "confidence": 1}


def client_of(server: FakeOllama, timeout_s: float = 6.0, **settings: float) -> LLMClient:
    # On a busy machine a sound server is silent for seconds too.
    config = LLMConfig(model=MODEL, retry_wait_s=0.01, timeout_s=timeout_s, **settings)
    return LLMClient(config, OllamaBackend(MODEL, host=server.host))


def straight(folder: Path) -> PublicGoods:
    with FakeOllama(reply=reply) as server:
        run = PublicGoods(llm_client=client_of(server), tape=folder / "whole.tape")
        run.run(TURNS, progress=False)
    run.close()
    return run


def play_with(kind: str, at: int, folder: Path) -> None:
    """Play while the server falls ill; where the run stops, repair the server and go on."""
    whole = straight(folder)
    path = folder / "x.tape"
    ill = Ill(ILLS[kind], at)
    is_stopped = False
    said = ""
    with FakeOllama(reply=ill, delay_s=0.02) as server:
        ill.server = server
        patience_s = 1.0 if kind in STOPPING else 30.0
        client = client_of(server, first_piece_s=6, wait_for_server_s=patience_s)
        run = PublicGoods(llm_client=client, tape=path)
        try:
            run.run(TURNS, progress=False)
        except LabError as error:
            is_stopped = True
            said = str(error)
        assert ill.struck is not None
        ill.struck.join()
    run.close()
    assert is_stopped == (kind in STOPPING), said
    if is_stopped:
        with FakeOllama(reply=reply) as server:
            run = PublicGoods.resume(path, llm_client=client_of(server))
            run.run(TURNS - run.turn_number, progress=False)
        run.close()
    assert verify(path) == []
    states = [turn.state for turn in whole.turns]
    assert [turn.state for turn in PublicGoods.load(path).turns] == states


def load_slowly(load_s: float, folder: Path) -> None:
    """Play on a server whose model loads for longer than a silence may last."""
    whole = straight(folder)
    with FakeOllama(reply=reply, throttle=Throttle(load_s=load_s)) as server:
        client = client_of(server, timeout_s=load_s / 3)
        run = PublicGoods(llm_client=client, tape=folder / "x.tape")
        run.run(TURNS, progress=False)
        assert server.runner.loads == 1, "its model was loaded again"
    run.close()
    assert [turn.state for turn in run.turns] == [turn.state for turn in whole.turns]


def ill_servers(plan: Plan) -> Iterator[Case]:
    source = plan.source
    for kind, _ in plan.chosen(ILLS, 3):
        for _ in range(1 if plan.size == "brief" else plan.times(1) // 8):
            # Not in the last turn: the run would end before it notices.
            step = partial(play_with, kind, source.randint(1, 4 * (TURNS - 1)))
            yield Case(f"{kind}, seed {plan.seed}", {"play": step}, may_raise=False)
    load_s = 180.0 if plan.size == "long" else 9.0
    step = partial(load_slowly, load_s)
    yield Case(f"loads for {load_s:g} s", {"play": step}, may_raise=False, wall_s=600)


def test_whatever_becomes_of_a_server_the_run_is_the_one_of_a_sound_server(
    attack: Attack,
) -> None:
    attack("crash: a model's server", ill_servers)
