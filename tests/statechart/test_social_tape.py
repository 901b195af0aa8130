"""The tape's verbs on the social simulation: nothing about it needs a special case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import recorded
from social_kit import any_option, make_social, social_client

from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.run import load, replay, resume
from llmsim_lab.statechart import SocialSimulation

TURNS = 6
SETTINGS: dict[str, Any] = {
    "rationale": True,
    "players": {},
    "interventions": [
        {"turn": 2, "set": {"post": {"author": "Press", "text": "Flood!", "topics": ["tea"]}}},
        {"turn": 4, "set": {"banned": ["User 2"]}},
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tape with one finished run in which a model reasons and writes."""
    recorded(make_social(tmp_path / "x.tape", **SETTINGS), TURNS)
    return tmp_path / "x.tape"


def requests(client: LLMClient) -> int:
    assert isinstance(client.backend, ScriptedBackend)
    return len(client.backend.requests)


def live() -> SocialSimulation:
    made = make_social(**SETTINGS)
    made.run(TURNS)
    return made


def comparable(simulation: SocialSimulation) -> list[Any]:
    return [replace(turn, seconds=0.0, calls=()) for turn in simulation.turns]


def test_a_replay_is_the_run_and_makes_no_call(path: Path) -> None:
    original, again = live(), replay(path)
    assert isinstance(again, SocialSimulation)
    assert comparable(again) == comparable(original)
    assert sum(len(turn.answers) for turn in again.turns) > 10
    names = [[q.agent.name for q in run.questions(3)] for run in (original, again, load(path))]
    assert names[0] == names[1] == names[2]


def test_a_run_that_broke_off_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    left = [9]

    def breaks(request: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise BackendError("gone", reason="model_not_found")
        return any_option(request)

    made = make_social(tmp_path / "x.tape", replies=breaks, **SETTINGS)
    with pytest.raises(LLMFailureException):
        made.run(TURNS)
    made.close()
    stopped = made.turn_number
    assert 0 < stopped < TURNS
    client = social_client()
    again = resume(tmp_path / "x.tape", llm_client=client)
    again.run(TURNS - stopped)
    assert comparable(again) == comparable(live())  # type: ignore[arg-type]
    assert requests(client) < len(again.calls)


PLAY = """
import json
from social_kit import make_social
simulation = make_social(users=9, players={})
simulation.run(8)
print(simulation.state)
print([(c.player, c.reasoning) for turn in simulation.turns for c in turn.answers])
"""


@pytest.mark.process
def test_a_run_is_the_same_whatever_python_hashes_with(
    under_two_hash_seeds: Callable[..., list[str]],
) -> None:
    one, other = under_two_hash_seeds(PLAY)
    assert one == other
    assert len(one) > 1000
