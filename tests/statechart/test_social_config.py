"""What a social simulation may be configured with, and populations made from the profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from social_kit import social_config

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import replay
from llmsim_lab.statechart import AgentState, SocialConfig, SocialSimulation
from llmsim_lab.statechart._chart import ChartTable
from llmsim_lab.statechart._config import (
    PostConfig,
    ProfileConfig,
    SocialIntervention,
    population,
    seed_posts,
)

SMALL_CHART = """
initial: idle
states: [idle, scrolling]
transitions:
  - {trigger: opens_app, source: idle, target: scrolling}
  - {trigger: feed_empty, source: scrolling, target: idle}
"""


def test_a_population_begins_with_the_shipped_profiles_and_goes_on_with_new_ones() -> None:
    people = population(100, seed=5)
    assert people[:40] == population(40)
    assert len({person.name for person in people}) == 100
    assert all(len(set(person.interests)) == 3 for person in people)
    assert people[40:] != population(100, seed=6)[40:]
    assert population(60, seed=5) == people[:60]


def test_names_stay_distinct_beyond_all_pairs_of_first_and_family_names() -> None:
    assert len({person.name for person in population(5000)}) == 5000


@pytest.mark.parametrize("call", [lambda: population(-1), lambda: seed_posts(99)])
def test_a_population_or_feed_that_cannot_be_is_refused(call: Any) -> None:
    with pytest.raises(ConfigError):
        call()


def test_every_topic_of_the_shipped_posts_interests_somebody() -> None:
    liked = {topic for person in population(40) for topic in person.interests}
    assert {topic for post in seed_posts() for topic in post.topics} <= liked
    assert len(seed_posts()) == 25


def test_a_population_is_one_word_in_a_configuration_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("population: 500\nseed_posts: 8\nreasoner: {kind: rule}\nseed: 2\n")
    config = SocialConfig.from_yaml(path)
    assert config.agents == population(500, seed=2)
    assert config.posts == seed_posts(8)
    assert config == SocialConfig(population=500, seed_posts=8, reasoner={"kind": "rule"}, seed=2)
    assert not config.needs_model


def test_the_shipped_scenario_is_valid() -> None:
    config = SocialConfig.from_yaml(data_path("scenarios/harbour_town.yaml"))
    assert config.needs_model
    assert len(config.agents) == 12
    assert str(config.interventions[0]).startswith('round 2: post by Harbour Gazette: "Correction')


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agents": [{"name": "A", "interests": ["x"]}] * 2}, "different names; twice: A"),
        ({"population": 3}, "give either population or agents, not both"),
        ({"seed_posts": 3}, "give either seed_posts or posts, not both"),
        ({"population": True, "agents": None}, "either population or agents"),
        ({"agents": [{"name": "A\nB", "interests": ["x"]}]}, "agents.0.name"),
        ({"agents": [{"name": "A", "interests": ["x\u2028y"]}]}, "agents.0.interests.0"),
        ({"agents": [{"name": "A", "interests": []}]}, "agents.0.interests"),
        ({"agents": []}, "agents"),
        ({"posts": [{"author": "A", "text": "", "topics": ["x"]}]}, "posts.0.text"),
        ({"reasoner": {"kind": "rule", "rationale": True}}, "a rule reads no prompt"),
        ({"writer": {"kind": "rule", "prompt": "x.md"}}, "a rule reads no prompt"),
        ({"interventions": [{"turn": 1}]}, "needs 'post', 'ban' or 'unban'"),
        ({"interventions": [{"turn": 1, "ban": ["A"], "unban": ["A"]}]}, "either ban or unban"),
        ({"feed": {"half_life": 0}}, "feed.half_life"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        social_config(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"population": "many"}, "population must be a whole number, not 'many'"),
        ({"population": -4}, "population: a population of -4 is not possible"),
        ({"population": 2, "seed_posts": 99}, "seed_posts: count=99: there are 25 posts"),
    ],
)
def test_a_wrong_shorthand_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        SocialConfig(**values)


def test_topics_are_lower_case_and_a_threshold_of_one_turn_is_refused() -> None:
    assert ProfileConfig(name="A", interests=["Tea "]).interests == ("tea",)
    with pytest.raises(ConfigError, match="timeout_threshold"):
        ProfileConfig(name="A", interests=["tea"], timeout_threshold=1)


def test_an_intervention_says_what_it_does() -> None:
    post = PostConfig(author="Press", text="News " * 30, topics=["tea"])
    item = SocialIntervention(turn=3, post=post, ban=["A"], unban=["B"], note="test")
    assert str(item).startswith('round 3: post by Press: "News News')
    assert str(item).endswith("ban A, unban B (test)")


# --- charts and prompts of one's own ----------------------------------------------------------


def scenario(tmp_path: Path, more: str) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(f"population: 3\n{more}\n", encoding="utf-8")
    return path


def test_a_chart_beside_the_file_is_read_into_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_CHART, encoding="utf-8")
    path = scenario(tmp_path, "chart: small.yaml\nreasoner: {kind: rule}")
    config = SocialConfig.from_yaml(path)
    assert isinstance(config.chart, ChartTable)
    simulation = SocialSimulation(config)
    assert set(simulation.chart.states) == {AgentState.IDLE, AgentState.SCROLLING}


def test_a_run_holds_the_chart_that_its_file_held(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL_CHART, encoding="utf-8")
    simulation = SocialSimulation(social_config(chart=path, reasoner={"kind": "rule"}))
    path.unlink()
    assert SocialSimulation(simulation.config).chart.initial is AgentState.IDLE


def test_a_chart_with_foreign_states_is_refused_by_the_simulation(tmp_path: Path) -> None:
    path = tmp_path / "lamp.yaml"
    path.write_text("initial: red\nstates: [red]\nfinal: [red]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="it does not know red"):
        SocialSimulation(social_config(chart=path, reasoner={"kind": "rule"}))


@pytest.mark.parametrize(
    ("trigger", "source"), [("opens_ap", "idle"), ("decides", "idle"), ("finishes", "resting")]
)
def test_a_trigger_that_no_turn_fires_is_refused(trigger: str, source: str) -> None:
    table = {
        "initial": "idle",
        "states": ["idle", "resting"],
        "transitions": [
            {"trigger": trigger, "source": source, "target": "resting"},
            {"trigger": "opens_app", "source": "idle", "target": "resting"},
            {"trigger": "timeout", "source": "resting", "target": "idle"},
        ],
    }
    with pytest.raises(ConfigError, match=f"no turn fires '{trigger}' in the state {source}"):
        SocialSimulation(social_config(chart=table, reasoner={"kind": "rule"}))


def test_a_chart_may_use_guards_that_are_given_with_it(tmp_path: Path) -> None:
    def never(agent: object, post: object) -> bool:
        return False

    table = {
        "initial": "idle",
        "states": ["idle", "scrolling"],
        "transitions": [
            {"trigger": "opens_app", "source": "idle", "target": "scrolling", "guard": "never"},
            {"trigger": "feed_empty", "source": "scrolling", "target": "idle"},
        ],
    }
    config = social_config(chart=table, reasoner={"kind": "rule"})
    path = tmp_path / "x.tape"
    simulation = SocialSimulation(config, guards={"never": never}, tape=path)
    simulation.run(2)
    simulation.fork(1).run(1)
    simulation.close()
    assert simulation.state_distribution()[AgentState.IDLE] == 6
    assert replay(path, 1, guards={"never": never}).turns == simulation.turns
    with pytest.raises(ConfigError, match="given guards of its own"):
        replay(path, 1)
    # They are this chart's alone: another simulation does not know them.
    with pytest.raises(
        ConfigError, match=r"chart: transitions\.0\.guard: there is no guard 'never'"
    ):
        SocialSimulation(config)


def test_the_shipped_guard_keeps_its_name() -> None:
    guards = {"interested": lambda agent, post: True}
    with pytest.raises(ConfigError, match="'interested' is shipped"):
        SocialSimulation(social_config(reasoner={"kind": "rule"}), guards=guards)


def test_prompts_named_in_a_file_are_found_beside_it(tmp_path: Path) -> None:
    path = scenario(
        tmp_path, "reasoner: {kind: llm, prompt: mine.md}\nwriter: {kind: llm, prompt: post.md}"
    )
    config = SocialConfig.from_yaml(path)
    assert config.reasoner.prompt == tmp_path / "mine.md"
    assert config.writer.prompt == tmp_path / "post.md"


def test_a_model_that_is_called_for_and_missing_is_named_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"the reasoner is of kind llm and needs a model"):
        SocialSimulation(social_config())
    config = social_config(reasoner={"kind": "rule"}, writer={"kind": "llm"})
    with pytest.raises(ConfigError, match=r"the writer is of kind llm and needs a model"):
        SocialSimulation(config)
