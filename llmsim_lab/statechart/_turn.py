"""One turn of the social network: what users see, what they may do, and what comes of it.

Pure calculations around the reasoner's choices. Everybody acts on the network as the turn before
left it, so the order of users does not matter: first every user's legal moves are found, then the
ambiguous ones are decided all at once, then all moves are made and their posts and likes go out.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmsim_lab._util.text import log_event
from llmsim_lab.statechart._agent import DecidedBy, Post, PostKind, SocialAgent
from llmsim_lab.statechart._chart import TIMEOUT, AgentState, Statechart
from llmsim_lab.statechart._config import FeedConfig, ProfileConfig
from llmsim_lab.statechart._reasoner import MoveQuestion, draw
from llmsim_lab.statechart._state import FeedEntry, Like, Move, SocialState, UserState

logger = logging.getLogger(__name__)


_Matrix = np.ndarray[Any, np.dtype[np.float64]]


class FeedSelector:
    """Chooses which post a user sees next: a random utility model over the posts in circulation.

    Args:
        config: the weights.
        profiles: the users, in the run's order.
        seed: of the draws; the same turn of the same run has the same draws, whoever scrolls.
    """

    def __init__(self, config: FeedConfig, profiles: Sequence[ProfileConfig], *, seed: int) -> None:
        self.config = config
        self.seed = seed
        topics = sorted({topic for profile in profiles for topic in profile.interests})
        self._columns = {topic: place for place, topic in enumerate(topics)}
        self._interests: _Matrix = np.zeros((len(profiles), len(topics)))
        for row, profile in enumerate(profiles):
            for topic in profile.interests:
                self._interests[row, self._columns[topic]] = 1.0

    def choose(self, state: SocialState, users: Sequence[int]) -> list[Post | None]:
        """Return the post that each of some users sees next; None if no post is left.

        A user does not see own posts, content seen before (in a post or a reshare of it), or posts
        and reshares by banned users. What others reshared from a banned user stays.

        Args:
            state: the network.
            users: their places among ``state.people``.
        """
        if not users or not state.feed:
            return [None] * len(users)
        # Scores of all users, then of those that scroll: who else scrolls must not move the draws.
        scores = self._scores(state)[list(users)]
        places: dict[int, list[int]] = {}
        for place, entry in enumerate(state.feed):
            places.setdefault(entry.post.content, []).append(place)
        for row, user in enumerate(users):
            seen = state.people[user].seen
            hidden = [place for content in seen for place in places.get(content, ())]
            scores[row, hidden] = -np.inf
        banned = {person.name for person in state.people if person.banned}
        by_banned = [place for place, entry in enumerate(state.feed) if entry.post.author in banned]
        scores[:, by_banned] = -np.inf
        best = scores.argmax(axis=1)
        return [
            # Where all are hidden, argmax names the first.
            None if scores[row, place] == -np.inf else state.feed[place].post
            for row, place in enumerate(best)
        ]

    def _scores(self, state: SocialState) -> _Matrix:
        """Return the utility of each post in circulation for each user, users by posts."""
        # As matrices: 500 users and 200 posts are 100,000 scores a turn.
        config, feed = self.config, state.feed
        about: _Matrix = np.zeros((len(feed), self._interests.shape[1]))
        for row, entry in enumerate(feed):
            for topic in entry.post.topics:
                # A topic that interests nobody has no column. += since a post may name one twice.
                if topic in self._columns:
                    about[row, self._columns[topic]] += 1.0
        counts = np.array([max(len(entry.post.topics), 1) for entry in feed], dtype=np.float64)
        match = (self._interests @ about.T) / counts
        general = np.array(_appeal(feed, config, state.at), dtype=np.float64)
        # With Gumbel noise the best score is a draw by logit, of chances like exp(score / noise).
        draws = np.random.default_rng([self.seed, state.at]).gumbel(size=match.shape)
        scores: _Matrix = config.interest * match + general + config.noise * draws
        return scores


def circulate(
    feed: Sequence[FeedEntry],
    new: Sequence[FeedEntry],
    *,
    number: int,
    config: FeedConfig,
) -> tuple[FeedEntry, ...]:
    """Return the posts in circulation after a turn, oldest first.

    Args:
        feed: those before it.
        new: those made in it.
        number: that turn's.
        config: how long posts circulate, and how many; those of least recency and popularity leave
            first.
    """
    young = [*(entry for entry in feed if number - entry.post.turn < config.max_age), *new]
    if len(young) <= config.max_posts:
        return tuple(young)
    appeal = _appeal(young, config, number)
    # Of equals the newer ones stay.
    best = sorted(range(len(young)), key=lambda place: (appeal[place], place))[-config.max_posts :]
    # Back in the order of the feed, the oldest first.
    return tuple(young[place] for place in sorted(best))


def _appeal(feed: Sequence[FeedEntry], config: FeedConfig, number: int) -> list[float]:
    """Return the part of each post's score that is the same for all users, without the draw."""
    # At least log 2, one like: where no post has any, nothing is divided by zero.
    most = max(math.log1p(max(entry.engagement for entry in feed)), math.log(2.0))
    return [
        config.recency * 0.5 ** ((number - entry.post.turn) / config.half_life)
        + config.popularity * math.log1p(entry.engagement) / most
        for entry in feed
    ]


