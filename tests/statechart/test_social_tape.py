"""The tape's verbs on the social simulation: nothing about it needs a special case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
