"""The state of a social network after a turn, the record of a turn, and the validation of states.

States that a run makes are valid. Those that somebody edits for a fork, or writes by hand, may not
be, and a wrong one raises nothing later: a user whose state is not in the chart never moves, and a
post of a later turn never gets old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard, get_args

from pydantic import TypeAdapter, ValidationError

from llmsim_lab.errors import ConfigError
from llmsim_lab.run._turn import RunTurn
from llmsim_lab.statechart._agent import DecidedBy, Post, PostKind, TurnOnTape
from llmsim_lab.statechart._chart import AgentState, Statechart
from llmsim_lab.statechart._config import Name, SocialIntervention
from llmsim_lab.types import LLMReasoningChain, Status

_MOST_IN_WORDS = 20


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
    """One transition of one user in a turn; see ``StateTransition``."""

    agent: str
    trigger: str
    source: AgentState
    target: AgentState
    decided_by: DecidedBy = "chart"
    status: Status = "ok"
    post: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SocialState:
    """The network after a turn.

    Its size does not grow with the run: posts that left circulation are in the turns that made
    them.

    Attributes:
        turn: 0 for the state a run begins with.
        people: the users, in the configuration's order.
        feed: the posts in circulation, oldest first.
        new_posts: those made in this turn, injected ones included.
        kept: posts out of circulation that somebody is still looking at or answering.
        next_post: the id that the next post gets.
    """

    turn: TurnOnTape
    people: tuple[UserState, ...]
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
    """One turn of the network.

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
        ``replies``, ``reshares``, made in the turn; ``banned``, users.
        """
        counts = Counter(person.state for person in self.state.people)
        made = [post.kind for post in self.state.new_posts]
        return {
            **{state.value: counts[state] for state in AgentState},
            "moves": len(self.moves),
            "asked": self.asked,
            "likes": len(self.likes),
            "posts": made.count("original"),
            "replies": made.count("reply"),
            "reshares": made.count("reshare"),
            "banned": sum(person.banned for person in self.state.people),
        }

    def in_words(self) -> Sequence[str]:
        """Return how many users did what, and the first moves that the reasoner decided."""
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
        """Return ``moved_to`` for each chain of the reasoner's: the state that the user went to."""
        # None for the writer's chains: all have the same keys, which become columns of one table.
        targets = {move.agent: str(move.target) for move in self.moves}
        return [
            {"moved_to": targets.get(chain.agent) if chain.component == "reasoner" else None}
            for chain in chains
        ]


_NAME: TypeAdapter[str] = TypeAdapter(Name)


def check_state(state: SocialState, *, users: Sequence[str], chart: Statechart[AgentState]) -> None:
    """Raise ConfigError if a run with these users and this chart could not be in a state.

    Args:
        state: the state.
        users: the configuration's, in its order.
        chart: what states there are.

    Raises:
        ConfigError: it names the first thing that is wrong, and where.
    """
    _check_users(state, users)
    faults = list(_form_faults(state))
    faults = faults or [*_people_faults(state, chart), *_post_faults(state, users)]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ConfigError(f"the state of turn {state.turn} is not valid: {faults[0]}{more}")


def check_history(state: SocialState, earlier: Mapping[int, Post]) -> None:
    """Raise ConfigError if a state's posts are not those of the turns before it.

    Args:
        state: a valid state, to continue from.
        earlier: all posts of the turns before it, by id; none where it is the first.

    Raises:
        ConfigError: a post is other than its turn left it, or no turn made it.
    """
    # What earlier turns hold is on the tape already, and read from there by frames and cascades.
    new = {post.id for post in state.new_posts}
    for post in state.at_hand.values():
        if post.id in new:
            continue
        if post.id not in earlier:
            raise ConfigError(
                f"post {post.id} by {post.author!r} is in circulation in turn {state.turn}, but "
                "neither was it made before nor is it in new_posts; add it there, or inject it: "
                "intervene=[{'turn': ..., 'post': {...}}]"
            )
        if post != earlier[post.id]:
            raise ConfigError(
                f"post {post.id} by {post.author!r} is not as turn {earlier[post.id].turn} left "
                "it; what was said cannot be unsaid: inject another one, "
                "intervene=[{'turn': ..., 'post': {...}}], or fork from an earlier turn"
            )


def _check_users(state: SocialState, users: Sequence[str]) -> None:
    if strange := next((item for item in state.people if not isinstance(item, UserState)), None):
        raise ConfigError(f"people: {strange!r:.80} is not a UserState")
    # In the same order too: a turn finds users by their places.
    names = [person.name for person in state.people]
    if names != list(users):
        first = next(
            (f"{a!r} where {b!r} is" for a, b in zip(names, users, strict=False) if a != b),
            f"{len(names)} users where there are {len(users)}",
        )
        raise ConfigError(
            f"the state is not one of this run's users: it has {first} in the configuration"
        )


def _form_faults(state: SocialState) -> Iterator[str]:
    """Yield what is so wrong that the other checks cannot be made."""
    # Types first: a state for a fork may be put together in a notebook, without any validation.
    if not _is_count(state.turn):
        yield f"turn={state.turn!r} must be a whole number, 0 or more"
    if not _is_count(state.next_post, least=1):
        yield f"next_post={state.next_post!r} must be a whole number, 1 or more"
    entries = all(isinstance(entry, FeedEntry) for entry in state.feed)
    if not (entries and all(isinstance(post, Post) for _, post in _posts(state))):
        yield "feed must hold FeedEntry(Post(...)), kept and new_posts Post(...), and nothing else"


