"""One turn of the social network: what users see, their legal moves, and the result.

Pure calculations around the reasoner's choices. All users act on the network after the last turn,
so that their order does not matter: first every user's legal moves are found, then the ambiguous
ones are decided at once, then all moves are made and their posts and likes are published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmsim_lab._util.text import brief, counted
from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart._agent import DecidedBy, Post, PostKind, SocialAgent
from llmsim_lab.statechart._chart import TIMEOUT, AgentState, Statechart
from llmsim_lab.statechart.config import FeedConfig, ProfileConfig
from llmsim_lab.statechart.reasoner import MoveQuestion, draw
from llmsim_lab.statechart.state import FeedEntry, Like, Move, SocialState, UserState

_UNOCCUPIED = (AgentState.IDLE, AgentState.SCROLLING, AgentState.RESTING)
"""States in which a user neither looks at nor answers a post."""


class TurnPlan(NamedTuple):
    """The possible moves of a turn.

    Attributes:
        moves: the moves by user; users without a move are left out.
        seen: the ``content`` of the post that a user saw, by user; users who saw none are left out.
    """

    moves: dict[str, MoveQuestion]
    seen: dict[str, int]

    @property
    def ambiguous(self) -> dict[str, MoveQuestion]:
        """The moves that have several options, by user."""
        moves = self.moves
        return {name: moves[name] for name in moves if len(moves[name].options) > 1}


class NewPost(NamedTuple):
    """A post that a move publishes.

    Attributes:
        author: the user who writes or reshares the post.
        post: the post; only a reshare has a text already.
        about: the post that it answers, or that led to it.
    """

    author: SocialAgent
    post: Post
    about: Post | None


class MovesMade(NamedTuple):
    """The moves, likes and posts of a turn.

    Attributes:
        moves: in the users' order.
        likes: the users and the posts that they like.
        new_posts: the published posts, without texts that are still to be written.
    """

    moves: list[Move]
    likes: list[Like]
    new_posts: list[NewPost]


def next_posts(
    state: SocialState,
    profiles: Sequence[ProfileConfig],
    config: FeedConfig,
    *,
    seed: int,
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
    # argmax raises for an empty feed.
    if not state.feed:
        return [None] * len(state.people)
    match = _interest_matches(profiles, state.feed)
    # With Gumbel noise the best score is a logit draw with chances like exp(score / noise). All
    # users get draws, so that they do not depend on who else scrolls.
    rng = np.random.default_rng([seed, state.at])
    draws = rng.gumbel(size=match.shape)
    general = np.array(
        _appeal(
            state.feed,
            config,
            state.at,
        )
    )
    scores = config.interest * match + general + config.noise * draws
    _hide(scores, state)
    posts: list[Post | None] = []
    for row, place in enumerate(scores.argmax(axis=1)):
        # If all posts are hidden, argmax returns the first.
        is_hidden = scores[row, place] == -np.inf
        posts.append(None if is_hidden else state.feed[place].post)
    return posts


def _interest_matches(
    profiles: Sequence[ProfileConfig], feed: Sequence[FeedEntry]
) -> npt.NDArray[np.float64]:
    """Return the share of each post's topics that interest each user, one row for each user."""
    users_by_topic: dict[str, list[int]] = {}
    for row, profile in enumerate(profiles):
        for topic in set(profile.interests):
            users_by_topic.setdefault(topic, []).append(row)
    # Users are rows, and posts are columns: 500 users and 200 posts are 100,000 scores a turn.
    shared = np.zeros((len(profiles), len(feed)))
    for column, entry in enumerate(feed):
        topics = entry.post.topics
        for topic in topics:
            # A post may name a topic twice, which counts twice.
            shared[users_by_topic.get(topic, []), column] += 1
        shared[:, column] /= max(len(topics), 1)
    return shared


def _hide(
    scores: npt.NDArray[np.float64],
    state: SocialState,
) -> None:
    """Set the scores of posts that a user must not see to minus infinity."""
    places: dict[int, list[int]] = {}
    for place, entry in enumerate(state.feed):
        places.setdefault(entry.post.content, []).append(place)
    for row, person in enumerate(state.people):
        hidden: list[int] = []
        for content in person.seen:
            hidden += places.get(content, ())
        scores[row, hidden] = -np.inf
    # Only during the ban: afterwards the posts are seen again if they still circulate.
    banned = {person.name for person in state.people if person.banned}
    is_by_banned = [entry.post.author in banned for entry in state.feed]
    scores[:, is_by_banned] = -np.inf


