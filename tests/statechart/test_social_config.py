"""What a social simulation may be configured with, and populations made from the profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from social_kit import make_social, social_values

from llmsim_lab.errors import ConfigError
from llmsim_lab.run import replay
from llmsim_lab.run._registry import class_and_config
from llmsim_lab.statechart import AgentState, SocialSimulation

SMALL_CHART = """
initial: idle
states: [idle, scrolling]
transitions:
  - {trigger: opens_app, source: idle, target: scrolling}
  - {trigger: feed_empty, source: scrolling, target: idle}
"""


def population(size: int, seed: int = 0) -> Any:
    return SocialSimulation.config_type(population=size, seed=seed).population


def test_a_population_begins_with_the_shipped_profiles_and_continues_with_new_ones() -> None:
    people = population(100, seed=5)
    assert people[:40] == population(40)
    assert len({person.name for person in people}) == 100
    assert all(len(set(person.interests)) == 3 for person in people)
    assert people[40:] != population(100, seed=6)[40:]
    assert population(60, seed=5) == people[:60]


def test_a_population_is_one_number_in_a_call_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("kind: social\npopulation: 50\nseed_posts: 8\nplayers: rule\nseed: 2\n")
    config = class_and_config(path)[1]
    assert config.population == population(50, seed=2)
    assert len(config.seed_posts) == 8
    assert config == SocialSimulation(population=50, seed_posts=8, players="rule", seed=2).config
    assert not config.needs_model


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"population": [{"name": "A", "interests": ["x"]}] * 2}, "different names; twice: A"),
        ({"population": "many"}, "population: Input should be a valid tuple"),
        ({"population": -4}, "a population of -4 is not possible"),
        ({"seed_posts": 99}, "there are 25 posts to begin with, not 99"),
        ({"population": [{"name": "A\nB", "interests": ["x"]}]}, "population.0.name"),
        ({"population": [{"name": "A", "interests": ["x\u2028y"]}]}, "population.0.interests.0"),
        ({"population": [{"name": "A", "interests": []}]}, "population.0.interests"),
        ({"population": []}, "population"),
        ({"seed_posts": [{"author": "A", "text": "", "topics": ["x"]}]}, "seed_posts.0.text"),
        ({"feed": {"half_life": 0}}, "feed.half_life"),
        ({"agents": []}, "agents"),
        ({"reasoner": "rule"}, "players={'reasoner': 'rule'}"),
        ({"writer": "rule"}, "players={'writer': 'rule'}"),
    ],
)
def test_what_makes_no_sense_is_an_error_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_social(**values)


# --- charts and guards of one's own -------- ----------------------------------------------------


def test_a_chart_beside_the_file_is_read_into_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_CHART, encoding="utf-8")
    path = tmp_path / "town.yaml"
    path.write_text("kind: social\npopulation: 3\nchart: small.yaml\n")
    config = class_and_config(path)[1]
    (tmp_path / "small.yaml").unlink()
    run = SocialSimulation(config, players="rule")
    assert set(run.statechart.states) == {AgentState.IDLE, AgentState.SCROLLING}


@pytest.mark.parametrize(
    ("trigger", "source"), [("opens_ap", "idle"), ("decides", "idle"), ("finishes", "resting")]
)
def test_a_trigger_that_no_turn_fires_is_an_error(trigger: str, source: str) -> None:
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
        make_social(chart=table)


GUARDED = {
    "initial": "idle",
    "states": ["idle", "scrolling"],
    "transitions": [
        {"trigger": "opens_app", "source": "idle", "target": "scrolling", "guard": "never"},
        {"trigger": "feed_empty", "source": "scrolling", "target": "idle"},
    ],
}


class Guarded(SocialSimulation):
    guards = {**SocialSimulation.guards, "never": lambda agent, post: False}  # noqa: RUF012


def test_a_class_of_ones_own_has_guards_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.tape"
    run = Guarded(**social_values(chart=GUARDED, players="rule"), tape=path)
    run.run(2)
    run.fork(1).run(1)
    run.close()
    assert {person.state for person in run.state.people} == {AgentState.IDLE}
    assert replay(path, 1).turns == run.turns
    with pytest.raises(ConfigError, match=r"there is no guard 'never'.*guards = \{\*\*SocialSim"):
        make_social(chart=GUARDED)
