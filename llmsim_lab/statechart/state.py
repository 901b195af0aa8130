"""The state of a social network after a round, and the record of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llmsim_lab.calls import Status
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs import RunTurn
from llmsim_lab.statechart.agent import DecidedBy
from llmsim_lab.statechart.config import SocialIntervention
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.states import AgentState

__all__ = ["FeedEntry", "Like", "Move", "Person", "SocialState", "SocialTurn"]

_MOST_IN_WORDS = 20


class Person(NamedTuple):
    """What changes about a user from round to round.

    Attributes:
        name: the user's.
        state: what the user is doing.
        ticks: rounds spent doing that.
        post: the id of the post that it is about, if any.
        seen: what the user has seen or written of the posts in circulation: their ``content``.
        banned: whether the user may not act.
    """

    name: str
    state: AgentState = AgentState.IDLE
    ticks: int = 0
    post: int | None = None
    seen: tuple[int, ...] = ()
    banned: bool = False


class FeedEntry(NamedTuple):
    """A post in circulation and how it was received so far."""

    post: Post
    likes: int = 0
    replies: int = 0
    reshares: int = 0

    @property
    def engagement(self) -> int:
        """Likes, replies and reshares together."""
        return self.likes + self.replies + self.reshares


class Like(NamedTuple):
    """Who liked which post."""

    agent: str
    post: int


class Move(NamedTuple):
    """One transition of one user in a round; see ``StateTransition``."""

    agent: str
    trigger: str
    source: AgentState
    target: AgentState
    decided_by: DecidedBy = "chart"
    status: Status = "ok"
    post: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SocialState:
    """The network after a round.

    What it holds does not grow with the rounds: posts that went out of circulation are in the turns
    that made them.

    Attributes:
        round: 0 for the state a run begins with.
        people: the users, in the configuration's order.
        feed: the posts in circulation, oldest first.
        new_posts: those made in this round, injected ones included.
        kept: posts out of circulation that somebody is still looking at or answering.
        next_post: the id that the next post gets.
    """

    round: int
    people: tuple[Person, ...]
    feed: tuple[FeedEntry, ...] = ()
    new_posts: tuple[Post, ...] = ()
    kept: tuple[Post, ...] = ()
    next_post: int = 1

    @property
    def at_hand(self) -> dict[int, Post]:
        """The posts that somebody may act on, by id."""
        posts = {entry.post.id: entry.post for entry in self.feed}
        return posts | {post.id: post for post in self.kept}


@dataclass(frozen=True, slots=True, kw_only=True)
class SocialTurn(RunTurn[SocialState, SocialIntervention]):
    """A round.

    Attributes:
        moves: what the users did, in the users' order.
        likes: who liked what.
        asked: how many moves were ambiguous, so that the reasoner was asked.
    """

    moves: tuple[Move, ...] = ()
    likes: tuple[Like, ...] = ()
    asked: int = 0

    def own_columns(self) -> dict[str, Any]:
        """Return how many users are in each state, what they did, and what the reasoner decided.

        Columns: one for each state; ``moves``; ``asked``, ambiguous moves; ``likes``, ``posts``,
        ``replies``, ``reshares``, made in the round; ``banned``, users.
        """
        counts = dict.fromkeys((state.value for state in AgentState), 0)
        for person in self.state.people:
            counts[person.state] += 1
        made = [post.kind for post in self.state.new_posts]
        return {
            **counts,
            "moves": len(self.moves),
            "asked": self.asked,
            "likes": len(self.likes),
            "posts": made.count("original"),
            "replies": made.count("reply"),
            "reshares": made.count("reshare"),
            "banned": sum(person.banned for person in self.state.people),
        }

    def in_words(self) -> Sequence[str]:
        """Return how many did what, and the first few moves that were decided."""
        own = {name: value for name, value in self.own_columns().items() if value}
        lines = ["it led to: " + ", ".join(f"{name} {value}" for name, value in own.items())]
        decided = [move for move in self.moves if move.decided_by == "reasoner"]
        lines += [
            f"{move.agent}: {move.trigger} -> {move.target.value} ({move.status}"
            + (f", post {move.post})" if move.post is not None else ")")
            for move in decided[:_MOST_IN_WORDS]
        ]
        if len(decided) > _MOST_IN_WORDS:
            lines.append(f"and {len(decided) - _MOST_IN_WORDS} more that were decided")
        return lines

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return ``moved_to`` of what the reasoner decided: the state that the user went to."""
        targets = {move.agent: str(move.target) for move in self.moves}
        return [
            {"moved_to": targets.get(chain.agent) if chain.component == "reasoner" else None}
            for chain in chains
        ]