# An original is published on leaving COMPOSING instead, which takes a turn.
_PUBLISHED: dict[AgentState, PostKind] = {
    AgentState.ENGAGING_REPLY: "reply",
    AgentState.ENGAGING_RESHARE: "reshare",
}
"""The kind of post that entering a state publishes."""


@dataclass(slots=True)
class MovePlan:
    """A turn's moves and the ``content`` of posts seen, both by the users' places."""

    number: int
    moves: dict[int, MoveQuestion] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    @property
    def ambiguous(self) -> dict[str, MoveQuestion]:
        """The moves that have several options, by user."""
        return {move.agent.name: move for move in self.moves.values() if len(move.options) > 1}

    def add(
        self,
        user: int,
        agent: SocialAgent,
        trigger: str,
        chart: Statechart[AgentState],
        post: Post | None = None,
    ) -> None:
        """Add a user's move, if the chart has one."""
        # With the guards, so that a model never chooses what they would then not allow.
        options = chart.valid_targets(agent.state, trigger, agent=agent, context=post)
        if options:
            number = self.number
            self.moves[user] = MoveQuestion(agent, agent.state, trigger, options, post, number)


def triggers_in(state: AgentState) -> tuple[str, ...]:
    """Return the triggers that a turn may fire for a user in a state."""
    own = {
        AgentState.IDLE: ("opens_app",),
        AgentState.SCROLLING: ("sees_post", "feed_empty"),
        AgentState.EVALUATING: ("decides",),
        AgentState.RESTING: (),
    }
    return (*own.get(state, ("finishes",)), TIMEOUT)


def plan_turn(
    state: SocialState,
    agents: Sequence[SocialAgent],
    profiles: Sequence[ProfileConfig],
    *,
    chart: Statechart[AgentState],
    selector: FeedSelector,
    seed: int,
) -> MovePlan:
    """Return what may happen in the next turn; the agents' ticks go up by one.

    Args:
        state: the network as the turn before left it.
        agents: the users, in the states' order, with the states they have there.
        profiles: their configurations.
        chart: the legal moves.
        selector: chooses what they see.
        seed: of who opens the app.
    """
    plan = MovePlan(state.at + 1)
    # The 1 keeps these draws apart from those of the feed, which are seeded by seed and turn. One
    # for each user, used or not: what one user does must not move the others' draws.
    luck = np.random.default_rng([seed, plan.number, 1]).random(len(agents))
    posts = state.at_hand
    looking: list[int] = []
    for user, (agent, person) in enumerate(zip(agents, state.people, strict=True)):
        if person.banned:
            continue
        agent.tick()
        here = agent.state
        late = agent.is_timed_out(chart.timeouts.get(here))
        # Time is up, but an agent whose guard for the timeout is False continues as usual.
        if late and chart.valid_targets(here, TIMEOUT, agent=agent):
            plan.add(user, agent, TIMEOUT, chart)
        elif here is AgentState.SCROLLING:
            looking.append(user)
        elif here is AgentState.IDLE:
            if luck[user] < profiles[user].activity:
                plan.add(user, agent, "opens_app", chart)
        elif here is not AgentState.RESTING:
            trigger = "decides" if here is AgentState.EVALUATING else "finishes"
            # It may have left circulation since; ``at_hand`` has it all the same.
            about = posts.get(person.post) if person.post is not None else None
            plan.add(user, agent, trigger, chart, about)
    for user, post in zip(looking, selector.choose(state, looking), strict=True):
        if post is not None:
            plan.seen[user] = post.content
        trigger = "feed_empty" if post is None else "sees_post"
        plan.add(user, agents[user], trigger, chart, post)
    return plan


@dataclass(slots=True)
class MoveEffects:
    """What the moves of a turn lead to.

    Attributes:
        moves: those made.
        likes: who liked what.
        drafts: authors and posts, without their text but for reshares, and what each is about.
    """

    moves: list[Move] = field(default_factory=list)
    likes: list[Like] = field(default_factory=list)
    drafts: list[tuple[SocialAgent, Post, Post | None]] = field(default_factory=list)