def circulate(
    feed: Sequence[FeedEntry],
    new: Sequence[FeedEntry],
    *,
    number: int,
    config: FeedConfig,
) -> tuple[FeedEntry, ...]:
    """Return the posts in circulation after a turn, oldest first.

    Args:
        feed: the posts before the turn.
        new: the posts made in the turn.
        number: the turn's number.
        config: how long posts circulate, and how many; those of least recency and popularity leave
            first.
    """
    # By age first, since an old post leaves even if there is room for it.
    young = [entry for entry in feed if number - entry.post.turn < config.max_age]
    young += new
    if len(young) <= config.max_posts:
        return tuple(young)
    appeal = _appeal(young, config, number)
    # Of equally appealing posts the newer ones stay.
    by_appeal = sorted(
        range(len(young)),
        key=lambda place: (appeal[place], place),
    )
    best = by_appeal[-config.max_posts :]
    # Back in the order of the feed, the oldest first.
    return tuple(young[place] for place in sorted(best))


def _appeal(
    feed: Sequence[FeedEntry],
    config: FeedConfig,
    number: int,
) -> list[float]:
    """Return the part of each post's score that is the same for all users, without the draw."""
    largest = max(entry.engagement for entry in feed)
    # At least log 2, as with one like, to avoid a division by zero.
    scale = max(math.log1p(largest), math.log(2.0))
    return [
        config.recency * 0.5 ** ((number - entry.post.turn) / config.half_life)
        + config.popularity * math.log1p(entry.engagement) / scale
        for entry in feed
    ]


# Without originals, which are published on leaving COMPOSING a turn later.
_PUBLISHED: dict[AgentState, PostKind] = {
    AgentState.ENGAGING_REPLY: "reply",
    AgentState.ENGAGING_RESHARE: "reshare",
}
"""The kind of post that entering a state publishes."""


def triggers_in(state: AgentState) -> tuple[str, ...]:
    """Return the triggers that a turn may fire for a user in a state."""
    match state:
        case AgentState.IDLE:
            return ("opens_app", TIMEOUT)
        case AgentState.SCROLLING:
            return ("sees_post", "feed_empty", TIMEOUT)
        case AgentState.EVALUATING:
            return ("decides", TIMEOUT)
        case AgentState.RESTING:
            return (TIMEOUT,)
        case _:
            return ("finishes", TIMEOUT)


def plan_turn(
    state: SocialState,
    profiles: Sequence[ProfileConfig],
    *,
    chart: Statechart,
    feed: FeedConfig,
    seed: int,
) -> TurnPlan:
    """Return the possible moves of the next turn.

    Args:
        state: the network after the last turn.
        profiles: the users, in the state's order.
        chart: the legal moves.
        feed: how the posts that users see are chosen.
        seed: of these choices, and of who opens the app.

    Raises:
        ConfigError: the state is of another population, or of no network.
    """
    number = state.at + 1
    check_state(state, profiles, chart)
    moves: dict[str, MoveQuestion] = {}
    seen: dict[str, int] = {}
    posts = state.at_hand
    # The 1 separates these draws from the feed's, which are seeded by seed and turn. Each user has
    # a draw, used or not, so that users do not change each other's draws.
    rng = np.random.default_rng([seed, number, 1])
    luck = rng.random(len(profiles))
    visible = next_posts(
        state,
        profiles,
        feed,
        seed=seed,
    )
    for profile, person, chance, next_post in zip(
        profiles,
        state.people,
        luck,
        visible,
        strict=True,
    ):
        if person.banned:
            continue
        # From its items, since dict() of the model itself would look for keys(), which is slow.
        agent = SocialAgent(
            **dict(iter(profile)),
            state=person.state,
            ticks_in_state=person.ticks + 1,
        )
        event = _event_for(
            agent,
            chart,
            opens_app=chance < profile.activity,
            next_post=next_post,
            # The post may have left circulation, but is still in ``at_hand``.
            looked_at=posts.get(person.post or 0),
        )
        if event is None:
            continue
        if event.trigger == "sees_post" and next_post is not None:
            # The content, not the post, since a reshare of it shows nothing new.
            seen[profile.name] = next_post.content
        # With the guards, so that a model cannot choose a move that they forbid.
        options = chart.valid_targets(
            person.state,
            event.trigger,
            agent=agent,
            context=event.about,
        )
        if options:
            moves[profile.name] = MoveQuestion(
                agent,
                person.state,
                event.trigger,
                options,
                event.about,
                number,
            )
    return TurnPlan(moves, seen)


