"""A round for people: its row of the frame, what can be charted, and the round in words."""

from __future__ import annotations

from typing import Any

from llmsim_lab.runs import Series
from llmsim_lab.statechart.state import SocialTurn
from llmsim_lab.statechart.states import AgentState

__all__ = ["SERIES", "columns_of", "words_of"]

_MOST_IN_WORDS = 20

SERIES: tuple[Series, ...] = tuple(
    Series(column=name, label=name.capitalize(), unit="a round", short=name)
    for name in ("likes", "replies", "reshares", "posts")
) + tuple(
    Series(column=state.value, label=state.value.replace("_", " ").capitalize(), unit="users")
    for state in AgentState
)
"""Engagement, then the users by state."""


def columns_of(turn: SocialTurn) -> dict[str, Any]:
    """Return how many users are in each state, what they did, and what the reasoner decided.

    Columns: one for each state; ``moves``; ``asked``, ambiguous moves; ``likes``, ``posts``,
    ``replies``, ``reshares``, made in the round; ``banned``, users.
    """
    counts = dict.fromkeys((state.value for state in AgentState), 0)
    for person in turn.state.people:
        counts[person.state] += 1
    made = [post.kind for post in turn.state.new_posts]
    return {
        **counts,
        "moves": len(turn.moves),
        "asked": turn.asked,
        "likes": len(turn.likes),
        "posts": made.count("original"),
        "replies": made.count("reply"),
        "reshares": made.count("reshare"),
        "banned": sum(person.banned for person in turn.state.people),
    }


def words_of(turn: SocialTurn) -> list[str]:
    """Return how many did what, and the first few moves that were decided."""
    own = {name: value for name, value in columns_of(turn).items() if value}
    lines = ["it led to: " + ", ".join(f"{name} {value}" for name, value in own.items())]
    decided = [move for move in turn.moves if move.decided_by == "reasoner"]
    lines += [
        f"{move.agent}: {move.trigger} -> {move.target.value} ({move.status}"
        + (f", post {move.post})" if move.post is not None else ")")
        for move in decided[:_MOST_IN_WORDS]
    ]
    if len(decided) > _MOST_IN_WORDS:
        lines.append(f"and {len(decided) - _MOST_IN_WORDS} more that were decided")
    return lines
