"""What a configuration says of a user, and of a post."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from llmsim_lab.settings import Settings

__all__ = ["Name", "PostConfig", "ProfileConfig", "Topic"]

_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
"""Names and topics stand in prompts outside quotation marks, so they must not begin new lines."""

Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=100, pattern=_ONE_LINE)]
Topic = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, max_length=60, pattern=_ONE_LINE),
]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ProfileConfig(Settings):
    """Who a user is.

    Attributes:
        name: unique in the run.
        interests: topics.
        personality: a sentence or two, as the reasoner is told.
        activity: the chance that an idle user opens the app in a round.
        engagement_threshold: the share of a post's topics that must be among the interests for
            the user to look closely.
        timeout_threshold: rounds after which the user has been in a state too long; at least 2,
            since with 1 nobody would get to decide anything.
    """

    name: Name
    interests: Annotated[tuple[Topic, ...], Field(min_length=1)]
    personality: str = ""
    activity: _Share = 0.5
    engagement_threshold: _Share = 0.5
    timeout_threshold: Annotated[int, Field(ge=2, le=1000)] = 5


class PostConfig(Settings):
    """A post that the run begins with, or that is injected.

    Attributes:
        author: a user's name, or that of somebody outside.
        text: what it says.
        topics: what it is about.
    """

    author: Name
    text: Annotated[str, StringConstraints(min_length=1, max_length=5_000)]
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the post says nothing; give it words, or leave it out")
        return text
