"""What a run of the social simulation shows, as frames: states, moves, engagement.

All take a run's ``turns``. Cascades are in ``cascades``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.state import SocialTurn
from llmsim_lab.statechart.states import AgentState

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "agent_frame",
    "all_posts",
    "likes_of",
    "moves_frame",
    "post_frame",
    "state_frame",
    "transition_matrix",
]


def all_posts(turns: Sequence[SocialTurn]) -> dict[int, Post]:
    """Return all posts of a run by id, those it began with included."""
    first = turns[0].state
    known = {entry.post.id: entry.post for entry in first.feed}
    known |= {post.id: post for post in first.kept}
    return known | {post.id: post for turn in turns for post in turn.state.new_posts}


def likes_of(turns: Sequence[SocialTurn]) -> Counter[int]:
    """Return how often each post was liked, by its id; the first state's own counts included."""
    likes = Counter({entry.post.id: entry.likes for entry in turns[0].state.feed})
    likes.update(like.post for turn in turns[1:] for like in turn.likes)
    return likes


def state_frame(turns: Sequence[SocialTurn]) -> pd.DataFrame:
    """Return how many users are in each state: a row a round, a column a state."""
    import pandas as pd

    rows = [Counter(person.state.value for person in turn.state.people) for turn in turns]
    frame = pd.DataFrame(
        [{state.value: row[state.value] for state in AgentState} for row in rows],
        index=pd.Index([turn.number for turn in turns], name="turn"),
    )
    frame.columns.name = "state"
    return frame


def moves_frame(turns: Sequence[SocialTurn]) -> pd.DataFrame:
    """Return one row a transition.

    Columns: ``turn``, ``agent``, ``trigger``, ``source``, ``target``, ``decided_by``, ``status``,
    ``post``, the id of what it was about or missing.
    """
    import pandas as pd

    rows = [
        (
            turn.number,
            move.agent,
            move.trigger,
            move.source.value,
            move.target.value,
            move.decided_by,
            move.status,
            move.post,
        )
        for turn in turns
        for move in turn.moves
    ]
    columns = ["turn", "agent", "trigger", "source", "target", "decided_by", "status", "post"]
    return pd.DataFrame(rows, columns=columns).astype({"post": "Int64"})


def transition_matrix(turns: Sequence[SocialTurn], *, shares: bool = True) -> pd.DataFrame:
    """Return how often users went from one state to another; rows are where from.

    Args:
        turns: a run's.
        shares: of the moves out of a state, which add up to 1 in a row (a state that nobody left
            has zeros), instead of counts.
    """
    import pandas as pd

    names = [state.value for state in AgentState]
    counts = Counter((move.source.value, move.target.value) for t in turns for move in t.moves)
    matrix = pd.DataFrame(
        [[counts[source, target] for target in names] for source in names],
        index=pd.Index(names, name="source"),
        columns=pd.Index(names, name="target"),
    )
    if not shares:
        return matrix
    return matrix.div(matrix.sum(axis=1).replace(0, 1), axis=0)


def post_frame(turns: Sequence[SocialTurn]) -> pd.DataFrame:
    """Return one row a post, with what it was answered with; the index is its id.

    Columns: ``author``, ``round``, ``kind``, ``topics``, ``text``, ``likes``, ``replies``,
    ``reshares``, ``engagement`` (the three together), ``root``. What a reshare was answered with
    counts for the reshare. A run that began from a state goes on from that state's counts.
    """
    import pandas as pd

    posts = all_posts(turns)
    likes = likes_of(turns)
    first = {entry.post.id: entry for entry in turns[0].state.feed}
    old = all_posts(turns[:1]).keys()
    answers = Counter(
        (post.parent, post.kind)
        for post in posts.values()
        if post.id not in old or post.parent not in first  # else the first state has counted it
    )
    for number, entry in first.items():
        answers[number, "reply"] += entry.replies
        answers[number, "reshare"] += entry.reshares
    rows: list[dict[str, Any]] = []
    for number, post in sorted(posts.items()):
        replies, reshares = answers[number, "reply"], answers[number, "reshare"]
        rows.append(
            {
                "post": number,
                "author": post.author,
                "round": post.round,
                "kind": post.kind,
                "topics": ", ".join(post.topics),
                "text": post.text,
                "likes": likes[number],
                "replies": replies,
                "reshares": reshares,
                "engagement": likes[number] + replies + reshares,
                "root": post.root,
            }
        )
    columns = ["post", "author", "round", "kind", "topics", "text", "likes", "replies", "reshares"]
    frame = pd.DataFrame(rows, columns=[*columns, "engagement", "root"])
    return frame.astype({"root": "Int64"}).set_index("post")


def agent_frame(turns: Sequence[SocialTurn]) -> pd.DataFrame:
    """Return one row a user; the index is the name.

    Columns: ``moves``; ``decided``, of those the ones a reasoner decided; ``fallbacks``, of those
    the ones that fell back; ``posts``, ``replies``, ``reshares``, ``likes``, made; ``received``,
    likes, replies and reshares that the user's posts got; ``state``, the latest.
    """
    import pandas as pd

    moves = Counter(move.agent for turn in turns for move in turn.moves)
    asked = [m for turn in turns for m in turn.moves if m.decided_by == "reasoner"]
    decided = Counter(move.agent for move in asked)
    fallbacks = Counter(move.agent for move in asked if move.status == "fallback")
    made = Counter((post.author, post.kind) for post in all_posts(turns).values())
    likes = Counter(like.agent for turn in turns for like in turn.likes)
    received: Counter[str] = Counter()
    for author, engagement in post_frame(turns)[["author", "engagement"]].itertuples(index=False):
        received[author] += engagement
    rows = [
        {
            "agent": person.name,
            "moves": moves[person.name],
            "decided": decided[person.name],
            "fallbacks": fallbacks[person.name],
            "posts": made[person.name, "original"],
            "replies": made[person.name, "reply"],
            "reshares": made[person.name, "reshare"],
            "likes": likes[person.name],
            "received": received[person.name],
            "state": person.state.value,
        }
        for person in turns[-1].state.people
    ]
    return pd.DataFrame(rows).set_index("agent")
