"""Any number of users, made from the profiles in ``data/social``, and posts to begin with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product

from pydantic import BaseModel

from llmsim_lab.errors import ConfigError
from llmsim_lab.files import data_path
from llmsim_lab.statechart.profiles import PostConfig, ProfileConfig
from llmsim_lab.yaml_file import read_config

__all__ = ["population", "seed_posts"]


class _Profiles(BaseModel):
    profiles: tuple[ProfileConfig, ...]


class _Posts(BaseModel):
    posts: tuple[PostConfig, ...]


@cache
def _profiles() -> tuple[ProfileConfig, ...]:
    return read_config(data_path("social/profiles.yaml"), _Profiles).profiles


@cache
def _posts() -> tuple[PostConfig, ...]:
    return read_config(data_path("social/posts.yaml"), _Posts).posts


def population(size: int, *, seed: int = 0) -> tuple[ProfileConfig, ...]:
    """Return users with distinct names: the shipped profiles, then new ones put together from them.

    A new user has one profile's interests with one of them swapped for another's, the temper of a
    second (personality, activity, threshold), and first and family name of two others. A larger
    population of the same seed begins with the smaller one.

    Args:
        size: how many.
        seed: of what is put together; the shipped profiles come first whatever it is.

    Raises:
        ConfigError: a negative number.
    """
    shipped = _profiles()
    if size < 0:
        raise ConfigError(f"a population of {size} cannot be; give 0 or more")
    rng = random.Random(f"population/{seed}")
    names = _new_names(shipped, rng)
    topics = sorted({topic for profile in shipped for topic in profile.interests})
    new = [_mixed(next(names), shipped, topics, rng) for _ in range(size - len(shipped))]
    return (*shipped[:size], *new)


def _mixed(
    name: str, shipped: tuple[ProfileConfig, ...], topics: list[str], rng: random.Random
) -> ProfileConfig:
    likes, temper = rng.choice(shipped), rng.choice(shipped)
    interests = list(likes.interests)
    fresh = rng.choice([topic for topic in topics if topic not in interests])
    interests[rng.randrange(len(interests))] = fresh
    return temper.model_copy(update={"name": name, "interests": tuple(interests)})


def _new_names(shipped: tuple[ProfileConfig, ...], rng: random.Random) -> Iterator[str]:
    """Yield names that no shipped profile has; once all pairs are used up, with a number."""
    taken = {profile.name for profile in shipped}
    firsts, lasts = zip(*(profile.name.split(" ", 1) for profile in shipped), strict=True)
    pairs = [f"{first} {last}" for first, last in product(firsts, lasts)]
    pairs = [name for name in pairs if name not in taken]
    rng.shuffle(pairs)
    yield from pairs
    number = 2
    while True:
        yield from (f"{name} {number}" for name in pairs)
        number += 1


def seed_posts(count: int | None = None) -> tuple[PostConfig, ...]:
    """Return the shipped posts, or the first so many of them.

    Raises:
        ConfigError: there are not so many.
    """
    posts = _posts()
    if count is not None and not 0 <= count <= len(posts):
        raise ConfigError(f"count={count}: there are {len(posts)} posts to begin with")
    return posts[:count]
