"""The texts of posts: the author's prompt, and the set phrases of the rule."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.statechart._agent import Post, SocialAgent
from llmsim_lab.statechart.reasoner import draw, format_context
from llmsim_lab.types import Decision


class Draft(Decision):
    """What the model answers: the text of a post."""

    text: Annotated[
        str,
        StringConstraints(
            strip_whitespace=True,
            min_length=1,
            max_length=600,
        ),
    ]


def post_prompt(
    agent: SocialAgent,
    post: Post,
    about: Post | None,
    prompt: Prompt,
) -> RenderedPrompt:
    """Return the prompt for an author.

    Args:
        agent: the author.
        post: the post, without its text.
        about: the post that it answers, or that led to it.
        prompt: a prompt with the slots of the shipped ``social_post``.
    """
    # Not for reshares, which have the text of another post.
    task = "Write a reply to it." if post.kind == "reply" else "Write a new post."
    return prompt.render(
        author=agent.name,
        interests=", ".join(agent.interests),
        personality=agent.personality,
        context=format_context(about),
        task=task,
    )


# Short and without content, since a rule's posts are liked and reshared, not read.
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


def phrase(post: Post, *, seed: int | str) -> str:
    """Return a set phrase for a reply or an original, always the same for the same post.

    Args:
        post: the post that is being written, without its text.
        seed: of the run's players.
    """
    phrases = _REPLIES if post.kind == "reply" else _ORIGINALS
    # Drawn by the post's properties, not from a generator, since posts are written at the same time
    # and the order in which they are finished must not matter.
    share = draw(
        seed,
        post.author,
        post.turn,
        post.kind,
        post.parent,
    )
    topic = post.topics[0] if post.topics else "this"
    return phrases[int(share * len(phrases))].format(topic=topic)
