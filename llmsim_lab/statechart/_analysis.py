"""Cascades of the social simulation: how posts travelled.

A cascade is a post, and all that answered or reshared it, and what answered that. Size, depth and
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
        ids = {post.id for post in self.posts}
        children: dict[int, list[Post]] = {}
        for post in self.posts[1:]:
            parent = post.parent
            # One from before the run began is not known; its answers are shown below the root.
            if parent is None or parent not in ids:
                parent = self.root.id
            siblings = children.setdefault(parent, [])
            siblings.append(post)
        return children

    @cached_property
    def levels(self) -> dict[int, int]:
        """How many steps each post is from the root, by id: each before what answers it."""
        # Without recursion: a chain of replies may be longer than Python's stack.
        levels: dict[int, int] = {}
        left = [(self.root, 0)]
        while left:
            post, level = left.pop()
            levels[post.id] = level
            below = self.children.get(post.id, [])
            # Reversed, since the last is taken first.
            left += [(child, level + 1) for child in reversed(below)]
        return levels

    @property
    def size(self) -> int:
        """How many posts it has, the first included."""
        return len(self.posts)

    @property
    def depth(self) -> int:
        """Steps from the root to the farthest post; 0 where no one answered."""
        return max(self.levels.values())

    @property
    def breadth(self) -> int:
        """Posts on the level that has most of them."""
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
            # A reshare has the text of another post, which stands above.
            if post.kind != "reshare":
                text = printable(post.text, keep=" ")
                line += f": {clip(text, 80)}"
            indent = "  " * level
            # Names and words come from files and models: no control character may reach a terminal.
            lines.append(indent + printable(line, keep=" "))
        return "\n".join(few(lines, most))
