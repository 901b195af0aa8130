"""One turn of the social network: what users see, what they may do, and what comes of it.

Pure calculations around the reasoner's choices. Everybody acts on the network as the turn before
left it, so the order of users does not matter: first every user's legal moves are found, then the
ambiguous ones are decided all at once, then all moves are made and their posts and likes go out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llmsim_lab.statechart._agent import DecidedBy, Post, PostKind, SocialAgent
from llmsim_lab.statechart._chart import TIMEOUT, AgentState, Statechart
from llmsim_lab.statechart._config import FeedConfig, ProfileConfig
from llmsim_lab.statechart._reasoner import MoveQuestion, draw
from llmsim_lab.statechart._state import RECEIVED, FeedEntry, Like, Move, SocialState

Draft = tuple[SocialAgent, Post, Post | None]
"""Author and post, without its text but for a reshare, and the post that it is about."""


def next_posts(
    state: SocialState, profiles: Sequence[ProfileConfig], config: FeedConfig, *, seed: int
) -> list[Post | None]:
    """Return the post that each user sees next, in the users' order; None if no post is left.

    The choice is a random utility model over the posts in circulation. A user does not see own
    posts, content seen before (in a post or a reshare of it), or posts and reshares by banned
    users. What others reshared from a banned user stays.

    Args:
        state: the network.
        profiles: the users, in the state's order.
        config: the weights.
        seed: of the draws; the same turn of the same run has the same draws, no matter who scrolls.
    """
    if not state.feed:
        return [None] * len(state.people)
    # As matrices: 500 users and 200 posts are 100,000 scores a turn. A topic that interests no user
    # has no column; a post may name one twice.
    topics = sorted({topic for profile in profiles for topic in profile.interests})
    interests = np.array([[topic in it.interests for topic in topics] for it in profiles], float)
    about = np.array([[it.post.topics.count(topic) for topic in topics] for it in state.feed])
    match = interests @ about.T / [max(len(it.post.topics), 1) for it in state.feed]
    # With Gumbel noise the best score is a draw by logit, of chances like exp(score / noise). Of
    # all users, also those who do not scroll: who else scrolls must not move the draws.
    draws = np.random.default_rng([seed, state.at]).gumbel(size=match.shape)
    general = np.array(_appeal(state.feed, config, state.at))
    scores = config.interest * match + general + config.noise * draws
    places: dict[int, list[int]] = {}
    for place, entry in enumerate(state.feed):
        places.setdefault(entry.post.content, []).append(place)
    for row, person in enumerate(state.people):
        hidden = [place for content in person.seen for place in places.get(content, ())]
        scores[row, hidden] = -np.inf
    banned = {person.name for person in state.people if person.banned}
    scores[:, [entry.post.author in banned for entry in state.feed]] = -np.inf
    # Where all are hidden, argmax names the first.
    return [
        None if scores[row, place] == -np.inf else state.feed[place].post
        for row, place in enumerate(scores.argmax(axis=1))
    ]


def circulate(
    feed: Sequence[FeedEntry], new: Sequence[FeedEntry], *, number: int, config: FeedConfig
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
    profiles: Sequence[ProfileConfig],
    *,
    chart: Statechart,
    feed: FeedConfig,
    seed: int,
) -> tuple[dict[str, MoveQuestion], dict[str, int]]:
    """Return what may happen in the next turn: moves, and the ``content`` of posts seen, by user.

    Args:
        state: the network as the turn before left it.
        profiles: the users, in the state's order.
        chart: the legal moves.
        feed: how what they see is chosen.
        seed: of that, and of who opens the app.
    """
    moves: dict[str, MoveQuestion] = {}
    seen: dict[str, int] = {}
    number, posts = state.at + 1, state.at_hand
    # The 1 keeps these draws apart from those of the feed, which are seeded by seed and turn. One
    # for each user, used or not: what one user does must not move the others' draws.
    luck = np.random.default_rng([seed, number, 1]).random(len(profiles))
    for profile, person, chance, next_post in zip(
        profiles, state.people, luck, next_posts(state, profiles, feed, seed=seed), strict=True
    ):
        if person.banned:
            continue
        here, ticks, about = person.state, person.ticks + 1, None
        # Iterated: of the model itself ``dict`` would look for keys, slowly and in vain.
        agent = SocialAgent(**dict(iter(profile)), state=here, ticks_in_state=ticks)
        late = ticks >= chart.timeouts.get(here, profile.timeout_threshold)
        # Time is up, but an agent whose guard for the timeout is False continues as usual.
        if late and chart.valid_targets(here, TIMEOUT, agent=agent):
            trigger = TIMEOUT
        elif here is AgentState.SCROLLING:
            about = next_post
            if about is not None:
                seen[profile.name] = about.content
            trigger = "feed_empty" if about is None else "sees_post"
        elif here is AgentState.RESTING or (here is AgentState.IDLE and chance >= profile.activity):
            continue
        else:
            trigger = triggers_in(here)[0]
            # It may have left circulation since; ``at_hand`` has it all the same.
            about = posts.get(person.post or 0)
        # With the guards, so that a model never chooses what they would then not allow.
        options = chart.valid_targets(here, trigger, agent=agent, context=about)
        if options:
            moves[profile.name] = MoveQuestion(agent, here, trigger, options, about, number)
    return moves, seen


def make_moves(
    moves: Mapping[str, MoveQuestion], chosen: Mapping[str, AgentState], next_post: int, seed: int
) -> tuple[list[Move], list[Like], list[Draft]]:
    """Return the moves that are made, who likes what, and what is written.

    Args:
        moves: what each user may do.
        chosen: where the moves with several options lead, by user.
        next_post: the id that the first new post gets.
        seed: of what new posts are about.
    """
    made: list[Move] = []
    likes: list[Like] = []
    drafts: list[Draft] = []
    for name, move in moves.items():
        post, target = move.context, chosen.get(name, move.options[0])
        alone: DecidedBy = "timeout" if move.trigger == TIMEOUT else "chart"
        by: DecidedBy = "reasoner" if name in chosen else alone
        about = None if post is None else post.id
        made.append(Move(name, move.trigger, move.current_state, target, by, about))
        draft = _post_made(move, target, next_post + len(drafts), seed)
        if draft is not None:
            drafts.append((move.agent, draft, post))
        elif target is AgentState.ENGAGING_LIKE and post is not None:
            likes.append(Like(name, post.id))
    return made, likes, drafts


def _post_made(move: MoveQuestion, target: AgentState, number: int, seed: int) -> Post | None:
    """Return the post that a move publishes; only a reshare has its text already."""
    agent, about, turn = move.agent, move.context, move.turn or 0
    own: dict[str, Any] = {"id": number, "author": agent.name, "turn": turn}
    if agent.state is AgentState.COMPOSING and move.trigger == "finishes":
        place = int(draw(seed, turn, agent.name, "topic") * len(agent.interests))
        topics = about.topics if about else (agent.interests[place],)
        # A post of its own even where another one led to it: it is the root of its own cascade.
        return Post(**own, text="", topics=topics, root=number)
    kind = _PUBLISHED.get(target)
    if kind is None or about is None:
        return None
    own |= {"kind": kind, "topics": about.topics, "parent": about.id}
    own["root"] = about.id if about.root is None else about.root
    # Resharing a reshare reshares the original text, in the same cascade.
    copied = {"text": about.text, "copy_of": about.content} if kind == "reshare" else {"text": ""}
    return Post(**own, **copied)


def next_state(
    state: SocialState,
    seen: Mapping[str, int],
    moves: Sequence[Move],
    likes: Sequence[Like],
    posts: Sequence[Post],
    config: FeedConfig,
) -> SocialState:
    """Return the network after a turn.

    Args:
        state: before it.
        seen: the ``content`` of the posts seen in it, by user.
        moves: what users did.
        likes: who liked what.
        posts: those made, with their texts.
        config: how long posts circulate.
    """
    number, at_hand = state.at + 1, state.at_hand
    counts = Counter[tuple[int | None, str]]((like.post, "like") for like in likes)
    counts.update((post.parent, post.kind) for post in posts)
    received = [
        FeedEntry(
            post, *(n + counts[post.id, how] for n, how in zip(before, RECEIVED, strict=True))
        )
        for post, *before in state.feed
    ]
    feed = circulate(received, [FeedEntry(post) for post in posts], number=number, config=config)
    # Authors have seen what they wrote or reshared.
    saw = {name: [content] for name, content in seen.items()}
    for post in posts:
        saw.setdefault(post.author, []).append(post.content)
    # Only of what circulates, else a state would grow with the run.
    known, made = {entry.post.content for entry in feed}, {move.agent: move for move in moves}
    people = []
    for person in state.people:
        contents = dict.fromkeys((*person.seen, *saw.get(person.name, ())))
        change: dict[str, Any] = {"seen": tuple(one for one in contents if one in known)}
        if move := made.get(person.name):
            # In these states nothing is being looked at or answered.
            free = move.target in (AgentState.IDLE, AgentState.SCROLLING, AgentState.RESTING)
            change |= {"state": move.target, "ticks": 0, "post": None if free else move.post}
        elif not person.banned:
            change["ticks"] = person.ticks + 1
        people.append(person._replace(**change))
    # What a user is looking at is kept after it has left circulation, to be replied to.
    held = {it.post for it in people if it.post is not None} - {it.post.id for it in feed}
    return SocialState(
        at=number,
        people=tuple(people),
        feed=feed,
        new_posts=tuple(posts),
        kept=tuple(at_hand[post] for post in sorted(held)),
        next_post=state.next_post + len(posts),
        moves=tuple(moves),
        likes=tuple(likes),
    )
