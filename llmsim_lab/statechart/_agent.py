"""Users of the social network, what they write, and the guards that know both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from llmsim_lab.statechart._chart import AgentState

PostKind = Literal["original", "reply", "reshare"]


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Post:
    """One post.

    Attributes:
        id: unique in a run; later posts have higher ones.
        author: the name of who wrote or reshared it.
        text: the words; a reshare has those of the post that it reshares.
        topics: what it is about, lower case.
        turn: when it was made; 0 for those that the run begins with.
        kind: an original answers nothing; the others answer a post or reshare it.
        parent: the id of the post that it answers or reshares.
        root: the id of the post at the beginning of its cascade: its own for an original.
        copy_of: for a reshare, the id of the post whose text it has.
    """

    id: int
    author: str
    text: str
    topics: tuple[str, ...] = ()
    turn: int = 0
    kind: PostKind = "original"
    parent: int | None = None
    root: int | None = None
    copy_of: int | None = None

    @property
    def content(self) -> int:
        """The id of the post whose text this is: its own, unless it is a reshare."""
        return self.id if self.copy_of is None else self.copy_of


DecidedBy = Literal["chart", "reasoner", "timeout"]
"""``chart``: it left one move only; ``reasoner``: chose among several; ``timeout``: time was up."""


@dataclass(eq=False)
class SocialAgent:
    """A user of the social network.

    Args:
        name: unique in a run.
        interests: topics, lower case.
        personality: a sentence or two, which the reasoner reads.
        state: what it is doing.
        activity: the chance that it opens the app in a turn, if it is idle.
        engagement_threshold: the share of a post's topics that must be among its interests for
            it to look closely, 0 to 1.
        timeout_threshold: ticks after which it has been in a state too long, 1 or more.
        ticks_in_state: turns it has spent in its state.
    """

    name: str
    interests: Sequence[str] = ()
    personality: str = ""
    _: KW_ONLY
    state: AgentState = AgentState.IDLE
    activity: float = 0.5
    engagement_threshold: float = 0.5
    timeout_threshold: int = 5
    ticks_in_state: int = 0


def interest_match(agent: SocialAgent, post: Post) -> float:
    """Return the share of a post's topics that are among an agent's interests, 0 to 1."""
    # Posts made by hand, without a configuration, may name none.
    if not post.topics:
        return 0.0
    shared = [topic for topic in post.topics if topic in agent.interests]
    return len(shared) / len(post.topics)


def interested(agent: SocialAgent, context: object) -> bool:
    """Return True if a post matches the agent's interests well enough to be looked at."""
    # A chart may use the guard with any trigger, also with one that is not about a post.
    if not isinstance(context, Post):
        return False
    return interest_match(agent, context) >= agent.engagement_threshold
