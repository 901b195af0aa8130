"""Cascades: a post, and all that answered it or passed it on, and what answered that.

Size, depth and breadth as in Vosoughi, Roy and Aral (2018), "The spread of true and false news
online", Science 359. Differs: replies count as well as reshares, and who passed on from whom is
known, not inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart.analysis import all_posts, likes_of
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.state import SocialTurn
from llmsim_lab.text import clip, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cascade", "cascade_frame", "cascade_of", "cascades"]

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
        """What answers each post, by the post's id; only posts that have an answer are there."""
        known = {post.id for post in self.posts}
        below: dict[int, list[Post]] = {}
        for post in self.posts[1:]:
            # A parent from before the run's beginning is not known; its answers hang on the root.
            parent = post.parent if post.parent in known else self.root.id
            below.setdefault(parent or self.root.id, []).append(post)
        return below

    @cached_property
    def levels(self) -> dict[int, int]:
        """How many steps each post is from the root, by id, in the order of ``walk``."""
        return {post.id: level for post, level in self.walk()}

    def walk(self) -> Iterator[tuple[Post, int]]:
        """Yield posts and their levels: each followed by what answers it, oldest first."""
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

    def frame(self) -> pd.DataFrame:
        """Return one row a post, in the order of ``walk``.

        Columns: ``post``, ``level``, ``author``, ``from_author``, whom it answers or passes on,
        ``kind``, ``round``, ``text``.
        """
        import pandas as pd

        author = {post.id: post.author for post in self.posts}
        rows = [
            (
                post.id,
                level,
                post.author,
                author.get(post.parent or 0),
                post.kind,
                post.round,
                post.text,
            )
            for post, level in self.walk()
        ]
        columns = ["post", "level", "author", "from_author", "kind", "round", "text"]
        return pd.DataFrame(rows, columns=columns)

    def tree(self, *, most: int = 40) -> str:
        """Return the cascade as lines of text, indented by level.

        Args:
            most: lines; the last one says how many more there are.
        """
        lines = [
            f"{'  ' * level}{_SIGNS[post.kind]} {printable(post.author, keep=' ')} "
            f"(round {post.round})"
            + (f": {clip(printable(post.text, keep=' '), 80)}" if post.kind != "reshare" else "")
            for post, level in self.walk()
        ]
        if len(lines) > most:
            lines = [*lines[:most], f"… and {len(lines) - most} more"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.tree()


def cascades(turns: Sequence[SocialTurn]) -> list[Cascade]:
    """Return a run's cascades, the largest first, of equals the older."""
    posts = all_posts(turns)
    likes = likes_of(turns)
    together: dict[int, list[Post]] = {}
    for number, post in sorted(posts.items()):
        root = post.root if post.root is not None else number
        together.setdefault(root, []).append(post)
    found = [
        Cascade(tuple(members), sum(likes[post.id] for post in members))
        for members in together.values()
    ]
    return sorted(found, key=lambda cascade: (-cascade.size, cascade.root.id))


def cascade_of(turns: Sequence[SocialTurn], post: int) -> Cascade:
    """Return the cascade that a post is in.

    Raises:
        ConfigError: the run has no such post.
    """
    for cascade in cascades(turns):
        if any(member.id == post for member in cascade.posts):
            return cascade
    raise ConfigError(f"the run has no post {post}; post_frame(simulation.turns) lists them")


def cascade_frame(turns: Sequence[SocialTurn]) -> pd.DataFrame:
    """Return one row a cascade, the largest first; the index is its first post's id.

    Columns: ``author``, ``round``, ``text`` of the first post; ``size``, ``depth``, ``breadth``;
    ``replies``, ``reshares``, ``likes`` in all of it; ``users``, how many different authors.
    """
    import pandas as pd

    rows = []
    for cascade in cascades(turns):
        kinds = Counter(post.kind for post in cascade.posts[1:])
        rows.append(
            {
                "root": cascade.root.id,
                "author": cascade.root.author,
                "round": cascade.root.round,
                "text": cascade.root.text,
                "size": cascade.size,
                "depth": cascade.depth,
                "breadth": cascade.breadth,
                "replies": kinds["reply"],
                "reshares": kinds["reshare"],
                "likes": cascade.likes,
                "users": len({post.author for post in cascade.posts}),
            }
        )
    columns = ["root", "author", "round", "text", "size", "depth", "breadth"]
    columns += ["replies", "reshares", "likes", "users"]
    return pd.DataFrame(rows, columns=columns).set_index("root")
