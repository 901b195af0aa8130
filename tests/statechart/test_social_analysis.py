"""Cascades of the social simulation."""

from __future__ import annotations

from typing import Any

import pytest
from social_kit import make_social

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import Post, SocialSimulation
from llmsim_lab.statechart.state import FeedEntry, SocialState, UserState


@pytest.fixture(scope="module")
def simulation() -> SocialSimulation:
    made = make_social(users=10, players="rule")
    made.run(10)
    return made


def member(number: int, parent: int | None = None, kind: Any = "reply") -> Post:
    own: Any = kind if parent else "original"
    return Post(id=number, author="Ada", text="Hi", parent=parent, kind=own, root=1)


def cascade_of(*posts: Post) -> Any:
    """Return the cascade of posts with which a run begins."""
    feed = tuple(FeedEntry(post) for post in posts)
    state = SocialState(people=(UserState("User 1"),), feed=feed, next_post=99)
    [cascade] = make_social(users=1, state=state, players="rule").cascades()
    return cascade


def test_a_cascades_size_depth_and_breadth_are_those_of_its_tree() -> None:
    answers = [member(2, 1), member(3, 1, "reshare"), member(4, 3), member(5, 2), member(6, 4)]
    tree = cascade_of(member(1), *answers)
    assert (tree.size, tree.depth, tree.breadth) == (6, 3, 2)
    assert list(tree.levels.items()) == [(1, 0), (2, 1), (5, 2), (3, 1), (4, 2), (6, 3)]
    top, *_, rest = tree.tree(most=3).splitlines()
    assert (top, rest) == ("● Ada (turn 0): Hi", "and 3 more")
    assert tree.tree().splitlines()[3:5] == ["  ↻ Ada (turn 0)", "    ↩ Ada (turn 0): Hi"]
    chain = cascade_of(member(1), *(member(number, number - 1) for number in range(2, 46)))
    assert chain.depth == 44
    assert chain.tree().splitlines()[-1] == "and 5 more"
    lone = cascade_of(member(1))
    assert (lone.size, lone.depth, lone.breadth) == (1, 0, 1)
    assert type(lone)(lone.posts).likes == 0
    # Answers to posts from before the run hang together all the same.
    later = cascade_of(member(8, 3), member(9, 4))
    assert (later.root.id, later.size, later.depth) == (8, 2, 1)


def test_every_post_is_in_one_cascade_and_the_largest_comes_first(
    simulation: SocialSimulation,
) -> None:
    found, frame = simulation.cascades(), simulation.cascade_frame()
    assert sorted(p.id for c in found for p in c.posts) == sorted(simulation.posts)
    assert [c.size for c in found] == sorted((c.size for c in found), reverse=True)
    assert frame["size"].tolist() == [c.size for c in found]
    turns = simulation.to_frame()[["likes", "replies", "reshares"]].sum()
    assert (frame[["likes", "replies", "reshares"]].sum() == turns).all()
    assert turns.min() > 0
    answer = found[0].posts[-1]
    assert simulation.cascade_of(answer.id).root == found[0].root
    with pytest.raises(ConfigError, match="the run has no post 99999"):
        simulation.cascade_of(99999)


def test_a_run_that_began_from_a_state_continues_its_likes(simulation: SocialSimulation) -> None:
    later = SocialSimulation(simulation.config, state=simulation.turns[4].state)
    for _ in range(2):
        liked = sum(entry.likes for entry in later.state.feed)
        assert sum(cascade.likes for cascade in later.cascades()) == liked > 0
        later.run(1)


def test_a_cascades_row_says_what_it_began_with_and_counts_all_of_it() -> None:
    first = Post(id=1, author="Ann", text="Tea", topics=("tea",), root=1)
    others = [
        Post(id=2, author="Bob", text="Yes", turn=1, kind="reply", parent=1, root=1),
        Post(id=3, author="Bob", text="Tea", turn=1, kind="reshare", parent=1, root=1, copy_of=1),
        Post(id=4, author="Ann", text="So", turn=2, kind="reply", parent=3, root=1),
    ]
    news = Post(id=5, author="Cy", text="War", turn=2)
    feed = (FeedEntry(first, likes=2), *map(FeedEntry, others), FeedEntry(news))
    state = SocialState(at=2, people=(UserState("User 1"),), feed=feed, next_post=99)
    frame = make_social(users=1, state=state, players="rule").cascade_frame()
    assert frame.index.tolist() == [1, 5]
    columns = "author turn text size depth breadth replies reshares likes users"
    assert " ".join(frame) == columns
    assert frame.to_numpy().tolist() == [
        ["Ann", 0, "Tea", 4, 2, 2, 2, 1, 2, 2],
        ["Cy", 2, "War", 1, 0, 1, 0, 0, 0, 1],
    ]


def test_a_run_without_posts_has_no_cascades() -> None:
    assert make_social(seed_posts=[], players="rule").cascade_frame().empty
