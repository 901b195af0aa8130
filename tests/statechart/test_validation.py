"""States that somebody edited: what is wrong with them is said before anything is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from social_kit import make_social, social_config

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import AgentState, Post, SocialSimulation
from llmsim_lab.statechart._state import FeedEntry, SocialState, UserState

CALM = {"reasoner": {"kind": "rule"}, "users": 2}
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
        "turn": 1,
        "people": (
            UserState("User 1"),
            UserState("User 2", AgentState.EVALUATING, post=2, seen=(1, 3)),
        ),
        "feed": tuple(map(FeedEntry, (STORY, ANSWER, PASSED_ON))),
        "new_posts": (ANSWER, PASSED_ON),
        "next_post": 4,
    }
    return SocialState(**{**given, **values})


def begin(state: SocialState, **config: Any) -> SocialSimulation:
    return SocialSimulation(social_config(**CALM, **config), state=state)


def with_person(**values: Any) -> SocialState:
    return valid(people=(UserState("User 1")._replace(**values), UserState("User 2")))


def with_post(post: Post, **values: Any) -> SocialState:
    """The valid state with a post in the place of the one of its number."""
    entries = [entry for entry in valid().feed if entry.post.id != post.id] + [FeedEntry(post)]
    new = [item for item in valid().new_posts if item.id != post.id] + [post]
    feed = tuple(sorted(entries, key=lambda entry: entry.post.id))
    return valid(feed=feed, new_posts=tuple(new), **values)


def test_a_sound_state_is_played_from() -> None:
    simulation = begin(valid())
    simulation.run(2)
    assert simulation.turn_number == 3


def test_every_state_of_a_run_is_sound_for_a_fork_and_for_a_new_run() -> None:
    simulation = make_social(users=6, turns=8, feed={"max_age": 2, "max_posts": 4})
    simulation.intervene(3, post={"author": "Press", "text": "Late", "topics": ["tea"]})
    simulation.run()
    for turn in simulation.turns:
        assert simulation.fork(turn.number, state=turn.state).state == turn.state
        SocialSimulation(social_config(**{**CALM, "users": 6}), state=turn.state)


@pytest.mark.parametrize(
    ("person", "said"),
    [
        (
            {"state": "scrolling"},
            "'User 1': state='scrolling' is not an AgentState; .*AgentState.IDLE",
        ),
        ({"ticks": -1}, "'User 1': ticks=-1 must be a whole number, 0 or more"),
        ({"ticks": 1.0}, "'User 1': ticks=1.0 must be a whole number"),
        ({"banned": "no"}, "'User 1': banned='no' must be True or False"),
        ({"post": 9}, "'User 1': post=9 is neither in feed nor in kept; there are: 1, 2, 3"),
        ({"seen": (1, 4)}, "'User 1': seen has 4, .*below next_post=4"),
        ({"seen": ("1",)}, "'User 1': seen has '1'"),
    ],
)
def test_a_user_who_cannot_be_is_named_with_what_is_wrong(
    person: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"state of turn 1 is not valid: user {said}"):
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
    with pytest.raises(ConfigError, match="the chart has no state 'resting'; it has: idle, scroll"):
        begin(with_person(state=AgentState.RESTING), chart=chart)


def test_a_user_may_hold_a_post_that_is_out_of_circulation_but_kept() -> None:
    people = (UserState("User 1", AgentState.EVALUATING, post=1), UserState("User 2"))
    state = valid(people=people, feed=(), kept=(STORY,), new_posts=())
    assert begin(state).state == state


def test_what_is_no_person_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"people: \('User 1', 'idle'\) is not a UserState"):
        begin(valid(people=(("User 1", "idle"), UserState("User 2"))))


@pytest.mark.parametrize(
    ("post", "said"),
    [
        (replace(STORY, author=" "), "feed: post 1: author=' ' is not a name on one line"),
        (replace(STORY, author="a\nb"), r"feed: post 1: author='a\\nb' is not a name"),
        (replace(ANSWER, author="Press"), "feed: post 2: a reply is always a user's.*no user 'Pre"),
        (replace(ANSWER, turn=2), "feed: post 2: turn=2 must be from 0 to 1"),
        (replace(ANSWER, turn=-1), "feed: post 2: turn=-1 must be from 0 to 1"),
        (replace(ANSWER, turn=0), "new_posts: post 2 was made in turn 0, not in this one"),
        (replace(ANSWER, text="  "), "feed: post 2: text='  ' says nothing"),
        (replace(ANSWER, topics=("Tea",)), "feed: post 2: topic 'Tea' must be in lower case"),
        (replace(ANSWER, kind="quote"), "feed: post 2: kind='quote' is not one of original, reply"),
        (replace(ANSWER, parent=3), "post 2: parent=3 must be the number of an older post, from 1"),
        (replace(ANSWER, parent=None), "post 2: parent=None must be the number of an older post"),
        (replace(ANSWER, root=2), "post 2: root=2 must be the number of an older post"),
        (replace(ANSWER, copy_of=1), "post 2: copy_of=1 makes no sense: it is a reply"),
        (replace(PASSED_ON, copy_of=None), "post 3: copy_of=None must be the number of an older"),
        (replace(PASSED_ON, root=2), "post 3: root=2, but the root of its parent, post 1, is 1"),
        (replace(STORY, parent=3), "post 1: parent=3 makes no sense: it is an original"),
        (replace(STORY, root=3), "post 1: root=3 makes no sense: it is an original"),
    ],
)
def test_a_post_that_cannot_be_is_named_with_what_is_wrong(post: Post, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        begin(with_post(post))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"next_post": 3}, "feed: post 3: id=3, but numbers .* below next_post=3"),
        ({"next_post": None}, "next_post=None must be a whole number, 1 or more"),
        ({"turn": -1}, "turn=-1 must be a whole number, 0 or more"),
        ({"feed": (STORY,)}, "feed must hold FeedEntry"),
        ({"kept": ("x",)}, "kept and new_posts Post"),
        ({"feed": (FeedEntry(STORY, likes=-1),)}, r"feed: post 1 has likes.*\(-1, 0, 0\)"),
        ({"feed": (FeedEntry(ANSWER), FeedEntry(STORY))}, "post 1 stands behind post 2"),
        ({"feed": (FeedEntry(STORY), FeedEntry(STORY))}, "post 1 stands behind post 1"),
        ({"kept": (replace(STORY, text="Other"),)}, "kept: post 1 is not the same as the other"),
    ],
)
def test_a_network_that_cannot_be_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        begin(valid(**{"people": (UserState("User 1"), UserState("User 2")), **values}))


def test_several_faults_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"ticks=-1 .* \(and 1 more\)$"):
        begin(with_person(ticks=-1, banned=1))


def edited(turn: int, change: Callable[[SocialState], SocialState]) -> None:
    simulation = make_social(**CALM)
    simulation.run(3)
    simulation.fork(turn, state=change(simulation.turns[turn].state))


def test_a_fork_may_change_what_users_do_and_how_posts_were_received() -> None:
    def change(state: SocialState) -> SocialState:
        person, *rest = state.people
        feed = (state.feed[0]._replace(likes=50), *state.feed[1:])
        return replace(state, people=(person._replace(state=AgentState.RESTING), *rest), feed=feed)

    edited(2, change)


def test_a_fork_refuses_a_state_that_is_not_sound_before_anything_is_run() -> None:
    def change(state: SocialState) -> SocialState:
        person, *rest = state.people
        return replace(state, people=(person._replace(state="asleep"), *rest))

    with pytest.raises(ConfigError, match="state='asleep' is not an AgentState"):
        edited(2, change)


def test_a_fork_refuses_a_post_with_other_words_than_its_turn_gave_it() -> None:
    def change(state: SocialState) -> SocialState:
        first, *rest = state.feed
        return replace(state, feed=(first._replace(post=replace(first.post, text="No")), *rest))

    with pytest.raises(ConfigError, match="post 1 by 'Press' is not as turn 0 left it"):
        edited(2, change)
    edited(0, lambda state: replace(state, **_new_words(state)))


def _new_words(state: SocialState) -> dict[str, Any]:
    posts = tuple(replace(post, text="No") for post in state.new_posts)
    return {"new_posts": posts, "feed": tuple(map(FeedEntry, posts))}


def test_a_fork_refuses_a_post_that_no_turn_made_unless_it_is_new() -> None:
    def change(state: SocialState, *, new: bool) -> SocialState:
        number = state.next_post
        post = Post(
            id=number, author="Press", text="Late", topics=("tea",), turn=state.turn, root=number
        )
        made = (*state.new_posts, post) if new else state.new_posts
        return replace(
            state, feed=(*state.feed, FeedEntry(post)), new_posts=made, next_post=number + 1
        )

    with pytest.raises(ConfigError, match="neither was it made before nor is it in new_posts"):
        edited(2, lambda state: change(state, new=False))
    edited(2, lambda state: change(state, new=True))
