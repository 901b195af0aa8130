"""Writes the posts: a language model, or set phrases."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN, chain_of, chain_of_failure
from llmsim_lab.prompts import Prompt
from llmsim_lab.statechart._agent import Post, SocialAgent
from llmsim_lab.statechart._reasoner import draw, format_context
from llmsim_lab.types import CallSite, Decision, LLMReasoningChain

logger = logging.getLogger(__name__)


class Draft(Decision):
    """What the model answers: the text of a post."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=600)]

    @property
    def reasoning(self) -> str:
        """The text; no reason is asked for."""
        return self.text

    confidence: ClassVar[None] = None
    """Not asked for."""


@dataclass(frozen=True, slots=True)
class PhraseWriter:
    """Fills posts with set phrases.

    Args:
        seed: of the choice among them.
    """

    seed: int = 0

    async def write(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]:
        """Return a post with its text; see ``LLMWriter.write``."""
        return replace(post, text=phrase(post, seed=self.seed)), None


class LLMWriter:
    """Lets a language model write the posts.

    Args:
        client: the model.
        seed: of the phrases that are taken where the model fails.
        prompt: a prompt with the slots of the shipped ``social_post``; that one if not given.
    """

    def __init__(self, client: LLMClient, *, seed: int = 0, prompt: Prompt | None = None) -> None:
        self.llm_client = client
        self.seed = seed
        self.prompt = prompt or Prompt.load("social_post")

    async def write(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]:
        """Return a post with its text, and how it came about.

        Args:
            agent: the author.
            post: the post, without its text.
            about: the post that it answers, or that led to it.

        Raises:
            LLMFailureException: the model cannot be reached. A timeout or a bad answer, after the
                one retry, leads to a set phrase, a WARNING and status ``fallback``.
        """
        task = "Write a reply to it." if post.kind == "reply" else "Write a new post."
        prompt = self.prompt.render(
            author=agent.name,
            interests=", ".join(agent.interests),
            personality=agent.personality,
            context=format_context(about),
            task=task,
        )
        site = CallSite(component="writer", agent=agent.name, turn=post.turn)
        try:
            draft = await self.llm_client.call_with_retry(
                prompt=prompt, response_model=Draft, site=site
            )
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            text = phrase(post, seed=self.seed)
            chain = chain_of_failure(
                failure,
                site,
                logger=logger,
                event="WRITER_FALLBACK",
                status="fallback",
                instead="fallback to a set phrase",
                text=text,
            )
            return replace(post, text=text), chain
        return replace(post, text=draft.text), chain_of(draft, site, logger=logger, prompt=prompt)


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
    """Return a set phrase for a reply or an original, always the same for the same post.

    Args:
        post: the post that is being written, without its text.
        seed: the run's.
    """
    phrases = _REPLIES if post.kind == "reply" else _ORIGINALS
    # Drawn from what the post is, not from a generator: posts are written at the same time, and the
    # order in which they are finished must not matter.
    place = int(draw(seed, post.author, post.turn, post.kind, post.parent) * len(phrases))
    return phrases[place].format(topic=post.topics[0] if post.topics else "this")
