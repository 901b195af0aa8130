"""Users of the social network, what they write, and the guards that know both."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart._chart import AgentState

PostKind = Literal["original", "reply", "reshare"]


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def __str__(self) -> str:
        topics = f" [{', '.join(self.topics)}]" if self.topics else ""
        return f"{self.author}: {self.text}{topics}"


DecidedBy = Literal["chart", "reasoner", "timeout"]
"""``chart``: it left one move only; ``reasoner``: chose among several; ``timeout``: time was up."""


@dataclass(frozen=True, slots=True)
class StateTransition:
    """One entry of an agent's history.

    Attributes:
        trigger: the event.
        source: the state that was left.
        target: the state that was entered.
        turn: the turn in which it happened, if one is played.
        decided_by: who chose the target.
        post: the id of the post it was about, if it was about one.
    """

    trigger: str
    source: AgentState
    target: AgentState
    turn: int | None = None
    decided_by: DecidedBy = "chart"
    post: int | None = None


@dataclass(eq=False, repr=False)
class SocialAgent:
    """A user of the social network.

    Args:
        name: unique in a run.
        interests: topics, lower case.
        personality: a sentence or two, which the reasoner reads.
        state: where it begins.
        engagement_threshold: the share of a post's topics that must be among its interests for
            it to look closely, 0 to 1.
        timeout_threshold: ticks after which it has been in a state too long, 1 or more.
        history_depth: how many transitions it remembers; None for all of them.

    Attributes:
        state: what it is doing.
        ticks_in_state: turns it has spent doing that.
        state_history: its latest transitions, oldest first.
    """

    name: str
    interests: Sequence[str] = ()
    personality: str = ""
    _: KW_ONLY
    state: AgentState = AgentState.IDLE
    engagement_threshold: float = 0.5
    timeout_threshold: int = 5
    history_depth: int | None = 50
    ticks_in_state: int = 0
    state_history: deque[StateTransition] = field(init=False)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("an agent needs a name")
        who, depth = f"{self.name}'s", self.history_depth
        real_number(f"{who} engagement_threshold", self.engagement_threshold, least=0, most=1)
        whole_number(f"{who} timeout_threshold", self.timeout_threshold, least=1)
        if depth is not None:
            whole_number(f"{who} history_depth", depth, least=0)
        self.interests = tuple(self.interests)
        self.state_history = deque(maxlen=depth)

    def tick(self) -> None:
        """Count one more turn in the state."""
        self.ticks_in_state += 1

    def is_timed_out(self, threshold: int | None = None) -> bool:
        """Return True if the agent has been in its state for too many ticks.

        Args:
            threshold: replaces the agent's own ``timeout_threshold``, where the chart has one
                for the state.
        """
        return self.ticks_in_state >= (self.timeout_threshold if threshold is None else threshold)

    def transition_to(
        self,
        state: AgentState,
        trigger: str = "",
        *,
        turn: int | None = None,
        decided_by: DecidedBy = "chart",
        post: int | None = None,
    ) -> StateTransition:
        """Enter a state, reset its ticks, and remember the transition.

        Returns:
            The entry in the history.
        """
        record = StateTransition(trigger, self.state, state, turn, decided_by, post)
        self.state_history.append(record)
        self.state = state
        self.ticks_in_state = 0
        return record

    def __repr__(self) -> str:
        return f"<SocialAgent {self.name!r}: {self.state.value}, {self.ticks_in_state} ticks>"


def interest_match(agent: SocialAgent, post: Post) -> float:
    """Return the share of a post's topics that are among an agent's interests, 0 to 1."""
    if not post.topics:
        return 0.0
    return sum(topic in agent.interests for topic in post.topics) / len(post.topics)


def interested(agent: SocialAgent, context: object) -> bool:
    """Return True if a post matches the agent's interests well enough to be looked at."""
    # A chart may use the guard with any trigger, also with one that is not about a post.
    return (
        isinstance(context, Post) and interest_match(agent, context) >= agent.engagement_threshold
    )
