"""The tape's verbs on the social simulation: nothing about it needs a special case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from social_kit import any_option, make_social, prompts_to, social_client

from llmsim_lab import data_path
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.run import load, replay, resume

TURNS = 6
SETTINGS: dict[str, Any] = {
    "rationale": True,
    "players": {},
    "interventions": [
        {"turn": 2, "set": {"post": {"author": "Press", "text": "Flood!", "topics": ["tea"]}}},
        {"turn": 4, "set": {"banned": ["User 2"]}},
    ],
}


@pytest.mark.parametrize("run", [1, 2])
def test_the_shipped_tape_replays_to_what_was_recorded(run: int) -> None:
    path = data_path("tapes/social.tape")
    assert replay(path, run).turns == load(path, run).turns


def test_a_run_that_broke_off_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    left = [9]

    def breaks(request: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise BackendError("gone", reason="model_not_found")
        return any_option(request)

    made, whole = (
        make_social(tmp_path / "x.tape", replies=breaks, **SETTINGS),
        make_social(**SETTINGS),
    )
    with pytest.raises(LLMFailureException):
        made.run(TURNS)
    made.close()
    assert 0 < made.turn_number < TURNS
    client = social_client()
    again = resume(tmp_path / "x.tape", llm_client=client)
    again.run(TURNS - made.turn_number)
    whole.run(TURNS)
    assert [turn.state for turn in again.turns] == [turn.state for turn in whole.turns]
    assert len(prompts_to(client)) < len(again.calls)


PLAY = """
from social_kit import make_social
simulation = make_social(population=20, seed_posts=8)
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
