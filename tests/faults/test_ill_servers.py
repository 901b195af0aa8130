"""A model's server that is killed, frozen, restarted, slow to load, or loses its model in a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_ollama import FakeOllama, Fault, Throttle
from faults_kit import Attack, Case, Plan
from runs_kit import TURNS, states_of
from worlds import PublicGoods

from llmsim_lab.errors import LabError
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend
from llmsim_lab.tape import verify

pytestmark = pytest.mark.process

MODEL = "llama3.2"


Illness = Callable[[FakeOllama], object]
"""Does something to a server."""


def faulty(*faults: Fault) -> Illness:
    return lambda server: server.fail_next(*faults)


ILLNESSES: dict[str, Illness] = {
    "killed, and back": lambda server: server.kill(away_s=0.3),
    "killed": FakeOllama.kill,
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


class FallsIll:
    """Answers as a model does, and makes its server ill at one request, once.

    Args:
        illness: what is done to the server.
        at: before which request.
    """

    def __init__(self, illness: Illness, at: int) -> None:
        self._illness = illness
        self._requests_left = at
        self.server: FakeOllama | None = None
        self.thread: threading.Thread | None = None
        """In which it is done: not in the server's own, which is waited for to kill it."""

    def __call__(self, body: dict[str, object]) -> dict[str, object]:
        self._requests_left -= 1
        if self._requests_left == 0:
            self.thread = threading.Thread(target=self._illness, args=(self.server,))
            self.thread.start()
        return reply(body)


def reply(body: dict[str, object]) -> dict[str, object]:
    return {"reasoning": "r", "amount": len(str(body["messages"])) % 5, "confidence": 1}


def client_of(server: FakeOllama, timeout_s: float = 6.0, **settings: float) -> LLMClient:
    # On a busy machine a sound server is silent for seconds too.
    config = LLMConfig(model=MODEL, retry_wait_s=0.01, timeout_s=timeout_s, **settings)
    return LLMClient(config, OllamaBackend(MODEL, host=server.host))


def sound_run(folder: Path) -> PublicGoods:
    with FakeOllama(reply=reply) as server:
        run = PublicGoods(llm_client=client_of(server), tape=folder / "whole.tape")
        run.run(TURNS, progress=False)
    run.close()
    return run


def play_while_ill(kind: str, at: int, folder: Path) -> None:
    """Play while the server falls ill; where the run stops, repair the server and continue."""
    whole = sound_run(folder)
    path = folder / "x.tape"
    falls_ill = FallsIll(ILLNESSES[kind], at)
    patience_s = 30.0
    if kind in STOPPING:
        patience_s = 1.0
    failure: LabError | None = None
    with FakeOllama(reply=falls_ill, delay_s=0.02) as server:
        falls_ill.server = server
        client = client_of(server, first_piece_s=6, wait_for_server_s=patience_s)
        run = PublicGoods(llm_client=client, tape=path)
        try:
            run.run(TURNS, progress=False)
        except LabError as error:
            failure = error
        assert falls_ill.thread is not None
        falls_ill.thread.join()
    run.close()
    assert (failure is not None) == (kind in STOPPING), failure
    if failure is not None:
        with FakeOllama(reply=reply) as server:
            run = PublicGoods.resume(path, llm_client=client_of(server))
            run.run(TURNS - run.turn_number, progress=False)
        run.close()
    assert verify(path) == []
    assert states_of(PublicGoods.load(path)) == states_of(whole)


def load_slowly(load_s: float, folder: Path) -> None:
    """Play on a server whose model loads for longer than a silence may last."""
    whole = sound_run(folder)
    with FakeOllama(reply=reply, throttle=Throttle(load_s=load_s)) as server:
        client = client_of(server, timeout_s=load_s / 3)
        run = PublicGoods(llm_client=client, tape=folder / "x.tape")
        run.run(TURNS, progress=False)
        assert server.runner.loads == 1, "its model was loaded again"
    run.close()
    assert states_of(run) == states_of(whole)


def ill_servers(plan: Plan) -> Iterator[Case]:
    source = plan.source
    times = 1
    load_s = 9.0
    if plan.size == "long":
        times = 15
        load_s = 180.0
    for kind, _ in plan.chosen(ILLNESSES, 3):
        for _ in range(times):
            # Not in the last turn: the run would end before it notices.
            request = source.randint(1, 4 * (TURNS - 1))
            step = partial(play_while_ill, kind, request)
            yield Case(f"{kind}, seed {plan.seed}", {"play": step}, may_raise=False)
    step = partial(load_slowly, load_s)
    yield Case(f"loads for {load_s:g} s", {"play": step}, may_raise=False, wall_s=600)


def test_whatever_becomes_of_a_server_the_run_is_the_one_of_a_sound_server(
    attack: Attack,
) -> None:
    attack("crash: a model's server", ill_servers)
