"""States that were edited by hand: what is wrong with them is said before anyone is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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


def with_post(post: Post, **values: Any) -> SocialState:
    """The valid state with a post in the place of the one of its number."""
    entries = [entry for entry in valid().feed if entry.post.id != post.id] + [FeedEntry(post)]
    new = [item for item in valid().new_posts if item.id != post.id] + [post]
    feed = tuple(sorted(entries, key=lambda entry: entry.post.id))
    return valid(feed=feed, new_posts=tuple(new), **values)


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
        ({"name": "Eve"}, "it has 'Eve' where 'User 1' is in the configuration"),
        ({"post": 9}, "user 'User 1': post=9 is neither in feed nor in kept; there are: 1, 2, 3"),
        ({"seen": (1, 4)}, "user 'User 1': seen has 4, .*below next_post=4"),
    ],
)
def test_a_user_who_cannot_be_is_named_with_what_is_wrong(
    person: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"state of turn 1 is not valid: {said}"):
        begin(with_person(**person))


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", "asleep"), ("ticks", -1), ("banned", "perhaps"), ("seen", ("x",)), ("post", "x")],
)
def test_what_is_of_a_wrong_type_never_becomes_a_state(field: str, value: Any) -> None:
    person, other = valid().people
    # A field by its name or, as before pydantic 2.13, by its place.
    place = f"({field}|{person._fields.index(field)})"
    with pytest.raises(ConfigError, match=rf"SocialState: people\.0\.{place}"):
        valid().replace(people=(person._replace(**{field: value}), other))


def test_a_user_must_be_in_a_state_of_the_charts() -> None:
    chart = {
        "initial": "idle",
        "states": ["idle", "scrolling"],
        "transitions": [
            {"trigger": "opens_app", "source": "idle", "target": "scrolling"},
            {"trigger": "feed_empty", "source": "scrolling", "target": "idle"},
        ],
    }
    with pytest.raises(ConfigError, match="the chart has no state 'resting'; it has: idle, scroll"):
        begin(with_person(state=AgentState.RESTING), chart=chart)


def test_a_user_may_hold_a_post_that_is_out_of_circulation_but_kept() -> None:
    people = (UserState("User 1", AgentState.EVALUATING, post=1), UserState("User 2"))
    state = valid(people=people, feed=(), kept=(STORY,), new_posts=())
    assert begin(state).turns[0].state == state


@pytest.mark.parametrize(
    ("post", "said"),
    [
        (replace(ANSWER, author="Press"), "post 2: a reply is always a user's.*no user 'Press'"),
        (replace(ANSWER, turn=2), "post 2: turn=2 must be from 0 to 1"),
        (replace(ANSWER, turn=0), "new_posts: post 2 was made in turn 0, not in this one"),
        (replace(ANSWER, text="  "), "post 2: text='  ' says nothing"),
        (replace(ANSWER, parent=3), "post 2: parent=3 must be the number of an older post, from 1"),
        (replace(ANSWER, parent=None), "post 2: parent=None must be the number of an older post"),
        (replace(ANSWER, root=2), "post 2: root=2 must be the number of an older post"),
        (replace(PASSED_ON, copy_of=None), "post 3: copy_of=None must be the number of an older"),
        (replace(PASSED_ON, root=2), "post 3: root=2, but the root of its parent, post 1, is 1"),
        (replace(STORY, root=3), "post 1: root=3 must be the number of an older post"),
    ],
)
def test_a_post_that_cannot_be_is_named_with_what_is_wrong(post: Post, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        begin(with_post(post))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"next_post": 3}, "post 3: but numbers .* below next_post=3"),
        ({"feed": (FeedEntry(ANSWER), FeedEntry(STORY))}, "post 1 stands behind post 2"),
        ({"feed": (FeedEntry(STORY), FeedEntry(STORY))}, "post 1 stands behind post 1"),
        ({"people": (UserState("User 1"),)}, "it has 1 users where there are 2"),
        (
            {"feed": (FeedEntry(STORY),), "new_posts": (replace(STORY, text="Other", turn=1),)},
            "post 1 is not the same as the other",
        ),
    ],
)
def test_a_network_that_cannot_be_is_an_error(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        begin(valid(**{"people": (UserState("User 1"), UserState("User 2")), **values}))


def test_several_faults_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"post=9 is neither .* \(and 1 more\)$"):
        begin(with_person(seen=(9,), post=9))


def edited(turn: int, change: Callable[[SocialState], SocialState]) -> None:
    """Continue a run from a turn with its state changed."""
    simulation = make_social(**CALM)
    simulation.run(3)
    simulation.fork(turn, state=change(simulation.turns[turn].state)).run(1)


def test_a_fork_may_change_what_users_do_and_how_posts_were_received() -> None:
    def change(state: SocialState) -> SocialState:
        person, *rest = state.people
        feed = (state.feed[0]._replace(likes=50), *state.feed[1:])
        return state.replace(people=(person._replace(state=AgentState.RESTING), *rest), feed=feed)

    edited(2, change)


def test_a_post_with_other_words_than_its_turn_gave_it_is_an_error() -> None:
    def change(state: SocialState) -> SocialState:
        first, *rest = state.feed
        return state.replace(feed=(first._replace(post=replace(first.post, text="No")), *rest))

    with pytest.raises(ConfigError, match="post 1 by 'Press' is not as turn 0 left it"):
        edited(2, change)


def test_a_post_that_no_turn_made_is_an_error_unless_it_is_new() -> None:
    def change(state: SocialState, *, new: bool) -> SocialState:
        number, at = state.next_post, state.at
        post = Post(id=number, author="Press", text="Late", topics=("tea",), turn=at, root=number)
        made = (*state.new_posts, post) if new else state.new_posts
        feed = (*state.feed, FeedEntry(post))
        return state.replace(feed=feed, new_posts=made, next_post=number + 1)

    with pytest.raises(ConfigError, match="was made in no turn; put in another one: set 'post'"):
        edited(2, lambda state: change(state, new=False))
    edited(2, lambda state: change(state, new=True))
