"""What agents, posts and contexts say of themselves, and what a configuration needs."""

from __future__ import annotations

import pytest
from social_kit import make_question, make_social, social_config

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart import AgentState, Post, SocialAgent, SocialConfig
from llmsim_lab.statechart._agent import interest_match
from llmsim_lab.statechart._reasoner import RuleReasoner, format_context


def test_users_are_counted_by_state() -> None:
    simulation = make_social(users=3, reasoner={"kind": "rule"})
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


async def test_the_rule_decides_without_a_post_too() -> None:
    question = make_question(context=None)
    assert await RuleReasoner().decide([question]) == [RuleReasoner().chosen(question)]


def test_a_configuration_by_rules_needs_no_model_and_two_parts_may_not_share_a_name() -> None:
    config = social_config(writer={"kind": "llm"})
    assert config.needs_model
    assert not config.by_rules().needs_model
    assert config.by_rules().agents == config.agents
    with pytest.raises(ConfigError, match="SocialConfig"):
        SocialConfig(population=3, kind="economic")
