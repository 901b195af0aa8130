"""Which post a user sees next: a random utility model over the posts in circulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from llmsim_lab.statechart.config import FeedConfig
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.profiles import ProfileConfig
from llmsim_lab.statechart.state import FeedEntry, SocialState

__all__ = ["FeedSelector", "circulate"]

Matrix = np.ndarray[Any, np.dtype[np.float64]]


class FeedSelector:
    """Chooses posts for users.

    Args:
        config: the weights.
        profiles: the users, in the run's order.
        seed: of the draws; the same round of the same run has the same draws, whoever scrolls.
    """

    def __init__(self, config: FeedConfig, profiles: Sequence[ProfileConfig], *, seed: int) -> None:
        self.config = config
        self.seed = seed
        topics = sorted({topic for profile in profiles for topic in profile.interests})
        self._columns = {topic: place for place, topic in enumerate(topics)}
        self._interests: Matrix = np.zeros((len(profiles), len(topics)))
        for row, profile in enumerate(profiles):
            for topic in profile.interests:
                self._interests[row, self._columns[topic]] = 1.0

    def choose(self, state: SocialState, rows: Sequence[int]) -> list[Post | None]:
        """Return the post that each of some users sees next; None where there is none left.

        A user sees no own posts, nothing seen before, be it in a post or a reshare of it, and no
        post or reshare by a banned user; what others passed on from one stays.

        Args:
            state: the network.
            rows: the users' places among ``state.people``.
        """
        if not rows or not state.feed:
            return [None] * len(rows)
        scores = self._scores(state)[list(rows)]
        places: dict[int, list[int]] = {}
        for place, entry in enumerate(state.feed):
            places.setdefault(entry.post.content, []).append(place)
        for line, row in enumerate(rows):
            person = state.people[row]
            hidden = [place for content in person.seen for place in places.get(content, ())]
            scores[line, hidden] = -np.inf
        banned = {person.name for person in state.people if person.banned}
        out = [place for place, entry in enumerate(state.feed) if entry.post.author in banned]
        scores[:, out] = -np.inf
        best = scores.argmax(axis=1)
        return [
            None if scores[line, place] == -np.inf else state.feed[place].post
            for line, place in enumerate(best)
        ]

    def _scores(self, state: SocialState) -> Matrix:
        """Return the utility of each post in circulation for each user, users by posts."""
        config, feed = self.config, state.feed
        about: Matrix = np.zeros((len(feed), self._interests.shape[1]))
        for row, entry in enumerate(feed):
            for topic in entry.post.topics:
                if topic in self._columns:
                    about[row, self._columns[topic]] += 1.0  # as often as the post names it
        counts = np.array([max(len(entry.post.topics), 1) for entry in feed], dtype=np.float64)
        match = (self._interests @ about.T) / counts
        general = np.array(_appeal(feed, config, state.round), dtype=np.float64)
        draws = np.random.default_rng([self.seed, state.round]).gumbel(size=match.shape)
        scores: Matrix = config.interest * match + general + config.noise * draws
        return scores


def circulate(
    feed: Sequence[FeedEntry],
    new: Sequence[FeedEntry],
    *,
    number: int,
    config: FeedConfig,
) -> tuple[FeedEntry, ...]:
    """Return the posts in circulation after a round, oldest first.

    Args:
        feed: those before it.
        new: those made in it.
        number: that round's.
        config: how long posts circulate, and how many; those of least recency and popularity go
            first.
    """
    young = [*(entry for entry in feed if number - entry.post.round < config.max_age), *new]
    if len(young) <= config.max_posts:
        return tuple(young)
    appeal = _appeal(young, config, number)
    # Of equals the newer ones stay.
    best = sorted(range(len(young)), key=lambda place: (appeal[place], place))[-config.max_posts :]
    return tuple(young[place] for place in sorted(best))


def _appeal(feed: Sequence[FeedEntry], config: FeedConfig, number: int) -> list[float]:
    """Return the part of each post's score that is the same for all users, without the draw."""
    most = max(math.log1p(max(entry.engagement for entry in feed)), math.log(2.0))
    return [
        config.recency * 0.5 ** ((number - entry.post.round) / config.half_life)
        + config.popularity * math.log1p(entry.engagement) / most
        for entry in feed
    ]