def check_state(
    state: SocialState,
    profiles: Sequence[ProfileConfig],
    chart: Statechart,
) -> None:
    """Raise ConfigError for a state that no network of these users can have.

    A state may come from another run, or from a tape that was changed.
    """
    names = [person.name for person in state.people]
    population = [profile.name for profile in profiles]
    for place, (name, configured) in enumerate(zip_longest(names, population), start=1):
        if name == configured:
            continue
        raise ConfigError(
            f"the state has {counted(len(names), 'user')}, and population {len(population):,}; "
            f"user {place:,} is {brief(name)} in the state, {brief(configured)} in population: "
            "give the population that the state is of"
        )
    at_hand = state.at_hand
    for person in state.people:
        # The user could never leave it.
        if person.state not in chart.states:
            raise ConfigError(
                f"{brief(person.name)} is {person.state} in the state, which the chart does not "
                "have; give the chart that the state is of"
            )
        if person.post is not None and person.post not in at_hand:
            raise ConfigError(
                f"the state of {brief(person.name)} is about post {brief(person.post)}, which is "
                "neither in feed nor in kept"
            )
    for post in at_hand.values():
        if post.id >= state.next_post:
            raise ConfigError(
                f"post {brief(post.id)} is in the state, and next_post={brief(state.next_post)} "
                "would give its id to another one; next_post is above all ids"
            )
        if not 0 <= post.turn <= state.at:
            raise ConfigError(
                f"post {brief(post.id)} of the state is of turn {brief(post.turn)}, and the state "
                f"of turn {state.at}; a post's turn is 0 to the state's"
            )


class _Event(NamedTuple):
    """The event that a user meets in a turn.

    Attributes:
        trigger: the event's name in the chart.
        about: the post of the event, if there is one.
    """

    trigger: str
    about: Post | None = None


def _event_for(
    agent: SocialAgent,
    chart: Statechart,
    *,
    opens_app: bool,
    next_post: Post | None,
    looked_at: Post | None,
) -> _Event | None:
    """Return an agent's event in a turn; None if there is none.

    Args:
        agent: the user in this turn.
        chart: has the number of ticks after which time is up.
        opens_app: whether the user opens the app if idle.
        next_post: the post that the user sees if scrolling; None if no post is left.
        looked_at: the post that the user's state is about, if there is one.
    """
    if _is_time_up(agent, chart):
        return _Event(TIMEOUT)
    if agent.state is AgentState.RESTING:
        return None
    if agent.state is AgentState.IDLE and not opens_app:
        return None
    if agent.state is AgentState.SCROLLING:
        return _Event("feed_empty") if next_post is None else _Event("sees_post", next_post)
    return _Event(triggers_in(agent.state)[0], looked_at)


def _is_time_up(agent: SocialAgent, chart: Statechart) -> bool:
    """Return True if an agent has been in its state too long and the chart lets it leave.

    An agent whose guard for the timeout is False continues as usual.
    """
    if agent.ticks_in_state < chart.timeouts.get(agent.state, agent.timeout_threshold):
        return False
    return bool(
        chart.valid_targets(
            agent.state,
            TIMEOUT,
            agent=agent,
        )
    )


def make_moves(
    moves: Mapping[str, MoveQuestion],
    chosen: Mapping[str, AgentState],
    next_post: int,
    seed: int,
) -> MovesMade:
    """Return the moves that are made, with their likes and posts.

    Args:
        moves: the possible moves by user.
        chosen: the chosen states of moves with several options, by user.
        next_post: the id that the first new post gets.
        seed: of the topics of new posts.
    """
    made_moves: list[Move] = []
    likes: list[Like] = []
    new_posts: list[NewPost] = []
    for name, move in moves.items():
        about = move.context
        target = chosen.get(name, move.options[0])
        # With a single option the chart decides, or the timeout.
        decided_by: DecidedBy = "chart"
        if name in chosen:
            decided_by = "reasoner"
        elif move.trigger == TIMEOUT:
            decided_by = "timeout"
        made_moves.append(
            Move(
                name,
                move.trigger,
                move.current_state,
                target,
                decided_by,
                None if about is None else about.id,
            )
        )
        post = _published(
            move,
            target,
            # Numbered in the users' order, so that a replay gives the same ids.
            next_post + len(new_posts),
            seed,
        )
        if post is not None:
            new_posts.append(NewPost(move.agent, post, about))
        # A user's own chart may lead there without a post; then nothing is liked.
        elif target is AgentState.ENGAGING_LIKE and about is not None:
            likes.append(Like(name, about.id))
    return MovesMade(made_moves, likes, new_posts)


def _published(
    move: MoveQuestion,
    target: AgentState,
    number: int,
    seed: int,
) -> Post | None:
    """Return the post that a move publishes; only a reshare has a text already."""
    agent = move.agent
    about = move.context
    turn = move.turn or 0
    # Not on a timeout, which gives up the draft.
    if agent.state is AgentState.COMPOSING and move.trigger == "finishes":
        # A draw seeded by turn and name, so that it does not depend on who else writes.
        topics = about.topics if about else (_drawn_topic(agent, turn, seed),)
        # An original is the root of its own cascade, even if another post led to it.
        return Post(
            id=number,
            author=agent.name,
            text="",
            topics=topics,
            turn=turn,
            root=number,
        )
    kind = _PUBLISHED.get(target)
    if kind is None or about is None:
        return None
    post = Post(
        id=number,
        author=agent.name,
        text="",
        topics=about.topics,
        turn=turn,
        kind=kind,
        parent=about.id,
        root=about.id if about.root is None else about.root,
    )
    if kind == "reshare":
        # Resharing a reshare reshares the original text, in the same cascade.
        return replace(
            post,
            text=about.text,
            copy_of=about.content,
        )
    return post