def _people_faults(state: SocialState, chart: Statechart[AgentState]) -> Iterator[str]:
    at_hand = state.at_hand
    legal = ", ".join(chart.states)
    for person in state.people:
        who = f"user {person.name!r}"
        if not isinstance(person.state, AgentState):
            yield (
                f"{who}: state={person.state!r:.80} is not an AgentState; the chart's are {legal}, "
                f"such as AgentState.{chart.initial.name}"
            )
        elif person.state not in chart.states:
            yield f"{who}: the chart has no state {person.state.value!r}; it has: {legal}"
        if not _is_count(person.ticks):
            yield f"{who}: ticks={person.ticks!r:.80} must be a whole number, 0 or more"
        if not isinstance(person.banned, bool):
            yield f"{who}: banned={person.banned!r:.80} must be True or False"
        if person.post is not None and person.post not in at_hand:
            yield (
                f"{who}: post={person.post!r:.80} is neither in feed nor in kept; there are: "
                f"{_some(at_hand)}"
            )
        unknown = [seen for seen in person.seen if not _given_out(seen, state)]
        if unknown:
            yield f"{who}: seen has {unknown[0]!r:.80}, {_ids(state)}"


def _posts(state: SocialState) -> Iterator[tuple[str, Any]]:
    """Yield every post with where it stands."""
    yield from (("feed", entry.post) for entry in state.feed)
    yield from (("kept", post) for post in state.kept)
    yield from (("new_posts", post) for post in state.new_posts)


def _post_faults(state: SocialState, users: Iterable[str]) -> Iterator[str]:
    names = frozenset(users)
    known: dict[int, Post] = {}
    for where, post in _posts(state):
        if post.id in known and known[post.id] != post:
            yield f"{where}: post {post.id} is not the same as the other post of that number"
        if post.id not in known:
            known[post.id] = post
            yield from (f"{where}: post {post.id}: {it}" for it in _faults(post, state, names))
    for post in known.values():
        yield from _reference_faults(post, known)
    for post in state.new_posts:
        if post.turn != state.turn:
            yield f"new_posts: post {post.id} was made in turn {post.turn}, not in this one"
    for entry in state.feed:
        counts = (entry.likes, entry.replies, entry.reshares)
        if not all(map(_is_count, counts)):
            yield (
                f"feed: post {entry.post.id} has likes, replies, reshares {counts}; whole numbers, "
                "0 or more, are needed"
            )
    # Equal scores are settled by the place in the feed, so the order decides what users see.
    for before, after in pairwise(entry.post.id for entry in state.feed):
        if _given_out(before, state) and _given_out(after, state) and before >= after:
            yield f"feed: post {after} stands behind post {before}; the oldest is first, each once"


def _faults(post: Post, state: SocialState, users: frozenset[str]) -> Iterator[str]:
    """Yield what is wrong with a post, apart from what it refers to."""
    if not _given_out(post.id, state):
        yield f"id={post.id!r:.80}, {_ids(state)}"
    if not _is_count(post.turn) or post.turn > state.turn:
        yield f"turn={post.turn!r:.80} must be from 0 to {state.turn}"
    if post.kind not in get_args(PostKind):
        yield f"kind={post.kind!r:.80} is not one of {', '.join(get_args(PostKind))}"
    elif post.kind == "original":
        if _not_a_name(post.author):
            yield f"author={post.author!r:.80} is not a name on one line"
    elif post.author not in users:
        yield f"a {post.kind} is always a user's, and there is no user {post.author!r:.80}"
    if not isinstance(post.text, str) or not post.text.strip():
        yield f"text={post.text!r:.80} says nothing"
    for topic in post.topics:
        if not isinstance(topic, str) or not topic or topic != topic.strip().lower():
            yield f"topic {topic!r:.80} must be in lower case, without spaces around it"


def _reference_faults(post: Post, known: Mapping[int, Post]) -> Iterator[str]:
    """Yield where a post refers to one that cannot be; those out of circulation are not known."""
    references = {"root": post.root, "parent": post.parent, "copy_of": post.copy_of}
    wanted = {"original": (), "reply": ("root", "parent")}.get(post.kind, tuple(references))
    for name, value in references.items():
        if post.kind == "original" and name == "root" and value in (None, post.id):
            continue
        if name not in wanted:
            if value is not None:
                a_kind = "an original" if post.kind == "original" else f"a {post.kind}"
                yield f"post {post.id}: {name}={value!r:.80} makes no sense: it is {a_kind}"
        # Only to older posts: a cascade is then a tree, and following it ends.
        elif not _is_count(value, least=1) or value >= post.id:
            yield (
                f"post {post.id}: {name}={value!r:.80} must be the number of an older post, from 1 "
                f"to {post.id - 1}"
            )
        elif name == "parent" and value in known and _root(known[value]) != post.root:
            yield (
                f"post {post.id}: root={post.root}, but the root of its parent, post {value}, is "
                f"{_root(known[value])}"
            )


def _root(post: Post) -> int:
    return post.id if post.root is None else post.root


def _not_a_name(author: object) -> bool:
    try:
        return _NAME.validate_python(author, strict=True) != author
    except ValidationError:
        return True


def _is_count(value: object, least: int = 0) -> TypeGuard[int]:
    # True is an int for Python.
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _given_out(number: object, state: SocialState) -> bool:
    """Return True if a post may have a number: from 1 to the last given out."""
    return _is_count(number, least=1) and number < state.next_post


def _ids(state: SocialState) -> str:
    return (
        f"but numbers are given out from 1 to below next_post={state.next_post}, which is the next "
        "post's; correct one of the two"
    )


def _some(posts: Mapping[int, Post]) -> str:
    return ", ".join(map(str, list(posts)[:10])) + (" ..." if len(posts) > 10 else "") or "none"
