"""The state of a social network after a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from llmsim_lab.run import State
from llmsim_lab.statechart._agent import DecidedBy, Post
from llmsim_lab.statechart._chart import AgentState

_Count = Annotated[int, Field(ge=0, le=10**9)]
"""As far as a tape counts turns."""


class UserState(NamedTuple):
    """What changes about a user from turn to turn.

    Attributes:
        name: the user's.
        state: what the user is doing.
        ticks: turns spent doing that.
        post: the id of the post that it is about, if any.
        seen: what the user has seen or written of the posts in circulation: their ``content``.
        banned: whether the user may not act.
    """

    name: str
    state: AgentState = AgentState.IDLE
    ticks: _Count = 0
    post: int | None = None
    seen: tuple[int, ...] = ()
    banned: bool = False

    def with_ban(self, banned: bool) -> UserState:
        """Return the user, banned or not."""
        return self._replace(banned=banned)

    def having_seen(self, contents: Iterable[int]) -> UserState:
        """Return the user, who has seen these posts too."""
        return self._replace(seen=(*self.seen, *contents))


class FeedEntry(NamedTuple):
    """A post in circulation and how it was received so far."""

    post: Post
    likes: _Count = 0
    replies: _Count = 0
    reshares: _Count = 0

    @property
    def engagement(self) -> int:
        """Likes, replies and reshares together."""
        return self.likes + self.replies + self.reshares


class Like(NamedTuple):
    """Who liked which post."""

    agent: str
    post: int


class Move(NamedTuple):
    """One transition of one user in a turn.

    Attributes:
        agent: the user's name.
        trigger: the event.
        source: the state that was left.
        target: the state that was entered.
        decided_by: who chose the target.
        post: the id of the post it was about, if it was about one.
    """

    agent: str
    trigger: str
    source: AgentState
    target: AgentState
    decided_by: DecidedBy = "chart"
    post: int | None = None


class SocialState(State):
    """The network after a turn, and what was done in it.

    Its size does not grow with the run: posts that left circulation are in the turns that made
    them.

    Attributes:
        at: the turn; 0 for the state a run begins with.
        people: the users, in the configuration's order.
        feed: the posts in circulation, oldest first.
        new_posts: those made in this turn, and those put in from outside.
        kept: posts out of circulation that a user is still looking at or answering.
        next_post: the id that the next post gets.
        moves: what the users did, in the users' order.
        likes: who liked what.
    """

    at: _Count = 0
    people: tuple[UserState, ...] = ()
    feed: tuple[FeedEntry, ...] = ()
    new_posts: tuple[Post, ...] = ()
    kept: tuple[Post, ...] = ()
    next_post: Annotated[int, Field(ge=1)] = 1
    moves: tuple[Move, ...] = ()
    likes: tuple[Like, ...] = ()

    @property
    def at_hand(self) -> dict[int, Post]:
        """The posts that a user may act on, by id."""
        posts = {entry.post.id: entry.post for entry in self.feed}
        # What a user is looking at may have left circulation since.
        for post in self.kept:
            posts[post.id] = post
        return posts

    def columns(self) -> dict[str, Any]:
        """Return what was done in the turn, and how many users are in each state.

        Columns: ``likes``, ``replies``, ``reshares``, ``posts``, made in the turn; one for each
        state; ``moves``; ``asked``, moves that had several options; ``banned``, users.
        """
        counts = Counter(person.state for person in self.people)
        kinds = Counter(post.kind for post in self.new_posts)
        deciders = Counter(move.decided_by for move in self.moves)
        columns: dict[str, Any] = {
            "likes": len(self.likes),
            "replies": kinds["reply"],
            "reshares": kinds["reshare"],
            "posts": kinds["original"],
        }
        # All states, so that a frame has the same columns whatever happened.
        for state in AgentState:
            columns[state.value] = counts[state]
        columns["moves"] = len(self.moves)
        # Those that a fallback decided included: their users were asked.
        columns["asked"] = deciders["reasoner"]
        columns["banned"] = sum(person.banned for person in self.people)
        return columns