def _drawn_topic(
    agent: SocialAgent,
    turn: int,
    seed: int,
) -> str:
    share = draw(seed, turn, agent.name, "topic")
    return agent.interests[int(share * len(agent.interests))]


def next_state(
    state: SocialState,
    plan: TurnPlan,
    outcome: MovesMade,
    posts: Sequence[Post],
    config: FeedConfig,
) -> SocialState:
    """Return the network after a turn.

    Args:
        state: the network before the turn.
        plan: has the posts that users saw.
        outcome: the moves, likes and posts of the turn.
        posts: the published posts with their texts.
        config: how long posts circulate.
    """
    number = state.at + 1
    feed = circulate(
        _received(state.feed, outcome.likes, posts),
        [FeedEntry(post) for post in posts],
        number=number,
        config=config,
    )
    at_hand = state.at_hand
    people = _people_after(
        state.people,
        plan.seen,
        outcome.moves,
        posts,
        feed,
        at_hand,
    )
    return SocialState(
        at=number,
        people=people,
        feed=feed,
        new_posts=tuple(posts),
        kept=kept_posts(people, feed, at_hand),
        next_post=state.next_post + len(posts),
        moves=tuple(outcome.moves),
        likes=tuple(outcome.likes),
    )


def kept_posts(
    people: Sequence[UserState],
    feed: Sequence[FeedEntry],
    at_hand: Mapping[int, Post],
) -> tuple[Post, ...]:
    """Return the posts out of circulation that a user still looks at, for a later reply.

    Args:
        people: the users.
        feed: the posts in circulation.
        at_hand: the posts before some left circulation, by id.
    """
    looked_at = {person.post for person in people if person.post is not None}
    left = looked_at - {entry.post.id for entry in feed}
    return tuple(at_hand[post] for post in sorted(left))


def _received(
    feed: Sequence[FeedEntry],
    likes: Sequence[Like],
    posts: Sequence[Post],
) -> list[FeedEntry]:
    """Return posts with the likes, replies and reshares of a turn added."""
    # A post that left circulation has no entry: its late answers count only in its cascade.
    liked = Counter(like.post for like in likes)
    answered = Counter((post.parent, post.kind) for post in posts)
    return [
        FeedEntry(
            entry.post,
            likes=entry.likes + liked[entry.post.id],
            replies=entry.replies + answered[entry.post.id, "reply"],
            reshares=entry.reshares + answered[entry.post.id, "reshare"],
        )
        for entry in feed
    ]


def _people_after(
    people: Sequence[UserState],
    seen: Mapping[str, int],
    moves: Sequence[Move],
    posts: Sequence[Post],
    feed: Sequence[FeedEntry],
    at_hand: Mapping[int, Post],
) -> tuple[UserState, ...]:
    """Return the users after a turn, with their states, ticks and the posts that they have seen."""
    newly_seen = {name: [content] for name, content in seen.items()}
    # Authors have seen the posts that they wrote or reshared.
    for post in posts:
        newly_seen.setdefault(post.author, []).append(post.content)
    move_of = {move.agent: move for move in moves}
    looked_at = {_looked_at_after(person, move_of.get(person.name)) for person in people}
    # Only posts that may still be shown, so that the state does not grow with the run. One that
    # left circulation is among them while a user looks at it, who may reshare it.
    may_be_shown = {entry.post.content for entry in feed}
    may_be_shown |= {post.content for post in at_hand.values() if post.id in looked_at}
    after = []
    for person in people:
        new_contents = newly_seen.get(person.name, ())
        # A dict as an ordered set, since a post and its reshare have the same content.
        contents = dict.fromkeys((*person.seen, *new_contents))
        move = move_of.get(person.name)
        if move is not None:
            state = move.target
            ticks = 0
        else:
            state = person.state
            # A ban stops the clock, so that the user continues as before after it.
            ticks = person.ticks if person.banned else person.ticks + 1
        after.append(
            UserState(
                person.name,
                state,
                ticks,
                _looked_at_after(person, move),
                tuple(content for content in contents if content in may_be_shown),
                person.banned,
            )
        )
    return tuple(after)


def _looked_at_after(person: UserState, move: Move | None) -> int | None:
    """Return the id of the post that a user looks at or answers after a turn, if there is one."""
    if move is None:
        return person.post
    # None for a user who scrolls on, so that the post can leave the state.
    return None if move.target in _UNOCCUPIED else move.post
