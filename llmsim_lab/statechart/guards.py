"""Guards of the social simulation's charts, by the names that their files use."""

from __future__ import annotations

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart.agent import SocialAgent
from llmsim_lab.statechart.chart import Guard
from llmsim_lab.statechart.posts import Post

__all__ = ["GUARDS", "interest_match", "interested", "register_guard"]


def interest_match(agent: SocialAgent, post: Post) -> float:
    """Return the share of a post's topics that are among an agent's interests, 0 to 1."""
    if not post.topics:
        return 0.0
    return sum(topic in agent.interests for topic in post.topics) / len(post.topics)


def interested(agent: SocialAgent, context: object) -> bool:
    """Say whether a post meets the agent's interests well enough to be looked at."""
    return (
        isinstance(context, Post) and interest_match(agent, context) >= agent.engagement_threshold
    )


GUARDS: dict[str, Guard] = {"interested": interested}
_SHIPPED = frozenset(GUARDS)


def register_guard(guard: Guard) -> Guard:
    """Let charts of the social simulation name a guard by its function's name; a decorator.

    It is asked more than once for a move, and again on replay, so it must answer from the agent
    (without its history) and the post alone. Whoever replays the run registers it first.

    Raises:
        ConfigError: it has no name, or that of a shipped guard.
    """
    name = getattr(guard, "__name__", "")
    if not name.isidentifier():
        raise ConfigError(f"{guard!r} has no name that a chart could use; define it with def")
    if name in _SHIPPED:
        raise ConfigError(f"the guard {name!r} is shipped; give yours another name")
    GUARDS[name] = guard
    return guard
