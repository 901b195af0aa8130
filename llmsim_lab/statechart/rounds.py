"""One round of the social network, in the three steps that surround the reasoner's choices.

Everybody acts on the network as the round before left it, so the order of users does not matter:
first every user's legal moves are found, then the ambiguous ones are decided all at once, then all
moves are made and their posts and likes go out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from llmsim_lab.calls import Status
from llmsim_lab.logs import log_event
from llmsim_lab.statechart.agent import DecidedBy, SocialAgent
from llmsim_lab.statechart.chart import TIMEOUT, Statechart
from llmsim_lab.statechart.config import FeedConfig
from llmsim_lab.statechart.feed import FeedSelector, circulate
from llmsim_lab.statechart.posts import Post, PostKind
from llmsim_lab.statechart.profiles import ProfileConfig
from llmsim_lab.statechart.rules import draw
from llmsim_lab.statechart.state import FeedEntry, Like, Move, Person, SocialState
from llmsim_lab.statechart.states import AgentState

__all__ = ["Outcome", "Pending", "Plan", "fired_in", "make_moves", "next_state", "plan_round"]

logger = logging.getLogger(__name__)

_ENGAGING: dict[AgentState, PostKind | None] = {
    AgentState.ENGAGING_LIKE: None,
    AgentState.ENGAGING_REPLY: "reply",
    AgentState.ENGAGING_RESHARE: "reshare",
}
"""What entering a state puts out: a post of that kind, or a like."""


@dataclass(slots=True)
class Pending:
    """A user's move that is to be made, or to be decided.

    Attributes:
        agent: who.
        trigger: the event.
        options: the legal targets; none where the event changes nothing.
        post: what it is about.
        target: the one that is taken, once that is known.
        decided_by: who chose it.
        status: how the choice came about.
    """

    agent: SocialAgent
    trigger: str
    options: list[AgentState]
    post: Post | None
    target: AgentState | None = None
    decided_by: DecidedBy = "chart"
    status: Status = "ok"


@dataclass(slots=True)
class Plan:
    """What is to happen in a round, by the users' places; of posts seen, their ``content``."""

    number: int
    pending: dict[int, Pending] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    @property
    def ambiguous(self) -> list[Pending]:
        """The moves that somebody must decide."""
        return [move for move in self.pending.values() if len(move.options) > 1]


def fired_in(state: AgentState) -> tuple[str, ...]:
    """Return the triggers that a round may fire for a user in a state."""
    own = {
        AgentState.IDLE: ("opens_app",),
        AgentState.SCROLLING: ("sees_post", "feed_empty"),
        AgentState.EVALUATING: ("decides",),
        AgentState.RESTING: (),
    }
    return (*own.get(state, ("finishes",)), TIMEOUT)


def plan_round(
    state: SocialState,
    agents: Sequence[SocialAgent],
    profiles: Sequence[ProfileConfig],
    *,
    chart: Statechart[AgentState],
    selector: FeedSelector,
    seed: int,
) -> Plan:
    """Return what may happen in the next round; the agents' ticks go up by one.

    Args:
        state: the network as the last round left it.
        agents: the users, in the states' order, with the states they have there.
        profiles: who they are.
        chart: what is legal.
        selector: what they see.
        seed: of who opens the app.
    """
    plan = Plan(state.round + 1)
    luck = np.random.default_rng([seed, plan.number, 1]).random(len(agents))
    posts = state.at_hand
    looking: list[int] = []
    for row, (agent, person) in enumerate(zip(agents, state.people, strict=True)):
        if person.banned:
            continue
        agent.tick()
        here = agent.state
        late = agent.is_timed_out(chart.timeouts.get(here))
        # Whom the chart's guards do not let go goes on as ever.
        if late and chart.valid_targets(here, TIMEOUT, agent=agent):
            _add(plan, row, agent, TIMEOUT, None, chart)
        elif here is AgentState.SCROLLING:
            looking.append(row)
        elif here is AgentState.IDLE:
            if luck[row] < profiles[row].activity:
                _add(plan, row, agent, "opens_app", None, chart)
        elif here is not AgentState.RESTING:
            trigger = "decides" if here is AgentState.EVALUATING else "finishes"
            about = posts.get(person.post) if person.post is not None else None
            _add(plan, row, agent, trigger, about, chart)
    for row, post in zip(looking, selector.choose(state, looking), strict=True):
        if post is not None:
            plan.seen[row] = post.content
        _add(plan, row, agents[row], "feed_empty" if post is None else "sees_post", post, chart)
    return plan


def _add(
    plan: Plan,
    row: int,
    agent: SocialAgent,
    trigger: str,
    post: Post | None,
    chart: Statechart[AgentState],
) -> None:
    options = chart.valid_targets(agent.state, trigger, agent=agent, context=post)
    if not options:
        return
    move = Pending(agent, trigger, options, post)
    if len(options) == 1:
        move.target = options[0]
        move.decided_by = "timeout" if trigger == TIMEOUT else "chart"
    plan.pending[row] = move


