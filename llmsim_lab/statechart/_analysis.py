"""Cascades of the social simulation: how posts spread.

A cascade is a post with its replies and reshares, and theirs in turn. Size, depth and
breadth as in Vosoughi, Roy and Aral (2018), "The spread of true and false news online", Science
359. Differs: replies count as well as reshares, and who reshared from whom is known, not inferred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.statechart._agent import Post

_SIGNS = {
    "original": "●",
    "reply": "↩",
    "reshare": "↻",
}


@dataclass(frozen=True)
class Cascade:
    """A tree of posts.

    Attributes:
        posts: the first post, then the others by their ids.
        likes: the likes of all its posts together.
    """

    posts: tuple[Post, ...]
    likes: int = 0

    @property
    def root(self) -> Post:
        """The first post."""
        return self.posts[0]

    @cached_property
    def children(self) -> dict[int, list[Post]]:
        """The answers to each post, by the post's id; posts without answers are left out."""
        ids = {post.id for post in self.posts}
        children: dict[int, list[Post]] = {}
        for post in self.posts[1:]:
            parent = post.parent
            # A parent from before the run is not known; its answers are put below the root.
            if parent is None or parent not in ids:
                parent = self.root.id
            siblings = children.setdefault(parent, [])
            siblings.append(post)
        return children

    @cached_property
    def levels(self) -> dict[int, int]:
        """Each post's steps from the root, by id; each post comes before its answers."""
        # Without recursion: a chain of replies may be longer than Python's stack.
        levels: dict[int, int] = {}
        left = [(self.root, 0)]
        while left:
            post, level = left.pop()
            levels[post.id] = level
            below = self.children.get(post.id, [])
            # Reversed, since the last one is taken first.
            left += [(child, level + 1) for child in reversed(below)]
        return levels

    @property
    def size(self) -> int:
        """The number of posts, including the first."""
        return len(self.posts)

    @property
    def depth(self) -> int:
        """Steps from the root to the farthest post; 0 without answers."""
        return max(self.levels.values())

    @property
    def breadth(self) -> int:
        """The largest number of posts on a level."""
        counts = Counter(self.levels.values())
        return max(counts.values())

    def tree(self, *, most: int = 40) -> str:
        """Return the cascade as lines of text, indented by level.

        Args:
            most: lines; the last one says how many more there are.
        """
        lines = []
        by_id = {post.id: post for post in self.posts}
        for number, level in self.levels.items():
            post = by_id[number]
            line = f"{_SIGNS[post.kind]} {post.author} (turn {post.turn})"
            # A reshare has the text of a post above.
            if post.kind != "reshare":
                text = printable(post.text, keep=" ")
                line += f": {clip(text, 80)}"
            indent = "  " * level
            # Names and words from files and models may have control characters, which must not
            # reach a terminal.
            lines.append(indent + printable(line, keep=" "))
        return "\n".join(few(lines, most))
