"""States that were edited by hand: what is wrong with them is said before anyone is asked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from social_kit import make_social

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import AgentState, Post, SocialSimulation
from llmsim_lab.statechart._state import FeedEntry, SocialState, UserState

CALM: dict[str, Any] = {"players": "rule", "users": 2}
STORY = Post(id=1, author="Press", text="Story", topics=("tea",), root=1)
ANSWER = Post(
    id=2, author="User 1", text="Yes", topics=("tea",), turn=1, kind="reply", parent=1, root=1
)
PASSED_ON = Post(
    id=3, author="User 2", text="Story", turn=1, kind="reshare", parent=1, root=1, copy_of=1
)


def valid(**values: Any) -> SocialState:
    """A state of turn 1: a story, an answer to it, and somebody who passed it on."""
    given: dict[str, Any] = {
        "at": 1,
        "people": (
            UserState("User 1"),
            UserState("User 2", AgentState.EVALUATING, post=2, seen=(1, 3)),
        ),
        "feed": tuple(map(FeedEntry, (STORY, ANSWER, PASSED_ON))),
        "new_posts": (ANSWER, PASSED_ON),
        "next_post": 4,
    }
    return SocialState(**{**given, **values})


def begin(state: SocialState, **parameters: Any) -> SocialSimulation:
    """Return a run that began from a state, after its first turn."""
    made = make_social(state=state, **CALM, **parameters)
    made.run(1)
    return made


def with_person(**values: Any) -> SocialState:
    return valid(people=(UserState("User 1")._replace(**values), UserState("User 2")))


def test_a_valid_state_is_played_from() -> None:
    simulation = begin(valid())
    assert (simulation.turn_number, simulation.state.at) == (1, 2)


def test_every_state_of_a_run_is_valid_for_a_fork_and_for_a_new_run() -> None:
    simulation = make_social(users=6, turns=8, feed={"max_age": 2, "max_posts": 4})
    simulation.intervene(3, {"post": {"author": "Press", "text": "Late", "topics": ["tea"]}})
    simulation.run()
    for turn, after in pairwise(simulation.turns):
        fork = simulation.fork(turn.number, state=turn.state)
        fork.run(1)
        new = make_social(state=turn.state, feed=simulation.feed)
        new.run(1)
        if not after.interventions:
            assert fork.state == new.state == after.state


@pytest.mark.parametrize(
    ("person", "said"),
    [
        ({"name": "Eve"}, r"it has users \['Eve', 'User 2'\]; the configuration has"),
        ({"post": 9}, "'User 1' has post=9, which is neither in feed nor in kept; .*: 1, 2, 3"),
    ],
)
def test_a_user_who_cannot_be_is_named_with_what_is_wrong(
    person: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"state of turn 1 is not valid: {said}"):
        begin(with_person(**person))


def test_a_user_must_be_in_a_state_of_the_charts() -> None:
    chart = {
        "initial": "idle",
        "states": ["idle", "scrolling"],
        "transitions": [
            {"trigger": "opens_app", "source": "idle", "target": "scrolling"},
            {"trigger": "feed_empty", "source": "scrolling", "target": "idle"},
        ],
    }
    with pytest.raises(ConfigError, match="'User 1' is resting; the chart has: idle, scroll"):
        begin(with_person(state=AgentState.RESTING), chart=chart)
