"""The state of a social network after a turn, and what must hold of one.

States that a run makes are valid. Those that somebody edits for a fork, or writes by hand, may not
be, and a wrong one raises nothing later: a user whose state is not in the chart never moves, and a
post of a later turn never gets old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from llmsim_lab.errors import ConfigError
from llmsim_lab.run import State
from llmsim_lab.statechart._agent import DecidedBy, Post
from llmsim_lab.statechart._chart import AgentState, Statechart

_Count = Annotated[int, Field(ge=0)]


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
    """One transition of one user in a turn; see ``StateTransition``."""

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
        kept: posts out of circulation that somebody is still looking at or answering.
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
        """The posts that somebody may act on, by id."""
        posts = {entry.post.id: entry.post for entry in self.feed}
        return posts | {post.id: post for post in self.kept}

    def columns(self) -> dict[str, Any]:
        """Return what was done in the turn, and how many users are in each state.

        Columns: ``likes``, ``replies``, ``reshares``, ``posts``, made in the turn; one for each
        state; ``moves``; ``asked``, moves that had several options; ``banned``, users.
        """
        counts = Counter(person.state for person in self.people)
        made = Counter(post.kind for post in self.new_posts)
        return {
            "likes": len(self.likes),
            "replies": made["reply"],
            "reshares": made["reshare"],
            "posts": made["original"],
            **{state.value: counts[state] for state in AgentState},
            "moves": len(self.moves),
            "asked": sum(move.decided_by == "reasoner" for move in self.moves),
            "banned": sum(person.banned for person in self.people),
        }


# --- what must hold of a state -------------------------------------------------------------------


def check_state(
    state: SocialState,
    *,
    users: Sequence[str],
    chart: Statechart[AgentState],
    earlier: Mapping[int, Post],
) -> None:
    """Raise ConfigError if a run cannot continue from a state.

    Args:
        state: the state.
        users: the run's.
        chart: its states are the legal ones.
        earlier: all posts of the turns before it, by id; none where it is the first.
    """
    faults = [
        *_people_faults(state, users, chart),
        *_post_faults(state, frozenset(users)),
        *_history_faults(state, earlier),
    ]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ConfigError(f"the state of turn {state.at} is not valid: {faults[0]}{more}")


def _people_faults(
    state: SocialState, users: Sequence[str], chart: Statechart[AgentState]
) -> Iterator[str]:
    # In the same order too: a turn finds users by their places.
    names = [person.name for person in state.people]
    if names != list(users):
        first = next(
            (f"{a!r} where {b!r} is" for a, b in zip(names, users, strict=False) if a != b),
            f"{len(names)} users where there are {len(users)}",
        )
        yield f"it has {first} in the configuration"
    at_hand = state.at_hand
    for person in state.people:
        who = f"user {person.name!r}"
        if person.state not in chart.states:
            there = ", ".join(chart.states)
            yield f"{who}: the chart has no state {person.state.value!r}; it has: {there}"
        if person.post is not None and person.post not in at_hand:
            there = ", ".join(map(str, list(at_hand)[:10])) or "none"
            yield f"{who}: post={person.post} is neither in feed nor in kept; there are: {there}"
        if unknown := [seen for seen in person.seen if not 0 < seen < state.next_post]:
            yield f"{who}: seen has {unknown[0]}, {_ids(state)}"


def _post_faults(state: SocialState, users: frozenset[str]) -> Iterator[str]:
    known: dict[int, Post] = {}
    for post in (*state.at_hand.values(), *state.new_posts):
        if known.setdefault(post.id, post) != post:
            yield f"post {post.id} is not the same as the other post of that number"
    for post in known.values():
        yield from (f"post {post.id}: {what}" for what in _faults(post, state, users))
        parent = known.get(post.parent or 0)
        if parent is not None and _root(parent) != post.root:
            yield (
                f"post {post.id}: root={post.root}, but the root of its parent, post {parent.id}, "
                f"is {_root(parent)}"
            )
    for post in state.new_posts:
        if post.turn != state.at:
            yield f"new_posts: post {post.id} was made in turn {post.turn}, not in this one"
    # Equal scores are settled by the place in the feed, so the order decides what users see.
    for before, after in pairwise(entry.post.id for entry in state.feed):
        if before >= after:
            yield f"feed: post {after} stands behind post {before}; the oldest is first, each once"


def _faults(post: Post, state: SocialState, users: Iterable[str]) -> Iterator[str]:
    if not 0 < post.id < state.next_post:
        yield _ids(state)
    if not 0 <= post.turn <= state.at:
        yield f"turn={post.turn} must be from 0 to {state.at}"
    if not post.text.strip():
        yield f"text={post.text!r:.80} says nothing"
    references: dict[str, int | None] = {"root": post.root}
    if post.kind == "original":
        references = {} if post.root in (None, post.id) else references
    else:
        references["parent"] = post.parent
        if post.author not in users:
            yield f"a {post.kind} is always a user's, and there is no user {post.author!r:.80}"
    if post.kind == "reshare":
        references["copy_of"] = post.copy_of
    # Only to older posts: a cascade is then a tree, and following it ends.
    for name, number in references.items():
        if number is None or not 0 < number < post.id:
            yield f"{name}={number} must be the number of an older post, from 1 to {post.id - 1}"


def _history_faults(state: SocialState, earlier: Mapping[int, Post]) -> Iterator[str]:
    # What earlier turns hold is on the tape already, and read from there by frames and cascades.
    new = {post.id for post in state.new_posts}
    way = "put in another one: set 'post' to {'author': ..., 'text': ..., 'topics': [...]}"
    for number, post in state.at_hand.items():
        if not earlier or number in new:
            continue
        if number not in earlier:
            yield f"post {number} by {post.author!r} was made in no turn; {way}"
        elif post != earlier[number]:
            yield (
                f"post {number} by {post.author!r} is not as turn {earlier[number].turn} left it, "
                f"and what was said cannot be unsaid; {way}"
            )


def _root(post: Post) -> int:
    return post.id if post.root is None else post.root


def _ids(state: SocialState) -> str:
    return (
        f"but numbers are given out from 1 to below next_post={state.next_post}, which is the next "
        "post's; correct one of the two"
    )