def make_moves(
    plan: MovePlan,
    chosen: Mapping[str, AgentState],
    state: SocialState,
    chart: Statechart[AgentState],
    seed: int,
) -> MoveEffects:
    """Return what the moves of a plan lead to; the agents' states do not change.

    Args:
        plan: the moves.
        chosen: where the ambiguous ones lead, by user.
        state: the network as the turn before left it.
        chart: its actions are run.
        seed: of what new posts are about.
    """
    out = MoveEffects()
    number = state.next_post
    # In the users' order: those that scroll were added last, and ids of posts follow this order.
    for user in sorted(plan.moves):
        move = plan.moves[user]
        agent, post = move.agent, move.context
        wanted = chosen.get(agent.name, move.options[0])
        target = chart.fire(agent, move.trigger, post, target=wanted)
        if target is None:
            log_event(
                logger,
                logging.WARNING,
                "MOVE_LOST",
                agent=agent.name,
                trigger=move.trigger,
                target=wanted,
                reason="a guard answered otherwise when asked again; guards must follow from agent "
                "and post alone",
            )
            continue
        by: DecidedBy = "timeout" if move.trigger == TIMEOUT else "chart"
        if agent.name in chosen:
            by = "reasoner"
        about = None if post is None else post.id
        out.moves.append(Move(agent.name, move.trigger, agent.state, target, by, about))
        made = _post_made(move, target, number, seed)
        if made is not None:
            out.drafts.append((agent, made, post))
            number += 1
        elif target is AgentState.ENGAGING_LIKE and post is not None:
            out.likes.append(Like(agent.name, post.id))
    return out


def _post_made(move: MoveQuestion, target: AgentState, number: int, seed: int) -> Post | None:
    """Return the post that a move publishes; only a reshare has its text already."""
    agent, about, turn = move.agent, move.context, move.turn or 0
    if agent.state is AgentState.COMPOSING and move.trigger == "finishes":
        place = int(draw(seed, turn, agent.name, "topic") * len(agent.interests))
        topics = about.topics if about else (agent.interests[place],)
        # A post of its own even where another one led to it: it is the root of its own cascade.
        return Post(id=number, author=agent.name, text="", topics=topics, turn=turn, root=number)
    kind = _PUBLISHED.get(target)
    if kind is None or about is None:
        return None
    # Resharing a reshare reshares the original text, in the same cascade.
    return Post(
        id=number,
        author=agent.name,
        text=about.text if kind == "reshare" else "",
        topics=about.topics,
        turn=turn,
        kind=kind,
        parent=about.id,
        root=about.root if about.root is not None else about.id,
        copy_of=about.content if kind == "reshare" else None,
    )


def next_state(
    state: SocialState,
    plan: MovePlan,
    outcome: MoveEffects,
    posts: Sequence[Post],
    agents: Sequence[SocialAgent],
    config: FeedConfig,
) -> SocialState:
    """Return the network after a turn.

    Args:
        state: before it.
        plan: what could happen.
        outcome: what did.
        posts: those made, with their texts.
        agents: the users, ticked, in the states they were in before.
        config: how long posts circulate.
    """
    received = _received(state.feed, outcome.likes, posts)
    fresh = [FeedEntry(post) for post in posts]
    feed = circulate(received, fresh, number=plan.number, config=config)
    about = {entry.post.content for entry in feed}
    made = {move.agent: move for move in outcome.moves}
    # Authors have seen what they wrote or reshared.
    own: dict[str, list[int]] = {}
    for post in posts:
        own.setdefault(post.author, []).append(post.content)
    people = tuple(
        _person_after(
            person,
            agents[user],
            made.get(person.name),
            [*([plan.seen[user]] if user in plan.seen else ()), *own.get(person.name, ())],
            about,
        )
        for user, person in enumerate(state.people)
    )
    # What somebody is looking at is kept after it has left circulation, to be replied to.
    known = {entry.post.id for entry in feed}
    held = sorted({person.post for person in people if person.post is not None} - known)
    at_hand = state.at_hand
    return SocialState(
        at=plan.number,
        people=people,
        feed=feed,
        new_posts=tuple(posts),
        kept=tuple(at_hand[post] for post in held),
        next_post=state.next_post + len(posts),
        moves=tuple(outcome.moves),
        likes=tuple(outcome.likes),
    )


def _person_after(
    person: UserState,
    agent: SocialAgent,
    move: Move | None,
    saw: Sequence[int],
    known: set[int],
) -> UserState:
    # Only of what circulates, else a state would grow with the run.
    seen = tuple(dict.fromkeys(content for content in (*person.seen, *saw) if content in known))
    if move is None:
        return person._replace(ticks=agent.ticks_in_state, seen=seen)
    # In these states nothing is being looked at or answered.
    about = (
        None
        if move.target in (AgentState.IDLE, AgentState.SCROLLING, AgentState.RESTING)
        else move.post
    )
    return person._replace(state=move.target, ticks=0, post=about, seen=seen)


def _received(
    feed: Sequence[FeedEntry], likes: Sequence[Like], posts: Sequence[Post]
) -> list[FeedEntry]:
    """Return the posts in circulation with this turn's likes, replies and reshares counted."""
    liked = Counter(like.post for like in likes)
    answers = Counter((post.parent, post.kind) for post in posts)
    if not (liked or answers):
        return list(feed)
    return [
        entry._replace(
            likes=entry.likes + liked[entry.post.id],
            replies=entry.replies + answers[entry.post.id, "reply"],
            reshares=entry.reshares + answers[entry.post.id, "reshare"],
        )
        for entry in feed
    ]
