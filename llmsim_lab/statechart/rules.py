"""Users without a model: a rule that chooses among moves, and set phrases for posts.

Both are baselines to hold a model against, and what large or free runs use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from llmsim_lab.statechart.choices import Choice, Chooser, Question, check_options
from llmsim_lab.statechart.guards import interest_match
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.states import AgentState

__all__ = ["RuleReasoner", "draw", "phrase"]

_APPEAL: dict[AgentState, tuple[float, float]] = {
    AgentState.SCROLLING: (1.0, 0.0),
    AgentState.RESTING: (-1.0, 0.0),
    AgentState.IDLE: (-1.0, 0.0),
    AgentState.EVALUATING: (0.0, 1.0),
    AgentState.ENGAGING_LIKE: (0.0, 1.5),
    AgentState.ENGAGING_REPLY: (-1.0, 1.5),
    AgentState.ENGAGING_RESHARE: (-1.5, 2.0),
    AgentState.COMPOSING: (-1.5, 1.0),
}
"""A state's utility by itself, and what a full match with the user's interests adds to it.

Assumed, not estimated: passive reading is commonest, liking is cheaper than replying, and that
cheaper than passing on.
"""


def draw(*place: object) -> float:
    """Return a number from 0 to 1, the same for the same place in every process."""
    text = "/".join(map(str, place)).encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest()) / 2**56


class RuleReasoner(Chooser):
    """Chooses among moves by a logit on how well the post meets the user's interests.

    Args:
        seed: of its draws.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    async def choose_all(self, questions: Sequence[Question]) -> list[Choice]:
        """Answer several questions, in order."""
        return [Choice(self.chosen(question), "ok") for question in questions]

    def shares(self, question: Question) -> dict[AgentState, float]:
        """Return the chance of each option; they add up to 1.

        Raises:
            ValueError: there are no options.
        """
        check_options(question)
        post = question.context
        match = interest_match(question.agent, post) if isinstance(post, Post) else 0.5
        weights = {}
        for option in question.options:
            base, fit = _APPEAL[option]
            weights[option] = math.exp(base + fit * match)
        total = sum(weights.values())
        return {option: weight / total for option, weight in weights.items()}

    def chosen(self, question: Question) -> AgentState:
        """Return the option that the rule draws."""
        post = getattr(question.context, "id", None)
        left = draw(self.seed, question.turn, question.agent.name, question.trigger, post)
        for option, share in self.shares(question).items():
            left -= share
            if left < 0:
                return option
        return option


_ORIGINALS = (
    "Still thinking about {topic}. Anyone else?",
    "A small thing about {topic} made my day.",
    "Unpopular opinion about {topic}, coming soon.",
    "What should I read next about {topic}?",
)
_REPLIES = (
    "This. Exactly this.",
    "Not sure I agree about {topic}.",
    "Tell us more about {topic}!",
    "Thanks, I had not seen it that way.",
)


def phrase(post: Post, *, seed: int) -> str:
    """Return a set phrase for a reply or an original; the same place has the same phrase.

    Args:
        post: the post that is being written, without its text.
        seed: the run's.
    """
    phrases = _REPLIES if post.kind == "reply" else _ORIGINALS
    place = int(draw(seed, post.author, post.round, post.kind, post.parent) * len(phrases))
    return phrases[place].format(topic=post.topics[0] if post.topics else "this")
