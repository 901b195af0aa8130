"""What a run of the social simulation shows: states, moves, engagement, cascades.

A cascade is a post, and all that answered or reshared it, and what answered that. Size, depth and
breadth as in Vosoughi, Roy and Aral (2018), "The spread of true and false news online", Science
359. Differs: replies count as well as reshares, and who reshared from whom is known, not inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from llmsim_lab._util.text import clip, printable
from llmsim_lab.run._turn import Turn
from llmsim_lab.statechart._agent import Post
from llmsim_lab.statechart._chart import AgentState
from llmsim_lab.statechart._state import Move
from llmsim_lab.types import Status

if TYPE_CHECKING:
    import pandas as pd


def all_posts(turns: Sequence[Turn]) -> dict[int, Post]:
    """Return all posts of a run by id, those it began with included."""
    first = turns[0].state
    known = {entry.post.id: entry.post for entry in first.feed}
    known |= {post.id: post for post in first.kept}
    return known | {post.id: post for turn in turns for post in turn.state.new_posts}


def likes_of(turns: Sequence[Turn]) -> Counter[int]:
    """Return how often each post was liked, by its id; the first state's own counts included."""
    # Its own list of likes is left out: they are in its feed's counts already.
    likes = Counter({entry.post.id: entry.likes for entry in turns[0].state.feed})
    likes.update(like.post for turn in turns[1:] for like in turn.state.likes)
    return likes


def moves_in(turns: Sequence[Turn]) -> Iterator[tuple[Turn, Move]]:
    """Yield the moves of these turns; those of the state that a run began from are not its own."""
    return ((turn, move) for turn in turns if turn.number for move in turn.state.moves)


def statuses_in(turn: Turn) -> Mapping[str, Status]:
    """Return how the decisions about a turn's moves came about, by user."""
    return {it.player: it.status for it in turn.answers if it.component == "reasoner"}


def state_frame(turns: Sequence[Turn]) -> pd.DataFrame:
    """Return how many users are in each state: a row a turn, a column a state."""
    import pandas as pd

    counts = [Counter(person.state for person in turn.state.people) for turn in turns]
    frame = pd.DataFrame(
        [{state.value: count[state] for state in AgentState} for count in counts],
        index=pd.Index([turn.number for turn in turns], name="turn"),
    )
    frame.columns.name = "state"
    return frame


def transition_matrix(turns: Sequence[Turn], *, shares: bool = True) -> pd.DataFrame:
    """Return what ``SocialSimulation.transition_matrix`` does, of these turns."""
    import pandas as pd

    names = [state.value for state in AgentState]
    counts = Counter((move.source.value, move.target.value) for _, move in moves_in(turns))
    matrix = pd.DataFrame(
        [[counts[source, target] for target in names] for source in names],
        index=pd.Index(names, name="source"),
        columns=pd.Index(names, name="target"),
    )
    if not shares:
        return matrix
    # By 1 where nobody left the state, so that its row has zeros and not NaN.
    return matrix.div(matrix.sum(axis=1).replace(0, 1), axis=0)


_SIGNS = {"original": "●", "reply": "↩", "reshare": "↻"}


@dataclass(frozen=True)
class Cascade:
    """A tree of posts.

    Attributes:
        posts: the post it began with, then the others by their ids.
        likes: of all its posts together.
    """

    posts: tuple[Post, ...]
    likes: int = 0

    @property
    def root(self) -> Post:
        """The post it began with."""
        return self.posts[0]

    @cached_property
    def children(self) -> dict[int, list[Post]]:
        """What answers each post, by the post's id; posts without an answer are left out."""
        known = {post.id for post in self.posts}
        below: dict[int, list[Post]] = {}
        for post in self.posts[1:]:
            # A parent from before the run began is not known; its answers are shown below the root.
            parent = post.parent if post.parent in known else self.root.id
            below.setdefault(parent or self.root.id, []).append(post)
        return below

    @cached_property
    def levels(self) -> dict[int, int]:
        """How many steps each post is from the root, by id, in the order of ``walk``."""
        return {post.id: level for post, level in self.walk()}

    def walk(self) -> Iterator[tuple[Post, int]]:
        """Yield posts and their levels: each followed by what answers it, oldest first."""
        # Without recursion: a chain of replies may be longer than Python's stack.
        todo = [(self.root, 0)]
        while todo:
            post, level = todo.pop()
            yield post, level
            below = self.children.get(post.id, [])
            todo += [(child, level + 1) for child in reversed(below)]

    @property
    def size(self) -> int:
        """How many posts it has, the first included."""
        return len(self.posts)

    @property
    def depth(self) -> int:
        """Steps from the root to the farthest post; 0 where nobody answered."""
        return max(self.levels.values())

    @property
    def breadth(self) -> int:
        """Posts on the level that has most of them."""
        return max(Counter(self.levels.values()).values())

    def tree(self, *, most: int = 40) -> str:
        """Return the cascade as lines of text, indented by level.

        Args:
            most: lines; the last one says how many more there are.
        """
        lines = [
            f"{'  ' * level}{_SIGNS[post.kind]} {printable(post.author, keep=' ')} "
            f"(turn {post.turn})"
            + (f": {clip(printable(post.text, keep=' '), 80)}" if post.kind != "reshare" else "")
            for post, level in self.walk()
        ]
        if len(lines) > most:
            lines = [*lines[:most], f"… and {len(lines) - most} more"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.tree()
