"""What a social simulation may be configured with, and populations made from the profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from builders import config_in, played, recorded
from social_kit import make_social, picks, social_values

from llmsim_lab.errors import ConfigError
from llmsim_lab.run import replay
from llmsim_lab.statechart import Post, SocialAgent, SocialSimulation
from llmsim_lab.statechart.config import FeedConfig


def population(size: int, seed: int = 0) -> Any:
    return SocialSimulation.config_type(population=size, seed=seed).population


def test_a_population_begins_with_the_shipped_profiles_and_continues_with_new_ones() -> None:
    people = population(100, seed=5)
    assert people[:40] == population(40)
    assert len({person.name for person in people}) == 100
    for place in (40, 79, 80, 99):
        model = people[place % 40]
        assert people[place].name == f"{model.name} {place // 40 + 1}"
        same = {"name": model.name, "interests": model.interests}
        assert people[place].model_copy(update=same) == model
        assert people[place].interests in {person.interests for person in people[:40]}
    assert people[40:] != population(100, seed=6)[40:]
    assert population(60, seed=5) == people[:60]
    assert SocialSimulation.config_type(seed_posts=0).seed_posts == ()


def test_names_and_topics_lose_the_space_around_them_and_topics_are_lower_case() -> None:
    users = [{"name": " Ann Lee ", "interests": [" Green Tea "]}]
    [user] = SocialSimulation.config_type(population=users).population
    assert (user.name, user.interests) == ("Ann Lee", ("green tea",))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"population": [{"name": "A", "interests": ["x"]}] * 2}, "different names; twice: A"),
        ({"population": 0}, "a population of 0 is not possible; give 1 to 10,000"),
        ({"population": 10**9}, "give 1 to 10,000"),
        ({"population": []}, "population"),
        ({"population": [{"name": "A\nB", "interests": ["x"]}]}, "population.0.name"),
        ({"population": [{"name": "A", "interests": ["x\u2028y"]}]}, "population.0.interests.0"),
        ({"population": [{"name": "A", "interests": []}]}, "population.0.interests"),
        ({"seed_posts": 99}, "there are 25 posts to begin with, not 99"),
        ({"seed_posts": -1}, "there are 25 posts to begin with, not -1"),
        ({"seed_posts": [{"author": "A", "text": "", "topics": ["x"]}]}, "seed_posts.0.text"),
        ({"feed": {"half_life": 0}}, "feed.half_life"),
        ({"reasoner": "rule"}, "players={'reasoner': 'rule'}"),
        ({"writer": "rule"}, "players={'writer': 'rule'}"),
    ],
)
def test_what_makes_no_sense_is_an_error_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_social(**values)


# --- charts and guards of one's own --------------------------------------------------------------


def table(*rows: str) -> dict[str, Any]:
    """Return a chart of moves such as ``opens_app idle scrolling``, with a guard or without."""
    keys = ("trigger", "source", "target", "guard")
    moves = [dict(zip(keys, row.split(), strict=False)) for row in rows]
    return {"initial": "idle", "states": ["idle", "scrolling", "resting"], "transitions": moves}


def test_a_file_may_say_all_in_numbers_and_name_a_chart_beside_it(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "initial: idle\nstates: [idle, scrolling]\n"
        "transitions: [{trigger: opens_app, source: idle, target: scrolling}]\n"
    )
    path = tmp_path / "town.yaml"
    path.write_text(
        "kind: social\npopulation: 50\nseed_posts: 8\nseed: 2\nplayers: rule\nchart: small.yaml\n"
    )
    config = config_in(path)
    (tmp_path / "small.yaml").unlink()  # a run on a tape needs no other file
    assert (config.population, len(config.seed_posts)) == (population(50, seed=2), 8)
    assert SocialSimulation(config).statechart.states == ("idle", "scrolling")


def test_a_user_with_two_ways_to_go_is_asked_and_one_with_a_single_way_is_not() -> None:
    chart = table("opens_app idle scrolling", "opens_app idle resting", "timeout resting idle")
    run = played(make_social(chart=chart, users=1, replies=picks("resting")), 8)
    moves = [move for turn in run.turns for move in turn.state.moves]
    assert [(it.target.value, it.decided_by) for it in moves] == [
        ("resting", "reasoner"),
        ("idle", "timeout"),
        ("resting", "reasoner"),
    ]


@pytest.mark.parametrize("row", ["opens_ap idle resting", "finishes resting idle"])
def test_a_trigger_that_no_turn_fires_is_an_error(row: str) -> None:
    trigger, source, _ = row.split()
    with pytest.raises(ConfigError, match=f"no turn fires '{trigger}' in the state {source}"):
        make_social(chart=table("opens_app idle resting", row))


GUARDED = table(
    "opens_app idle scrolling", "timeout scrolling idle never", "feed_empty scrolling idle"
)


class Guarded(SocialSimulation):
    guards = {"never": lambda agent, post: False}  # noqa: RUF012


def test_a_class_of_ones_own_has_guards_and_one_may_keep_users_from_timing_out(path: Path) -> None:
    values = social_values(1, chart={**GUARDED, "timeouts": {"scrolling": 1}}, seed_posts=[])
    run = recorded(Guarded(**values | {"players": "rule"}, tape=path), 2)
    assert [move.trigger for turn in run.turns for move in turn.state.moves] == [
        "opens_app",
        "feed_empty",
    ]
    assert replay(path).turns == run.turns
    with pytest.raises(ConfigError, match=r"there is no guard 'never'.*class Town\("):
        make_social(chart=GUARDED)


def test_what_is_left_out_is_as_documented() -> None:
    values = SocialSimulation.config_type()
    assert (len(values.population), len(values.seed_posts), values.shuffle) == (12, 8, True)
    [user] = SocialSimulation.config_type(
        population=[{"name": "Ann", "interests": ["sea"]}]
    ).population
    made = SocialAgent("Ann")
    for one in (user, made):
        assert (one.activity, one.engagement_threshold, one.timeout_threshold) == (0.5, 0.5, 5)
    assert not SocialSimulation.guards["interested"](made, Post(id=1, author="Bob", text=""))
    assert FeedConfig().model_dump() == {
        "interest": 2.0,
        "recency": 1.0,
        "popularity": 1.0,
        "noise": 0.3,
        "half_life": 3.0,
        "max_age": 10,
        "max_posts": 200,
    }
