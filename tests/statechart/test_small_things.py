"""What agents, posts and contexts say of themselves."""

from __future__ import annotations

from social_kit import make_social

from llmsim_lab.statechart import AgentState, Post, SocialAgent
from llmsim_lab.statechart._agent import interest_match
from llmsim_lab.statechart._reasoner import format_context


def test_users_are_counted_by_state() -> None:
    simulation = make_social(users=3, players="rule")
    simulation.run(1)
    counts = simulation.state_distribution()
    assert {state: count for state, count in counts.items() if count} == {AgentState.SCROLLING: 3}
    assert set(counts) == set(AgentState)
    assert repr(simulation.agents[0]).endswith(": scrolling, 0 ticks>")


def test_a_post_says_who_wrote_what_about_what() -> None:
    assert str(Post(id=1, author="Ada", text="Hi", topics=("tea", "rain"))) == "Ada: Hi [tea, rain]"
    assert str(Post(id=1, author="Ada", text="Hi")) == "Ada: Hi"


def test_a_match_is_the_share_of_the_topics_that_are_interests() -> None:
    agent = SocialAgent("Ada", ["tea"])
    about = [("tea",), ("tea", "rain"), ("rain",), ()]
    posts = [Post(id=1, author="Bob", text="x", topics=topics) for topics in about]
    assert [interest_match(agent, post) for post in posts] == [1.0, 0.5, 0.0, 0.0]


def test_a_context_may_be_a_post_a_mapping_a_text_or_nothing() -> None:
    reshare = Post(id=2, author="Bob", text="Hi", kind="reshare")
    assert format_context(reshare) == 'You see a reshared post by Bob:\n"Hi"'
    assert format_context({"mood": "calm", "time": "late"}) == "mood: calm\ntime: late"
    assert format_context("It rains.") == "It rains."
    assert format_context(None) == ""
