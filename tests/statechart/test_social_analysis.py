"""Frames of the social simulation, and cascades."""

from __future__ import annotations

from typing import Any

import pytest
from social_kit import make_social

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import Post, SocialSimulation
from llmsim_lab.statechart._analysis import Cascade

RULE = {"players": "rule"}


@pytest.fixture(scope="module")
def simulation() -> SocialSimulation:
    made = make_social(users=20, **RULE)
    made.run(15)
    return made


def member(number: int, parent: int | None = None, kind: Any = "reply", **more: Any) -> Post:
    values = {"author": f"User {number}", "text": f"Text {number}", "root": 1, **more}
    return Post(id=number, parent=parent, kind=kind if parent else "original", **values)


TREE = Cascade(
    (member(1), member(2, 1), member(3, 1, "reshare"), member(4, 3), member(5, 2), member(6, 4))
)


def test_the_transition_matrix_adds_up(simulation: SocialSimulation) -> None:
    counts = simulation.transition_matrix(shares=False)
    assert counts.to_numpy().sum() == simulation.to_frame()["moves"].sum()
    shares = simulation.transition_matrix()
    left = counts.sum(axis=1) > 0
    assert shares[left].sum(axis=1).tolist() == pytest.approx([1.0] * left.sum())
    assert shares.loc["idle", "scrolling"] == 1
    assert (shares.loc[~left] == 0).all(axis=None)


def test_engagement_is_the_same_counted_by_post_and_by_turn(simulation: SocialSimulation) -> None:
    posts, turns = simulation.post_frame(), simulation.to_frame()
    counts = ["likes", "replies", "reshares"]
    assert posts[counts].sum().tolist() == turns[counts].sum().tolist()
    assert (posts["engagement"] == posts[counts].sum(axis=1)).all()
    assert posts["engagement"].sum() > 0


def test_a_run_that_began_from_a_state_goes_on_from_its_counts(
    simulation: SocialSimulation,
) -> None:
    later = SocialSimulation(simulation.config, state=simulation.turns[4].state)
    assert later.transition_matrix(shares=False).to_numpy().sum() == 0
    assert sum(entry.engagement for entry in later.state.feed) > 0
    for _ in range(3):
        frame = later.post_frame()
        for entry in later.state.feed:
            row = frame.loc[entry.post.id]
            counts = (row["likes"], row["replies"], row["reshares"])
            assert counts == (entry.likes, entry.replies, entry.reshares)
        assert sum(cascade.likes for cascade in later.cascades()) == frame["likes"].sum()
        later.run(1)


def test_a_cascades_size_depth_and_breadth_are_those_of_its_tree() -> None:
    assert (TREE.size, TREE.depth, TREE.breadth) == (6, 3, 2)
    assert list(TREE.levels.items()) == [(1, 0), (2, 1), (5, 2), (3, 1), (4, 2), (6, 3)]
    lone = Cascade((member(1),))
    assert (lone.size, lone.depth, lone.breadth) == (1, 0, 1)
    # Answers to posts from before the run hang together all the same.
    later = Cascade((member(8, 3), member(9, 8)))
    assert (later.root.id, later.size, later.depth) == (8, 2, 1)
    assert TREE.tree(most=4).splitlines() == [
        "● User 1 (turn 0): Text 1",
        "  ↩ User 2 (turn 0): Text 2",
        "    ↩ User 5 (turn 0): Text 5",
        "  ↻ User 3 (turn 0)",
        "… and 2 more",
    ]


def test_every_post_is_in_one_cascade_and_the_largest_comes_first(
    simulation: SocialSimulation,
) -> None:
    found = simulation.cascades()
    assert sorted(p.id for c in found for p in c.posts) == sorted(simulation.posts)
    assert [c.size for c in found] == sorted((c.size for c in found), reverse=True)
    frame = simulation.cascade_frame()
    assert frame["size"].sum() == len(simulation.posts)
    assert frame["likes"].sum() == simulation.to_frame()["likes"].sum()
    assert (frame["size"] - 1 == frame["replies"] + frame["reshares"]).all()
    answer = found[0].posts[-1]
    assert simulation.cascade_of(answer.id).root == found[0].root
    with pytest.raises(ConfigError, match="the run has no post 99999"):
        simulation.cascade_of(99999)


def test_a_run_without_moves_has_empty_frames() -> None:
    made = make_social(seed_posts=[], **RULE)
    assert made.post_frame().empty
    assert made.cascade_frame().empty
    assert made.transition_matrix(shares=False).to_numpy().sum() == 0
