"""Whether a state of the social network is sound, before anything is played from it.

States that a run makes are. Those that somebody edits for a fork, or writes by hand, may not be,
and a wrong one does not fail by itself: a user in no state of the chart never moves, a post of the
future is never old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart.chart import Statechart
from llmsim_lab.statechart.posts import Post, PostKind
from llmsim_lab.statechart.profiles import Name
from llmsim_lab.statechart.state import FeedEntry, Person, SocialState
from llmsim_lab.statechart.states import AgentState

__all__ = ["check_history", "check_state"]

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def check_state(state: SocialState, *, users: Sequence[str], chart: Statechart[AgentState]) -> None:
    """Refuse a state that a run with these users and this chart could not be in.

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
        raise ConfigError(f"the state of round {state.round} is not sound: {faults[0]}{more}")


def check_history(state: SocialState, earlier: Mapping[int, Post]) -> None:
    """Refuse a state whose posts are not those of the rounds before it.

    Args:
        state: a sound state, to go on from.
        earlier: all posts of the rounds before it, by id; none where it is the first.

    Raises:
        ConfigError: a post is other than its round left it, or no round made it.
    """
    new = {post.id for post in state.new_posts}
    for post in state.at_hand.values():
        if post.id in new:
            continue
        if post.id not in earlier:
            raise ConfigError(
                f"post {post.id} by {post.author!r} is in circulation in round {state.round}, but "
                "neither was it made before nor is it in new_posts; add it there, or inject it: "
                "intervene=[{'turn': ..., 'post': {...}}]"
            )
        if post != earlier[post.id]:
            raise ConfigError(
                f"post {post.id} by {post.author!r} is not as round {earlier[post.id].round} left "
                "it; what was said cannot be unsaid: inject another one, "
                "intervene=[{'turn': ..., 'post': {...}}], or fork from an earlier round"
            )


def _check_users(state: SocialState, users: Sequence[str]) -> None:
    if strange := next((item for item in state.people if not isinstance(item, Person)), None):
        raise ConfigError(f"people: {strange!r:.80} is no Person")
    there = [person.name for person in state.people]
    if there != list(users):
        first = next(
            (f"{a!r} where {b!r} is" for a, b in zip(there, users, strict=False) if a != b),
            f"{len(there)} users where there are {len(users)}",
        )
        raise ConfigError(
            f"the state is not one of this run's users: it has {first} in the configuration"
        )


def _form_faults(state: SocialState) -> Iterator[str]:
    """Say what the other checks could not be made with."""
    if not _counts(state.round):
        yield f"round={state.round!r} must be a whole number, 0 or more"
    if not _counts(state.next_post, least=1):
        yield f"next_post={state.next_post!r} must be a whole number, 1 or more"
    if not _are_posts(state):
        yield "feed must hold FeedEntry(Post(...)), kept and new_posts Post(...), and nothing else"


def _people_faults(state: SocialState, chart: Statechart[AgentState]) -> Iterator[str]:
    at_hand = state.at_hand
    legal = ", ".join(chart.states)
    for person in state.people:
        who = f"user {person.name!r}"
        if not isinstance(person.state, AgentState):
            yield (
                f"{who}: state={person.state!r:.80} is no AgentState; the chart's are {legal}, "
                f"such as AgentState.{chart.initial.name}"
            )
        elif person.state not in chart.states:
            yield f"{who}: the chart has no state {person.state.value!r}; it has: {legal}"
        if not _counts(person.ticks):
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


def _are_posts(state: SocialState) -> bool:
    entries = all(isinstance(entry, FeedEntry) for entry in state.feed)
    return entries and all(isinstance(post, Post) for _, post in _posts(state))


def _posts(state: SocialState) -> Iterator[tuple[str, Any]]:
    """Yield every post with where it stands."""
    for entry in state.feed:
        yield "feed", entry.post
    for post in state.kept:
        yield "kept", post
    for post in state.new_posts:
        yield "new_posts", post


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
        if post.round != state.round:
            yield f"new_posts: post {post.id} was made in round {post.round}, not in this one"
    for entry in state.feed:
        counts = (entry.likes, entry.replies, entry.reshares)
        if not all(map(_counts, counts)):
            yield (
                f"feed: post {entry.post.id} has likes, replies, reshares {counts}; whole numbers, "
                "0 or more, are wanted"
            )
    for before, after in pairwise(entry.post.id for entry in state.feed):
        if _given_out(before, state) and _given_out(after, state) and before >= after:
            yield f"feed: post {after} stands behind post {before}; the oldest is first, each once"


def _faults(post: Post, state: SocialState, users: frozenset[str]) -> Iterator[str]:
    """Say what is wrong with a post by itself."""
    if not _given_out(post.id, state):
        yield f"id={post.id!r:.80}, {_ids(state)}"
    if not _counts(post.round) or post.round > state.round:
        yield f"round={post.round!r:.80} must be from 0 to {state.round}"
    if post.kind not in get_args(PostKind):
        yield f"kind={post.kind!r:.80} is not one of {', '.join(get_args(PostKind))}"
    elif post.kind == "original":
        if _not_a_name(post.author):
            yield f"author={post.author!r:.80} is no name on one line"
    elif post.author not in users:
        yield f"a {post.kind} is always a user's, and there is no user {post.author!r:.80}"
    if not isinstance(post.text, str) or not post.text.strip():
        yield f"text={post.text!r:.80} says nothing"
    for topic in post.topics:
        if not isinstance(topic, str) or not topic or topic != topic.strip().lower():
            yield f"topic {topic!r:.80} must be in lower case, without spaces around it"


def _reference_faults(post: Post, known: Mapping[int, Post]) -> Iterator[str]:
    """Say where a post refers to what cannot be; posts out of circulation are not at hand."""
    references = {"root": post.root, "parent": post.parent, "copy_of": post.copy_of}
    wanted = {"original": (), "reply": ("root", "parent")}.get(post.kind, tuple(references))
    for name, value in references.items():
        if post.kind == "original" and name == "root" and value in (None, post.id):
            continue
        if name not in wanted:
            if value is not None:
                yield f"post {post.id}: {name}={value!r:.80} makes no sense: it is {_a(post)}"
        elif value is None or not _counts(value, least=1) or value >= post.id:
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


def _a(post: Post) -> str:
    return "an original" if post.kind == "original" else f"a {post.kind}"


def _not_a_name(author: object) -> bool:
    try:
        return _NAME.validate_python(author, strict=True) != author
    except ValidationError:
        return True


def _counts(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _given_out(number: object, state: SocialState) -> bool:
    """Say whether a post may have a number: from 1 to the last given out."""
    return isinstance(number, int) and _counts(number, least=1) and number < state.next_post


def _ids(state: SocialState) -> str:
    return (
        f"but numbers are given out from 1 to below next_post={state.next_post}, which is the next "
        "post's; correct one of the two"
    )


def _some(posts: Mapping[int, Post]) -> str:
    return ", ".join(map(str, list(posts)[:10])) + (" ..." if len(posts) > 10 else "") or "none"
