"""What a social simulation is made of: users, first posts, a chart, a feed.

Users and first posts may be numbers instead of lists: they are then those in ``data/social``.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.config import Settings, Words, YamlFile, beside, read_config
from llmsim_lab._util.files import data_path
from llmsim_lab.statechart._chart import ChartTable

_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
"""Names and topics stand in prompts outside quotation marks, so they must not begin new lines."""

Name = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True,
        max_length=100,
        pattern=_ONE_LINE,
    ),
]
Topic = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True,
        to_lower=True,
        max_length=60,
        pattern=_ONE_LINE,
    ),
]
_MOST_TOPICS = 200
"""Of a user or a post: each of one is looked for among those of the other."""
_Share = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
    ),
]


class ProfileConfig(Settings):
    """Who a user is.

    Attributes:
        name: unique in the run.
        interests: topics.
        personality: a sentence or two, which the reasoner reads.
        activity: the chance that an idle user opens the app in a turn.
        engagement_threshold: the share of a post's topics that must be among the interests for
            the user to look closely.
        timeout_threshold: turns after which the user has been in a state too long; at least 2,
            since with 1 the time is up before the user decides anything.
    """

    name: Name
    interests: Annotated[tuple[Topic, ...], Field(min_length=1, max_length=_MOST_TOPICS)]
    personality: str = ""
    activity: _Share = 0.5
    engagement_threshold: _Share = 0.5
    timeout_threshold: Annotated[int, Field(ge=2, le=1000)] = 5


class PostConfig(Settings):
    """A post that the run begins with, or that is injected.

    Attributes:
        author: a user's name, or that of an outsider.
        text: its words.
        topics: what it is about.
    """

    author: Name
    text: Annotated[Words, Field(max_length=5_000)]
    topics: Annotated[tuple[Topic, ...], Field(min_length=1, max_length=_MOST_TOPICS)]


# Cached: a configuration is made for every run of a study.
@cache
def _shipped(name: str) -> list[dict[str, Any]]:
    file = YamlFile.read(data_path(f"social/{name}.yaml"))
    rows: list[dict[str, Any]] = file.values[name]
    return rows


_MOST_USERS = 100_000
_MOST_MADE = 10_000
"""Users who are made from a number: a turn of so many takes half a second where rules answer."""
MOST_SCORES = 20_000_000
"""Users times posts in circulation: each post has a score for each user, 8 bytes in some tables."""
_Weight = Annotated[
    float,
    Field(
        ge=0,
        le=100,
        allow_inf_nan=False,
    ),
]


class FeedConfig(Settings):
    """How the post that a user sees next is chosen.

    A post's score is the weighted sum of its match with the user's interests (0 to 1), its recency
    (1 when new, halved every ``half_life`` turns), its popularity (0 to 1, logarithmic), and a
    draw from the Gumbel distribution, which makes the choice a random utility model (a logit).

    Attributes:
        interest: weight of the match.
        recency: weight of the recency.
        popularity: weight of the popularity.
        noise: weight of the draw.
        half_life: turns.
        max_age: turns after which a post is out of everybody's feed.
        max_posts: how many posts are in circulation at most; those of least recency and
            popularity leave first.
    """

    interest: _Weight = 2.0
    recency: _Weight = 1.0
    popularity: _Weight = 1.0
    noise: _Weight = 0.3
    half_life: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            allow_inf_nan=False,
        ),
    ] = 3.0
    max_age: Annotated[int, Field(ge=1, le=1000)] = 10
    max_posts: Annotated[int, Field(ge=1, le=10_000)] = 200


# --- parameters of the simulation ----------------------------------------------------------------


def _users(users: object, info: ValidationInfo) -> object:
    """Return users; where only their number is given, with distinct names.

    They are the shipped profiles, then new ones made from them: a new user has one profile's name
    with a number after it, personality, activity and thresholds, and the interests of another,
    drawn one. A larger population of the same seed begins with the smaller one.
    """
    if not isinstance(users, int):
        return users
    # Not by pydantic: the type of the field is the list that this number stands for.
    users = whole_number("population", users)  # True is not a number
    if not 1 <= users <= _MOST_MADE:
        raise ValueError(f"a population of {users} is not possible; give 1 to {_MOST_MADE:,}")
    shipped = _shipped("profiles")
    # A stream of its own, apart from the run's other draws, which have the same seed.
    rng = random.Random(f"population/{(info.data or {}).get('seed', 0)}")
    profiles = shipped[:users]
    for place in range(len(shipped), users):
        rounds, model = divmod(place, len(shipped))
        # A copy: the shipped rows are cached, for all runs.
        profile = dict(shipped[model])
        profile["name"] = f"{profile['name']} {rounds + 1}"
        profile["interests"] = rng.choice(shipped)["interests"]
        profiles.append(profile)
    return profiles


def _first_posts(posts: object) -> object:
    """Return posts; where only their number is given, the first ones of those shipped."""
    if not isinstance(posts, int):
        return posts
    posts = whole_number("seed_posts", posts)
    shipped = _shipped("posts")
    if not 0 <= posts <= len(shipped):
        raise ValueError(f"there are {len(shipped)} posts to begin with, not {posts}")
    return shipped[:posts]


def _names_differ(users: tuple[ProfileConfig, ...]) -> tuple[ProfileConfig, ...]:
    counts = Counter(user.name for user in users)
    [(name, count)] = counts.most_common(1)
    # Users are found by their names: seats, bans, authors.
    if count > 1:
        raise ValueError(f"users must have different names; twice: {name}")
    return users


def _table(chart: object, info: ValidationInfo) -> object:
    """Return the chart that a parameter names: a file, or the content of one."""
    # What the file holds, so that a tape needs no other file.
    if not isinstance(chart, str | Path):
        return chart
    return read_config(beside(Path(chart), info), ChartTable)


Population = Annotated[
    tuple[ProfileConfig, ...],
    BeforeValidator(_users),
    Field(min_length=1, max_length=_MOST_USERS),
    AfterValidator(_names_differ),
]
SeedPosts = Annotated[tuple[PostConfig, ...], BeforeValidator(_first_posts)]
Chart = Annotated[ChartTable | None, BeforeValidator(_table)]
