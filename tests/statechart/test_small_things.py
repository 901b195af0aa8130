"""What agents, posts and contexts say of themselves."""

from __future__ import annotations

from llmsim_lab.statechart import Post, SocialAgent
from llmsim_lab.statechart._agent import interest_match
from llmsim_lab.statechart._reasoner import format_context


def test_a_match_is_the_share_of_the_topics_that_are_interests() -> None:
    agent = SocialAgent("Ada", ["tea"])
    about = [("tea",), ("tea", "rain"), ("rain",), ()]
    posts = [Post(id=1, author="Bob", text="x", topics=topics) for topics in about]
    assert [interest_match(agent, post) for post in posts] == [1.0, 0.5, 0.0, 0.0]


def test_a_context_may_be_a_post_a_text_or_nothing() -> None:
    reshare = Post(id=2, author="Bob", text="Hi", kind="reshare")
    assert format_context(reshare) == 'You see a reshared post by Bob:\n"Hi"'
    assert format_context("It rains.") == "It rains."
    assert format_context(None) == ""