@dataclass(slots=True)
class Outcome:
    """What the moves of a round put out.

    Attributes:
        moves: those made.
        likes: who liked what.
        drafts: posts that lack their text, with the post that each is about.
    """

    moves: list[Move] = field(default_factory=list)
    likes: list[Like] = field(default_factory=list)
    drafts: list[tuple[SocialAgent, Post, Post | None]] = field(default_factory=list)


def make_moves(plan: Plan, state: SocialState, chart: Statechart[AgentState], seed: int) -> Outcome:
    """Make the moves of a plan whose targets are all known; the agents' states do not change.

    Args:
        plan: the plan.
        state: the network as the last round left it.
        chart: whose actions are done.
        seed: of what new posts are about.
    """
    out = Outcome()
    number = state.next_post
    for row in sorted(plan.pending):
        move = plan.pending[row]
        agent, source, post = move.agent, move.agent.state, move.post
        target = chart.fire(agent, move.trigger, post, target=move.target)
        if target is None:
            _note_lost(move)
            continue
        about = None if post is None else post.id
        out.moves.append(
            Move(agent.name, move.trigger, source, target, move.decided_by, move.status, about)
        )
        made = _post_made(agent, source, target, move, number, plan.number, seed)
        if made is not None:
            out.drafts.append((agent, made, post))
            number += 1
        elif target is AgentState.ENGAGING_LIKE and post is not None:
            out.likes.append(Like(agent.name, post.id))
    return out


def _note_lost(move: Pending) -> None:
    """Say that a move is not made after all: a guard that held no longer does."""
    log_event(
        logger,
        logging.WARNING,
        "MOVE_LOST",
        agent=move.agent.name,
        trigger=move.trigger,
        target=move.target,
        reason="a guard answered otherwise when asked again; guards must follow from agent and "
        "post alone",
    )


def _post_made(
    agent: SocialAgent,
    source: AgentState,
    target: AgentState,
    move: Pending,
    number: int,
    turn: int,
    seed: int,
) -> Post | None:
    """Return the post that a move puts out, without its text, unless it is a reshare."""
    about = move.post
    if source is AgentState.COMPOSING and move.trigger == "finishes":
        place = int(draw(seed, turn, agent.name, "topic") * len(agent.interests))
        topics = about.topics if about else (agent.interests[place],)
        return Post(id=number, author=agent.name, text="", topics=topics, round=turn, root=number)
    kind = _ENGAGING.get(target)
    if kind is None or about is None:
        return None
    # Who passes on a reshare passes on what it holds, in the same cascade.
    return Post(
        id=number,
        author=agent.name,
        text=about.text if kind == "reshare" else "",
        topics=about.topics,
        round=turn,
        kind=kind,
        parent=about.id,
        root=about.root if about.root is not None else about.id,
        copy_of=about.content if kind == "reshare" else None,
    )


def next_state(
    state: SocialState,
    plan: Plan,
    outcome: Outcome,
    posts: Sequence[Post],
    agents: Sequence[SocialAgent],
    config: FeedConfig,
) -> SocialState:
    """Return the network after a round.

    Args:
        state: before it.
        plan: what was to happen.
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
    own: dict[str, list[int]] = {}
    for post in posts:
        own.setdefault(post.author, []).append(post.content)
    people = tuple(
        _person_after(
            person,
            agents[row],
            made.get(person.name),
            [*([plan.seen[row]] if row in plan.seen else ()), *own.get(person.name, ())],
            about,
        )
        for row, person in enumerate(state.people)
    )
    known = {entry.post.id for entry in feed}
    held = sorted({person.post for person in people if person.post is not None} - known)
    at_hand = state.at_hand
    return SocialState(
        round=plan.number,
        people=people,
        feed=feed,
        new_posts=tuple(posts),
        kept=tuple(at_hand[post] for post in held),
        next_post=state.next_post + len(posts),
    )


def _person_after(
    person: Person,
    agent: SocialAgent,
    move: Move | None,
    saw: Sequence[int],
    known: set[int],
) -> Person:
    seen = tuple(dict.fromkeys(content for content in (*person.seen, *saw) if content in known))
    if move is None:
        return person._replace(ticks=agent.ticks_in_state, seen=seen)
    about = (
        None
        if move.target in (AgentState.IDLE, AgentState.SCROLLING, AgentState.RESTING)
        else move.post
    )
    return person._replace(state=move.target, ticks=0, post=about, seen=seen)


def _received(
    feed: Sequence[FeedEntry], likes: Sequence[Like], posts: Sequence[Post]
) -> list[FeedEntry]:
    """Return the posts in circulation with this round's reception counted."""
    liked = _count([like.post for like in likes])
    replied = _count([post.parent for post in posts if post.kind == "reply"])
    passed_on = _count([post.parent for post in posts if post.kind == "reshare"])
    if not (liked or replied or passed_on):
        return list(feed)
    return [
        entry._replace(
            likes=entry.likes + liked.get(entry.post.id, 0),
            replies=entry.replies + replied.get(entry.post.id, 0),
            reshares=entry.reshares + passed_on.get(entry.post.id, 0),
        )
        for entry in feed
    ]


def _count(ids: Sequence[int | None]) -> Mapping[int | None, int]:
    counts: dict[int | None, int] = {}
    for post in ids:
        counts[post] = counts.get(post, 0) + 1
    return counts
