"""Runs on a real Ollama, and their tapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab import Simulation, SimulationConfig, connect
from llmsim_lab.llm import LLMClient
from tests.live.conftest import Live


def client_of(live: Live) -> LLMClient:
    settings = {"temperature": 0, "seed": 1, "num_ctx": 2048, "max_tokens": 300, "timeout_s": 240}
    return connect(f"ollama:{live.model}", host=live.host, quiet=True, **settings)


@pytest.fixture
def run(live: Live, tmp_path: Path) -> Simulation:
    """One nation, one turn, recorded."""
    config = SimulationConfig(nations=["Aland"], validator="none", moves_bp=None)
    simulation = Simulation(config, llm_client=client_of(live), tape=tmp_path / "live.tape")
    simulation.run(1)
    return simulation


def test_a_turn_is_decided_by_the_model_and_recorded(run: Simulation, live: Live) -> None:
    assert run.turn_number == 1
    assert run.tape is not None
    attempts = [call.attempt for call in run.tape.calls(1)]
    assert len(attempts) >= 2  # the nation's and the engine's
    assert {attempt.request.model for attempt in attempts} == {live.model}
    assert all(attempt.reply and attempt.reply.prompt_tokens for attempt in attempts)
