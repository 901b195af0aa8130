"""What users of the social network write, answer and pass on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Post", "PostKind"]

PostKind = Literal["original", "reply", "reshare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One post.

    Attributes:
        id: unique in a run; later posts have higher ones.
        author: the name of who wrote it, or passed it on.
        text: what it says; a reshare has the text of what it passes on.
        topics: what it is about, lower case.
        round: when it was made; 0 for those that the run begins with.
        kind: whether it stands by itself, answers another, or passes it on.
        parent: the id of the post that it answers or passes on.
        root: the id of the post at the beginning of its cascade: its own for an original.
        copy_of: for a reshare, the id of the post whose text it has.
    """

    id: int
    author: str
    text: str
    topics: tuple[str, ...] = ()
    round: int = 0
    kind: PostKind = "original"
    parent: int | None = None
    root: int | None = None
    copy_of: int | None = None

    @property
    def content(self) -> int:
        """The id of the post that first said this: the own one but for a reshare."""
        return self.id if self.copy_of is None else self.copy_of

    def __str__(self) -> str:
        topics = f" [{', '.join(self.topics)}]" if self.topics else ""
        return f"{self.author}: {self.text}{topics}"
